"""A purge changes the secrets and nothing else: each version is the former one with redactions (T3 to T5, L4)."""

from __future__ import annotations

import io
import operator
from random import Random

import pytest

pytest.importorskip("re2")

from hypothesis import given, settings
from hypothesis import strategies as st

import statelog
from benchmarks.guard_texts import SECRETS
from statelog import reducers

RULES = ("github-token", "aws-access-key", "stripe-key", "private-key")
WORDS = ("alpha", "beta", "gamma", "delta")
SCHEMA = {
    **dict.fromkeys(("a", "b", "c", "long"), reducers.replace),
    "add": operator.add,
    "append": reducers.append,
    "upsert": reducers.upsert("id"),
    "merge": reducers.merge,
    "union": reducers.union,
    "extend": reducers.extend,
}
MARGIN = 1500
"""The minimum distance of an edit of a long text from a secret, so that it does not change the secret."""


class Author:
    """Writes random values with secrets in them."""

    def __init__(self, seed):
        self.chance = Random(seed)
        self.secrets = [SECRETS[rule](self.chance) for rule in RULES]

    def text(self):
        words = " ".join(self.chance.choices(WORDS, k=self.chance.choice([1, 3, 10, 40])))
        return f"{words} {self.chance.choice(self.secrets)} {words}" if self.chance.random() < 0.35 else words

    def long(self):
        text = "".join(self.chance.choices("abcdefghij \n", k=self.chance.choice([17_000, 30_000, 60_000])))
        at = self.chance.randrange(len(text))
        return f"{text[:at]} {self.chance.choice(self.secrets)} {text[at:]}"

    def edited(self, text):
        at = self.chance.randrange(len(text))
        around = text[max(at - MARGIN, 0) : at + MARGIN]
        if any(secret in around or secret[:20] in around for secret in self.secrets):
            return text + " more"
        return f"{text[:at]} {self.chance.choice([*self.secrets, 'changed'])} {text[at:]}"

    def value(self, depth=0):
        kind = self.chance.random()
        few = self.chance.choice([1, 2, 5] if depth else [1, 5, 60])
        if depth > 2 or kind < 0.35:
            return self.text()
        if kind < 0.4:
            return self.chance.randrange(10**6)
        if kind < 0.45:
            return self.text().encode()
        if kind < 0.6:
            return [self.value(depth + 1) for _ in range(few)]
        if kind < 0.65:
            return (self.value(depth + 1), self.text())
        if kind < 0.75:
            return {f"{self.text()} {number}" for number in range(300 if not depth and kind > 0.72 else few)}
        if kind < 0.8:
            return self.long()
        return {f"k{self.chance.randrange(1000)}": self.value(depth + 1) for _ in range(few)}

    def writes(self, thread):
        state = thread.state if thread.head is not None else {}
        made = {
            "a": self.value,
            "b": self.value,
            "c": lambda: self.text().encode(),
            "long": lambda: self.edited(state["long"]) if "long" in state else self.long(),
            "add": lambda: [self.value(2)],
            "append": lambda: self.value(1),
            "upsert": lambda: [{"id": self.text(), "v": self.value(2)} for _ in range(self.chance.choice([1, 30]))],
            "merge": lambda: {f"m{self.chance.randrange(40)}": self.value(2) for _ in range(20)},
            "union": lambda: {self.text() for _ in range(self.chance.choice([1, 20]))},
            "extend": lambda: [self.value(2) for _ in range(self.chance.choice([1, 60]))],
        }
        return {channel: made[channel]() for channel in self.chance.sample([*made], 2)}

    def write(self, store):
        """Write some threads, with branches, rollbacks, copies, retention and deletion, and a board."""
        for number in range(self.chance.choice([1, 2, 3])):
            thread = store.thread(f"t{number}", schema=SCHEMA)
            for _ in range(self.chance.choice([3, 8])):
                thread.commit(self.writes(thread), metadata={"m": self.text()})
            if self.chance.random() < 0.3:
                thread.rollback(1)
            if self.chance.random() < 0.5:
                thread.fork("side").commit({"a": self.value()})
            if self.chance.random() < 0.3:
                store.copy_thread(f"t{number}", f"copy{number}").commit({"a": self.value()})
            if self.chance.random() < 0.3:
                store.prune(keep_last=3, threads=f"t{number}")
        if self.chance.random() < 0.2:
            store.delete_thread("t0")
        for number in range(6):
            store.board().set(f"k{number % 3}", self.value())
        if self.chance.random() < 0.3:
            store.compact()


def states_of(store):
    found = {}
    for info in store.threads():
        for branch in store.thread(info.id).branches():
            for each in store.thread(info.id, branch=branch.name).history():
                place = info.id, branch.name, each.version
                found[place] = each.lsn, each.time, each.state.to_python(), dict(each.metadata)
    return found | {("board", entry.key): entry.value for entry in store.board().list()}


def redacted(value, texts):
    if isinstance(value, str):
        for secret, mark in texts.items():
            value = value.replace(secret, mark)
        return value
    if isinstance(value, bytes):
        return redacted(value.decode(), texts).encode()
    if isinstance(value, dict):
        return {key: redacted(each, texts) for key, each in value.items()}
    if isinstance(value, list | tuple | set):
        return type(value)(redacted(each, texts) for each in value)
    return value


def check_whole(store):
    assert store.verify(deep=True).problems == []


def run(folder, seed):
    author = Author(seed)
    with statelog.open(folder / "a.state", durability="interval") as store:
        author.write(store)
        before = states_of(store)
        found = store.find_secrets()
        store.purge(found)
        marks = {each.rule: f"[REDACTED {each.rule} {each.fingerprint}]" for each in found}
        texts = {secret: marks[rule] for secret, rule in zip(author.secrets, RULES, strict=True) if rule in marks}
        assert states_of(store) == redacted(before, texts)
        check_whole(store)
        for path in folder.iterdir():
            data = path.read_bytes()
            assert not any(secret.encode() in data for secret in author.secrets), path.name
        for number, threads in enumerate((None, [info.id for info in store.threads()])):
            stream = io.BytesIO()
            store.export(stream, threads=threads)
            with statelog.open(folder / f"{number}.state") as copy:
                copy.import_(io.BytesIO(stream.getvalue()))
                check_whole(copy)
        for info in list(store.threads()):
            thread = store.thread(info.id, schema=SCHEMA)
            for _ in range(4):
                union = set(thread.state.get("union", ()))
                thread.commit({**author.writes(thread), "union": {"one more"}})
                assert "one more" in thread.state["union"] or union
                assert union <= set(thread.state["union"])
            thread.rollback([each.version for each in thread.history()][-1])
        check_whole(store)
        store.prune(keep_last=2)
        store.compact()
        check_whole(store)


@pytest.mark.slow
@given(st.integers(0, 2**32))
@settings(deadline=None)
def test_a_purge_changes_the_secrets_and_nothing_else(tmp_path_factory, seed):
    run(tmp_path_factory.mktemp("purge"), seed)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(6))
def test_a_purge_of_some_known_stores(tmp_path, seed):
    run(tmp_path, seed)
