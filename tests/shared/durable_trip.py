"""A trip whose effects are lines of a file, which a killed process leaves."""

from __future__ import annotations

import os
import signal
from contextvars import Context
from pathlib import Path

import statelog
from statelog import durable
from statelog.durable.probes import probe
from statelog.errors import StepInterruptedError
from statelog.reducers import add
from statelog.store.board import own_board

RUN = "trip"
FAST = durable.Retry(attempts=2, first_delay_s=0.001, jitter=False)

_effects = Path(os.devnull)


def note():
    with _effects.open("ab", buffering=0) as file:
        file.write(f"{durable.current_step().idempotency_key}\n".encode())


def effect(what):
    note()
    return what


def flaky(what):
    note()
    if durable.current_step().attempt == 1:
        raise OSError("again")
    return what


def undo(_result, _what):
    note()


def count_up(tx):
    tx.board().update("total", add, 1)


@durable.workflow
def trip(run, approved):
    """Twelve steps, parallel ones, two compensations, a gate."""
    done = [run.step(effect, "plan"), run.step_with(durable.StepOptions(compensate=undo), effect, "flight")]
    done.append(
        run.step_with(durable.StepOptions(compensate=undo, commit=lambda hotel: {"hotel": hotel}), effect, "hotel")
    )
    done += run.map(effect, ["a", "b", "c"])
    done += run.gather(run.start(effect, "x"), run.start(effect, "y"))
    done.append(run.step_with(durable.StepOptions(retry=FAST), flaky, "taxi"))
    run.transact(count_up)
    if not (run.gate("pay").approved and approved):
        raise durable.Abort("declined")
    run.commit({"done": done})
    run.emit("trip/booked", done)
    try:
        done.append(run.step_with(durable.StepOptions(semantics="at_most_once"), effect, "charge"))
    except StepInterruptedError:
        done.append("charge")
    return [*done, run.step(effect, "mail"), run.step(effect, "thanks")]


def lapse(store):
    """Let the claims run out of processes that were killed."""
    board = own_board(store)
    for entry in board.list("durable/tasks/**"):
        if entry.claim is not None:
            board.claim_of(entry.key, entry.claim.token).renew(1e-6)


def drive(path, effects, approved, kill_at=0, durability="commit"):
    """Drive the trip to its end; kill this process at a boundary. Return how many boundaries there were."""
    global _effects
    _effects, passed = Path(effects), 0

    def pass_boundary(moment, _run, _what):
        nonlocal passed
        if moment != "call":
            passed += 1
            if passed == kill_at:
                os.kill(os.getpid(), signal.SIGKILL)

    def work():
        probe.set(pass_boundary)
        info = durable.run(store, trip, approved, id=RUN)
        while not info.has_ended:
            for gate in durable.gates(store, pending=True):
                durable.answer(store, gate.id, approved=True)
            info = durable.run(store, trip, approved, id=RUN)

    with statelog.open(path, durability=durability) as store:
        lapse(store)
        Context().run(work)
    return passed
