from __future__ import annotations

import importlib.metadata
import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import click
import forks
import lmdb
import pytest

import statelog
from statelog import errors
from statelog.cli import exits, main
from statelog.format.header import FORMAT_VERSION
from statelog.storage.options import Options

READERS = [
    ["threads"],
    ["history", "t"],
    ["show", "t"],
    ["diff", "t"],
    ["log"],
    ["tag", "t"],
    ["stat"],
    ["verify"],
]
WRITERS = [["rollback", "t", "0"], ["fork", "t", "b"], ["copy", "t", "u"], ["tag", "t", "name"], ["rebuild-index"]]
ERRORS = [kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, errors.StatelogError)]


def on(path, command, thread="t"):
    return [command[0], path, *(thread if word == "t" else word for word in command[1:])]


@pytest.mark.parametrize("command", READERS + WRITERS, ids=lambda command: command[0])
def test_a_missing_file_is_not_created(run, tmp_path, command):
    answer = run(*on(tmp_path / "none.state", command))
    assert answer.code == errors.StoreNotFoundError.exit_code
    assert answer.err == f"statelog: no store at {tmp_path / 'none.state'}\n"
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
@pytest.mark.parametrize("command", ["threads", "verify", "salvage"])
def test_facts_of_errors_in_a_child_process_are_shown(run, tmp_path, command):
    missing = tmp_path / "none.state"
    answer = run(command, missing, *([tmp_path / "new.state"] if command == "salvage" else []), "--json")
    told = json.loads(answer.err)
    assert (answer.code, told["exit_code"], told["facts"]["path"]) == (11, 11, str(missing))
    assert "exit_code" not in told["facts"]


def test_an_error_about_damage_names_the_commands_that_help(run, state, monkeypatch):
    def fail(*_arguments, **_options):
        raise errors.CorruptionError("record 3: checksum mismatch", lsn=3)

    monkeypatch.setattr(statelog, "open", fail)
    answer = run("threads", state)
    assert answer.code == 7
    assert answer.err.startswith("statelog: record 3: checksum mismatch (`statelog verify STORE` ")
    assert "`statelog salvage STORE NEW`" in answer.err


@pytest.mark.parametrize("command", READERS + WRITERS, ids=lambda command: command[0])
def test_a_foreign_file_is_reported_as_not_a_store(run, tmp_path, command):
    foreign = tmp_path / "notes.txt"
    foreign.write_text("not a store " * 1000)
    answer = run(*on(foreign, command))
    assert (answer.code, answer.out) == (6, "")
    assert answer.err == f"statelog: {foreign} is not a statelog store\n"


@pytest.mark.parametrize("command", READERS + WRITERS, ids=lambda command: command[0])
def test_a_truncated_file_is_reported_as_damaged(run, state, command):
    os.truncate(state, 8192 + 4096)
    answer = run(*on(state, command))
    assert (answer.code, answer.out.startswith("{")) == (7, False)
    assert answer.err.startswith(f"statelog: {state} is damaged: ")
    assert answer.err.count("\n") == 1


@pytest.mark.parametrize("command", [command for command in READERS + WRITERS if "t" in command], ids=lambda c: c[0])
def test_an_unknown_thread_is_not_found(run, state, command):
    answer = run(*on(state, command, "ticket-24"))
    assert (answer.code, answer.out) == (3, "")
    assert answer.err == f"statelog: no thread 'ticket-24' in {state}: did you mean 'ticket-42'?\n"


@pytest.mark.slow
def test_a_store_that_another_process_writes_is_locked(run, state, monkeypatch):
    holder = forks.Popen(
        [sys.executable, "-c", _HOLD_WRITER_LOCK, str(state)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    with holder:
        assert holder.stdout.readline() == b"held\n"
        monkeypatch.setitem(Options._field_defaults, "lock_timeout_s", 0.05)
        monkeypatch.setattr(Options.__new__, "__defaults__", tuple(Options._field_defaults.values()))
        answer = run("tag", state, "ticket-42", "name")
        holder.stdin.close()
    assert (answer.code, answer.out) == (9, "")
    assert answer.err == f"statelog: {state} was locked by another process for 0.05 s\n"


_HOLD_WRITER_LOCK = """
import sys
from statelog.storage import StoreFile
locks = StoreFile.open(sys.argv[1]).lmdb_file.locks
locks.acquire_writer(10)
print("held", flush=True)
sys.stdin.read()
locks.release_writer()
"""


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_a_file_without_permission_is_an_access_error(run, state):
    state.chmod(0)
    answer = run("threads", state)
    assert (answer.code, answer.out) == (10, "")


@pytest.mark.parametrize("kind", ERRORS, ids=lambda kind: kind.__name__)
def test_every_error_is_one_line_and_its_exit_code(run, state, monkeypatch, kind):
    def fail(*_arguments, **_options):
        raise kind("what\nhappened\x1b[31m", path="p")

    monkeypatch.setattr(statelog, "open", fail)
    answer = run("threads", state)
    assert (answer.code, answer.out, answer.err.count("\n")) == (kind.exit_code, "", 1)
    assert re.fullmatch(r"statelog: what\\nhappened\\x1b\[31m( \(`statelog verify p` .*\))?\n", answer.err)


@pytest.mark.parametrize("kind", ERRORS, ids=lambda kind: kind.__name__)
def test_help_explains_every_exit_code(run, kind):
    assert f"\n  {kind.exit_code:>5}  " in run("--help").out


def test_an_internal_error_is_one_line(run, state, monkeypatch):
    monkeypatch.delenv("STATELOG_TRACEBACK", raising=False)
    monkeypatch.setattr(statelog, "open", lambda *_arguments, **_options: 1 / 0)
    answer = run("threads", state)
    assert (answer.code, answer.out) == (exits.INTERNAL, "")
    assert answer.err.startswith("statelog: internal error: ZeroDivisionError: division by zero (set ")


@pytest.mark.parametrize(
    "arguments",
    [["nonsense"], ["threads"], ["threads", "x", "--nonsense"], ["log", "x", "--after", "-1"], ["--nonsense"]],
    ids=" ".join,
)
def test_wrong_usage_is_one_line(run, arguments):
    answer = run(*arguments)
    assert (answer.code, answer.out, answer.err.count("\n")) == (2, "", 1)
    assert "--help)" in answer.err


@pytest.mark.slow
@pytest.mark.parametrize(
    ("arguments", "kind", "code"),
    [
        (["history", "STATE", "nobody"], "ThreadNotFoundError", 3),
        (["threads", "none.state"], "StoreNotFoundError", 11),
        (["log", "STATE", "--after", "-1"], "UsageError", 2),
        (["retain", "STATE"], "UsageError", 2),
        (["verify", "none.state"], "StoreNotFoundError", 11),
        (["nonsense"], "UsageError", 2),
    ],
    ids=lambda part: " ".join(part) if isinstance(part, list) else str(part),
)
def test_with_json_an_error_is_one_object_on_stderr(run, state, arguments, kind, code):
    answer = run(*(state if argument == "STATE" else argument for argument in arguments), "--json")
    document = json.loads(answer.err)
    assert (answer.code, answer.out, answer.err.count("\n")) == (code, "", 1)
    assert (document["kind"], document["exit_code"]) == (kind, code)
    assert document["error"]
    plain = run(*(state if argument == "STATE" else argument for argument in arguments))
    assert (plain.code, plain.err) == (code, f"statelog: {document['error']}\n")


def test_with_json_an_error_has_its_facts(run, state):
    document = json.loads(run("show", state, "ticket-42", "--at", "77", "--json").err)
    assert document["facts"] == {"thread": "ticket-42", "branch": "main", "target": 77}


def test_a_newer_format_has_its_own_exit_code(run, state, monkeypatch):
    monkeypatch.setattr("statelog.format.header.FORMAT_VERSION", 0)
    answer = run("threads", state)
    assert (answer.code, answer.out) == (12, "")
    assert "has format 7" in answer.err


@pytest.mark.skipif(not Path("/proc/self/mem").exists(), reason="a file of Linux")
@pytest.mark.parametrize("command", READERS + WRITERS, ids=lambda command: command[0])
def test_a_file_that_cannot_be_read_is_named(run, command):
    answer = run(*on("/proc/self/mem", command))
    assert (answer.code, answer.out) == (8, "")
    assert re.fullmatch(r"statelog: /proc/\d+/mem: Input/output error\n", answer.err)


def test_without_a_command_help_is_shown(run):
    answer = run()
    assert answer.code == 0
    assert answer.out == run("--help").out


@pytest.mark.parametrize("name", sorted(main.commands))
def test_every_command_has_help_and_json(run, name):
    command = main.commands[name]
    for words in [[name, each] for each in command.commands] if isinstance(command, click.Group) else [[name]]:
        answer = run(*words, "--help")
        assert answer.code == 0
        assert "--json" in answer.out


def test_the_version_shows_the_release_its_formats_and_its_dependencies(run, state):
    told = dict(line.split(" ", 1) for line in run("--version").out.splitlines())
    assert told["statelog"] == importlib.metadata.version("statelog")
    with statelog.open(state) as store:
        written = store._engine.store_file.lmdb_file.header["format"]
    assert told["format"] == f"{written} (reads 1 to {FORMAT_VERSION})"
    native = ".".join(map(str, lmdb.version()))
    assert told["lmdb"] == f"{importlib.metadata.version('lmdb')} (LMDB {native})"


def test_the_changelog_names_the_release_and_every_format():
    page = (Path(statelog.__file__).parent / "CHANGELOG.md").read_text(encoding="utf-8")
    assert re.search(r"^## (.*)$", page, re.MULTILINE).group(1) == importlib.metadata.version("statelog")
    rows = re.findall(r"^\| (\d+) \|", page, re.MULTILINE)
    assert [int(row) for row in rows] == list(range(FORMAT_VERSION, 0, -1))


def test_ctrl_c_ends_a_command_silently(start, state):
    handler = signal.signal(signal.SIGINT, signal.default_int_handler)  # A background job ignores the signal, and then
    try:  # its children ignore it as well.
        process = start("log", state, "--follow")
    finally:
        signal.signal(signal.SIGINT, handler)
    assert process.stdout.readline()
    process.send_signal(signal.SIGINT)
    _out, err = process.communicate(timeout=300)
    assert (process.returncode, err) == (exits.INTERRUPTED, "")


@pytest.mark.slow
@pytest.mark.parametrize("option", ["--json", "--full"])
def test_a_closed_output_pipe_ends_the_command_silently(start, path, option):
    with statelog.open(path) as store:
        store.thread("t").commit({"text": "x" * 1_000_000})
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
    process = start("show", path, "t", option, env=environment)  # Without buffering, Python does not see it.
    assert process.stdout.read(1)
    process.stdout.close()
    assert process.wait(300) == exits.BROKEN_PIPE
    assert "statelog: " not in process.stderr.read()


@pytest.mark.slow
@pytest.mark.skipif(not Path("/dev/full").exists(), reason="a device of Linux")
@pytest.mark.parametrize("unbuffered", ["", "1"])
@pytest.mark.parametrize("command", ["threads", "log", "--version", "--help"])
def test_output_to_a_full_device_is_a_storage_error(start, state, monkeypatch, command, unbuffered):
    monkeypatch.setenv("PYTHONUNBUFFERED", unbuffered)
    with Path("/dev/full").open("w") as full:
        process = start(command, *([] if command.startswith("-") else [state]), stdout=full)
        _out, err = process.communicate(timeout=300)
    assert (process.returncode, err) == (8, "statelog: output: No space left on device\n")


@pytest.mark.slow
def test_closed_streams_are_not_a_failure(state):
    command = [sys.executable, "-m", "statelog", "threads", str(state)]
    shell = ["sh", "-c", '"$@" >&- 2>&-', "sh", *command]
    assert subprocess.run(shell, check=False, timeout=600).returncode == 0


@pytest.mark.slow
def test_text_that_the_locale_cannot_encode_is_not_a_failure(start, path):
    with statelog.open(path) as store:
        store.thread("grün").commit({"x": 1})
    process = start("threads", path, env={**os.environ, "PYTHONIOENCODING": "ascii"})
    out, err = process.communicate(timeout=300)
    assert (process.returncode, err) == (0, "")
    assert r"gr\xfcn" in out


@pytest.mark.slow
def test_reading_does_not_change_the_file(run, state):
    before = state.read_bytes()
    for command in READERS:
        assert run(*on(state, command, "ticket-42")).code == 0
    assert state.read_bytes() == before


@pytest.mark.slow
def test_reading_continues_while_another_process_writes(run, state):
    holder = forks.Popen(
        [sys.executable, "-c", _HOLD_WRITER_LOCK, str(state)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    with holder:
        assert holder.stdout.readline() == b"held\n"
        codes = [run(*on(state, command, "ticket-42")).code for command in READERS]
        holder.stdin.close()
    assert codes == [0] * len(READERS)


def test_the_group_is_a_click_command():
    assert isinstance(main, click.Group)
