"""The schema of a pydantic model that has a channel of every sort."""

from __future__ import annotations

import pytest
from declared import (
    Agent,
)

from statelog.schema import Schema


@pytest.fixture
def agent() -> Schema:
    return Schema.of(Agent)
