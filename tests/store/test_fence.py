"""A fenced store: no process can commit to it, but all can read it."""

import subprocess
import sys

import forks
import pytest

import statelog
from statelog.errors import FencedError, UsageError

OTHER = """
import sys, statelog
store = statelog.open("a.state")
store.thread("t").commit({"n": 2})
print("ready", flush=True)
sys.stdin.readline()
try:
    store.thread("t").commit({"n": 3})
except statelog.errors.FencedError as error:
    print(error.facts["path"].endswith("a.state"), store.thread("t").state["n"], flush=True)
"""


@pytest.fixture
def store(tmp_path):
    with statelog.open(tmp_path / "a.state") as opened:
        for number in (0, 1):
            opened.thread("t").commit({"n": number})
        yield opened


def test_every_process_can_read_but_not_commit(store, tmp_path):
    with forks.Popen(
        [sys.executable, "-c", OTHER], cwd=tmp_path, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as other:
        assert other.stdout.readline() == "ready\n"
        store.shut_off(FencedError("taken over by worker 7", owner="worker 7"))
        print(file=other.stdin, flush=True)
        assert other.stdout.readline() == "True 2\n"
    with pytest.raises(FencedError, match="taken over by worker 7") as caught:
        store.thread("t").commit({"n": 4})
    assert caught.value.facts == {"owner": "worker 7"}
    assert store.thread("t").state["n"] == 2


def refused(store):
    calls = [
        lambda: store.thread("t").rollback(0),
        lambda: store.thread("t").fork("b"),
        lambda: store.board().set("key", 1),
        lambda: store.prune(keep_last=1),
        lambda: store.delete_thread("t"),
        store.compact,
        store.rebuild_index,
    ]
    before = list(store.log())
    for call in calls:
        with pytest.raises(FencedError):
            call()
    assert list(store.log()) == before


def test_every_write_is_refused_even_after_the_store_was_opened_again(store):
    store.shut_off(FencedError("taken over"))
    refused(store)
    store.close()
    with statelog.open(store.path) as again:
        with pytest.raises(FencedError, match="was fenced"):
            again.thread("t").commit({"n": 5})
        refused(again)
        assert again.verify().problems == []


def test_an_image_of_a_fenced_store_is_not_fenced(store, tmp_path):
    store.shut_off(FencedError("taken over"))
    store.image(tmp_path / "b.state")
    with statelog.open(tmp_path / "b.state") as image:
        image.thread("t").commit({"n": 6})


def test_a_store_is_fenced_with_a_fenced_error(store):
    with pytest.raises(UsageError, match="FencedError"):
        store.shut_off(ValueError("no"))
    store.thread("t").commit({"n": 7})
