"""The server of the inspector: its app, the files of its page, and the port."""

from __future__ import annotations

import secrets
import socket
from contextlib import suppress
from hashlib import sha256
from typing import TYPE_CHECKING, Any

import uvicorn
from starlette.applications import Starlette
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route

from statelog.errors import StatelogError, StorageError
from statelog.inspector import board, health, live, log, page, runs, search, thread, threads
from statelog.inspector.answers import reading
from statelog.inspector.opened import Inspected
from statelog.inspector.security import AccessMiddleware

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from starlette.requests import Request
    from starlette.types import ASGIApp

    from statelog.store.store import Store

_SCREENS = (threads, thread, board, runs, search, log, health, live)
_STOP_TIMEOUT_S = 3
"""How long the server waits for open streams when it stops, in seconds."""


def make_app(
    store: Store,
    *,
    token: str,
    host: str,
    is_stopping: Callable[[], bool] = lambda: False,
    ask_fleet: Callable[[], dict[str, Any]] | None = None,
) -> ASGIApp:
    """Return the app that shows an open store. It changes the store only if the store is open for writing.

    Args:
        store: the store, which must stay open while the app is used.
        token: the secret that a browser has to send once.
        host: the address and the port of the server, with a colon. Requests with a different `Host` are refused.
        is_stopping: returns True when the server is about to stop.
        ask_fleet: see `Inspected`.
    """
    inspected = Inspected(store, is_stopping, ask_fleet)

    def describe(_request: Request | None) -> Any:
        return {"path": str(inspected.path), "allow_writes": inspected.allow_writes, "last_lsn": store.last_lsn}

    routes = [Route("/api/store", reading(describe))]
    for screen in _SCREENS:
        routes += screen.routes(inspected)

    def first() -> page.Answers:
        answers: page.Answers = [[page.asked("store"), describe(None)]]
        with suppress(StatelogError):  # The page will request it again, and show the error.
            answers.append([page.asked("threads"), threads.list_threads(store, containing="", after="", limit=50)])
        return answers

    app = Starlette(routes=[*routes, *_page_routes(first)])
    return AccessMiddleware(app, token=token, host=host, allow_writes=inspected.allow_writes)


def _page_routes(first: Callable[[], page.Answers]) -> list[Route]:
    """Return the routes of the page. Its files are read now, so the path of a request never reaches the file system.

    Args:
        first: returns answers that are part of the HTML, so that the first screen needs no further request.
    """
    script, style = page.bundle("main.js"), page.read("style.css")
    script_path, style_path = f"page/{_name_of(script)}.js", f"page/{_name_of(style)}.css"

    style_element = f'<link rel="stylesheet" href="{style_path}">'
    script_element = f'<script type="module" blocking="render" src="{script_path}"></script>'  # Draw no empty page.
    before, _, after = page.html(f"{style_element}\n{script_element}", "", "\0").partition("\0")

    def parts() -> Iterator[str]:
        yield before  # The browser now begins to load the script and the style.
        yield page.data(first(), [], is_whole=False) + after

    def index(_request: Request) -> Response:
        return StreamingResponse(parts(), media_type="text/html")

    return [
        Route("/", index),
        Route(f"/{script_path}", _file(script, "text/javascript")),
        Route(f"/{style_path}", _file(style, "text/css")),
    ]


def _name_of(text: str) -> str:
    return sha256(text.encode()).hexdigest()[:16]


def _file(text: str, media_type: str) -> Callable[[Request], Response]:
    # Caching forever is safe: the URL contains a hash of the contents, so changed contents get a new URL.
    headers = {"cache-control": "private, max-age=31536000, immutable"}
    return lambda _request: Response(text, media_type=media_type, headers=headers)


def serve(
    store: Store,
    *,
    host: str = "127.0.0.1",
    port: int = 0,
    announce: Callable[[str], None] = print,
    ask_fleet: Callable[[], dict[str, Any]] | None = None,
) -> None:
    """Serve an open store until the process is interrupted.

    Args:
        store: the store. It is only read if it is open read-only.
        host: the address to listen on. If it is not loopback, other machines can send requests with the token.
        port: the port. 0 selects a free one.
        announce: called with the URL to open, which contains the token.
        ask_fleet: see `Inspected`.

    Raises:
        StorageError: the address is in use, or does not belong to this machine.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        listening = socket.create_server((host, port), family=family)
    except OSError as error:
        reason = str(error.strerror or error).partition(" (while")[0]  # The rest of the message repeats the address.
        message = f"cannot listen on {host} port {port}: {reason}"
        raise StorageError(message, host=host, port=port) from None
    with listening:
        bound = f"[{host}]" if ":" in host else host
        authority = f"{bound}:{listening.getsockname()[1]}"
        token = secrets.token_urlsafe(24)
        app = make_app(store, token=token, host=authority, is_stopping=lambda: server.should_exit, ask_fleet=ask_fleet)
        config = uvicorn.Config(
            app,
            log_level="warning",
            access_log=False,  # URLs contain thread ids, and the first URL contains the token.
            server_header=False,
            timeout_graceful_shutdown=_STOP_TIMEOUT_S,
        )
        server = uvicorn.Server(config)
        announce(f"http://{authority}/?token={token}")
        server.run(sockets=[listening])
