"""Operations that only write to the store. Each takes effect exactly once, in the commit that records it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from statelog.durable.execution import SIGNALS, in_step
from statelog.durable.keys import check_channels, check_part, event_key
from statelog.durable.outbox import Emitted, check_topic
from statelog.durable.record import PATCH
from statelog.durable.runs import board_of
from statelog.durable.values import arguments_item, encode, recorded, typed
from statelog.durable.workflows import name_of, versions_of
from statelog.errors import ConflictError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from statelog.durable.execution import Execution
    from statelog.durable.record import RunRecord

_CONFLICTS_MAX = 100


async def take_value(
    execution: Execution, place: str, op: str, make: Callable[[], Any], load: Callable[[Any], Any] | None = None
) -> Any:
    """Return the recorded value of `now`, `uuid` or `random`. On the first call, make and record the value."""
    done = execution.begin(place, op, "")
    if done is None:
        await execution.check_signals(place)
        done = execution.done(place, op, "", r=make())
        await execution.host.io(execution.commit, done)
    return done["r"] if load is None else load(done["r"])


async def take_commit(
    execution: Execution, place: str, updates: Sequence[Mapping[str, Any]], metadata: Mapping[str, Any] | None
) -> None:
    """Write to the run's thread, unless this call is recorded."""
    check_channels(updates)
    if execution.begin(place, "commit", "") is not None:
        return
    await execution.check_signals(place)
    done = execution.done(place, "commit", "")
    await execution.host.io(lambda: execution.commit(done, writes=updates, metadata=metadata))


async def take_emit(execution: Execution, place: str, topic: str, payload: Any) -> None:
    """Emit a message, unless this call is recorded."""
    check_topic(topic)
    digest = execution.digest_of(encode(payload, f"payload of {topic!r}"))
    if execution.begin(place, "emit", topic, digest) is not None:
        return
    await execution.check_signals(place)
    done = execution.done(place, "emit", topic, digest)
    await execution.host.io(lambda: execution.commit(done, emitted=Emitted(topic, payload)))


async def take_event(execution: Execution, place: str, name: str, value: Any) -> None:
    """Set an event, unless this call is recorded."""
    check_part("event", name)
    digest = execution.digest_of(encode(value, f"event {name!r}"))
    if execution.begin(place, "event", name, digest) is not None:
        return
    await execution.check_signals(place)
    key, stored = event_key(execution.id, name), {"value": recorded(execution.store, value, "event")}

    def also(tx: Any) -> None:
        board_of(tx).set(key, stored)

    await execution.host.io(lambda: execution.commit(execution.done(place, "event", name, digest), also=also))


async def take_transaction(
    execution: Execution, place: str, function: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]
) -> Any:
    """Call a function that writes in a transaction, or return its recorded result. Writes and result are one commit."""
    name = name_of(function)
    digest = execution.digest_of(arguments_item(f"transaction {name!r}", function, args, kwargs, (), skip=1))
    done = execution.begin(place, "transact", name, digest)
    if done is None:
        await execution.check_signals(place)
        return await execution.host.io(_transact, execution, place, function, name, digest, args, kwargs)
    return execution.outcome(done, function)


def _transact(
    execution: Execution,
    place: str,
    function: Callable[..., Any],
    name: str,
    digest: bytes,
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
) -> Any:
    failed: Exception
    for _ in range(_CONFLICTS_MAX):
        item = execution.done(place, "transact", name, digest, **versions_of(function).recorded())
        has_returned = False

        def also(tx: Any, item: dict[str, Any] = item) -> None:
            nonlocal has_returned
            inside = in_step.set((*in_step.get(), execution.id))
            try:
                result = function(tx, *args, **kwargs)
            finally:
                in_step.reset(inside)
            item["r"] = execution.recorded_value(result, f"result of transaction {name!r}", function)
            has_returned = True

        try:
            execution.commit(item, also=also)
        except SIGNALS:
            raise
        except Exception as error:  # noqa: BLE001 - the error is recorded
            if isinstance(error, ConflictError) and has_returned:
                continue  # Another process has changed data that the function has read: call it again.
            failed = error
            break
        return typed(function, "return", item["r"])
    else:
        failed = ConflictError(
            f"transaction {name!r} conflicted {_CONFLICTS_MAX} times: other writers kept changing what it reads"
        )
    raise execution.record_failure(failed, place, "transact", name, digest)


async def take_patch(execution: Execution, next_places: Sequence[str], name: str) -> bool:
    """Return True if the run follows a patch (D24). Record the patch when the run first reaches it."""
    execution.check_stop()
    record = execution.record
    event = f"patch {name}"
    if name in record.patches:
        await execution.host.in_order(event, _going_by(record, name))
        return True
    has_passed = any(record.has_after(place) for place in next_places)
    if name in execution.unpatched or has_passed or execution.is_dry or execution.is_unwinding:
        execution.unpatched.add(name)
        return False
    await execution.host.caught_up(event)
    item = execution.item(name, PATCH, "patch", name)
    await execution.host.in_order(event, execution.host.io(execution.commit, item))
    await _going_by(record, name)
    return True


async def _going_by(record: RunRecord, name: str) -> None:
    record.patches[name] = True


async def pass_patch(execution: Execution, name: str) -> None:
    """Accept that a patch is recorded, although the code now calls `deprecate_patch` instead of `patched`."""
    execution.check_stop()
    if name in execution.record.patches:
        await execution.host.in_order(f"patch {name}", _going_by(execution.record, name))
