"""Stores with a key in the shell: sources of the key, and refusals without it."""

from __future__ import annotations

import pytest

import statelog
from statelog.cli.keys import VARIABLE_DEFAULT

KEY = "the key of the shell's store"
OTHER_KEY = "another key of the shell's store"
COMMANDS = [
    ["threads"],
    ["show", "t"],
    ["stat"],
    ["verify"],
    ["anchor"],
    ["log"],
    ["export"],
    ["tag", "t", "name"],
    ["retain", "--keep-last", "1"],
    ["rebuild-index"],
    ["compact"],
    ["recover"],
    ["board", "ls"],
]


@pytest.fixture
def keyed(path, monkeypatch):
    monkeypatch.delenv(VARIABLE_DEFAULT, raising=False)
    monkeypatch.setenv("NEW_KEY", OTHER_KEY)
    with statelog.open(path, key=KEY) as store:
        store.thread("t").commit({"n": 1})
        store.thread("t").commit({"n": 2})
        store.board().set("entry", 1)
    return path


@pytest.mark.slow
@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_a_command_takes_the_key_from_either_variable(run, keyed, monkeypatch, command):
    arguments = [command[0], keyed, *command[1:]] if command[0] != "board" else [*command, keyed]
    refused = run(*arguments)
    assert (refused.code, "has a key" in refused.err) == (10, True)
    assert run(*arguments, "--key-env", "NEW_KEY").code == 10
    monkeypatch.setenv("MY_KEY", KEY)
    assert run(*arguments, "--key-env", "MY_KEY").code == 0
    monkeypatch.setenv(VARIABLE_DEFAULT, KEY)
    again = run(*arguments)
    assert again.code == 0, again.err


def test_the_named_variable_goes_before_the_default_one(run, keyed, monkeypatch):
    monkeypatch.setenv(VARIABLE_DEFAULT, OTHER_KEY)
    monkeypatch.setenv("MY_KEY", KEY)
    assert run("threads", keyed, "--key-env", "MY_KEY").code == 0
    assert run("threads", keyed).code == 10


def test_a_missing_variable_is_a_usage_error(run, keyed):
    answer = run("threads", keyed, "--key-env", "NO_SUCH_VARIABLE")
    assert (answer.code, "NO_SUCH_VARIABLE" in answer.err) == (2, True)


def test_a_key_that_is_too_short_is_a_usage_error_that_does_not_show_it(run, keyed, monkeypatch):
    monkeypatch.setenv(VARIABLE_DEFAULT, "tooshort")
    answer = run("threads", keyed, "--json")
    assert answer.code == 2
    assert "tooshort" not in answer.out + answer.err


def test_a_store_without_a_key_is_refused_with_one(run, path, monkeypatch):
    statelog.open(path).close()
    monkeypatch.setenv(VARIABLE_DEFAULT, KEY)
    answer = run("threads", path)
    assert (answer.code, "has no key" in answer.err) == (10, True)


@pytest.mark.slow
def test_verify_names_a_forged_file_and_ends_with_7(run, keyed, monkeypatch):
    monkeypatch.setenv(VARIABLE_DEFAULT, KEY)
    data = keyed.read_bytes()
    with statelog.open(keyed, key=KEY) as store, store._engine.read() as view:
        mac = bytes(view.transaction._raw.get((3).to_bytes(8), None, view.transaction._log))[-16:]
    keyed.write_bytes(data.replace(mac, bytes(16)))
    answer = run("verify", keyed)
    assert answer.code == 7
    assert "forged" in answer.out + answer.err
    assert run("show", keyed, "t").code == 7


@pytest.mark.slow
@pytest.mark.parametrize("way", ["variable", "file"])
def test_rekey_changes_the_key(run, keyed, monkeypatch, tmp_path, way):
    monkeypatch.setenv(VARIABLE_DEFAULT, KEY)
    anchor = run("anchor", keyed).out.strip()
    (tmp_path / "new.key").write_text(f"{OTHER_KEY}\n")
    option = ("--new-key-env", "NEW_KEY") if way == "variable" else ("--new-key-file", tmp_path / "new.key")
    document = run("rekey", keyed, *option, "--json").document
    assert (document["rekeyed"], document["records"]) == (True, 5)
    assert run("verify", keyed).code == 10
    assert run("verify", keyed, "--key-env", "NEW_KEY", "--expect", anchor).code == 0


def test_rekey_gives_a_first_key(run, path, monkeypatch):
    monkeypatch.delenv(VARIABLE_DEFAULT, raising=False)
    monkeypatch.setenv("NEW_KEY", OTHER_KEY)
    with statelog.open(path) as store:
        store.thread("t").commit({"n": 1})
    assert run("rekey", path, "--new-key-env", "NEW_KEY").out.startswith("rekeyed: ")
    assert run("threads", path).code == 10
    assert run("threads", path, "--key-env", "NEW_KEY").code == 0


@pytest.mark.parametrize(
    "options", [(), ("--new-key-env", "NEW_KEY", "--new-key-file", "x"), ("--new-key-env", "NO_SUCH_VARIABLE")], ids=str
)
def test_rekey_needs_one_new_key(run, keyed, monkeypatch, options):
    monkeypatch.setenv(VARIABLE_DEFAULT, KEY)
    assert run("rekey", keyed, *options).code == 2
    assert run("threads", keyed).code == 0


@pytest.mark.slow
def test_an_export_is_imported_under_the_key_of_the_other_store(run, keyed, monkeypatch, tmp_path):
    monkeypatch.setenv(VARIABLE_DEFAULT, KEY)
    assert run("export", keyed, "-o", tmp_path / "export").code == 0
    assert KEY.encode() not in (tmp_path / "export").read_bytes()
    assert run("import", tmp_path / "copy.state", tmp_path / "export", "--key-env", "NEW_KEY").code == 0
    assert run("verify", tmp_path / "copy.state", "--key-env", "NEW_KEY").code == 0
    assert run("verify", tmp_path / "copy.state").code == 10


@pytest.mark.slow
def test_salvage_needs_the_key(run, keyed, monkeypatch, tmp_path):
    assert run("salvage", keyed, tmp_path / "new.state").code == 10
    monkeypatch.setenv(VARIABLE_DEFAULT, KEY)
    assert run("salvage", keyed, tmp_path / "new.state").code == 0
    assert run("verify", tmp_path / "new.state").code == 0


@pytest.mark.slow
def test_salvage_of_a_store_without_its_header_needs_an_anchor(run, keyed, monkeypatch, tmp_path):
    monkeypatch.setenv(VARIABLE_DEFAULT, KEY)
    anchor = run("anchor", keyed).out.strip()
    keyed.write_bytes(keyed.read_bytes().replace(b"key_check", b"key_chEck"))
    refused = run("salvage", keyed, tmp_path / "new.state")
    assert (refused.code, "anchor" in refused.err, (tmp_path / "new.state").exists()) == (7, True, False)
    answer = run("salvage", keyed, tmp_path / "new.state", "--anchor", anchor)
    assert answer.code == 0, answer.err
    with statelog.open(tmp_path / "new.state", key=KEY) as store:
        assert store.thread("t").state["n"] == 2
