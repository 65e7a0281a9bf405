"""LangGraph's whole conformance suite, base and extended, in the installed release."""

from __future__ import annotations

import asyncio

import pytest

pytest.importorskip("langgraph.checkpoint.conformance", reason="needs langgraph-checkpoint-conformance")

from langgraph.checkpoint.conformance import checkpointer_test, validate
from langgraph.checkpoint.conformance.capabilities import Capability

from statelog.adapters.langgraph import StatelogSaver


def test_the_whole_suite_passes(tmp_path):
    number = iter(range(100))

    @checkpointer_test(name="StatelogSaver")
    async def savers():
        with StatelogSaver.open(tmp_path / f"{next(number)}.state") as saver:
            yield saver
            assert saver.store.verify().ok

    report = asyncio.run(validate(savers))
    failures = [failure for result in report.results.values() for failure in result.failures or ()]
    assert failures == []
    assert set(report.results) == {capability.value for capability in Capability}
    assert all(result.detected and result.passed for result in report.results.values())
    assert sum(result.tests_passed for result in report.results.values()) >= 81
