"""Proxies between a fleet and its storage, for HTTP and for Postgres. They make requests fail by a plan.

`plan(number, what)` returns the fault of each request, counted from 1. None passes it on. Faults that look alike to a
client are different here: a lost request, a lost answer, and a late request.
"""

from __future__ import annotations

import http.client
import random
import socket
import struct
import threading
import time
from collections import Counter
from contextlib import suppress
from enum import Enum, auto
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import urlsplit


class Fault(Enum):
    """The fate of a request."""

    LOST = auto()
    UNHEARD = auto()
    """It is done. The connection ends in place of its answer."""
    LATE = auto()
    """The connection ends, and the request arrives later, behind others."""
    SLOW = auto()
    TWICE = auto()
    TWICE_TOLD_LAST = auto()
    """As when a client library has sent it twice, and hears the second answer."""
    ERROR_500 = auto()
    ERROR_503 = auto()
    ERROR_429 = auto()
    DONE_500 = auto()
    """It is done, but reported as failed."""
    UNDONE_200 = auto()
    """It is not done, but reported as done. No storage may do so, except in negative controls."""


OF_HTTP = tuple(fault for fault in Fault if fault is not Fault.UNDONE_200)
OF_MESSAGES = (Fault.LOST, Fault.UNHEARD, Fault.LATE, Fault.SLOW)
_LATE_S = 0.15
_SLOW_S = 0.05
_DONE_S = 0.03
"""The time within which a server handles a request."""

_STATUS = {Fault.ERROR_500: 500, Fault.ERROR_503: 503, Fault.ERROR_429: 429}


def at_random(seed, share, kinds):
    """Return a plan that gives a share of all requests a fault."""
    chosen = random.Random(seed)
    return lambda _number, _what: chosen.choice(kinds) if chosen.random() < share else None


def at_number(number, fault):
    """Return a plan that gives one request a fault."""
    return lambda asked, _what: fault if asked == number else None


def no_fault(_number, _what):
    """Let all requests through."""


class Proxy:
    """The base of both proxies: a port, a plan, and counts.

    Attributes:
        plan: the plan, which may be replaced at any time.
        count: the number of requests.
        done: the number of occurrences of each fault.
    """

    def __init__(self):
        self.plan = no_fault
        self.count = 0
        self.done = Counter()
        self._lock = threading.Lock()

    def restart(self, plan=no_fault):
        """Count from 1 again, with a plan."""
        with self._lock:
            self.plan, self.count = plan, 0

    def fault_of(self, what):
        with self._lock:
            self.count += 1
            fault = self.plan(self.count, what)
            if fault is not None:
                self.done[fault] += 1
            return fault


class HttpProxy(Proxy):
    """A proxy of HTTP on loopback; a context manager.

    Attributes:
        url: of the proxy.
    """

    def __init__(self, upstream):
        super().__init__()
        self._upstream = urlsplit(upstream).netloc
        handler = type("Handler", (_Handler,), {"proxy": self})
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_port}"

    def __enter__(self):
        threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()
        return self

    def __exit__(self, *_):
        self._server.shutdown()
        self._server.server_close()

    def forward(self, method, path, headers, body):
        """Return status, headers and body of the answer."""
        connection = http.client.HTTPConnection(self._upstream, timeout=20)
        try:
            connection.request(method, path, body, headers)
            answer = connection.getresponse()
            return answer.status, answer.getheaders(), answer.read()
        finally:
            connection.close()


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    proxy: HttpProxy

    def handle(self):
        with suppress(OSError):  # The client has closed the connection.
            super().handle()

    def log_message(self, *_):
        pass

    def _carry(self):
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        request = (self.command, self.path, dict(self.headers), body)
        fault = self.proxy.fault_of(f"{self.command} {self.path}")
        if fault in (Fault.LOST, Fault.LATE):
            if fault is Fault.LATE:
                threading.Timer(_LATE_S, _quietly, (self.proxy.forward, *request)).start()
            return self._cut()
        if fault in _STATUS:
            return self._answer(_STATUS[fault], [], _error(fault.name))
        if fault is Fault.UNDONE_200:
            return self._answer(200, [("ETag", '"00000000000000000000000000000000"')], b"")
        if fault is Fault.SLOW:
            time.sleep(_SLOW_S)
        answer = self.proxy.forward(*request)
        if fault in (Fault.TWICE, Fault.TWICE_TOLD_LAST):
            second = self.proxy.forward(*request)
            answer = second if fault is Fault.TWICE_TOLD_LAST else answer
        if fault is Fault.UNHEARD:
            return self._cut()
        if fault is Fault.DONE_500:
            return self._answer(500, [], _error("InternalError"))
        return self._answer(*answer)

    do_GET = do_PUT = do_HEAD = do_POST = do_DELETE = _carry  # noqa: N815 - so the class calls them

    def _cut(self):
        self.close_connection = True
        with suppress(OSError):
            self.connection.shutdown(socket.SHUT_RDWR)

    def _answer(self, status, headers, body):
        self.send_response_only(status)
        names = {name.lower() for name, _value in headers}
        for name, value in headers:
            if name.lower() not in ("transfer-encoding", "connection"):
                self.send_header(name, value)
        if "content-length" not in names:
            self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)


def _error(code):
    return f"<Error><Code>{code}</Code><Message>as planned</Message></Error>".encode()


def _quietly(call, *arguments):
    with suppress(OSError, http.client.HTTPException):
        call(*arguments)


_BEFORE_IT_BEGINS = (80877103, 80877104)
"""Codes with which a client asks for TLS, or GSS, before it begins."""


class MessageProxy(Proxy):
    """A proxy of the Postgres protocol on loopback. Its requests are the messages of a client. A context manager.

    Attributes:
        port: of the proxy.
    """

    def __init__(self, host, port):
        super().__init__()
        self._upstream = host, port
        self._server = socket.create_server(("127.0.0.1", 0))
        self.port = self._server.getsockname()[1]

    def __enter__(self):
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(self, *_):
        with suppress(OSError):
            self._server.shutdown(socket.SHUT_RDWR)
        self._server.close()

    def _accept(self):
        with suppress(OSError):
            while True:
                client, _address = self._server.accept()
                threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client):
        with suppress(OSError), client, socket.create_connection(self._upstream) as server:
            for each in (client, server):
                each.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            answering = _Answering(server, client)
            try:
                with client.makefile("rb") as asked:
                    while (message := _message(asked, has_type=answering.is_begun)) is not None:
                        if not self._pass_on(message, client, server, answering):
                            break
            finally:
                answering.end()

    def _pass_on(self, message, client, server, answering):
        """Forward a message with its fault. Return False if the fault ends the connection."""
        if not answering.is_begun:
            (code,) = struct.unpack_from(">I", message, 4)
            answering.is_begun = code not in _BEFORE_IT_BEGINS
            server.sendall(message)
            return True
        what = chr(message[0])
        fault = None if what == "X" else self.fault_of(what)
        if fault in (Fault.LOST, Fault.LATE):
            with suppress(OSError):
                client.shutdown(socket.SHUT_RDWR)
            if fault is Fault.LATE:
                time.sleep(_LATE_S)
                server.sendall(message)
                time.sleep(_DONE_S)
            return False
        if fault is Fault.UNHEARD:
            answering.is_heard = False
            server.sendall(message)
            time.sleep(_DONE_S)
            return False
        if fault is Fault.SLOW:
            time.sleep(_SLOW_S)
        server.sendall(message)
        return True


class _Answering:
    """Forwards the bytes of a server to a client until a fault drops them."""

    def __init__(self, server, client):
        self.is_begun = False
        self.is_heard = True
        self._server, self._client = server, client
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self):
        with suppress(OSError):
            while data := self._server.recv(65536):
                if self.is_heard:
                    self._client.sendall(data)
        with suppress(OSError):
            self._client.shutdown(socket.SHUT_RDWR)

    def end(self):
        for each in (self._client, self._server):
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
        self._thread.join(5)


def _message(asked, *, has_type):
    """Return the next complete message of a client, or None at the end."""
    head = asked.read(5 if has_type else 4)
    if len(head) < (5 if has_type else 4):
        return None
    (size,) = struct.unpack(">I", head[-4:])
    return head + asked.read(size - 4)
