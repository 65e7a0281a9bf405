"""What all tests of traces begin with, and end with."""

from __future__ import annotations

import pytest

pytest.importorskip("opentelemetry.sdk")

from otlp import Kept

import statelog.otel
from statelog.otel.telemetry import CAPTURE


@pytest.fixture(autouse=True)
def _uninstrumented(monkeypatch):
    monkeypatch.delenv(CAPTURE, raising=False)
    yield
    statelog.otel.uninstrument()


@pytest.fixture
def kept():
    return Kept()


@pytest.fixture
def traced(store, kept):
    """A store that is instrumented."""
    statelog.otel.instrument(store, **kept.providers)
    return store
