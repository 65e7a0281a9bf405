"""What the adapter's tests share."""

from __future__ import annotations

import sys

import pytest
from clocks import Clock


@pytest.fixture(autouse=True)
def _leaves_the_serialiser_of_all_savers():
    """Savers that are given no serialiser have one between them: changed by one test, it is so in all after it."""
    yield
    base = sys.modules.get("langgraph.checkpoint.base")
    assert base is None or vars(base.BaseCheckpointSaver.serde).keys().isdisjoint({"dumps_typed", "loads_typed"})


@pytest.fixture
def clock():
    """A clock that stands until a test moves it."""
    return Clock()
