"""The server of the inspector: its app, the files of its page, and the port."""

from __future__ import annotations

import secrets
import socket
from importlib.resources import files
from typing import TYPE_CHECKING, Any

import uvicorn
from starlette.applications import Starlette
from starlette.responses import Response
from starlette.routing import Route

from statelog.errors import StorageError
from statelog.inspector import board, health, live, log, runs, thread, threads
from statelog.inspector.answers import reading
from statelog.inspector.opened import Inspected
from statelog.inspector.security import Gate

if TYPE_CHECKING:
    from collections.abc import Callable

    from starlette.requests import Request
    from starlette.types import ASGIApp

    from statelog.store.store import Store

_SCREENS = (threads, thread, board, runs, log, health, live)
_TYPES = {".html": "text/html", ".css": "text/css", ".js": "text/javascript"}
_STOP_TIMEOUT_S = 3
"""The time that open streams get to end when the server stops."""


def make_app(store: Store, *, token: str, host: str, is_stopping: Callable[[], bool] = lambda: False) -> ASGIApp:
    """Return the app of an open store. It changes the store only if the store is open for writing.

    Args:
        store: stays open as long as the app is used.
        token: the secret that a browser has to bring once.
        host: where the server listens: address, colon, port. Requests for another `Host` are refused.
        is_stopping: returns True once the server is about to end.

    """
    inspected = Inspected(store, is_stopping)

    def describe(_request: Request) -> Any:
        return {"path": str(inspected.path), "allow_writes": inspected.allow_writes, "last_lsn": store.last_lsn}

    routes = [Route("/api/store", reading(describe))]
    for screen in _SCREENS:
        routes += screen.routes(inspected)
    app = Starlette(routes=[*routes, *_page_routes()])
    return Gate(app, token=token, host=host, allow_writes=inspected.allow_writes)


def _page_routes() -> list[Route]:
    """Return a route for each file of the page. Its contents are read now."""
    routes = []
    for file in files("statelog.inspector").joinpath("page").iterdir():
        media_type = _TYPES.get(file.name[file.name.rfind(".") :])
        if media_type is not None:
            path = "/" if file.name == "index.html" else f"/page/{file.name}"
            routes.append(Route(path, _file(file.read_bytes(), media_type)))
    return routes


def _file(content: bytes, media_type: str) -> Callable[[Request], Response]:
    return lambda _request: Response(content, media_type=media_type)


def serve(
    store: Store,
    *,
    host: str = "127.0.0.1",
    port: int = 0,
    announce: Callable[[str], None] = print,
) -> None:
    """Serve an open store until the process is interrupted.

    Args:
        store: the store. It is only read if it is open read-only.
        host: the address to listen on. Others can ask if it is not loopback; they need the token.
        port: the port; a free one if 0.
        announce: called with the address to open, which has the token.

    Raises:
        StorageError: the address is taken, or is not one of this machine.

    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        listening = socket.create_server((host, port), family=family)
    except OSError as error:
        message = f"cannot listen on {host} port {port}: {error.strerror or error}"
        raise StorageError(message, host=host, port=port) from None
    with listening:
        bound = f"[{host}]" if ":" in host else host
        authority = f"{bound}:{listening.getsockname()[1]}"
        token = secrets.token_urlsafe(24)
        app = make_app(store, token=token, host=authority, is_stopping=lambda: server.should_exit)
        config = uvicorn.Config(
            app,
            log_level="warning",
            access_log=False,  # addresses have thread ids, and the first one the token
            server_header=False,
            timeout_graceful_shutdown=_STOP_TIMEOUT_S,
        )
        server = uvicorn.Server(config)
        announce(f"http://{authority}/?token={token}")
        server.run(sockets=[listening])
