"""Checks names of runs, workflows, queues and topics, and makes keys of the board from them."""

from __future__ import annotations

import hashlib
import re
import unicodedata
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final
from uuid import uuid4

from statelog.errors import LimitError, UsageError
from statelog.log.names import check_name

if TYPE_CHECKING:
    from collections.abc import Iterable

RUN_ID_SIZE_BYTES_MAX: Final = 200
NAME_SIZE_BYTES_MAX: Final = 90
"""The maximum size of the name of a workflow, queue or topic. Two names and a run id fit into a key of the board."""

STEPS: Final = "statelog:steps"
"""The channel of a thread that contains the record of the active run."""

HEADER: Final = "statelog:run"
"""The channel of a thread that names the active run."""

_OWN_CHANNELS = "statelog:"

_SIGNS = re.compile(r"[%/*?\[\]\\]")


def quote(text: str) -> str:
    """Return a string as one segment of a key. Characters with a meaning in keys and patterns are escaped."""
    quoted = _SIGNS.sub(lambda found: f"%{ord(found[0]):02X}", text)
    if unicodedata.normalize("NFC", quoted) != quoted:
        quoted = "".join(sign if sign.isascii() else f"%u{ord(sign):X}." for sign in quoted)
    return quoted.replace(".", "%2E") if quoted in (".", "..") else quoted


def _checked(what: str, text: str, size_bytes_max: int, *, escapes_at: bool = False) -> str:
    check_name(what, text, size_bytes_max=size_bytes_max)
    quoted = quote(text).replace("@", "%40") if escapes_at else quote(text)
    size = len(quoted.encode())
    if size > size_bytes_max:
        message = f"a {what} has {size} bytes including escapes; at most {size_bytes_max} are allowed"
        raise LimitError(message, argument=what, value=text, actual=size, limit=size_bytes_max)
    return quoted


def check_run_id(run: str) -> str:
    """Return the id of a run as part of a key. Raises UsageError if it is not valid, LimitError if it is too long."""
    return _checked("run id", run, RUN_ID_SIZE_BYTES_MAX)


def check_part(what: str, name: str) -> str:
    """Return the name of a workflow, queue, topic or event as part of a key. Raises UsageError, LimitError."""
    return _checked(what, name, NAME_SIZE_BYTES_MAX)


def check_channels(updates: Iterable[object]) -> None:
    """Raise UsageError if an update writes to a channel of the library (`statelog:...`)."""
    for update in updates:
        for channel in update if isinstance(update, Mapping) else ():
            if isinstance(channel, str) and channel.startswith(_OWN_CHANNELS):
                message = f"channel {channel!r} is reserved for the library"
                raise UsageError(message, argument="channel", value=channel)


def run_key(run: str) -> str:
    """Return the key of a run's entry."""
    return f"durable/runs/{check_run_id(run)}"


def check_queue(queue: str) -> str:
    """Return the name of a queue as part of a key, with `@` escaped. Raises UsageError, LimitError."""
    return _checked("queue", queue, NAME_SIZE_BYTES_MAX, escapes_at=True)


def check_segment(queue: str, partition: str | None) -> str:
    """Return `QUEUE@PARTITION` as part of a key; it has the length of one name. Raises UsageError, LimitError."""
    quoted = check_queue(queue)
    if partition is None:
        return quoted
    return f"{quoted}@{_checked('partition', partition, NAME_SIZE_BYTES_MAX - 1 - len(quoted.encode()))}"


def task_key(queue: str, partition: str | None, workflow: str, run: str) -> str:
    """Return the key of a run's task. A process claims the task to drive the run."""
    workflow = check_part("workflow", workflow)
    return f"durable/tasks/{check_segment(queue, partition)}/{workflow}/{check_run_id(run)}"


def task_patterns(workflows: Iterable[str]) -> list[str]:
    """Return key patterns that match the tasks of the workflows in all queues. Raises UsageError, LimitError."""
    return [f"durable/tasks/*/{check_part('workflow', name)}/*" for name in workflows]


def unknown_key(queue: str, workflow: str) -> str:
    """Return the key of the entry that marks `workflow` as unknown in `queue`. Both must be parts of a key."""
    return f"durable/unknown/{queue}/{workflow}"


def dedup_key(queue: str, key: str) -> str:
    """Return the key of the entry that names the open run that has a deduplication key in a queue."""
    return f"durable/dedup/{check_queue(queue)}/{text_digest(key)}"


def schedule_key(name: str) -> str:
    """Return the key of a schedule."""
    return f"durable/schedules/{check_part('schedule', name)}"


def deadline_key(run: str) -> str:
    """Return the key of a run's deadline. The entry is due when the time of the run is up."""
    return f"durable/deadlines/{check_run_id(run)}"


def line_key(thread: str, branch: str) -> str:
    """Return the key of a branch's line: the list of the active run, and the runs that wait for their turn after it."""
    return f"durable/threads/{text_digest(f'{len(thread)} {thread} {branch}')}"


def gate_key(gate: str) -> str:
    """Return the key of a gate. Raises UsageError."""
    if not isinstance(gate, str) or gate.count("/") != 1 or not all(gate.split("/")):
        message = f"a gate's id must be the id of its run, a slash, and its place, not {gate!r}"
        raise UsageError(message, argument="gate_id", value=gate)
    return f"durable/gates/{gate}"


def visit_of(place: str, visit: int) -> str:
    """Return the place of a call with a visit number, because a run that begins again returns to the same places."""
    return f"{visit}~{place}" if visit else place


def place_of_gate(gate: str) -> str:
    """Return the place of the call that has opened a gate."""
    return gate.rpartition("/")[2].rpartition("~")[2]


def gate_id(run: str, place: str) -> str:
    """Return the id of a gate."""
    return f"{check_run_id(run)}/{place}"


def mail_directory(run: str, topic: str) -> str:
    """Return the key prefix of a run's mail on a topic."""
    return f"durable/mail/{check_run_id(run)}/{check_part('topic', topic)}/"


def event_key(run: str, event: str) -> str:
    """Return the key of an event that a run sets."""
    return f"durable/events/{check_run_id(run)}/{check_part('event', event)}"


def child_key(parent: str, child: str) -> str:
    """Return the key of the entry that makes a run the child of another run."""
    return f"durable/children/{check_run_id(parent)}/{text_digest(child)}"


def outbox_directory(run: str) -> str:
    """Return the key prefix of a run's waiting messages."""
    return f"durable/outbox/{check_run_id(run)}/"


def parked_directory(run: str) -> str:
    """Return the key prefix of a run's parked messages."""
    return f"durable/outbox-parked/{check_run_id(run)}/"


def delivery_key(run: str) -> str:
    """Return the key of the entry that a process claims to deliver the messages of a run."""
    return f"durable/deliver/{check_run_id(run)}"


def text_digest(text: str) -> str:
    """Return the BLAKE2b-128 digest of a string in hex, as a short segment of a key."""
    return hashlib.blake2b(text.encode(errors="surrogatepass"), digest_size=16).hexdigest()


def new_checkpoint() -> str:
    """Return a new id for a checkpoint, so that a message can name the checkpoint before it is made."""
    return uuid4().hex


def child_id(parent: str, place: str) -> str:
    """Return the default id of a child: `PARENT.PLACE`, or a digest of this string if it is too long."""
    named = f"{parent}.{place}"
    return named if len(quote(named).encode()) <= RUN_ID_SIZE_BYTES_MAX else f"child.{text_digest(named)}"
