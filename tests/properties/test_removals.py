"""Copies of a log from different times before and after removals by retention have the same index (R3)."""

from __future__ import annotations

import io
import random

import pytest
from authors import Author, check_whole, ignore_removals_in_imports, index_of
from hypothesis import given, settings
from hypothesis import strategies as st

import statelog
from statelog.errors import CorruptionError
from statelog.format import keys
from statelog.log.care.loans import ANYONE


def increments_into(copy, source, since):
    stream = io.BytesIO()
    source.export(stream, since=since)
    stream.seek(0)
    copy.import_(stream)
    return copy.last_lsn


def without_own_loans(index):
    """Return an index without the loans that a compaction has given to nobody in particular."""
    nobody = keys.encode_lsn(ANYONE)
    return {
        key: payload
        for key, payload in index.items()
        if not key.startswith(keys.encode_debt_prefix(ANYONE)) and not (key[:1] == b"l" and payload == nobody)
    }


def run(folder, seed, turns, copies=3):
    """Write a history, and import it into copies at random moments. Compare them; then compact and retain them, too."""
    chance = random.Random(-seed)
    with statelog.open(folder / "source.state", durability="interval") as source:
        author = Author(source, seed)
        taken = [statelog.open(folder / f"copy-{number}.state", durability="interval") for number in range(copies)]
        try:
            for _turn in range(turns):
                author.act()
                for copy in taken:
                    if chance.random() < 0.15:
                        increments_into(copy, source, copy.last_lsn)
            check_whole(source)
            expected = index_of(source)
            for copy in taken:
                increments_into(copy, source, copy.last_lsn)
                assert index_of(copy) == expected
                check_whole(copy)
                copy.compact()
                assert without_own_loans(index_of(copy)) == without_own_loans(expected)
                check_whole(copy)
                copy.prune(keep_last=1)
                check_whole(copy)
            with statelog.open(folder / "whole.state", durability="interval") as whole:
                increments_into(whole, source, 0)
                assert index_of(whole) == expected
        finally:
            for copy in taken:
                copy.close()


@pytest.mark.slow
@settings(max_examples=settings.default.max_examples)
@given(seed=st.integers(0, 2**32), turns=st.integers(5, 120))
def test_copies_taken_at_any_moments_have_the_same_index(tmp_path_factory, seed, turns):
    run(tmp_path_factory.mktemp("removals"), seed, turns)


@pytest.mark.slow
def test_removals_that_an_import_ignores_are_noticed(tmp_path, monkeypatch):
    ignore_removals_in_imports(monkeypatch)
    with pytest.raises((AssertionError, CorruptionError)):
        run(tmp_path, 7, 100)
