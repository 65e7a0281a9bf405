"""`statelog secrets`: lists the secrets of a store, and cuts them out."""

from __future__ import annotations

from random import Random

import pytest

pytest.importorskip("re2")

import statelog
from statelog.bench.guard_texts import SECRETS

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


def test_scan_tells_where_each_secret_is_and_never_its_text(run, path):
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
def test_purge_takes_some_of_them(run, path, option):
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


def test_purge_wants_to_be_told_and_a_dry_run_changes_nothing(run, path):
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
def test_a_filter_that_fits_nothing_is_refused(run, path, command, option, value, message):
    answer = run("secrets", *command, path, option, value)
    assert answer.code == 2
    assert message in " ".join(answer.err.split())
