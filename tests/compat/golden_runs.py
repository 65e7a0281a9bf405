"""The workflow of the golden runs. A later release replays what is recorded of it, so it stays as it is."""

from __future__ import annotations

from statelog import durable

FAR = durable.Retry(attempts=2, first_delay_s=1e9, max_delay_s=1e9, jitter=False)
STOPS = ("gate", "mail", "sleep", "retry", "child", "rollback")
CALLS = []
"""What was called in this process."""


def book(what):
    CALLS.append(what)
    return {"booked": what}


@durable.step(retry=FAR)
def cancel(result, what):
    CALLS.append(f"cancel {what}")
    if durable.current_step().attempt == 1 and what == "hotel":
        raise OSError("not now")
    return result


def fail_once(what):
    CALLS.append(what)
    if durable.current_step().attempt == 1:
        raise OSError("not now")
    return what


def refuse(what):
    raise KeyError(what)


def part(run, what):
    return [run.step(book, what), str(run.uuid())]


def count_up(tx, stop):
    tx.board().create(f"counted/{stop}", 1)
    return stop


@durable.workflow(name="golden child")
def child(run, what):
    return run.recv("grown"), run.step(book, what)


@durable.workflow(name="golden")
def golden(run, stop):
    run.step_with(durable.StepOptions(compensate=cancel), book, "flight")
    run.step_with(
        durable.StepOptions(compensate=cancel, commit=lambda hotel: {"hotel": hotel["booked"]}), book, "hotel"
    )
    run.map(book, ["a", "b"])
    run.gather(run.branch(part, "branch"), run.start(book, "beside"))
    try:
        run.step(refuse, "car")
    except KeyError:
        run.emit("trip/no-car", {"run": run.id})
    drawn = [run.now().isoformat(), str(run.uuid()), run.random(), run.patched("better")]
    run.set_event("progress", 0.5)
    run.sleep(0.001)
    run.transact(count_up, stop)
    run.step_with(durable.StepOptions(semantics="at_most_once"), book, "once")
    drawn.append(_stop(run, stop))
    if stop == "rollback":
        raise durable.Abort("enough")
    run.commit({"drawn": drawn})
    return drawn, run.step(book, f"after {stop}")


def _stop(run, stop):
    if stop == "gate":
        return run.gate("pay", payload={"total": 840}).payload
    if stop == "mail":
        return [run.recv("chat"), run.recv("chat")]
    if stop == "sleep":
        return run.sleep(1e8)
    if stop == "retry":
        return run.step_with(durable.StepOptions(retry=FAR), fail_once, "flaky")
    return run.child(child, "kid", id="kid") if stop == "child" else None


def make_runs(store):
    """Begin a run for each stop, and drive it until there."""
    for stop in STOPS:
        durable.run(store, golden, stop, id=f"at {stop}", thread=f"thread of {stop}")
    durable.send(store, "at mail", "first", topic="chat")
    durable.run(store, golden, "mail", id="at mail", thread="thread of mail")
    durable.send(store, "at mail", "second", topic="chat")
    durable.start(store, golden, "gate", id="behind", thread="thread of gate", queue="trips", priority=3)
