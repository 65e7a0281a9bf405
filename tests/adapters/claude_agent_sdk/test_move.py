"""`statelog import-sessions claude:...`: transcripts of Claude Code, with those of subagents."""

from __future__ import annotations

import asyncio
import json
import os
import uuid

import pytest

pytest.importorskip("claude_agent_sdk", exc_type=ImportError)

from claude_agent_sdk import (
    InMemorySessionStore,
    get_session_messages,
    get_session_messages_from_store,
    import_session_to_store,
    list_sessions_from_store,
)

import statelog
from statelog.adapters.claude_agent_sdk import StatelogSessionStore
from statelog.adapters.claude_agent_sdk.move import opened
from statelog.adapters.kit.migration import move
from statelog.cli import main
from statelog.errors import ConflictError, FormatError

A, B, SAME = (str(uuid.UUID(int=number)) for number in (1, 2, 3))
PROJECT = "-srv-ann-shop"
SUBPATH = "subagents/agent-x"


def entry(session, number, **fields):
    role = "assistant" if number % 2 else "user"
    return {
        "parentUuid": f"{session}-{number - 1}" if number else None,
        "type": role,
        "uuid": f"{session}-{number}",
        "timestamp": f"2026-01-01T00:00:{number:02d}Z",
        "sessionId": session,
        "cwd": "/srv/ann/shop",
        "message": {"role": role, "content": f"{session} é {number}"},
        **fields,
    }


def transcript(session):
    return [{"type": "queue", "z": 1, "a": 2}, *(entry(session, number) for number in range(6)), {"type": "queue"}]


def write(file, entries):
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text("".join(f"{json.dumps(each)}\n" for each in entries))


@pytest.fixture
def projects(tmp_path):
    folder = tmp_path / "projects"
    for number, (project, session) in enumerate(((PROJECT, B), (PROJECT, A), (PROJECT, SAME), ("other", SAME))):
        write(folder / project / f"{session}.jsonl", transcript(session)[: 8 - number])
        os.utime(folder / project / f"{session}.jsonl", (number, number))
    write(folder / PROJECT / A / f"{SUBPATH}.jsonl", [entry(A, 7, isSidechain=True, agentId="x")])
    (folder / PROJECT / A / f"{SUBPATH}.meta.json").write_text('{"agentType": "reader"}')
    (folder / PROJECT / f"{uuid.UUID(int=9)}.jsonl").touch()
    write(folder / PROJECT / "notes.jsonl", [])
    return folder


@pytest.fixture
def store(tmp_path):
    with statelog.open(tmp_path / "s") as opened_store:
        yield opened_store
        assert opened_store.verify().ok


def moved(projects, store):
    with opened(projects) as source:
        return move(source, store)


def bytes_of(folder):
    return {str(file.relative_to(folder)): file.read_bytes() for file in folder.rglob("*") if file.is_file()}


def load(store, session, project=PROJECT, **fields):
    key = {"project_key": project, "session_id": session, **fields}
    return asyncio.run(StatelogSessionStore(store).load(key))


def test_sessions_are_copied_and_a_second_move_copies_none(projects, store):
    before = bytes_of(projects)
    for copied in (4, 0):
        report = moved(projects, store)
        assert (report.found, report.copied, report.left_out) == (4, copied, ())
    assert bytes_of(projects) == before
    assert load(store, B) == transcript(B)
    assert list(load(store, B)[0]) == ["type", "z", "a"]
    assert (load(store, SAME), load(store, SAME, "other")) == (transcript(SAME)[:6], transcript(SAME)[:5])


def test_subagents_are_copied_with_their_session_as_the_sdk_imports_them(projects, store, monkeypatch):
    moved(projects, store)
    monkeypatch.setenv("CLAUDE_CONFIG_DIR", str(projects.parent))
    theirs, key = InMemorySessionStore(), {"project_key": PROJECT, "session_id": A}
    asyncio.run(import_session_to_store(A, theirs))
    assert load(store, A) == asyncio.run(theirs.load(key))
    assert load(store, A, subpath=SUBPATH) == asyncio.run(theirs.load({**key, "subpath": SUBPATH}))
    assert load(store, A, subpath=SUBPATH)[-1] == {"agentType": "reader", "type": "agent_metadata"}


def test_the_sdk_reads_the_same_from_the_store_and_from_files(projects, store, monkeypatch):
    moved(projects, store)
    monkeypatch.setenv("CLAUDE_CONFIG_DIR", str(projects.parent))
    ours = StatelogSessionStore(store)
    read = asyncio.run(get_session_messages_from_store(ours, B, directory="/srv/ann/shop"))
    assert read == get_session_messages(B)
    assert len(read) == 6
    listed = asyncio.run(list_sessions_from_store(ours, directory="/srv/ann/shop"))
    assert {each.session_id for each in listed} == {A, B, SAME}


def test_a_single_project_can_be_copied(projects, store):
    assert moved(projects / PROJECT, store).copied == 3
    assert load(store, B) == transcript(B)


def test_the_environment_variable_is_unchanged(projects, store, monkeypatch):
    monkeypatch.setenv("CLAUDE_CONFIG_DIR", "mine")
    moved(projects, store)
    assert os.environ["CLAUDE_CONFIG_DIR"] == "mine"
    monkeypatch.delenv("CLAUDE_CONFIG_DIR")
    moved(projects, store)
    assert "CLAUDE_CONFIG_DIR" not in os.environ


def test_a_different_session_with_the_same_id_is_kept_and_all_others_are_copied(projects, store):
    key = {"project_key": PROJECT, "session_id": A}
    asyncio.run(StatelogSessionStore(store).append(key, [entry(A, 0)]))
    report = moved(projects, store)
    assert report.copied == 3
    assert [(left.name, type(left.error)) for left in report.left_out] == [(f"{PROJECT}/{A}", ConflictError)]
    assert load(store, A) == [entry(A, 0)]
    assert load(store, A, subpath=SUBPATH) is None


def test_a_repeated_uuid_is_stored_once(projects, store):
    write(projects / PROJECT / f"{B}.jsonl", [*transcript(B), entry(B, 0, again=True)])
    for copied in (4, 0):
        assert moved(projects, store).copied == copied
    assert load(store, B) == transcript(B)


def test_an_interrupted_move_continues(projects, store):
    with opened(projects) as source:
        for name in source.names()[:2]:
            assert source.copy(name, store)
    report = moved(projects, store)
    assert (report.found, report.copied, report.left_out) == (4, 2, ())


@pytest.mark.parametrize("damage", ["{\n", "[1]", "1", '{"a": NaN}', "{\n{}\n"])
@pytest.mark.parametrize("file", [f"{A}.jsonl", f"{A}/{SUBPATH}.jsonl"])
def test_a_damaged_session_is_left_out_and_named(projects, store, damage, file):
    with (projects / PROJECT / file).open("a") as opened_file:
        opened_file.write(damage)
    report = moved(projects, store)
    assert report.copied == 3
    assert [left.name for left in report.left_out] == [f"{PROJECT}/{A}"]
    assert load(store, A) is None
    assert load(store, A, subpath=SUBPATH) is None


@pytest.mark.parametrize("file", [f"{A}.jsonl", f"{A}/{SUBPATH}.jsonl"])
def test_a_truncated_last_line_is_left_out_and_reported(projects, store, file):
    path = projects / PROJECT / file
    whole = path.read_text()
    half = json.dumps(entry(A, 9), ensure_ascii=False).encode()
    path.write_bytes(whole.encode() + half[: half.index("é".encode()) + 1])
    report = moved(projects, store)
    assert (report.copied, report.left_out) == (4, ())
    assert report.remarks == (f"{path}: skipped the last line, which was cut off while it was being written",)
    assert load(store, A) == transcript(A)[:7]
    assert load(store, A, subpath=SUBPATH)[0]["uuid"] == f"{A}-7"


@pytest.mark.parametrize(
    ("line", "said"), [("{", "is not JSON"), ("   ", "is not JSON"), ("[1]", "is not a JSON object")]
)
def test_a_damaged_line_is_named(projects, store, line, said):
    path = projects / PROJECT / f"{A}.jsonl"
    path.write_text(f"{{}}\n{line}\n{{}}\n")
    (left,) = moved(projects, store).left_out
    assert f"{path}, line 2, {said}" in str(left.error)
    assert left.error.facts["line"] == 2


def test_a_session_with_only_a_truncated_line_is_named(projects, store):
    path = projects / PROJECT / f"{A}.jsonl"
    path.write_text(json.dumps(entry(A, 0))[:40])
    (left,) = moved(projects, store).left_out
    assert str(left.error).startswith(f"{path} has no entries")


@pytest.mark.parametrize("text", ["[1, 2]\n", "no JSON\n"])
def test_files_of_tools_are_ignored(projects, store, text):
    folder = projects / PROJECT / A / "tool-results"
    folder.mkdir()
    (folder / "rows.jsonl").write_text(text)
    report = moved(projects, store)
    assert (report.copied, report.left_out, report.remarks) == (4, (), ())


def test_a_session_that_has_grown_gets_its_new_entries(projects, store):
    write(projects / PROJECT / f"{A}.jsonl", transcript(A)[:4])
    moved(projects, store)
    write(projects / PROJECT / f"{A}.jsonl", transcript(A))
    write(projects / PROJECT / A / f"{SUBPATH}.jsonl", [entry(A, 7, isSidechain=True, agentId="x"), entry(A, 8)])
    write(projects / PROJECT / A / "subagents" / "agent-y.jsonl", [entry(A, 9)])
    report = moved(projects, store)
    assert (report.copied, report.left_out) == (1, ())
    assert "has grown since it was imported" in report.remarks[0]
    assert load(store, A) == transcript(A)
    assert [each.get("uuid") for each in load(store, A, subpath=SUBPATH)] == [f"{A}-7", None, f"{A}-8"]
    assert load(store, A, subpath="subagents/agent-y") == [entry(A, 9)]
    assert moved(projects, store).copied == 0


def test_a_session_that_grew_after_an_interrupted_import_is_complete(projects, store):
    path = projects / PROJECT / f"{A}.jsonl"
    write(path, transcript(A))
    whole = path.read_text()
    path.write_text(whole[:-10])
    moved(projects, store)
    path.write_text(whole)
    assert moved(projects, store).copied == 1
    assert load(store, A) == transcript(A)


def test_changed_metadata_of_a_subagent_is_added_once(projects, store):
    moved(projects, store)
    (projects / PROJECT / A / f"{SUBPATH}.meta.json").write_text('{"agentType": "writer"}')
    for copied in (1, 0):
        assert moved(projects, store).copied == copied
    assert [each.get("agentType") for each in load(store, A, subpath=SUBPATH)][1:] == ["reader", "writer"]


def test_a_session_that_lost_entries_is_unchanged_in_the_store(projects, store):
    moved(projects, store)
    write(projects / PROJECT / f"{B}.jsonl", transcript(B)[:3])
    assert [type(left.error) for left in moved(projects, store).left_out] == [ConflictError]
    assert load(store, B) == transcript(B)


def test_a_session_without_an_entry_is_left_out(projects, store):
    (projects / PROJECT / f"{A}.jsonl").write_text("\n")
    assert [(left.name, type(left.error)) for left in moved(projects, store).left_out] == [
        (f"{PROJECT}/{A}", FormatError)
    ]
    assert load(store, A, subpath=SUBPATH) is None


def test_a_foreign_folder_is_refused(tmp_path):
    folder = tmp_path / "foreign"
    write(folder / "project" / "x.jsonl", [{}])
    for path in (folder, folder / "project" / "x.jsonl"):
        with pytest.raises(FormatError, match="is not a projects folder of Claude Code"), opened(path):
            pass


def test_the_command_reports_the_number_of_copies(tmp_path, projects, capsys):
    with pytest.raises(SystemExit) as ended:
        main(["import-sessions", f"claude:{projects}", str(tmp_path / "s")])
    assert ended.value.code == 0
    assert "4 sessions, read back and equal" in " ".join(capsys.readouterr().out.split())
