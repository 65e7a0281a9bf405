"""The outbox delivers each message at least once, in order for each run, and repeats refused messages."""

from __future__ import annotations

import base64
import importlib
import json
import threading
import time
from datetime import timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import SimpleNamespace

import pytest
import standardwebhooks

import statelog
from statelog import durable
from statelog.durable import delivery
from statelog.durable.clock import set_clock
from statelog.errors import MessageNotFoundError, RunNotFoundError, UsageError, ValueTypeError
from statelog.store.board import own_board

SECRET = "whsec_" + base64.b64encode(bytes(range(32))).decode()
GOT: list[durable.Message] = []


class Killed(BaseException):
    """Simulates a kill of the process."""


@pytest.fixture(autouse=True)
def _as_begun(monkeypatch):
    GOT.clear()
    for name in ("http_proxy", "https_proxy", "all_proxy"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)


@pytest.fixture
def _soon(monkeypatch):
    """Make refused messages due again at once."""
    monkeypatch.setattr(delivery, "DELAYS_S", (0.001,) * 9)


class StillClock:
    """A clock that always shows the same time."""

    def now_us(self):
        return 1_800_000_000_000_000

    def is_short(self, seconds):  # noqa: ARG002 - as declared
        return False


@pytest.fixture
def _still():
    """Stop the clock, however long a test takes."""
    before = set_clock(StillClock())
    yield
    set_clock(before)


@pytest.fixture
def receiver():
    """A server that answers with the next of `statuses`, and with 204 after the last one. 0 means no answer."""
    receiver = SimpleNamespace(requests=[], statuses=[], headers={}, is_over=threading.Event())

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self):
            body = self.rfile.read(int(self.headers["content-length"]))
            receiver.requests.append(SimpleNamespace(headers=dict(self.headers.items()), body=body))
            status = receiver.statuses.pop(0) if receiver.statuses else 204
            if status == 0:
                receiver.is_over.wait()
                return
            quoted = b"cannot POST /hook?key=hidden" if status >= 400 else b""
            self.send_response(status)
            for name, value in {"content-length": len(quoted), **receiver.headers}.items():
                self.send_header(name, str(value))
            self.end_headers()
            self.wfile.write(quoted)

        def log_message(self, *args):
            pass

    class Server(ThreadingHTTPServer):
        def handle_error(self, *args):
            pass

    with Server(("127.0.0.1", 0), Handler) as server:
        receiver.url = f"http://127.0.0.1:{server.server_address[1]}/hook?key=hidden"
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield receiver
        receiver.is_over.set()
        server.shutdown()
        thread.join()


def take(message):
    GOT.append(message)


def ids(receiver):
    return [each.headers["webhook-id"] for each in receiver.requests]


def payloads():
    return [each.payload for each in GOT]


@durable.workflow
def telling(run, count):
    for number in range(count):
        run.emit("trip/booked", {"number": number})


@durable.workflow
def asking(run):
    run.emit("trip/asked", 1)
    return run.gate("approve", payload={"total": 840}).approved


def emitted(store, count=1, id="evt-1"):
    durable.run(store, telling, count, id=id)


def is_parked(store):
    return [each.is_parked for each in durable.outbox(store)]


# --- webhooks -----------------------------------------------------------------------


@pytest.mark.slow
def test_a_receiver_can_verify_a_message_which_names_run_thread_checkpoint_and_gate(store, receiver):
    webhook = durable.Webhook(receiver.url, SECRET)
    info = durable.run(store, asking, id="evt-1", thread="ticket-1", outbox=[webhook])
    first, second = receiver.requests
    told = standardwebhooks.Webhook(SECRET).verify(first.body, first.headers)
    asked = standardwebhooks.Webhook(SECRET).verify(second.body, second.headers)
    assert info.status == "suspended"
    assert (told["type"], asked["type"]) == ("trip/asked", "gate/opened")
    assert set(told["data"]) == {"payload", "run", "thread", "branch", "checkpoint", "gate", "time"}
    assert (told["data"]["run"], told["data"]["thread"], told["data"]["branch"]) == ("evt-1", "ticket-1", "main")
    assert (told["data"]["payload"], told["data"]["gate"]) == (1, None)
    assert told["data"]["time"] == told["timestamp"]
    assert asked["data"]["gate"] == durable.gates(store)[0].id
    assert asked["data"]["payload"]["payload"] == {"total": 840}
    assert told["data"]["checkpoint"] in {each.id for each in store.thread("ticket-1").history()}
    assert durable.outbox(store) == []


@pytest.mark.slow
@pytest.mark.usefixtures("_soon")
def test_a_refused_message_is_repeated_with_the_same_id_and_body(store, receiver):
    """D21."""
    emitted(store)
    (message,) = durable.outbox(store)
    receiver.statuses = [500, 302, 503]
    report = durable.deliver(store, [durable.Webhook(receiver.url, SECRET)], wait=True)
    assert (report.sent, report.refused, report.parked, report.waiting) == (1, 3, 0, 0)
    assert ids(receiver) == [message.id] * 4
    assert len({each.body for each in receiver.requests}) == 1
    for each in receiver.requests:
        standardwebhooks.Webhook(SECRET).verify(each.body, each.headers)


@pytest.mark.usefixtures("_still")
def test_a_run_returns_after_one_attempt_and_the_message_has_the_time_of_the_next(store, receiver):
    receiver.statuses = [500]
    webhook = durable.Webhook(receiver.url, SECRET)
    assert durable.run(store, telling, 2, id="evt-1", outbox=[webhook]).status == "completed"
    first, second = durable.outbox(store)
    assert (first.attempts, first.error, second.attempts, second.error) == (1, "answered 500", 0, None)
    assert first.due - first.time == timedelta(seconds=5)
    report = durable.deliver(store, [webhook])
    assert (report.sent, report.refused, report.waiting, report.due) == (0, 0, 2, first.due)
    assert len(receiver.requests) == 1


@pytest.mark.usefixtures("_still")
def test_a_new_message_does_not_hasten_the_retry_of_an_earlier_one(store, receiver):
    receiver.statuses = [500]
    webhook = durable.Webhook(receiver.url, SECRET)
    durable.run(store, asking, id="evt-1", outbox=[webhook])
    own_board(store).set("durable/deliver/evt-1", {"run": "evt-1"})  # An emit does the same.
    assert durable.deliver(store, [webhook]).sent == 0
    assert len(receiver.requests) == 1


@pytest.mark.usefixtures("_still")
def test_a_retry_after_header_sets_the_time_of_the_next_attempt(store, receiver):
    receiver.statuses, receiver.headers = [429], {"retry-after": "600"}
    report = durable.run(store, telling, 1, id="evt-1", outbox=[durable.Webhook(receiver.url, SECRET)])
    (message,) = durable.outbox(store)
    assert report.status == "completed"
    assert message.due - message.time == timedelta(seconds=600)


def test_a_receiver_that_never_answers_counts_as_refusing(store, receiver):
    receiver.statuses = [0]
    emitted(store)
    report = durable.deliver(store, [durable.Webhook(receiver.url, SECRET, timeout_s=0.05)])
    assert (report.sent, report.refused, report.waiting) == (0, 1, 1)
    assert durable.outbox(store)[0].error == "no answer within 0.05 s"


# --- parked -------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.usefixtures("_soon")
def test_after_ten_refusals_a_message_is_parked_and_later_ones_are_delivered(store, receiver):
    receiver.statuses = [500] * 10
    emitted(store, 2)
    report = durable.deliver(store, [durable.Webhook(receiver.url, SECRET)], wait=True)
    (parked,) = durable.outbox(store, parked=True)
    assert (report.sent, report.refused, report.parked, report.waiting) == (1, 10, 1, 0)
    assert (parked.payload, parked.attempts, parked.error) == ({"number": 0}, 10, "answered 500")
    assert ids(receiver)[:10] == [parked.id] * 10
    assert json.loads(receiver.requests[10].body)["data"]["payload"] == {"number": 1}
    assert durable.outbox(store, parked=False) == []


def test_a_receiver_that_answers_gone_is_not_called_again(store, receiver):
    receiver.statuses = [410]
    emitted(store)
    durable.deliver(store, [durable.Webhook(receiver.url, SECRET)])
    assert is_parked(store) == [True]


def test_a_redelivered_parked_message_keeps_its_id_and_precedes_later_ones(store, receiver):
    webhook = durable.Webhook(receiver.url, SECRET)
    receiver.statuses = [410, 500]
    emitted(store, 2)
    durable.deliver(store, [webhook])
    parked, waits = durable.outbox(store)
    durable.redeliver(store, "evt-1", parked.place)
    assert [(each.id, each.attempts, each.error) for each in durable.outbox(store, parked=False)] == [
        (parked.id, 0, None),
        (waits.id, 1, "answered 500"),
    ]
    assert durable.outbox(store, parked=True) == []
    durable.deliver(store, [take])
    assert [each.id for each in GOT] == [parked.id, waits.id]


@pytest.mark.parametrize(("run", "place"), [("evt-1", "9-abc"), ("none", "0")])
def test_a_message_that_is_not_parked_cannot_be_redelivered(store, run, place):
    with pytest.raises(MessageNotFoundError) as raised:
        durable.redeliver(store, run, place)
    assert raised.value.facts == {"run": run, "place": place}


@pytest.mark.usefixtures("_soon")
def test_a_refusing_subscriber_does_not_delay_the_others(store):
    def refuses(message):
        raise ValueError(message.payload["number"])

    emitted(store, 3)
    report = durable.deliver(store, [refuses, take], wait=True)
    assert payloads() == [{"number": number} for number in range(3)]
    assert (report.sent, report.refused, report.parked) == (3, 30, 3)
    assert [each.error for each in durable.outbox(store)] == ["ValueError: 0", "ValueError: 1", "ValueError: 2"]


@pytest.mark.usefixtures("_soon")
def test_a_subscriber_does_not_get_a_message_twice(store):
    heard = []
    emitted(store)
    durable.deliver(store, [Refusing(0, 0), heard.append], wait=True)
    assert [each.id for each in heard] == [each.id for each in GOT]
    assert durable.outbox(store) == []


# --- order --------------------------------------------------------------------------


class Refusing:
    """A subscriber that refuses the first attempts at some messages."""

    def __init__(self, *numbers):
        self.left = list(numbers)

    def __call__(self, message):
        number = message.payload["number"]
        if number in self.left:
            self.left.remove(number)
            raise ValueError(number)
        GOT.append(message)


@pytest.mark.usefixtures("_soon")
def test_messages_of_a_run_arrive_in_order_despite_refusals(store):
    emitted(store, 12)  # Ordered by key, the tenth message would follow the first.
    durable.deliver(store, [Refusing(0, 0, 1, 3, 3, 3, 11)], wait=True)
    assert payloads() == [{"number": number} for number in range(12)]


@pytest.mark.usefixtures("_soon")
def test_ordered_by_the_version_of_their_entries_messages_arrive_out_of_order(store, monkeypatch):
    staging = importlib.import_module("statelog.durable.outbox")
    monkeypatch.setattr(staging, "order_of", lambda entry: entry.version)
    emitted(store, 3)
    durable.deliver(store, [Refusing(0)], wait=True)
    assert payloads() == [{"number": number} for number in (1, 2, 0)]


def test_two_concurrent_deliveries_send_each_message_once_and_in_order(path):
    with statelog.open(path) as first, statelog.open(path) as second:
        for number in range(6):
            emitted(first, 4, id=f"evt-{number}")
        threads = [threading.Thread(target=durable.deliver, args=(store, [take])) for store in (first, second)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        while durable.deliver(first, [take]).waiting:  # One of them may just have held the last run.
            time.sleep(0.005)
    for number in range(6):
        assert [each.payload["number"] for each in GOT if each.run == f"evt-{number}"] == [0, 1, 2, 3]


def test_a_message_emitted_while_the_last_one_is_sent_is_delivered(store, monkeypatch):
    emitted(store)
    board = type(own_board(store))
    delete, emits = board.delete, [lambda: emitted(store, id="evt-2"), lambda: more(store)]

    def more(store):
        own_board(store).set("durable/outbox/evt-1/late", {**held, "id": "msg_late"})
        own_board(store).set("durable/deliver/evt-1", {"run": "evt-1"})

    def late(self, key, **how):
        if key == "durable/deliver/evt-1" and emits:
            emits.pop()()
        return delete(self, key, **how)

    (held,) = (each.value for each in own_board(store).list("durable/outbox/**"))
    monkeypatch.setattr(board, "delete", late)
    durable.deliver(store, [take])
    assert [each.id for each in GOT[:2]] == [held["id"], "msg_late"]
    assert durable.outbox(store) == []


# --- kills --------------------------------------------------------------------------


def test_after_a_kill_between_sending_and_recording_only_that_message_is_repeated_with_its_id(store):
    """D21."""

    def dies(message):
        GOT.append(message)
        if len(GOT) == 2:
            raise Killed

    emitted(store, 3)
    with pytest.raises(Killed):
        durable.deliver(store, [dies])
    durable.deliver(store, [dies])
    assert [each["number"] for each in payloads()] == [0, 1, 1, 2]
    assert GOT[1].id == GOT[2].id
    assert len({each.id for each in GOT}) == 3


def test_a_delivery_that_lost_its_claim_while_sending_records_nothing(store):
    def loses(message):
        GOT.append(message)
        own_board(store).delete("durable/deliver/evt-1")  # Another process took over and has finished.

    emitted(store, 2)
    durable.deliver(store, [loses])
    assert len(GOT) == 1
    assert len(durable.outbox(store)) == 2


def test_a_sent_message_is_on_the_disk(store, monkeypatch):
    """A message must not report a commit that a power cut can undo."""
    renewed = []

    def note(claim):
        renewed.append(claim)

    monkeypatch.setattr(statelog.store.claims.Claim, "renew", note)

    def emits(message):
        if not GOT:
            emitted(store, id="evt-2")
            value = next(each.value for each in own_board(store).list("durable/outbox/evt-2/*"))
            own_board(store).set("durable/outbox/evt-1/late", value)
        take(message)

    emitted(store)
    durable.deliver(store, [emits], run="evt-1")
    assert len(GOT) == 2
    assert len(renewed) == 1


# --- which messages exist, and what is stored ------------------------------------------------


def test_the_message_of_a_gate_is_not_sent_after_its_answer(store):
    durable.run(store, asking, id="evt-1")
    durable.answer(store, durable.gates(store)[0].id, approved=True)
    durable.deliver(store, [take])
    assert [each.topic for each in GOT] == ["trip/asked"]
    assert durable.outbox(store) == []


def test_two_messages_from_the_same_place_are_both_sent(store):
    @durable.workflow
    def again(run, number):
        run.emit("turn", number)
        if number < 3:
            run.continue_as_new(number + 1)

    durable.run(store, again, 1, id="evt-1")
    durable.deliver(store, [take])
    assert payloads() == [1, 2, 3]


@pytest.mark.slow
def test_purging_a_run_removes_its_messages(store, receiver):
    receiver.statuses = [410]
    emitted(store, 2)
    durable.deliver(store, [durable.Webhook(receiver.url, SECRET)])
    durable.purge_run(store, "evt-1")
    assert durable.outbox(store) == []
    assert own_board(store).list("durable/**") == []


def test_the_messages_of_a_single_run_can_be_delivered(store):
    for id in ("evt-1", "evt-2"):
        emitted(store, id=id)
    durable.deliver(store, [take], run="evt-2")
    assert [each.run for each in GOT] == ["evt-2"]
    with pytest.raises(RunNotFoundError):
        durable.deliver(store, [take], run="none")


def test_neither_url_nor_secret_is_stored(path, receiver):
    receiver.statuses = [500, 500]
    url = receiver.url.replace("http://", "http://somebody:sesame@")
    with statelog.open(path) as store:
        webhook = durable.Webhook(url, SECRET)
        durable.run(store, telling, 2, id="evt-1", outbox=[take, webhook])
        durable.deliver(store, [durable.Webhook("http://127.0.0.1:1/refused?key=hidden", SECRET), take])
        log = path.read_bytes()
    for text in (b"127.0.0.1", b"hidden", b"sesame", b"hook", SECRET[6:20].encode(), bytes(range(32))):
        assert text not in log


def test_a_payload_or_topic_that_cannot_be_stored_is_refused_before_anything_is_written(store):
    @durable.workflow
    def odd(run, what):
        topic, payload = {"payload": ("a", object()), "topic": (5, 1), "empty": ("a//b", 1)}[what]
        try:
            run.emit(topic, payload)
        except (ValueTypeError, UsageError) as error:
            return type(error).__name__

    assert durable.run(store, odd, "payload", id="evt-1").value == "ValueTypeError"
    assert durable.run(store, odd, "topic", id="evt-2").value == "UsageError"
    assert durable.run(store, odd, "empty", id="evt-3").value == "UsageError"
    assert durable.steps(store, "evt-1") == []
    assert durable.outbox(store) == []
