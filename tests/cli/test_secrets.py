"""`statelog secrets`: listing the secrets of a store, and removing them."""

from __future__ import annotations

import os
import subprocess
from random import Random

import click
import pytest

pytest.importorskip("re2")

import statelog
from benchmarks.guard_texts import SECRETS
from statelog.cli import main
from statelog.cli import secrets as cli_secrets
from statelog.storage.file.creation import compaction_path, lock_temporary

RANDOM = Random(52)
TOKEN = SECRETS["github-token"](RANDOM)
OTHER = SECRETS["aws-access-key"](RANDOM)


@pytest.fixture
def path(tmp_path):
    path = tmp_path / "agent.state"
    with statelog.open(path) as store:
        store.thread("t").commit({"a": 1})
        store.thread("t").commit({"a": f"the key is {TOKEN}", "b": OTHER, "password": "tiger"})
        store.board().set("k", TOKEN)
    return path


def test_scan_shows_the_place_of_each_secret_and_never_its_text(run, path):
    answer = run("secrets", "scan", path)
    assert (answer.code, TOKEN in answer.out) == (0, False)
    *rows, last = [line.split() for line in answer.out.splitlines()]
    assert [[row[0], *row[2:]] for row in rows] == [
        ["github-token", "t", "version", "1", "a"],
        ["aws-access-key", "t", "version", "1", "b"],
        ["github-token", "version", "5", "k"],
    ]
    assert last == ["2", "secrets"]


def test_scan_writes_one_object_a_line(run, path):
    found = run("secrets", "scan", path, "--json", "--thread", "t").documents
    assert {(each["thread"], each["version"], each["path"], each["rule"], each["lsn"]) for each in found} == {
        ("t", 1, "a", "github-token", 3),
        ("t", 1, "b", "aws-access-key", 3),
    }


@pytest.mark.parametrize("option", ["rule", "fingerprint"])
def test_purge_removes_selected_secrets(run, path, option):
    given = next(each for each in run("secrets", "scan", path, "--json").documents if each["rule"] == "github-token")
    answer = run("secrets", "purge", path, "--yes", "--json", f"--{option}", given[option])
    assert answer.document["secrets"] == 1
    assert answer.document["redactions"] == 2
    with statelog.open(path, read_only=True) as store:
        state = store.thread("t").state
        assert state["a"] == f"the key is [REDACTED github-token {given['fingerprint']}]"
        assert state["b"] == OTHER
    assert TOKEN.encode() not in path.read_bytes()


def test_purge_finds_fields(run, path):
    assert run("secrets", "purge", path, "--yes", "--field", "**.password", "--rule", "field").code == 0
    with statelog.open(path, read_only=True) as store:
        assert store.thread("t").state["password"].startswith("[REDACTED field ")


def test_purge_needs_a_confirmation_and_a_dry_run_changes_nothing(run, path):
    before = path.read_bytes()
    refused = run("secrets", "purge", path)
    assert (refused.code, "--yes" in refused.err) == (2, True)
    told = run("secrets", "purge", path, "--dry-run")
    assert (told.code, len(told.out.splitlines())) == (0, 3)
    with statelog.open(path, read_only=True) as store:
        assert store.thread("t").state["b"] == OTHER
    assert len(path.read_bytes()) == len(before)


@pytest.mark.parametrize(
    ("option", "value", "message"),
    [
        ("--rule", "github_token", "no rule has the name 'github_token'"),
        ("--fingerprint", "zz", "8 hexadecimal digits"),
    ],
)
@pytest.mark.parametrize("command", [["scan"], ["purge", "--yes"]], ids=["scan", "purge"])
def test_a_filter_that_matches_no_secret_is_refused(run, path, command, option, value, message):
    answer = run("secrets", *command, path, option, value)
    assert answer.code == 2
    assert message in " ".join(answer.err.split())


@pytest.mark.slow
def test_a_purge_waits_for_another_one(start, path):
    temporary = compaction_path(path)
    descriptor = os.open(temporary, os.O_RDWR | os.O_CREAT | os.O_EXCL)
    lock_temporary(descriptor)  # As a compaction or a purge does while it fills the file.
    process = start("secrets", "purge", path, "--yes")
    with pytest.raises(subprocess.TimeoutExpired):
        process.wait(4)
    temporary.unlink()
    os.close(descriptor)
    out, err = process.communicate(timeout=60)
    assert (process.returncode, err) == (0, "")
    assert "purged 2 secrets" in out


@pytest.mark.slow
def test_the_second_of_two_purges_searches_again(run, start, path, monkeypatch):
    found = cli_secrets._found
    searches = []

    def found_late(*arguments):
        sightings = found(*arguments)
        searches.append(len(sightings))
        if len(searches) == 1:
            assert start("secrets", "purge", path, "--yes", "--rule", "github-token").wait(60) == 0
        return sightings

    monkeypatch.setattr(cli_secrets, "_found", found_late)
    answer = run("secrets", "purge", path, "--yes")
    assert (answer.code, answer.err) == (0, "")
    assert searches == [3, 1]
    assert run("secrets", "scan", path).out == "0 secrets\n"


def test_a_purge_does_not_wait_forever(run, path, monkeypatch):
    monkeypatch.setattr(cli_secrets, "_WAIT_S", 0.2)
    descriptor = os.open(compaction_path(path), os.O_RDWR | os.O_CREAT | os.O_EXCL)
    lock_temporary(descriptor)
    answer = run("secrets", "purge", path, "--yes")
    os.close(descriptor)
    assert (answer.code, "being compacted" in answer.err) == (9, True)


# --- a secret as an argument ----------------------------------------------------------------------

NOT_RUN = {("demo",), ("crashtest",), ("ui",)}
"""Commands that run for long, and take no name."""
HAVE_TO_END = {("board", "watch"): ["--timeout", "0.01"]}


def leaves(command, words=()):
    if isinstance(command, click.Group):
        for name, each in command.commands.items():
            yield from leaves(each, (*words, name))
    else:
        yield words, command


def command_lines(words, command, path):
    """Yield command lines with a secret in each argument, and with a secret in one of the options."""
    names = [each.name for each in command.params if isinstance(each, click.Argument)]
    base = [*words, *(path if name == "store" else TOKEN for name in names), *HAVE_TO_END.get(words, ())]
    plain = [*words, *(path if name == "store" else "x" for name in names), *HAVE_TO_END.get(words, ())]
    yield base
    yield [*base, "--json"]
    yield [*base, f"--{TOKEN}"]
    for each in command.params:
        if isinstance(each, click.Option) and not each.is_flag:
            yield [*plain, each.opts[-1], TOKEN]


@pytest.mark.parametrize(
    ("words", "command"), [*leaves(main)], ids=lambda each: "-".join(each) if type(each) is tuple else ""
)
def test_errors_do_not_show_secrets_in_arguments(run, tmp_path, monkeypatch, words, command):
    if words in NOT_RUN:
        assert all(each.name == "store" for each in command.params if isinstance(each, click.Argument))
        return
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "agent.state"
    with statelog.open(path, guard=statelog.Guard()) as store:
        store.thread("t").commit({"a": 1})
    for line in command_lines(words, command, path):
        answer = run(*line)
        assert TOKEN not in answer.err, line
        assert answer.code == 0 or TOKEN not in answer.out, line


def test_errors_do_not_show_secrets_in_place_of_commands(run):
    answer = run(TOKEN)
    assert (answer.code, TOKEN in answer.err) == (2, False)
    assert "[REDACTED github-token]" in answer.err


def test_errors_show_ordinary_arguments(run, path):
    assert "'ghp_short'" in run("show", path, "ghp_short").err
