"""`statelog migrate`."""

from __future__ import annotations

import pytest

import statelog
from statelog import reducers

MODULE = """
from statelog import reducers, versioned

chat = versioned({"memories": reducers.append}, name="chat", version=2)
chat.rename(1, "notes", "memories")
broken = versioned({"memories": reducers.append}, name="chat", version=2)
print("imported")

@broken.step(1)
def fail(state):
    raise KeyError("nobody")
"""


@pytest.fixture
def filled(path, tmp_path, monkeypatch, request):
    name = f"schemas_{abs(hash(request.node.name))}"  # A module is imported only once.
    (tmp_path / f"{name}.py").write_text(MODULE)
    monkeypatch.chdir(tmp_path)
    with statelog.open(path) as store:
        for number in range(3):
            store.thread(f"chat-{number}", schema={"notes": reducers.append}).commit({"notes": "tea"})
    return path, name


def test_migrate_reports_the_number_of_threads(run, filled):
    path, module = filled
    answer = run("migrate", path, f"{module}:chat", "--threads", "chat-*")
    assert (answer.code, answer.out) == (0, "3 threads migrated to version 2 of chat, 0 skipped, 0 threads failed\n")
    assert run("migrate", path, f"{module}:chat", "--json").document["skipped"] == 3
    with statelog.open(path) as store:
        assert store.thread("chat-1").head.stored == {"memories": ["tea"]}


def test_dry_run_shows_differences(run, filled):
    path, module = filled
    answer = run("migrate", path, f"{module}:chat", "--dry-run")
    assert answer.out.splitlines()[:2] == [
        "chat-0, main: removed notes: ['tea']",
        "chat-0, main: added memories: ['tea']",
    ]
    assert answer.out.endswith("3 threads would be migrated to version 2 of chat, 0 skipped, 0 threads failed\n")
    document = run("migrate", path, f"{module}:chat", "--dry-run", "--json").document
    assert (document["migrated"], len(document["differences"])) == (3, 6)
    with statelog.open(path) as store:
        assert store.thread("chat-1").head.schema_version == 1


def test_an_empty_pattern_does_not_mean_all_threads(run, filled):
    path, module = filled
    for option in ("--threads", "--entries"):
        assert run("migrate", path, f"{module}:chat", option, "").code == 2
    with statelog.open(path) as store:
        assert store.thread("chat-1").head.schema_version == 1


def test_failed_threads_are_named(run, filled):
    path, module = filled
    answer = run("migrate", path, f"{module}:broken")
    assert answer.code == 2
    assert "chat-1: MigrationError: schema 'chat': the step from version 1 to 2 has failed" in answer.out
    assert "3 threads could not be migrated: chat-0: " in answer.err


@pytest.mark.parametrize(
    ("schema", "told"),
    [
        ("{}", "write MODULE:NAME"),
        ("{}:", "write MODULE:NAME"),
        ("{}:reducers", "has a module as 'reducers'"),
        ("{}:nothing", "has no 'nothing'"),
        ("no_such_module:chat", "no module 'no_such_module'"),
    ],
)
def test_invalid_schemas_are_named(run, filled, schema, told):
    path, module = filled
    answer = run("migrate", path, schema.format(module))
    assert answer.code == 2
    assert told in answer.err.replace("\n", " ")


def test_entries_are_migrated_instead_of_threads(run, filled):
    path, module = filled
    with statelog.open(path) as store:
        for number in range(2):
            store.board().set(f"chats/{number}", {"notes": ["tea"]})
    answer = run("migrate", path, f"{module}:chat", "--entries", "chats/*", "--dry-run")
    assert answer.out.splitlines()[0] == "chats/0: added memories: ['tea']"
    assert "chats/0: KeyError" in run("migrate", path, f"{module}:broken", "--entries", "chats/*").out.replace(
        "MigrationError: entry 'chats/0': schema 'chat': the step from version 1 to 2 has failed: ", ""
    )
    answer = run("migrate", path, f"{module}:chat", "--entries", "chats/*")
    assert (answer.code, answer.out) == (0, "2 entries migrated to version 2 of chat, 0 skipped, 0 entries failed\n")
    with statelog.open(path) as store:
        assert store.board().get("chats/1").value == {"memories": ["tea"]}
        assert store.thread("chat-1").head.schema_version == 1
    assert run("board", "get", path, "chats/1", "--json").document["schema_version"] == 2
    assert run("migrate", path, f"{module}:chat", "--entries", "chats/*", "--threads", "*").code == 2
