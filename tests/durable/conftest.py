"""What all tests of runs begin with."""

from __future__ import annotations

import pytest
from executed import CALLS


@pytest.fixture(autouse=True)
def _no_calls():
    CALLS.clear()
