"""Requests of webhooks, and their handling of each answer and of no answer. A loopback server gives the answers."""

from __future__ import annotations

import base64
import importlib.util
import json
import pickle
import socket
import threading
import time
from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal
from email.utils import format_datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import SimpleNamespace

import pytest
import standardwebhooks

from statelog.durable.webhook import Webhook, _Exchange, body_of
from statelog.errors import StatelogError, UsageError, WebhookError

KEY = bytes(range(32))
SECRET = "whsec_" + base64.b64encode(KEY).decode()
OTHER_SECRET = "whsec_" + base64.b64encode(KEY[::-1]).decode()
MESSAGE = {"type": "trip/booked", "timestamp": "2026-07-01T12:00:00Z", "data": {"run": "evt-991", "total": 840}}
MEGABYTE = bytes(1 << 20)


@pytest.fixture(autouse=True)
def _no_proxy(monkeypatch):
    for name in ("http_proxy", "https_proxy", "all_proxy"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)


@pytest.fixture
def receiver():
    """A server that calls `answer(handler)` and keeps its requests."""
    receiver = SimpleNamespace(requests=[], answer=lambda handler: answer(handler, 204), is_over=threading.Event())

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self):
            body = self.rfile.read(int(self.headers["content-length"]))
            receiver.requests.append(SimpleNamespace(path=self.path, headers=dict(self.headers.items()), body=body))
            receiver.answer(self)

        def do_GET(self):
            receiver.requests.append(SimpleNamespace(path=self.path))
            answer(self, 200)

        def log_message(self, *args):
            pass

    class Server(ThreadingHTTPServer):
        def handle_error(self, *args):
            pass

    with Server(("127.0.0.1", 0), Handler) as server:
        receiver.host = f"127.0.0.1:{server.server_address[1]}"
        receiver.url = f"http://{receiver.host}/hook"
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield receiver
        receiver.is_over.set()
        server.shutdown()
        thread.join()


def answer(handler, status, body=b"", **headers):
    handler.send_response(status)
    for name, value in {"content_length": len(body), **headers}.items():
        handler.send_header(name.replace("_", "-"), str(value))
    handler.end_headers()
    handler.wfile.write(body)


def send(url, secret=SECRET, now_s=None, **options):
    Webhook(url, secret, **options).send(MESSAGE, id="evt-991-7", now_s=time.time() if now_s is None else now_s)


def refused(url, **options):
    with pytest.raises(WebhookError) as raised:
        send(url, **options)
    assert set(raised.value.facts) == {"url", "status", "reason", "retry_after_s", "is_final"}
    assert isinstance(raised.value, StatelogError)
    return raised.value


# --- requests -------------------------------------------------------------------


@pytest.mark.parametrize("secret", [SECRET, SECRET.rstrip("="), KEY])
def test_a_receiver_can_verify_a_message(receiver, secret):
    send(receiver.url, secret)
    (request,) = receiver.requests
    assert standardwebhooks.Webhook(SECRET).verify(request.body, request.headers) == MESSAGE
    assert request.headers["webhook-id"] == "evt-991-7"
    assert request.headers["content-type"] == "application/json"
    with pytest.raises(standardwebhooks.WebhookVerificationError):
        standardwebhooks.Webhook(SECRET).verify(request.body + b" ", request.headers)
    with pytest.raises(standardwebhooks.WebhookVerificationError):
        standardwebhooks.Webhook(OTHER_SECRET).verify(request.body, request.headers)


def test_both_secrets_verify_during_a_rotation(receiver):
    send(receiver.url, f"{OTHER_SECRET} {SECRET}")
    (request,) = receiver.requests
    for secret in (SECRET, OTHER_SECRET):
        assert standardwebhooks.Webhook(secret).verify(request.body, request.headers) == MESSAGE


def test_the_signature_equals_the_example_of_the_specification(receiver):
    secret = "whsec_C2FVsBQIhrscChlQIMV+b5sSYspob7oD"
    send(receiver.url, secret, now_s=1_674_087_231.9)
    (request,) = receiver.requests
    assert request.headers["webhook-timestamp"] == "1674087231"
    expected = standardwebhooks.Webhook(secret).sign(
        "evt-991-7", datetime.fromtimestamp(1_674_087_231, UTC), request.body.decode()
    )
    assert request.headers["webhook-signature"] == expected


def test_a_repeated_message_differs_only_in_its_time(receiver):
    webhook = Webhook(receiver.url, SECRET)
    for now_s in (1000.0, 2000.0):
        webhook.send(MESSAGE, id="evt-991-7", now_s=now_s)
    first, second = receiver.requests
    assert first.body == second.body
    assert first.headers["webhook-id"] == second.headers["webhook-id"]
    assert first.headers["webhook-signature"] != second.headers["webhook-signature"]


def test_the_full_url_is_requested_but_only_a_part_is_shown(receiver):
    receiver.answer = lambda handler: answer(handler, 500)
    url = f"http://me:p%40ss@{receiver.host}/hook?key=hidden"
    error = refused(url)
    (request,) = receiver.requests
    assert request.path == "/hook?key=hidden"
    assert request.headers["Authorization"] == "Basic " + base64.b64encode(b"me:p@ss").decode()
    assert error.url == receiver.url
    for shown in (str(error), repr(error.facts), repr(Webhook(url, SECRET)), str(pickle.loads(pickle.dumps(error)))):
        assert "hidden" not in shown
        assert "p%40ss" not in shown
        assert "p@ss" not in shown
        assert SECRET not in shown


# --- answers ------------------------------------------------------------------------


@pytest.mark.parametrize("status", [200, 201, 202, 204, 299])
def test_an_answer_of_200_to_299_is_success(receiver, status):
    receiver.answer = lambda handler: answer(handler, status)
    send(receiver.url)
    assert len(receiver.requests) == 1


@pytest.mark.parametrize("status", [304, 400, 404, 429, 500, 503])
def test_every_other_answer_is_a_temporary_error(receiver, status):
    receiver.answer = lambda handler: answer(handler, status)
    error = refused(receiver.url)
    assert (error.status, error.retry_after_s, error.is_final) == (status, None, False)
    assert len(receiver.requests) == 1


def test_status_gone_is_permanent(receiver):
    receiver.answer = lambda handler: answer(handler, 410)
    error = refused(receiver.url)
    assert (error.status, error.is_final) == (410, True)


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
def test_a_redirect_is_not_followed(receiver, status):
    receiver.answer = lambda handler: answer(handler, status, location="/elsewhere")
    error = refused(receiver.url)
    assert (error.status, error.is_final) == (status, False)
    assert "redirects are not followed" in error.reason
    assert [request.path for request in receiver.requests] == ["/hook"]


NOW_S = 1_782_907_200.0
RETRY_AFTERS = [
    ("120", 120.0),
    (" 0 ", 0.0),
    (format_datetime(datetime.fromtimestamp(NOW_S + 90, UTC), usegmt=True), 90.0),
    (format_datetime(datetime.fromtimestamp(NOW_S - 90, UTC), usegmt=True), 0.0),
    ("-5", None),
    ("1.5", None),
    ("9" * 5000, None),
    ("soon", None),
    ("Wed, 99 Foo 2026 00:00:00 GMT", None),
    ("", None),
]


@pytest.mark.parametrize(("header", "expected"), RETRY_AFTERS, ids=range(len(RETRY_AFTERS)))
def test_the_delay_is_taken_from_the_retry_after_header(receiver, header, expected):
    receiver.answer = lambda handler: answer(handler, 503, retry_after=header)
    assert refused(receiver.url, now_s=NOW_S).retry_after_s == expected


def test_the_beginning_of_a_refusal_is_quoted_on_one_line(receiver):
    receiver.answer = lambda handler: answer(handler, 400, b"no \x1b[31msuch\r\n\xff run" + b"!" * 5000)
    error = refused(receiver.url)
    assert error.reason.startswith("answered 400: no [31msuch \N{REPLACEMENT CHARACTER} run!!!")
    assert len(error.reason) < 300


@pytest.mark.parametrize("status", [200, 500])
def test_a_huge_answer_is_not_read(receiver, status):
    sent, is_done = [], threading.Event()

    def pour(handler):
        try:
            answer(handler, status, content_length=1000 * len(MEGABYTE))
            for _ in range(1000):
                handler.wfile.write(MEGABYTE)
                sent.append(len(MEGABYTE))
        except OSError:
            is_done.set()

    receiver.answer = pour
    send(receiver.url) if status == 200 else refused(receiver.url)
    assert is_done.wait(60), "the connection was closed on it"
    assert len(sent) < 100


# --- no answer ----------------------------------------------------------------------


def drip(receiver, handler, beginning):
    handler.wfile.write(beginning)
    while not receiver.is_over.wait(0.01):
        handler.wfile.write(b"x")


def test_a_receiver_that_never_answers_times_out(receiver):
    receiver.answer = lambda _handler: receiver.is_over.wait()
    error = refused(receiver.url, timeout_s=0.2)
    assert (error.status, error.reason, error.is_final) == (None, "no answer within 0.2 s", False)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("beginning", "status", "timeout_s"),
    [
        (b"HTTP/1.0 200 ", None, 0.2),
        (b"HTTP/1.0 500 Oh\r\ncontent-length: 100000\r\n\r\n", 500, 1.5),  # It has arrived by then.
    ],
)
def test_the_timeout_covers_the_whole_exchange(receiver, beginning, status, timeout_s):
    receiver.answer = lambda handler: drip(receiver, handler, beginning)
    assert refused(receiver.url, timeout_s=timeout_s).status == status


def test_no_thread_is_left_after_an_exchange(receiver):
    receiver.answer = lambda handler: drip(receiver, handler, b"HTTP/1.0 200 ")
    refused(receiver.url, timeout_s=0.2)
    for thread in threading.enumerate():
        if thread.name == "statelog-webhook":
            thread.join(60)
            assert not thread.is_alive()


def test_a_connection_made_after_the_timeout_sends_nothing(receiver):
    exchange = _Exchange(Webhook(receiver.url, SECRET)._client_options(), receiver.url, {}, b"{}")
    exchange.end()
    exchange.start()
    exchange.join()
    assert (exchange.status, exchange.failure, exchange.bug) == (None, "", None)
    assert receiver.requests == []


def test_a_connection_that_closes_is_an_error(receiver):
    receiver.answer = lambda handler: handler.connection.shutdown(socket.SHUT_RDWR)
    error = refused(receiver.url)
    assert error.status is None
    assert error.reason.startswith("RemoteProtocolError: ")


def test_an_answer_that_is_not_http_is_an_error(receiver):
    receiver.answer = lambda handler: handler.wfile.write(b"SSH-2.0-server\r\n\r\n")
    assert refused(receiver.url).status is None


def test_a_refused_connection_is_an_error():
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    error = refused(f"http://127.0.0.1:{port}/hook")
    assert error.status is None
    assert error.reason.startswith("ConnectError: ")


def test_a_server_without_tls_is_an_error(receiver):
    assert refused(receiver.url.replace("http:", "https:")).reason.startswith("ConnectError: ")


@pytest.mark.slow
def test_a_webhook_can_be_used_from_many_threads(receiver):
    webhook = Webhook(receiver.url, SECRET)
    threads = [
        threading.Thread(target=webhook.send, args=(MESSAGE,), kwargs={"id": f"evt-{number}", "now_s": 1.0})
        for number in range(8)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    ids = {request.headers["webhook-id"] for request in receiver.requests}
    assert ids == {f"evt-{number}" for number in range(8)}


# --- bodies -------------------------------------------------------------------------

SHOWN = [
    (b"\x00\xff", "AP8="),
    (datetime(2026, 7, 1, 12, tzinfo=UTC), "2026-07-01T12:00:00+00:00"),
    (date(2026, 7, 1), "2026-07-01"),
    (float("nan"), "nan"),
    (float("-inf"), "-inf"),
    ({3, 1, 2}, [1, 2, 3]),
    (frozenset({"b", "a", 1, None}), ["a", "b", 1, None]),
    ((1, [2.5, True]), [1, [2.5, True]]),
    ({1: "one", None: "none", "k": {b"\x00": 2}}, {"1": "one", "null": "none", "k": {"AA==": 2}}),
    (Decimal("1.50"), "1.50"),
    ("naïve \ud800", "naïve \ud800"),
    (2**70, 2**70),
]


@pytest.mark.parametrize(("value", "expected"), SHOWN)
def test_values_unknown_to_json_are_sent_as_shown(value, expected):
    body = body_of("topic", "2026-07-01T12:00:00Z", {"value": value})
    assert json.loads(body) == {"type": "topic", "timestamp": "2026-07-01T12:00:00Z", "data": {"value": expected}}


def test_equal_messages_have_equal_bodies():
    there, here = datetime(2026, 7, 1, 14, tzinfo=timezone(timedelta(hours=2))), datetime(2026, 7, 1, 12, tzinfo=UTC)
    one = body_of("topic", there, {"a": 1, "b": {f"item {number}" for number in range(50)}})
    two = body_of("topic", here, {"b": {f"item {number}" for number in reversed(range(50))}, "a": 1})
    assert one == two
    assert one.startswith(b'{"type":"topic","timestamp":"2026-07-01T12:00:00Z","data":{"a":1,"b":["item 0",')


# --- topics -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("topics", "fitting", "others"),
    [
        (("**",), ["trip", "trip/booked", "a/b/c"], ["durable/gate"]),
        (("trip/*",), ["trip/booked"], ["trip", "trip/a/b", "other/booked"]),
        (("trip/**", "*/failed"), ["trip/a/b", "hotel/failed"], ["hotel/booked"]),
        (("durable/**",), ["durable/gate"], ["trip"]),
    ],
)
def test_topics_are_selected_by_patterns(topics, fitting, others):
    webhook = Webhook("https://example.test/hook", SECRET, topics=topics)
    assert [topic for topic in fitting + others if webhook.fits(topic)] == fitting


# --- bad input ----------------------------------------------------------------------

URLS = [
    ("ftp://u:pw@host/x", "ftp://host/x"),
    ("host/x?key=pw", "host/x"),
    ("u:pw@host", "host"),
    ("http://", "http://"),
    ("http://u:pw@host:port/x", "http://host:port/x"),
    ("http://u:p/w@host:99999", "http://host:99999"),
    ("http://u:pw?@host x", "http://host x"),
    ("https://host/a\r\nb", "https://host/a\r\nb"),
    ("http://[::1/x", "http://[::1/x"),
    ("http://host:0/", "http://host:0/"),
    ("", ""),
    (None, None),
]


@pytest.mark.parametrize(("url", "shown"), URLS)
def test_an_invalid_url_is_refused_and_shown_without_its_password(url, shown):
    with pytest.raises(UsageError) as raised:
        Webhook(url, SECRET)
    assert raised.value.facts == {"argument": "url", "value": shown}
    assert "pw" not in str(raised.value)


def in_base64(size):
    return "whsec_" + base64.b64encode(bytes(size)).decode()


@pytest.mark.parametrize("secret", [in_base64(24), in_base64(64), bytes(24), bytes(64)])
def test_a_secret_of_24_to_64_bytes_is_accepted(secret):
    Webhook("https://example.test/hook", secret)


BAD_SECRETS = [
    "", " ", "whsec_", "whsec_n*t base64", SECRET.removeprefix("whsec_"), f"{SECRET} short", SECRET + "\N{SNOWMAN}",
    in_base64(23), in_base64(65), b"", bytes(23), bytes(65), SECRET.encode(), None, 5,
]  # fmt: skip


@pytest.mark.parametrize("secret", BAD_SECRETS, ids=range(len(BAD_SECRETS)))
def test_an_invalid_secret_is_refused_and_not_shown(secret):
    with pytest.raises(UsageError) as raised:
        Webhook("https://example.test/hook", secret)
    assert raised.value.argument == "secret"
    assert "value" not in raised.value.facts
    assert SECRET.removeprefix("whsec_") not in str(raised.value)


@pytest.mark.parametrize("topics", ["**", (), ("a**",), ("",), ("a//b",), ("[a]",), (5,), None, ("a" * 401,)])
def test_invalid_topics_are_refused(topics):
    with pytest.raises(UsageError) as raised:
        Webhook("https://example.test/hook", SECRET, topics=topics)
    assert raised.value.facts == {"argument": "topics", "value": topics}


@pytest.mark.parametrize("timeout_s", [0, -1, float("nan"), float("inf"), "1", None, True])
def test_an_invalid_timeout_is_refused(timeout_s):
    with pytest.raises(UsageError) as raised:
        Webhook("https://example.test/hook", SECRET, timeout_s=timeout_s)
    assert raised.value.argument == "timeout_s"


@pytest.mark.parametrize("id", ["", "a.b", "a b", "a\r\nb", "\N{SNOWMAN}", "a" * 257, 5])
def test_an_invalid_id_is_refused_before_anything_is_sent(receiver, id):
    with pytest.raises(UsageError) as raised:
        Webhook(receiver.url, SECRET).send(MESSAGE, id=id, now_s=1.0)
    assert raised.value.facts == {"argument": "id", "value": id}
    assert receiver.requests == []


@pytest.mark.parametrize(
    ("change", "argument"),
    [
        ({"type": ""}, "type"),
        ({"type": 5}, "type"),
        ({"timestamp": 5}, "timestamp"),
        ({"timestamp": datetime(2026, 7, 1)}, "timestamp"),  # noqa: DTZ001 - without a zone
        ({"more": 1}, "message"),
    ],
)
def test_an_invalid_message_is_refused(change, argument):
    with pytest.raises(UsageError) as raised:
        Webhook("https://example.test/hook", SECRET).send({**MESSAGE, **change}, id="evt", now_s=1.0)
    assert raised.value.argument == argument


def test_without_httpx2_the_error_names_the_extra(monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "httpx2" else object())
    with pytest.raises(UsageError, match=r"pip install 'statelog\[webhook\]'"):
        Webhook("https://example.test/hook", SECRET)
