"""Registers the URI scheme `statelog:` for ADK's command line."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlsplit

from google.adk.cli.service_registry import get_service_registry

import statelog
from statelog.adapters.google_adk.artifacts import StatelogArtifactService
from statelog.adapters.google_adk.memory import StatelogMemoryService
from statelog.adapters.google_adk.sessions import StatelogSessionService
from statelog.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable

    from statelog import Store

SCHEME = "statelog"


def register() -> None:
    """Enable stores on ADK's command line: `adk web --session_service_uri statelog:///agent.state`.

    Call it in `services.py` in the agents folder. With three slashes the path is relative to the working directory,
    with four it is absolute. The same URI works for the artifact service and the memory service.
    """
    registry = get_service_registry()
    registry.register_session_service(SCHEME, _making(StatelogSessionService))
    registry.register_artifact_service(SCHEME, _making(StatelogArtifactService))
    registry.register_memory_service(SCHEME, _making(StatelogMemoryService))


def _making(kind: Callable[[Store], Any]) -> Callable[..., Any]:
    def make(uri: str, **_options: Any) -> Any:
        return kind(statelog.open(_path_of(uri)))

    return make


def _path_of(uri: str) -> Path:
    parts = urlsplit(uri)
    path = unquote(parts.path).removeprefix("/")
    if parts.netloc or not path:
        message = f"{uri!r} is not the URI of a store, such as statelog:///agent.state"
        raise UsageError(message, argument="uri", value=uri)
    return Path(path)
