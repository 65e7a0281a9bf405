"""Streams: parts of a result that are read ahead of it, and which of them count."""

from __future__ import annotations

import pytest
from executed import Crash, execute

from statelog import durable


def test_the_parts_of_a_call_that_a_crash_has_cut_short_are_told_from_those_of_the_next(store):
    is_killed = [True]

    def talk():
        step = durable.current_step()
        step.stream("a")
        if is_killed.pop():
            raise Crash
        step.stream("b")

    with pytest.raises(Crash):
        execute(store, lambda run: run.step(talk))
    is_killed.append(False)
    execute(store, lambda run: run.step(talk))
    found = [(chunk.value, chunk.attempt) for chunk in durable.stream(store, "evt-1")]
    assert found == [("a", 1), ("a", 2), ("b", 2)]
