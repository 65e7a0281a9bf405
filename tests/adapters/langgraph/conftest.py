"""What tests of the store and of the cache share."""

from __future__ import annotations

import pytest
from clocks import Clock


@pytest.fixture
def clock():
    """A clock that stands until a test moves it."""
    return Clock()
