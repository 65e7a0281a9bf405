"""Answer one Slack message and exit. Each event has its own process, and the conversation is in a file.

    STATELOG_FILE=agent.state REPLY_URL=https://... python -m statelog.examples.slack_resume < event.json

With ``STATELOG_FLEET=s3://bucket/slack`` instead of a file, workers need no shared disk: each conversation is a store
in a fleet, owned by the worker that answers. ``STATELOG_CACHE`` is the directory for copies on this machine.

stdin is a CloudEvents envelope (structured JSON). Its ``data`` is a message event of Slack, or has it as ``event``. The
thread of the message (``thread_ts``, or ``ts`` of the first message) is LangGraph's thread. The graph adds the message,
asks the model, and posts the reply to REPLY_URL as JSON (``channel, thread_ts, text``).

If events whose exit code is not 0 are delivered again, these guarantees hold:

- An event is answered once, however often it is delivered, because its message has the event's id.
- Runs of one thread never overlap, even in several processes: one waits until the other has ended or was killed. Each
  message is followed by its reply, and no message is lost.
- The next process on a thread finishes a killed run before it adds anything, for the same event or a later one. The
  reply is stored before it is posted, so no second attempt asks the model again.
- A reply is posted at least once, always with the same ``Idempotency-Key``, and so exactly once if the endpoint honours
  this key. (A reply is posted again after a kill between the endpoint's answer and the checkpoint. No client alone can
  prevent this.)

Exit codes: 0 means that the event was answered, now or before. 2 means that the envelope or the environment is wrong,
so another delivery cannot help. 75 means that the reply could not be posted or the file could not be written: deliver
the event again.
"""

from __future__ import annotations

import errno
import fcntl
import hashlib
import http.client
import json
import os
import re
import sys
import threading
import urllib.error
import urllib.parse
import urllib.request
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING, Annotated, Any, Final, TypedDict

from langchain_core.messages import AIMessage, AnyMessage, HumanMessage
from langgraph.graph import END, START, StateGraph
from langgraph.graph.message import add_messages

from statelog.adapters.langgraph import StatelogSaver
from statelog.errors import AccessError, FormatError, StatelogError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from langchain_core.runnables import RunnableConfig
    from langgraph.graph.state import CompiledStateGraph

DONE: Final = 0
WRONG: Final = 2
TRY_AGAIN: Final = 75
"""EX_TEMPFAIL in sysexits.h."""

_PLAIN: Final = re.compile(r"[A-Za-z0-9_.-]{1,64}")
EVENT_SIZE_BYTES_MAX: Final = 1 << 20
POST_TIMEOUT_S: Final = 10.0
"""The maximum time of a whole request."""


class EventError(ValueError):
    """The envelope is not valid, or is not for a Slack message."""


@dataclass(frozen=True, slots=True)
class Event:
    """One delivery of a Slack message."""

    id: str
    """The CloudEvents source and id, which are the same in each delivery."""
    channel: str
    thread_ts: str
    text: str

    @property
    def thread_id(self) -> str:
        """The id of LangGraph's thread. Slack's ``thread_ts`` is unique only within a channel."""
        return f"slack:{self.channel}:{self.thread_ts}"


def read_event(stream: IO[bytes]) -> Event:
    """Read one envelope.

    Raises:
        EventError: the envelope is not valid, or lacks a needed field.
    """
    raw = stream.read(EVENT_SIZE_BYTES_MAX + 1)
    if len(raw) > EVENT_SIZE_BYTES_MAX:
        message = f"an event may have at most {EVENT_SIZE_BYTES_MAX} bytes"
        raise EventError(message)
    try:
        envelope = json.loads(raw)
    except (ValueError, RecursionError) as error:
        message = f"stdin is not JSON: {error}"
        raise EventError(message) from None
    if not isinstance(envelope, dict) or envelope.get("specversion") != "1.0":
        message = "stdin is not a CloudEvents 1.0 envelope"
        raise EventError(message)
    data = envelope.get("data")
    slack = data.get("event", data) if isinstance(data, dict) else data
    if not isinstance(slack, dict):
        message = "the envelope's data is not a Slack event"
        raise EventError(message)
    for name in ("channel", "thread_ts", "ts"):
        if slack.get(name) and not _PLAIN.fullmatch(_text(slack, name)):
            message = f"the event's {name} is not from Slack: {slack[name]!r}"
            raise EventError(message)
    return Event(
        id=f"{_text(envelope, 'source').replace('%', '%25').replace('#', '%23')}#{_text(envelope, 'id')}",
        channel=_text(slack, "channel"),
        thread_ts=_text(slack, "thread_ts" if slack.get("thread_ts") else "ts"),
        text=_text(slack, "text"),
    )


def _text(fields: dict[str, Any], name: str) -> str:
    value = fields.get(name)
    if not isinstance(value, str) or not value:
        message = f"the event has no {name}"
        raise EventError(message)
    if not value.isascii() and value.encode("utf-8", "ignore").decode() != value:
        message = f"the event's {name} has a lone surrogate: {value!r}"
        raise EventError(message)
    return value


# --- the graph --------------------------------------------------------------------


class State(TypedDict):
    """One conversation."""

    messages: Annotated[list[AnyMessage], add_messages]
    posted: str
    """The id of the reply that was posted last."""


def ask_model(messages: list[AnyMessage]) -> str:
    """Answer a conversation. A stub for a chat model."""
    return f"{len(messages)}: you said {messages[-1].text!r}"


def reply(state: State) -> dict[str, Any]:
    """Ask the model. The id shows that a repeated reply is the same one."""
    asked = state["messages"][-1]
    return {"messages": [AIMessage(ask_model(state["messages"]), id=f"reply to {asked.id}")]}


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """Treats a redirection as an error, because following it would send a GET without the reply."""

    def redirect_request(self, *_arguments: Any) -> None:
        """Refuse a redirection."""


def post(state: State, config: RunnableConfig) -> dict[str, Any]:
    """Post the last reply.

    Raises:
        OSError: the endpoint was not reached, or refused the reply. HTTPException: the answer is not HTTP.
    """
    answer = state["messages"][-1]
    _, channel, thread_ts = config["configurable"]["thread_id"].split(":")
    body = json.dumps({"channel": channel, "thread_ts": thread_ts, "text": answer.text}).encode()
    key = hashlib.sha256(f"{channel}:{thread_ts}:{answer.id}".encode()).hexdigest()
    headers = {"Content-Type": "application/json", "Idempotency-Key": key}
    request = urllib.request.Request(os.environ["REPLY_URL"], body, headers)  # noqa: S310 - http(s): see main
    _send(request)
    return {"posted": answer.id}


def _send(request: urllib.request.Request) -> None:
    """Send a request and check that it was accepted, within `POST_TIMEOUT_S`.

    A daemon thread sends the request, because a socket's timeout is for each of its calls: a server that answers byte
    by byte could take for ever.
    """
    outcome: list[Exception | None] = []

    def send() -> None:
        try:
            urllib.request.build_opener(_NoRedirect).open(request, timeout=POST_TIMEOUT_S).close()
        except Exception as error:  # noqa: BLE001 - raised below
            outcome.append(error)
        else:
            outcome.append(None)

    sender = threading.Thread(target=send, daemon=True)
    sender.start()
    sender.join(POST_TIMEOUT_S)
    error = outcome[0] if outcome else TimeoutError(f"no answer in {POST_TIMEOUT_S:g} s")
    if error is not None:
        raise error


def build(saver: StatelogSaver) -> CompiledStateGraph[Any, Any, Any, Any]:
    """Return the graph. The reply is in a checkpoint before it is posted."""
    builder = StateGraph(State)
    builder.add_node("reply", reply)
    builder.add_node("post", post)
    builder.add_edge(START, "reply")
    builder.add_edge("reply", "post")
    builder.add_edge("post", END)
    return builder.compile(checkpointer=saver)


# --- one run ----------------------------------------------------------------------


def answer(event: Event, file: Path, fleet: str = "") -> None:
    """Finish a killed run of the thread, and then answer the event unless it was answered before."""
    config: RunnableConfig = {"configurable": {"thread_id": event.thread_id}}
    with alone(file, event.thread_id) if not fleet else owned(fleet, event.thread_id) as saver:
        graph = build(saver)
        state = graph.get_state(config)
        if state.tasks:  # Unlike `next`, this includes tasks whose writes are stored but not applied.
            graph.invoke(None, config, durability="sync")
            state = graph.get_state(config)
        if all(message.id != event.id for message in state.values.get("messages", ())):
            said = HumanMessage(event.text, id=event.id)
            graph.invoke({"messages": [said]}, config, durability="sync")


@contextmanager
def owned(fleet: str, thread_id: str) -> Iterator[StatelogSaver]:
    """Wait for, and own, a conversation's store in a fleet. Commits survive the loss of this machine."""
    from statelog.fleet import connect

    cache = os.environ.get("STATELOG_CACHE", ".statelog-fleet")
    ttl_s = float(os.environ.get("STATELOG_FLEET_TTL_S", "10"))
    with connect(fleet, cache) as opened, opened.open(thread_id, acknowledge="remote", ttl_s=ttl_s) as store:
        yield StatelogSaver(store)


@contextmanager
def alone(file: Path, thread_id: str) -> Iterator[StatelogSaver]:
    """Open a file while holding a thread's lock, which is one byte in a separate file. The lock ends with the process.

    LangGraph reads a thread's state and then writes the next state, so two runs at once would continue the same state.
    (One in 2**31 pairs of threads has the same byte. Such threads wait for each other needlessly.)
    """
    byte = int.from_bytes(hashlib.sha256(thread_id.encode()).digest()[:4], "big") >> 1
    with Path(f"{file}-runs").open("ab") as lock:
        fcntl.lockf(lock, fcntl.LOCK_EX, 1, byte)
        with StatelogSaver.open(file) as saver:
            yield saver


_NO_PLACE: Final = (PermissionError, NotADirectoryError, FileNotFoundError, IsADirectoryError)
"""Errors for a path at which no file can be opened."""


def _is_url(text: str) -> bool:
    """Return True if a string is an http or https URL with a host, and has only characters that a URL may have."""
    try:
        parts = urllib.parse.urlsplit(text)
        is_whole = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        return False
    return is_whole and text.isascii() and text.isprintable() and " " not in text


def main() -> int:
    """Answer the event on stdin. Return the exit code."""
    if not _is_url(os.environ.get("REPLY_URL", "")):
        print("slack_resume: REPLY_URL must be the http or https URL for replies", file=sys.stderr)
        return WRONG
    try:
        event = read_event(sys.stdin.buffer)
    except EventError as error:
        print(f"slack_resume: {error}", file=sys.stderr)
        return WRONG
    try:
        file = Path(os.environ.get("STATELOG_FILE", "agent.state"))
        answer(event, file, os.environ.get("STATELOG_FLEET", ""))
    except (urllib.error.URLError, http.client.HTTPException, TimeoutError, ConnectionError) as error:
        print(f"slack_resume: the reply was not posted: {error}", file=sys.stderr)
        return TRY_AGAIN
    except (AccessError, FormatError, *_NO_PLACE) as error:
        print(f"slack_resume: STATELOG_FILE cannot be used: {error}", file=sys.stderr)
        return WRONG
    except (StatelogError, OSError) as error:
        print(f"slack_resume: {error}", file=sys.stderr)
        return WRONG if getattr(error, "errno", None) == errno.ENAMETOOLONG else TRY_AGAIN
    return DONE


if __name__ == "__main__":
    sys.exit(main())
