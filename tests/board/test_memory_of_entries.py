"""A process never uses cached entries that another process or handle has changed."""

import subprocess
import sys
import time

import pytest

import statelog
from statelog import reducers
from statelog.errors import LeaseLostError

OTHER = """
import statelog, sys
with statelog.open(sys.argv[1], durability="interval") as store:
    board = store.board()
    for line in sys.stdin:
        exec(line)
        print("done", flush=True)
"""


@pytest.fixture
def store(path):
    with statelog.open(path, durability="interval") as opened:
        yield opened


@pytest.fixture(params=["another process", "another handle"])
def elsewhere(request, store):
    """Runs a line that uses `store` and `board`, in another process or by another handle."""
    if request.param == "another handle":
        with statelog.open(store.path, durability="interval") as other:
            yield lambda line: exec(line, {"store": other, "board": other.board()})
        return
    command = [sys.executable, "-c", OTHER, store.path]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:

        def run(line):
            process.stdin.write(f"{line}\n")
            process.stdin.flush()
            assert process.stdout.readline() == "done\n"

        yield run
        process.communicate(timeout=60)


@pytest.mark.slow
def test_an_update_starts_from_a_value_that_was_set_elsewhere(store, elsewhere):
    board = store.board()
    board.set("count", 1)
    elsewhere('board.set("count", 10)')
    assert board.update("count", reducers.add, 1).value == 11


@pytest.mark.slow
def test_an_entry_that_was_deleted_elsewhere_can_be_created(store, elsewhere):
    board = store.board()
    board.set("a", 1)
    elsewhere('board.delete("a")')
    assert board.create("a", 2).value == 2
    assert [entry.kind for entry in board.history("a")] == ["set", "delete", "set"]


@pytest.mark.slow
def test_a_lease_that_was_taken_elsewhere_fences_nothing_here(store, elsewhere):
    board = store.board()
    lease = board.lease("name", ttl_s=0.05, auto_renew=False)
    board.set("a", 1, fence=lease)
    time.sleep(0.06)
    elsewhere('lease = board.lease("name", ttl_s=60, auto_renew=False)')
    with pytest.raises(LeaseLostError):
        board.set("a", 2, fence=lease)
    assert board.get("a").value == 1


def test_an_entry_that_was_claimed_elsewhere_is_not_claimed_here(store, elsewhere):
    board = store.board()
    board.set("a", 1)
    elsewhere('claim = board.claim("a", lease_s=60)')
    assert board.claim("a") is None
    assert board.set("a", 2).claim is not None


@pytest.mark.slow
def test_an_entry_with_a_deadline_of_elsewhere_is_swept_here(store, elsewhere):
    board = store.board()
    board.set("a", 1)
    board.set("a", 2)
    elsewhere('board.set("b", 1, ttl_s=0.05)')
    board.set("a", 3)
    time.sleep(0.06)
    board.set("a", 4)
    assert [entry.kind for entry in board.history("b")] == ["expire", "set"]


def test_a_history_that_was_removed_elsewhere_is_not_continued_from_the_cache(store, elsewhere):
    board = store.board()
    for number in range(5):
        board.set("a", number)
    board.set("gone", 1)
    board.delete("gone")
    elsewhere('board.prune("**", max_age=0)')
    version = board.set("a", 5).version
    board.create("gone", 2)
    assert [entry.value for entry in board.history("a")] == [5, 4]
    assert board.get("a").version == version
    assert store.verify().ok


def test_an_aborted_transaction_leaves_nothing_in_the_cache(store):
    board = store.board()
    board.set("a", 1)

    def abort():
        with store.transaction() as tx:
            tx.board().set("a", 2)
            tx.board().set("b", 1, ttl_s=0.01)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        abort()
    assert board.update("a", reducers.add, 1).value == 2
    assert board.create("b", 1).value == 1
    assert store.verify().ok


def test_a_write_without_effect_does_not_recreate_a_deleted_board(store):
    board = store.board()
    board.set("a", 1)
    board.delete("a")
    store.delete_thread("statelog:board")
    last_lsn = store.last_lsn
    assert board.delete("a") is False
    assert board.rollback("", to=0) == []
    assert board.sweep() == 0
    assert store.last_lsn == last_lsn
