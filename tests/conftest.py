"""Profiles of Hypothesis, and stores that are verified when a test is done with them."""

from __future__ import annotations

import os

import hypothesis
import pytest
from hypothesis import HealthCheck

import statelog

_COMMON = {
    "deadline": None,
    "print_blob": True,
    **({"phases": (hypothesis.Phase.reuse, hypothesis.Phase.generate)} if os.environ.get("NOSHRINK") else {}),
    "suppress_health_check": [HealthCheck.too_slow, HealthCheck.data_too_large],
}
hypothesis.settings.register_profile("dev", max_examples=50, **_COMMON)
hypothesis.settings.register_profile("ci", max_examples=300, **_COMMON)
hypothesis.settings.register_profile("nightly", max_examples=20_000, **_COMMON)
hypothesis.settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "dev"))


@pytest.fixture
def path(tmp_path):
    """Where a test may make a store."""
    return tmp_path / "agent.state"


@pytest.fixture
def store(path):
    """An empty store; what the test made of it must verify clean."""
    with statelog.open(path) as opened:
        yield opened
        if not opened.closed:
            assert opened.verify().problems == []


@pytest.fixture(scope="module")
def shared_store(tmp_path_factory):
    """One store for all examples of a module's properties, each on threads of its own; verified at the end."""
    with statelog.open(tmp_path_factory.mktemp("shared") / "agent.state", durability="batched") as opened:
        yield opened
        assert opened.verify().problems == []
