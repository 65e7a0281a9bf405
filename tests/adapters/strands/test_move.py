"""`statelog import-sessions strands:...`: every key of a folder, byte for byte, a session in one transaction."""

from __future__ import annotations

import asyncio

import pytest

pytest.importorskip("strands", exc_type=ImportError)

from strands import Agent
from strands.session.snapshot_session_manager import SnapshotSessionManager
from strands.storage import LocalFileStorage

import statelog
from statelog.adapters.kit.migration import move
from statelog.adapters.strands import StatelogStorage
from statelog.adapters.strands.move import opened
from statelog.cli import main
from statelog.errors import ConflictError, FormatError

SESSIONS = ["session/a", "session/b-2", "team/session/c"]
BESIDE = {"memory/notes/é.md": b"remember\xff", "stash/a/1": b""}


def agent(storage, session):
    manager = SnapshotSessionManager(session, storage=storage, snapshot_trigger=lambda **_given: True)
    return Agent(agent_id="assistant", session_manager=manager, callback_handler=None), manager


async def fill(storage, sessions=("a", "b-2")):
    for session in sessions:
        made, manager = agent(storage, session)
        for turn in range(4):
            made.messages.append({"role": "user", "content": [{"text": f"{session} {turn} é"}]})
            made.messages.append({"role": "assistant", "content": [{"text": f"answer {turn}"}]})
            await manager.save_snapshot(made, is_latest=False)
            await manager.save_snapshot(made, is_latest=True)


@pytest.fixture
def folder(tmp_path):
    storage = LocalFileStorage(str(tmp_path / "strands"))

    async def make():
        await fill(storage)
        for key, data in BESIDE.items():
            await storage.write(key, data)
        await storage.write("team/session/c/notes", b"of the session")
        for key in await storage.list("session/a"):
            await storage.write(key.replace("session/a", "team/session/c"), await storage.read(key))

    asyncio.run(make())
    return tmp_path / "strands"


@pytest.fixture
def store(tmp_path):
    with statelog.open(tmp_path / "s") as opened_store:
        yield opened_store
        assert opened_store.verify().ok


def moved(folder, store):
    with opened(folder) as source:
        return move(source, store)


def bytes_of(folder):
    return {str(file.relative_to(folder)): file.read_bytes() for file in folder.rglob("*") if file.is_file()}


def content(storage):
    async def read():
        return {key: await storage.read(key) for key in await storage.list()}

    return asyncio.run(read())


def test_every_key_is_copied_and_a_second_move_copies_none(folder, store):
    before = bytes_of(folder)
    for copied in (5, 0):
        report = moved(folder, store)
        assert (report.found, report.copied, report.left_out) == (5, copied, ())
    assert bytes_of(folder) == before
    assert content(StatelogStorage(store)) == before
    with opened(folder) as source:
        assert sorted(source.names()) == sorted([*SESSIONS, *BESIDE])


def test_an_agent_goes_on_and_snapshots_are_versions(folder, store):
    moved(folder, store)
    made, manager = agent(StatelogStorage(store), "a")
    assert [message["content"][0]["text"] for message in made.messages[::2]] == [f"a {turn} é" for turn in range(4)]
    ids = asyncio.run(manager.list_snapshot_ids(made))
    assert len(ids) == 4
    assert asyncio.run(manager.restore_snapshot(made, snapshot_id=ids[0]))
    assert len(made.messages) == 2
    thread = "strands:session%2Fa%2Fscopes%2Fagent%2Fassistant%2Fsnapshots"
    assert len(list(store.thread(thread).history())) == 5


def test_another_session_of_that_id_is_left_alone_and_all_others_are_copied(folder, store):
    asyncio.run(fill(StatelogStorage(store), ["a"]))
    mine = content(StatelogStorage(store))
    report = moved(folder, store)
    assert report.copied == 4
    assert [(left.name, type(left.error)) for left in report.left_out] == [("session/a", ConflictError)]
    now = content(StatelogStorage(store))
    assert {key: data for key, data in now.items() if key.startswith("session/a/")} == mine


def test_a_move_that_was_cut_off_goes_on(folder, store):
    with opened(folder) as source:
        for name in source.names()[:2]:
            assert source.copy(name, store)
    report = moved(folder, store)
    assert (report.found, report.copied, report.left_out) == (5, 3, ())


@pytest.mark.parametrize("damage", [b"", b"{", b"[]", b'{"schema_version": "1.0"}', b"\xff"])
def test_a_session_with_a_damaged_snapshot_is_left_out_and_named(folder, store, damage):
    [file] = (folder / "session" / "a").rglob("snapshot_latest.json")
    file.write_bytes(damage)
    report = moved(folder, store)
    assert [(left.name, type(left.error)) for left in report.left_out] == [("session/a", FormatError)]
    assert not [key for key in content(StatelogStorage(store)) if key.startswith("session/a")]


def test_a_foreign_folder_is_told(tmp_path):
    folder = tmp_path / "foreign"
    folder.mkdir()
    (folder / "x.json").write_bytes(b"{}")
    for path in (folder, folder / "x.json"):
        with pytest.raises(FormatError, match="is not a folder with sessions of Strands"), opened(path):
            pass


def test_the_command_reports_what_it_copied(tmp_path, folder, capsys):
    with pytest.raises(SystemExit) as ended:
        main(["import-sessions", f"strands:{folder}", str(tmp_path / "s")])
    assert ended.value.code == 0
    assert "5 items, read back and equal" in " ".join(capsys.readouterr().out.split())
