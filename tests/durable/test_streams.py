"""Streams: chunks of a result that are read before it, and which of them are valid."""

from __future__ import annotations

import pytest
from executed import Crash, execute

from statelog import durable


def test_chunks_of_a_crashed_call_are_distinguished_from_those_of_the_repeated_call(store):
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
