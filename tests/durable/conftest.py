"""Fixtures shared by all tests of runs."""

from __future__ import annotations

import pytest
from executed import CALLS


@pytest.fixture(autouse=True)
def _no_calls():
    CALLS.clear()
