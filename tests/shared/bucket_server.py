"""A program that serves S3 on loopback with moto, one request at a time, because moto's conditions are not atomic.

It prints its port, and ends with its standard input. Buckets are created on first use, except `no-bucket`. Requests to
`refused` are forbidden, and those to `busy` are refused for the moment. `lost-answer` does everything, but reports a
failure the first time. `no-conditions` reports that it has no conditions, and `ignores-conditions` ignores them.
"""

from __future__ import annotations

import sys
import threading

from moto.moto_server.werkzeug_app import DomainDispatcherApplication, MotoRequestHandler, create_backend_app
from werkzeug.serving import make_server
from werkzeug.test import Client

_LOCK = threading.Lock()
_ERRORS = {
    "refused": ("403 Forbidden", "AccessDenied"),
    "busy": ("503 Service Unavailable", "SlowDown"),
    "no-conditions": ("501 Not Implemented", "NotImplemented"),
}
_CONDITIONS = ("HTTP_IF_MATCH", "HTTP_IF_NONE_MATCH")


def error_of(status, code, start_response):
    start_response(status, [("Content-Type", "application/xml")])
    return [f"<Error><Code>{code}</Code><Message>it says so</Message></Error>".encode()]


class Served:
    def __init__(self, application):
        self.application = application
        self.buckets = {"no-bucket"}
        self.answered = set()

    def __call__(self, environ, start_response):
        bucket, _, key = environ["PATH_INFO"].lstrip("/").partition("/")
        if bucket in _ERRORS and not (bucket == "no-conditions" and not set(_CONDITIONS) & set(environ)):
            return error_of(*_ERRORS[bucket], start_response)
        with _LOCK:
            if bucket not in self.buckets:
                self.buckets.add(bucket)
                Client(self.application).put(f"/{bucket}")
            if bucket == "ignores-conditions":
                environ = {name: value for name, value in environ.items() if name not in _CONDITIONS}
            request = environ["REQUEST_METHOD"], key
            if bucket == "lost-answer" and request[0] == "PUT" and request not in self.answered:
                self.answered.add(request)
                b"".join(self.application(environ, lambda *_: None))
                return error_of("500 Internal Server Error", "InternalError", start_response)
            return [b"".join(self.application(environ, start_response))]


def main():
    application = Served(DomainDispatcherApplication(create_backend_app))
    server = make_server("127.0.0.1", 0, application, threaded=True, request_handler=MotoRequestHandler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    sys.stdout.write(f"{server.server_port}\n")
    sys.stdout.flush()
    sys.stdin.read()


if __name__ == "__main__":
    main()
