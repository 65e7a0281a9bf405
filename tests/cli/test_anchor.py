"""`statelog anchor`, and `--expect` of the commands that take it."""

from __future__ import annotations

import json
import shutil

import pytest

import statelog
from statelog.errors import AnchorError, RollbackError, StoreNotFoundError


@pytest.fixture
def older(state, tmp_path):
    """A copy of the store from before its last commit."""
    copy = tmp_path / "older.state"
    shutil.copy(state, copy)
    with statelog.open(state) as store:
        store.thread("other").commit({"anything": False})
    return copy


@pytest.mark.slow
def test_the_anchor_is_one_line_that_expect_takes(run, state):
    answer = run("anchor", state)
    with statelog.open(state) as store:
        assert answer.out == store.anchor().hex() + "\n"
    anchor = answer.out.strip()
    assert run("verify", state, "--expect", anchor).code == 0
    assert run("verify", state, "--shallow", "--expect", anchor.upper(), "--json").document["ok"]


def test_json_has_the_fields_of_the_anchor(run, state):
    document = run("anchor", state, "--json").document
    with statelog.open(state) as store:
        last = list(store.log())[-1]
    assert (document["lsn"], document["digest"]) == (last.lsn, last.digest)
    assert document["anchor"][2:34] == document["store_id"]


@pytest.mark.slow
@pytest.mark.parametrize("command", ["verify", "export"])
def test_an_older_copy_is_refused_with_the_exit_code_of_damage(run, state, older, tmp_path, command):
    anchor = run("anchor", state).out.strip()
    target = ["-o", tmp_path / "out"] if command == "export" else []
    answer = run(command, older, *target, "--expect", anchor, "--json")
    assert answer.code == RollbackError.exit_code == 7
    assert answer.out == ""
    error = json.loads(answer.err)
    assert (error["kind"], error["facts"]["path"]) == ("RollbackError", str(older))
    assert error["facts"]["expected"] == anchor[50:90]
    assert "salvage" not in error["error"]
    assert not (tmp_path / "out").exists()
    assert run(command, state, *target, "--expect", anchor).code == 0


def test_an_invalid_anchor_is_wrong_usage(run, state):
    anchor = run("anchor", state).out.strip()
    for text in ("", "anchor", anchor[:-2], f"{anchor[:-1]}g", f"{anchor[:-1]}{'0' if anchor[-1] != '0' else '1'}"):
        answer = run("verify", state, "--expect", text, "--json")
        assert (answer.code, answer.out) == (AnchorError.exit_code, "")
        assert json.loads(answer.err)["kind"] == "AnchorError"


def test_anchor_of_a_missing_file_is_an_error(run, tmp_path):
    assert run("anchor", tmp_path / "none.state").code == StoreNotFoundError.exit_code
    assert list(tmp_path.iterdir()) == []
