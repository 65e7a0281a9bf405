"""Names of files: what only looks like one is refused with what to do, and a working directory may be gone."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

import forks
import pytest

import statelog
from statelog import aio
from statelog.errors import StoreNotFoundError, UsageError
from statelog.fleet import connect

NAMES = {
    ":memory:": "tempfile",
    "file:x.state?mode=ro": "read_only=True",
    "file::memory:?cache=shared": "read_only=True",
    "file:///srv/x.state": "read_only=True",
    "sqlite:checkpoints.db": "import-langgraph",
    "sqlite:///checkpoints.db": "import-langgraph",
    "postgresql://user@host/database": "fleet.connect",
    "s3://bucket/agents": "fleet.connect",
}


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("kind", [str, Path])
def test_invalid_paths_are_refused_with_advice(folder, name, kind):
    async def open_on_asyncio():
        async with aio.open(kind(name)):
            pass

    calls = [
        lambda: statelog.open(kind(name)),
        lambda: statelog.open(kind(name), read_only=True),
        lambda: statelog.open(kind(name), create=False),
        lambda: asyncio.run(open_on_asyncio()),
        lambda: statelog.recover(kind(name)),
    ]
    for call in calls:
        with pytest.raises(UsageError, match=NAMES[name]) as caught:
            call()
        assert caught.value.argument == "path"
    assert list(folder.iterdir()) == []


@pytest.mark.parametrize("name", NAMES)
def test_no_image_and_no_restored_file_is_named_so(folder, name):
    (folder / "bucket").mkdir()
    with connect((folder / "bucket").as_uri(), cache=folder / "cache") as fleet, fleet.open("s") as store:
        store.thread("t").commit({"n": 1})
        for call in (lambda: store.image(name), lambda: fleet.restore("s", name)):
            with pytest.raises(UsageError, match=NAMES[name]):
                call()
    assert {each.name for each in folder.iterdir()} == {"bucket", "cache"}


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_the_command_refuses_it_likewise(folder, name):
    cli = str(Path(sys.executable).with_name("statelog"))
    for command in (["threads", name], ["verify", name], ["board", "set", name, "k", "1"]):
        done = forks.run([cli, *command], cwd=folder, capture_output=True, text=True, check=False)
        assert (done.returncode, done.stdout) == (2, "")
        assert NAMES[name] in " ".join(done.stderr.split())
    assert list(folder.iterdir()) == []


@pytest.mark.usefixtures("folder")
def test_a_file_may_have_any_name():
    for name in ("./:memory:", "./file:x.state", "memory", "a:b.state", ":memory:.state", "c:x"):
        with statelog.open(name) as store:
            store.thread("t").commit({"n": 1})
        assert Path(name).is_file()


# --- a working directory that is gone ------------------------------------------------------

PROGRAM = """
import os, sys, tempfile
folder = tempfile.mkdtemp()
os.mkdir(folder + "/gone"); os.chdir(folder + "/gone"); os.rmdir(folder + "/gone")
import statelog
from statelog import aio
from statelog.errors import StatelogError, StoreNotFoundError
from statelog.fleet import connect
from pathlib import Path
"""


def run(program, folder):
    done = forks.run(
        [sys.executable, "-c", PROGRAM + program, str(folder)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    "call",
    [
        "statelog.open('a.state')",
        "statelog.open(Path('a.state'), read_only=True)",
        "statelog.open('./x/a.state', create=False)",
        "statelog.recover('a.state')",
    ],
)
def test_a_relative_path_is_not_found(tmp_path, call):
    run(f"try: {call}\nexcept StoreNotFoundError as error: assert 'working directory' in str(error)", tmp_path)


@pytest.mark.slow
def test_a_whole_path_is_opened_all_the_same(tmp_path):
    run(
        "with statelog.open(sys.argv[1] + '/a.state') as store:\n"
        "    store.thread('t').commit({'n': 1})\n"
        "    assert store.verify().ok\n"
        "    store.compact()\n"
        "    store.image(sys.argv[1] + '/image.state')\n",
        tmp_path,
    )
    with statelog.open(tmp_path / "image.state") as store:
        assert store.thread("t").state == {"n": 1}


@pytest.mark.slow
def test_other_doors_raise_errors_of_ours(tmp_path):
    (tmp_path / "bucket").mkdir()
    run(
        f"url = {(tmp_path / 'bucket').as_uri()!r}\n"
        "def refused(call):\n"
        "    try: call()\n"
        "    except StatelogError: return True\n"
        "assert refused(lambda: connect(url, cache='cache'))\n"
        "with connect(url, cache=sys.argv[1] + '/cache') as fleet:\n"
        "    with fleet.open('s') as store:\n"
        "        store.thread('t').commit({'n': 1})\n"
        "        assert refused(lambda: store.image('image.state'))\n"
        "    assert refused(lambda: fleet.restore('s', 'restored.state'))\n",
        tmp_path,
    )


@pytest.mark.slow
@pytest.mark.parametrize(
    "command", ["threads a.state", "verify a.state", "export a.state", "stat a.state", "compact a.state"]
)
def test_a_command_reports_missing_parts(tmp_path, command):
    cli = str(Path(sys.executable).with_name("statelog"))
    gone = tmp_path / "gone"
    gone.mkdir()
    script = f"import os, sys; os.chdir({str(gone)!r}); os.rmdir({str(gone)!r}); os.execv(sys.argv[1], sys.argv[1:])"
    done = forks.run([sys.executable, "-c", script, cli, *command.split()], capture_output=True, text=True, check=False)
    assert done.returncode == StoreNotFoundError.exit_code
    assert "the working directory was removed" in done.stderr
    with statelog.open(tmp_path / "whole.state") as store:
        store.thread("t").commit({"n": 1})
    gone.mkdir()
    whole = [command.split()[0], str(tmp_path / "whole.state")]
    done = forks.run([sys.executable, "-c", script, cli, *whole], capture_output=True, check=False)
    assert done.returncode == 0, done.stderr
