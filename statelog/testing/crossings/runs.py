"""Acts on durable runs: start, drive, answer, cancel, fork, purge and schedule them, and deliver messages."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from statelog import durable, reducers
from statelog.errors import StepInterruptedError
from statelog.testing.crossings.acts import Actor, Family, is_likely
from statelog.testing.crossings.values import draw_value

if TYPE_CHECKING:
    from random import Random

FAMILY = Family("runs")

_RUNS = tuple(f"run-{number}" for number in range(30))
_THREADS = (None, None, "chat", "shared")
_GATES = ("approve", "sign")
_TOPICS = ("news", "default")
_RETRY = durable.Retry(attempts=3, first_delay_s=2, jitter=False)


def _plus_one(number: int) -> int:
    return number + 1


def _fail(number: int) -> int:
    raise ValueError(number)


def _fail_at_first(number: int) -> int:
    if durable.current_step().attempt <= number % 3:
        raise OSError("again")
    return number


def _give_out(number: int) -> int:
    for part in range(number % 4):
        durable.current_step().stream({"part": part})
    return number


def _undo(_result: Any, number: int) -> None:
    if number % 5 == 4:
        raise OSError("cannot be undone")


def _write_board(tx: Any, number: int) -> int:
    tx.board().update("total", reducers.add, number)
    return number


def _two_steps(run: Any, number: int) -> list[Any]:
    run.commit({"said": [number]})
    return [run.step(_plus_one, number), run.transact(_write_board, number)]


def _caught(run: Any, number: int) -> str:
    try:
        run.step(_fail, number)
    except ValueError:
        return "caught"
    return "not raised"


def _once(run: Any, number: int) -> int:
    try:
        return int(run.step_with(durable.StepOptions(semantics="at_most_once"), _plus_one, number))
    except StepInterruptedError:
        return number + 1


def _child(run: Any, number: int) -> Any:
    return run.child(_played, [["step", number], ["emit", number]])


def _abort(_run: Any, _number: int) -> None:
    raise durable.Abort("enough")


def _begin_anew(run: Any, number: int) -> Any:
    return run.continue_as_new([["step", number], ["commit", number]])


_OPERATIONS: dict[str, Any] = {
    "step": lambda run, number: run.step(_plus_one, number),
    "caught": _caught,
    "retry": lambda run, number: run.step_with(durable.StepOptions(retry=_RETRY), _fail_at_first, number),
    "saga": lambda run, number: run.step_with(durable.StepOptions(compensate=_undo), _plus_one, number),
    "failing saga": lambda run, number: run.step_with(durable.StepOptions(compensate=_undo), _fail, number),
    "map": lambda run, number: run.map(_plus_one, [number, number + 1]),
    "branch": lambda run, number: run.gather(run.branch(_two_steps, number), run.start(_plus_one, number)),
    "gate": lambda run, number: run.gate(_GATES[number % 2], payload=number, timeout_s=3600).approved,
    "mail": lambda run, number: run.recv(_TOPICS[number % 2], timeout_s=600),
    "sleep": lambda run, number: run.sleep(number * 30),
    "transact": lambda run, number: run.transact(_write_board, number),
    "commit": lambda run, number: run.commit({"said": [number]}),
    "step with its commit": lambda run, number: run.step_with(
        durable.StepOptions(commit=lambda n: {"said": [n]}), _plus_one, number
    ),
    "emit": lambda run, number: run.emit("told/all", number),
    "event": lambda run, number: run.set_event("progress", number),
    "stream": lambda run, number: run.step(_give_out, number),
    "once": _once,
    "child": _child,
    "now": lambda run, _number: [run.now(), run.uuid(), run.random()],
    "abort": _abort,
    "anew": _begin_anew,
}


@durable.workflow(name="played", schema={"said": reducers.append})
def _played(run: Any, program: Any) -> list[Any]:
    return [_OPERATIONS[name](run, number) for name, number in program]


@durable.workflow(name="ticked")
def _ticked(run: Any) -> Any:
    return run.step(_plus_one, 1)


_WORKFLOWS: list[durable.Workflow] = [_played, _ticked]


def _program(rng: Random) -> list[list[Any]]:
    return [[rng.choice([*_OPERATIONS]), rng.randrange(6)] for _operation in range(rng.randrange(1, 6))]


def _taken(message: durable.Message) -> None:
    del message


def _refused(message: durable.Message) -> None:
    if len(message.id) % 2 == 0 or message.payload % 2:
        raise OSError("away")


def _subscribers(rng: Random) -> list[Any]:
    return [durable.subscription(rng.choice((_taken, _refused)), topics=rng.choice((["**"], ["told/*"])))]


def _some_run(actor: Actor, rng: Random) -> str:
    """Return the id of a run, usually of an existing one."""
    found = durable.runs(actor.store) if is_likely(rng, 0.9) else ()
    return rng.choice(found).id if found else rng.choice(_RUNS)


@FAMILY.act(8)
def start(actor: Actor, rng: Random) -> None:
    """Start a run, possibly with a delay, priority, queue, time limit or deduplication key."""
    how: dict[str, Any] = rng.choice(
        (
            {},
            {},
            {"delay_s": 30.0},
            {"priority": 3},
            {"queue": "slow", "partition": "a"},
            {"timeout_s": 300.0},
            {"dedup_key": "same"},
            {"dedup_key": "later", "debounce_s": 20.0},
        )
    )
    durable.start(actor.store, _played, _program(rng), id=rng.choice(_RUNS), thread=rng.choice(_THREADS), **how)


@FAMILY.act(8)
def run(actor: Actor, rng: Random) -> None:
    """Start a run, and drive it until it ends or is suspended."""
    durable.run(actor.store, _played, _program(rng), id=rng.choice(_RUNS), thread=rng.choice(_THREADS))


@FAMILY.act(8)
def resume_all(actor: Actor, rng: Random) -> None:
    """Drive all runs that can continue."""
    outbox = _subscribers(rng) if is_likely(rng, 0.4) else ()
    durable.resume_all(actor.store, _WORKFLOWS, outbox=outbox)


@FAMILY.act(1)
def work(actor: Actor, rng: Random) -> None:
    """Work as a worker until there is nothing to do."""
    queues = rng.choice((None, {"default": durable.Queue(concurrency=1), "slow": durable.Queue(per_partition=1)}))
    outbox = _subscribers(rng) if is_likely(rng, 0.4) else ()
    durable.run_worker(actor.store, _WORKFLOWS, queues=queues, outbox=outbox, until_idle=True, concurrency=2)


@FAMILY.act(5)
def answer(actor: Actor, rng: Random) -> None:
    """Answer a gate."""
    gates = durable.gates(actor.store)
    if gates:
        gate = rng.choice(gates)
        durable.answer(actor.store, gate.id, approved=is_likely(rng, 0.6), payload=draw_value(rng, 1), by="ann")


@FAMILY.act(4)
def send(actor: Actor, rng: Random) -> None:
    """Send mail to a run."""
    key = rng.choice((None, "once"))
    durable.send(actor.store, _some_run(actor, rng), draw_value(rng, 1), topic=rng.choice(_TOPICS), idempotency_key=key)


@FAMILY.act(2)
def cancel(actor: Actor, rng: Random) -> None:
    """Cancel a run."""
    durable.cancel(actor.store, _some_run(actor, rng))


@FAMILY.act(1)
def resume(actor: Actor, rng: Random) -> None:
    """Resume a run."""
    durable.resume(actor.store, _some_run(actor, rng))


@FAMILY.act(2)
def fork(actor: Actor, rng: Random) -> None:
    """Fork a run from the recorded steps of another run, and sometimes replace the result of the first step."""
    source = _some_run(actor, rng)
    steps = durable.steps(actor.store, source)
    at = rng.choice(steps) if steps else None
    is_replaced = at and at.kind in ("step", "child", "recv") and not at.is_compensation and is_likely(rng, 0.3)
    replace = {at.place: draw_value(rng)} if at and is_replaced else None
    durable.fork(actor.store, source, at=at or "0", id=rng.choice(_RUNS), replace=replace)


@FAMILY.act(2)
def purge(actor: Actor, rng: Random) -> None:
    """Purge a run that has ended."""
    durable.purge_run(actor.store, _some_run(actor, rng))


@FAMILY.act(2)
def schedule(actor: Actor, rng: Random) -> None:
    """Create or change a schedule. If it catches up on all times, it is daily, because the clock jumps far ahead."""
    cron, catch_up = rng.choice((("* * * * *", "latest"), ("*/10 * * * *", "none"), ("0 3 * * *", "all")))
    durable.schedule(actor.store, rng.choice(("tick", "tock")), _ticked, cron=cron, catch_up=catch_up)  # type: ignore[arg-type]


@FAMILY.act(1)
def unschedule(actor: Actor, rng: Random) -> None:
    """End a schedule."""
    durable.unschedule(actor.store, rng.choice(("tick", "tock")))


@FAMILY.act(3)
def deliver(actor: Actor, rng: Random) -> None:
    """Deliver the messages that runs have emitted."""
    durable.deliver(actor.store, _subscribers(rng))


@FAMILY.act(1)
def redeliver(actor: Actor, rng: Random) -> None:
    """Redeliver a message that was parked after too many refusals."""
    parked = durable.outbox(actor.store, parked=True)
    if parked:
        message = rng.choice(parked)
        durable.redeliver(actor.store, message.run, message.place)


@FAMILY.act(1)
def roll_thread_back(actor: Actor, rng: Random) -> None:
    """Roll back the thread of a run, which also rolls back the run."""
    runs = durable.runs(actor.store)
    if runs:
        thread = actor.store.thread(rng.choice(runs).thread)
        thread.rollback(rng.randrange(max(thread.version, 0) + 1))
