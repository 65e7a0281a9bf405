"""Secrets of vendors without a rule of this library are found and purged with Kingfisher's rules."""

from __future__ import annotations

import json
import sys
from random import Random

import pytest

pytest.importorskip("re2")

from click.testing import CliRunner

import statelog
from benchmarks.guard_texts import SECRETS
from statelog import Guard, GuardError
from statelog.cli import main
from statelog.guard import kingfisher

RANDOM = Random(7)
FOREIGN = "AGE-SECRET-KEY-1" + "".join(RANDOM.choices("QPZRY9X8GF2TVDW0S3JN54KHCE6MUA7L", k=58))
TOKEN = SECRETS["github-token"](RANDOM)
PHRASE = "the whale 🐋 sings, and nobody has a key"


@pytest.fixture(scope="module")
def secrets():
    pytest.importorskip("kingfisher_sdk")
    return kingfisher.KingfisherSecrets()


@pytest.fixture
def path(tmp_path):
    path = tmp_path / "agent.state"
    with statelog.open(path) as store:
        store.thread("t").commit({"note": f"🐋 {TOKEN} and {FOREIGN}.", "plain": PHRASE})
        store.board().set("k", [FOREIGN, PHRASE])
    return path


def test_a_secret_is_found_where_it_is_and_prose_is_not(secrets):
    text = f"🐋 é {TOKEN}, {FOREIGN} {TOKEN}".encode()
    found = secrets.find(text)
    assert [text[each.start : each.end].decode() for each in found] == [TOKEN, FOREIGN, TOKEN]
    assert [each.rule for each in found] == ["github-token", found[1].rule, "github-token"]
    assert secrets.find(PHRASE.encode()) == []
    assert secrets.find(b"\xff\xfe" + PHRASE.encode() + b"\x00", is_text=False) == []


def test_names_of_rules_are_those_of_the_format():
    assert kingfisher._rule_of("betterleaks.langchain-langsmith-personal-access-token").startswith("langchain")
    for name in ("betterleaks.jwt", "veles.secrets/Some_Thing", "a." + "x" * 90, "kingfisher.aws.1", "..."):
        rule = kingfisher._rule_of(name)
        assert 0 < len(rule) <= 40
        assert rule.strip("abcdefghijklmnopqrstuvwxyz0123456789-") == ""


def test_a_purge_removes_secrets_that_kingfisher_finds(secrets, path):
    with statelog.open(path) as store:
        found = store.find_secrets(guard=Guard(secrets=secrets))
        assert {(each.thread, each.path.split(".")[0]) for each in found} == {("t", "note"), (None, "k")}
        store.purge(found, guard=Guard(secrets=secrets))
        assert store.verify().ok
        assert store.thread("t").state["plain"] == store.board().get("k").value[1] == PHRASE
        assert store.find_secrets(guard=Guard(secrets=secrets)) == []
    assert not any(text.encode() in path.read_bytes() for text in (TOKEN, FOREIGN))


def test_the_command_takes_kingfisher_as_its_engine(path):
    pytest.importorskip("kingfisher_sdk")
    done = CliRunner().invoke(main, ["secrets", "scan", str(path), "--engine", "kingfisher", "--json"])
    assert done.exit_code == 0
    assert len([json.loads(line) for line in done.stdout.splitlines()]) == 3
    assert FOREIGN not in done.output


def test_without_the_package_the_error_says_how_to_install_it(path, monkeypatch):
    monkeypatch.setitem(sys.modules, "kingfisher_sdk", None)
    with pytest.raises(GuardError, match=r"pip install 'statelog\[kingfisher\]'"):
        kingfisher.KingfisherSecrets()
    done = CliRunner().invoke(main, ["secrets", "scan", str(path), "--engine", "kingfisher"])
    assert done.exit_code == 2
    assert "kingfisher-secret-scanner is missing" in done.output
