"""A process that serves S3 on loopback with moto, and records its requests.

It handles one request at a time, because moto's conditional requests are not atomic. Both sides of a row wait alike.
Buckets are created when they are first used. The process prints its port. For each line on stdin, it prints the
requests since the previous line. It ends with its stdin.
"""

from __future__ import annotations

import json
import logging
import sys
import threading
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable


class RequestCounter:
    """A WSGI application in front of moto. It creates buckets, and records requests."""

    def __init__(self, application: Any, client: Any) -> None:
        self._application = application
        self._client = client
        self._buckets: set[str] = set()
        self._lock = threading.Lock()
        self._asked: list[tuple[str, str, int, int]] = []

    def __call__(self, environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        """Answer a WSGI request."""
        path = environ["PATH_INFO"].lstrip("/")
        bucket = path.partition("/")[0]
        with self._lock:
            if bucket not in self._buckets:
                self._buckets.add(bucket)
                self._client(self._application).put(f"/{bucket}")
            answer = [b"".join(self._application(environ, start_response))]
            sent_bytes = int(environ.get("CONTENT_LENGTH") or 0)
            self._asked.append((environ["REQUEST_METHOD"], path, sent_bytes, len(answer[0])))
        return answer

    def told(self) -> list[tuple[str, str, int, int]]:
        """Return the requests since the last call: method, path, bytes received, bytes sent."""
        with self._lock:
            asked, self._asked = self._asked, []
        return asked


def main(_number: int = 0) -> None:
    """Serve until stdin ends."""
    from moto.moto_server.werkzeug_app import DomainDispatcherApplication, MotoRequestHandler, create_backend_app
    from werkzeug.serving import make_server
    from werkzeug.test import Client

    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    application = RequestCounter(DomainDispatcherApplication(create_backend_app), Client)
    server = make_server("127.0.0.1", 0, application, threaded=True, request_handler=MotoRequestHandler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    _say(server.server_port)
    for _line in sys.stdin:
        _say(application.told())


def _say(what: Any) -> None:
    sys.stdout.write(f"{json.dumps(what)}\n")
    sys.stdout.flush()
