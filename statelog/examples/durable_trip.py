"""Books trips while workers are killed. Each service is called once, except a service that was at work at the kill.

    python -m statelog.examples.durable_trip [FILE]

The services are stubs on the loopback. They count calls, and kill their caller, a worker, by SIGKILL: in a step,
between two steps, in a payment that is made at most once, and in a compensation. One worker is killed at the gate,
where the trip waits for a person, who answers while no worker runs. After each kill, another worker continues.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import signal
import sys
import tempfile
import threading
import urllib.request
import uuid
from collections import Counter
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import statelog
from statelog import durable
from statelog.errors import StepInterruptedError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from multiprocessing.context import SpawnProcess

    from statelog.store.transaction import Transaction

LEASE_S: Final = 1.5
"""How long the next worker waits for a killed worker. The default, 30 seconds, tolerates processes that stall."""

WAIT_S: Final = 60.0
ADDRESS: Final = "TRIP_SERVICES"
SERVICES: Final = ("model", "flight", "hotel", "search", "charge", "find-charge", "cancel-hotel", "cancel-flight")


class Scenario(NamedTuple):
    """Where a worker is killed."""

    title: str
    kill_in: str | None
    """The service that kills its first caller."""
    is_approved: bool = True
    is_killed_at_gate: bool = False


SCENARIOS: Final = (
    Scenario("nowhere", None),
    Scenario("in a step", "hotel"),
    Scenario("between steps", "between"),
    Scenario("at the gate", None, is_killed_at_gate=True),
    Scenario("in the payment", "charge"),
    Scenario("in a compensation", "cancel-hotel", is_approved=False),
)

# --- the trip, and its steps ------------------------------------------------------------------


def call(service: str, run: str, key: str, **payload: Any) -> Any:
    """Call a service. Raises OSError if the service cannot be reached."""
    headers = {"Idempotency-Key": key, "Run": run, "Pid": str(os.getpid())}
    body = json.dumps(payload).encode()
    request = urllib.request.Request(f"{os.environ[ADDRESS]}/{service}", body, headers)  # noqa: S310 - a stub of ours
    with urllib.request.urlopen(request, timeout=WAIT_S) as answer:  # noqa: S310
        return json.load(answer)


def call_in_step(service: str, **payload: Any) -> Any:
    """Call a service from a step, with the key by which the service recognises a repeated call."""
    step = durable.current_step()
    return call(service, step.run, step.idempotency_key, **payload)


def ask_model(request: str) -> Any:
    """Return a plan for a request."""
    return call_in_step("model", request=request)


def book_flight(plan: Any) -> Any:
    """Book a flight."""
    return call_in_step("flight", city=plan["city"])


def cancel_flight(flight: Any, _plan: Any) -> Any:
    """Cancel a flight. `flight` is `durable.UNKNOWN` if nobody knows whether it was booked."""
    return call_in_step("cancel-flight", flight=flight or "unknown")


def book_hotel(plan: Any) -> Any:
    """Book a hotel."""
    return call_in_step("hotel", city=plan["city"])


def cancel_hotel(hotel: Any, _plan: Any) -> Any:
    """Cancel a hotel."""
    return call_in_step("cancel-hotel", hotel=hotel or "unknown")


def search(query: str) -> Any:
    """Look something up."""
    return call_in_step("search", query=query)


def charge(flight: Any, hotel: Any) -> Any:
    """Take the money, at most once."""
    return call_in_step("charge", flight=flight, hotel=hotel)


def find_charge(flight: Any) -> Any:
    """Ask whether the money was taken."""
    return call_in_step("find-charge", flight=flight)


def reserve(tx: Transaction, run: str, flight: Any) -> None:
    """Count a seat in the store, exactly once."""
    tx.board().create(f"seats/{run}", flight)


@durable.workflow
def trip(run: durable.Run, request: str) -> Any:
    """Book a trip."""
    plan = run.step_with(durable.StepOptions(retry=durable.Retry(attempts=5), timeout_s=60), ask_model, request)
    flight = run.step_with(durable.StepOptions(compensate=cancel_flight), book_flight, plan)
    call("between", run.id, "")  # Only for the kill: a real workflow calls services in steps.
    hotel = run.step_with(
        durable.StepOptions(compensate=cancel_hotel, commit=lambda result: {"hotel": result}), book_hotel, plan
    )
    found = run.map(search, plan["queries"], concurrency=4)
    answer = run.gate("approve-payment", payload={"total": 840}, timeout_s=86400)
    if not answer.approved:
        raise durable.Abort("declined")
    run.transact(reserve, run.id, flight)
    run.commit({"messages": [f"{flight} and {hotel}, {len(found)} tips"]})
    run.emit("trip/booked", {"flight": flight})
    try:
        return run.step_with(durable.StepOptions(semantics="at_most_once"), charge, flight, hotel)
    except StepInterruptedError:  # Nobody knows whether the money was taken, so ask.
        return run.step(find_charge, flight)


def work(path: str) -> None:
    """Drive trips until this process is killed."""
    with statelog.open(path) as store:
        durable.run_worker(store, [trip], lease_s=LEASE_S)


# --- the services -------------------------------------------------------------------------------


class Services(ThreadingHTTPServer):
    """Stubs that count their calls by run and service, and kill chosen callers."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.lock = threading.Lock()
        self.calls: Counter[tuple[str, str]] = Counter()
        self.keys: dict[tuple[str, str], set[str]] = {}
        self.to_kill: set[tuple[str, str]] = set()

    def take(self, run: str, service: str, key: str) -> bool:
        """Count a call. Return whether its caller must be killed."""
        with self.lock:
            self.calls[run, service] += 1
            self.keys.setdefault((run, service), set()).add(key)
            is_to_die = (run, service) in self.to_kill
            self.to_kill.discard((run, service))
            return is_to_die


class _Handler(BaseHTTPRequestHandler):
    server: Services

    def do_POST(self) -> None:
        """Answer, or kill the caller after the service has done its work."""
        payload = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        service = self.path.strip("/")
        if self.server.take(self.headers["Run"], service, self.headers["Idempotency-Key"]):
            print(f"  {service}: called, and the worker is killed", flush=True)
            os.kill(int(self.headers["Pid"]), signal.SIGKILL)
            return
        plan = {"city": payload.get("request"), "queries": ["museum", "soup", "rain"]}
        body = json.dumps(plan if service == "model" else f"{service} 7").encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_arguments: Any) -> None:
        """Log nothing."""


@contextmanager
def serving() -> Iterator[Services]:
    """Run the services until the `with` block ends."""
    services = Services()
    os.environ[ADDRESS] = f"http://127.0.0.1:{services.server_port}"
    thread = threading.Thread(target=services.serve_forever, args=(0.01,))
    thread.start()
    try:
        yield services
    finally:
        services.shutdown()
        thread.join()
        services.server_close()


# --- workers, and their kills -------------------------------------------------------------------


class Workers:
    """Runs one worker at a time, and replaces a killed one."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._worker: SpawnProcess | None = None

    def keep_one(self) -> None:
        """Start a worker if none is running."""
        if self._worker is None or not self._worker.is_alive():
            self.kill()
            self._worker = multiprocessing.get_context("spawn").Process(target=work, args=(self._path,))
            self._worker.start()

    def kill(self) -> None:
        """Kill the worker."""
        if self._worker is not None:
            self._worker.kill()
            self._worker.join(WAIT_S)
            self._worker.close()
            self._worker = None


def see_through(store: statelog.Store, workers: Workers, scenario: Scenario, run: str) -> durable.RunInfo:
    """Wait for the end of a trip. Keep a worker running, and answer the gate."""
    while True:
        lsn = store.last_lsn
        info = durable.get_run(store, run)
        if info.has_ended:
            return info
        workers.keep_one()
        gates = durable.gates(store, pending=True, run=run) if info.status == "suspended" else []
        for gate in gates:
            if scenario.is_killed_at_gate:
                print("  the worker is killed while the trip waits", flush=True)
                workers.kill()
            durable.answer(store, gate.id, approved=scenario.is_approved, by="ann")
        store.wait(lsn, 0.1)


def row(services: Services, scenario: Scenario, info: durable.RunInfo) -> str:
    """Return a row for the table of calls. Assert that no service was called too often."""
    counts = [services.calls[info.id, service] for service in SERVICES]
    for service, count in zip(SERVICES, counts, strict=True):
        once = len({"museum", "soup", "rain"}) if service == "search" else 1
        is_in_flight = service == scenario.kill_in and service != "charge"
        assert count in (0, once + is_in_flight), (scenario, service, count)
        assert len(services.keys.get((info.id, service), ())) in (0, once), (scenario, service)
    assert info.status == ("completed" if scenario.is_approved else "failed")
    shown = "".join(f"{count or '-':>{len(service) + 2}}" for service, count in zip(SERVICES, counts, strict=True))
    return f"{scenario.title:<18}{shown}  {info.status}"


def main(path: str) -> None:
    """Book a trip for each scenario, and count the calls."""
    lines = []
    turn = uuid.uuid4().hex[:8]
    workers = Workers(path)
    with statelog.open(path) as store, serving() as services:
        try:
            for number, scenario in enumerate(SCENARIOS):
                print(f"a trip whose worker is killed {scenario.title}", flush=True)
                run = f"trip-{turn}-{number}"
                if scenario.kill_in is not None:
                    services.to_kill.add((run, scenario.kill_in))
                durable.start(store, trip, "Rome", id=run)
                info = see_through(store, workers, scenario, run)
                lines.append(row(services, scenario, info))
                assert len(store.board().list(f"seats/{run}")) == scenario.is_approved
        finally:
            workers.kill()
    print(f"\n{'killed':<18}{''.join(f'  {service}' for service in SERVICES)}  the trip has")
    print(*lines, sep="\n")


if __name__ == "__main__":
    if len(sys.argv) > 1:
        main(sys.argv[1])
    else:
        with tempfile.TemporaryDirectory() as directory:
            main(str(Path(directory) / "trip.state"))
