"""Fixtures of the adapter's tests."""

from __future__ import annotations

import sys

import pytest
from clocks import Clock


@pytest.fixture(autouse=True)
def _leaves_the_serialiser_of_all_savers():
    """Savers without a serialiser share one, so a change by one test would affect all later ones."""
    yield
    base = sys.modules.get("langgraph.checkpoint.base")
    assert base is None or vars(base.BaseCheckpointSaver.serde).keys().isdisjoint({"dumps_typed", "loads_typed"})


@pytest.fixture
def clock():
    """A clock that only the test advances."""
    return Clock()
