"""A store in which agents have worked: a board with claims and leases, and runs of all states, one of them killed."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from served import HOSTILE, OVERRIDE

import statelog
from statelog import durable

KILLED = """
import os, sys, statelog
from statelog import durable

@durable.workflow
def killed(run):
    run.step(abs, -1)
    run.step_with(durable.StepOptions(semantics="at_most_once"), os._exit, 9)

with statelog.open(sys.argv[1]) as store:
    durable.run(store, killed, id="killed-1")
"""
RETRY = durable.Retry(attempts=3, first_delay_s=0.02, jitter=False)


def book(what):
    durable.current_step().stream(f"booking {what}")
    return {"booked": what, "price": 120}


def undo(_booking, what):
    return f"cancelled {what}"


@durable.step(retry=durable.Retry(attempts=2, first_delay_s=0.02, jitter=False))
def undo_badly(_booking, _what):
    raise durable.Abort(HOSTILE)


def flaky(question):
    if durable.current_step().attempt < 3:
        raise ConnectionError(f"no answer {HOSTILE}{OVERRIDE}")
    return question.upper()


@durable.workflow
def saga(run, _city):
    run.step_with(durable.StepOptions(compensate=undo), book, "flight")
    run.step_with(durable.StepOptions(compensate=undo_badly), book, "hotel")
    raise ValueError(f"the traveller is ill {OVERRIDE}")


@durable.workflow
def approval(run, total):
    run.step(abs, -total)
    answer = run.gate(f"approve {HOSTILE}", payload={"total": total, "note": HOSTILE}, timeout_s=86_400)
    return answer.approved


@durable.workflow
def leaf(run, number):
    return run.step(abs, number)


@durable.workflow
def shopping(run, item, limit=500):
    run.set_event("progress", 0.5)
    word = run.step_with(durable.StepOptions(retry=RETRY), flaky, item)
    run.child(leaf, -3, id="leaf-1")
    price = run.step(price_of, word)
    return run.step(advise, price, limit)


def price_of(_item):
    return 900


def advise(price, limit):
    return "buy" if price < limit else "wait"


WORKFLOWS = [saga, approval, leaf, shopping]


def make_worked_store(path):
    """Make the store: see the module."""
    with statelog.open(path) as store:
        board = store.board(agent="planner")
        for number in range(5):
            board.set(f"tasks/open/{number}", {"title": f"task {number}", "note": HOSTILE}, priority=number)
        board.set("notes/plan", "first")
        board.set("notes/plan", {"steps": ["look", "book"], "who": OVERRIDE})
        board.delete("notes/plan")
        board.set("notes/plan", {"steps": ["look", "book", "pay"], "who": OVERRIDE})
        board.set(f"notes/{OVERRIDE}", HOSTILE)
        board.set("notes/brief", "gone soon", ttl_s=3600)
        worker = store.board(agent=f"worker {HOSTILE}")
        claim = worker.claim("tasks/open/0", lease_s=600)
        claim.fail(f"no answer {HOSTILE}")
        worker.claim("tasks/open/4", lease_s=3600)
        worker.claim("tasks/open/1", lease_s=0.001)
        worker.lease(f"deploy/{OVERRIDE}", ttl_s=1800, auto_renew=False)
        durable.run(store, shopping, "tent", id="shop-1")
        durable.fork(store, "shop-1", at="price_of", id="shop-2", replace={"price_of": 300})
        durable.run(store, saga, "Rome", id="saga-1")
        durable.run(store, approval, 840, id="pay-1")
        durable.send(store, "pay-1", {"hello": HOSTILE}, topic="notes")
        durable.start(store, leaf, 7, id="leaf-queued", queue="slow")
        durable.resume_all(store, [shopping])
    script = Path(path).with_suffix(".py")
    script.write_text(KILLED)
    subprocess.run([sys.executable, script, path], check=False)
    statelog.open(path).close()  # a process was killed: put its journal into the file
    return path


DAMAGED_TEXT = "this text is damaged below"


def make_damaged_store(path):
    """Make a store of 6 board entries and 70 versions, and flip a bit in the record of one entry and of one version."""
    with statelog.open(path, durability="interval") as store:
        board = store.board(agent="planner")
        for number in range(6):
            board.set(f"tasks/{number}", DAMAGED_TEXT if number == 3 else f"task {number}")
        thread = store.thread("ticket-42")
        for step in range(70):
            thread.commit({"step": step, "text": f"{DAMAGED_TEXT}, too" if step == 40 else "sound"})
        durable.run(store, leaf, -7, id="leaf-1")
        durable.run(store, shopping, DAMAGED_TEXT, id="shop-1")
    data = bytearray(Path(path).read_bytes())
    at = data.find(DAMAGED_TEXT.encode())
    assert at > 0
    while at > 0:
        data[at] ^= 1
        at = data.find(DAMAGED_TEXT.encode(), at)
    Path(path).write_bytes(data)
    return path
