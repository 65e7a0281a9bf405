"""Sessions: the messages of a conversation, and the turns in which they are added.

A session is a thread with an entry on the board that expires. If the entry is missing, the session has expired: reads
ignore the thread, and the next write deletes and re-creates it.
"""

from __future__ import annotations

from collections.abc import Iterator, MutableMapping
from contextlib import suppress
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, NamedTuple, Self, TypeVar

from statelog.errors import ConflictError, ThreadDeletedError, ThreadNotFoundError, UsageError
from statelog.memory.messages import cut_before, estimate_tokens, is_system, newest_that_fit, stored_message
from statelog.memory.scopes import session_key
from statelog.store.arguments import check_seconds
from statelog.store.encoded import Encoded, plain

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from types import TracebackType

    from statelog.store.store import Store

    Message = dict[str, Any]

T = TypeVar("T")

_MESSAGES, _TURNS, _DONE, _SUMMARY = "messages", "turns", "done", "summary"
_TRIES_MAX = 100
_REFRESH_PART = 100
"""A read postpones the end of a session if one hundredth of its lifetime has passed since the last use."""


class OlderMessages(NamedTuple):
    """The older messages of a session, which a summary will replace."""

    messages: list[Message]
    """The messages for the model: the previous summary, and the messages after it, except system messages."""
    seen: dict[str, Any] | None
    """The previous summary in its stored form, or None."""
    held: list[Message]
    """All messages up to the cut."""


class Session:
    """A conversation of a scope. Several processes may use it at once."""

    def __init__(self, store: Store, scope: str, id: str, ttl_s: float | None) -> None:
        self._thread_id = session_key(scope, id)
        if ttl_s is not None:
            check_seconds("ttl_s", ttl_s)
        self._store = store
        self._board = store.board()
        self._id = id
        self._ttl_s = ttl_s

    def __repr__(self) -> str:
        return f"<Session {self._thread_id!r}>"

    @property
    def id(self) -> str:
        """The id of the session."""
        return self._id

    @property
    def thread_id(self) -> str:
        """The id of the session's thread, which has every version of the session."""
        return self._thread_id

    # --- turns ------------------------------------------------------------------------

    def turn(self, event_id: str) -> Turn:
        """Return a context manager for the turn that answers an event.

        On a clean exit, one commit adds the messages of the turn, clears its working state, and records that the event
        is done. If the block raises or the process dies, no message is added and the working state stays. The next turn
        of the same event then resumes this one (`Turn.is_resumed`).

        Args:
            event_id: the id of the event, such as the id of an incoming message. A turn of an event that is done has no
                effect (`Turn.is_completed`). If the session is forgotten or expires during the turn, the end of the
                turn raises ConflictError, and nothing is written.

        Raises:
            UsageError: `event_id` is not a non-empty str.
        """
        if not isinstance(event_id, str) or not event_id:
            message = f"event_id must be a non-empty str, not {event_id!r}"
            raise UsageError(message, argument="event_id", value=event_id)
        return Turn(self, event_id)

    def _begin(self, event: str) -> tuple[bool, bool, dict[str, Any]]:
        """Begin a turn. Return (whether it is resumed, whether it is done, its working state)."""
        if event in self._state(_DONE).get(_DONE, {}):
            return False, True, {}

        def change(state: Any) -> tuple[bool, bool, dict[str, Any]]:
            if event in state.get(_DONE, {}):
                return False, True, {}
            turns = _in(state, _TURNS)
            is_resumed = event in turns
            if not is_resumed:
                turns[event] = {}
            return is_resumed, False, _plain(turns[event])

        return self._write(change)

    def _set_working(self, event: str, name: str, *value: Any) -> None:
        """Store one value of the working state of a turn, or remove it if no value is given."""

        def change(state: Any) -> None:
            if event in state.get(_DONE, {}):
                return  # Another process has already completed the event.
            working = self._turns_with(state, event)[event]
            if value:
                working[name] = value[0]
            else:
                del working[name]

        self._write(change)

    def _end(self, event: str, messages: Sequence[Encoded]) -> bool:
        """Record the end of a turn. Return False if another process has already completed it."""

        def change(state: Any) -> bool:
            done = _in(state, _DONE)
            if event in done:
                return False
            del self._turns_with(state, event)[event]
            held = _in(state, _MESSAGES, list)
            held.extend(messages)
            done[event] = len(held)
            return True

        return self._write(change)

    def _turns_with(self, state: Any, event: str) -> Any:
        """Return the open turns.

        Raise ConflictError if the event's turn is not open, because a late write would re-create it.
        """
        turns = _in(state, _TURNS)
        if event not in turns:
            message = f"session {self._thread_id!r} was forgotten, expired or rolled back during the turn of {event!r}"
            raise ConflictError(message, thread=self._thread_id)
        return turns

    # --- reading ----------------------------------------------------------------------

    def messages(self) -> list[Message]:
        """Return all messages, the oldest first, including those that a summary replaces in the window."""
        held: list[Message] = self._state(_MESSAGES).get(_MESSAGES, [])
        return held

    @property
    def summary(self) -> str | None:
        """The text of the last summary, or None."""
        held = self._state(_SUMMARY).get(_SUMMARY)
        return None if held is None else str(held["text"])

    def window(self, *, tokens: int, count: Callable[[Message], int] = estimate_tokens) -> list[Message]:
        """Return the newest messages that fit into a prompt.

        The summary and all system messages come first, and are returned even if they alone have too many tokens. A tool
        call is never separated from its answer.

        Args:
            tokens: the maximum number of tokens.
            count: returns the number of tokens of a message. By default, four bytes count as a token.

        Raises:
            UsageError: an argument is not valid.
        """
        if type(tokens) is not int or tokens < 1:
            message = f"tokens must be a positive int, not {tokens!r}"
            raise UsageError(message, argument="tokens", value=tokens)
        if not callable(count):
            message = f"count must be a function of a message, not {count!r}"
            raise UsageError(message, argument="count", value=count)
        state = self._state(_MESSAGES, _SUMMARY)
        held: list[Message] = state.get(_MESSAGES, [])
        summary = state.get(_SUMMARY)
        upto = 0 if summary is None else summary["upto"]
        first = [] if summary is None else [_summary_message(summary["text"])]
        first += [each for each in held if is_system(each)]
        rest = [each for each in held[upto:] if not is_system(each)]
        return first + newest_that_fit(rest, tokens - sum(count(each) for each in first), count)

    # --- summaries --------------------------------------------------------------------

    def summarize(self, model: Callable[[list[Message]], str], *, keep_last: int = 20) -> str | None:
        """Replace older messages in the window with a summary. Return the summary, or None if no message is older.

        The messages stay in the session (`messages`). The model is called outside any commit. If it raises, nothing is
        changed. Messages that are added during the call stay in the window.

        Args:
            model: called with the previous summary, as a system message, and the messages to summarize. It returns the
                text of the summary.
            keep_last: the number of messages that stay in the window. More stay if a tool call would be separated from
                its answer.

        Raises:
            UsageError: an argument is not valid, or the model did not return a str.
            ConflictError: another process has summarized, rolled back or forgotten the session during the call.
                Nothing was changed. Facts: thread.
        """
        part = self._to_summarize(keep_last)
        return None if part is None else self._store_summary(part, model(part.messages))

    def _to_summarize(self, keep_last: int) -> OlderMessages | None:
        """Return the part of the session that a summary would replace, or None if there is none."""
        if type(keep_last) is not int or keep_last < 0:
            message = f"keep_last must be a non-negative int, not {keep_last!r}"
            raise UsageError(message, argument="keep_last", value=keep_last)
        state = self._state(_MESSAGES, _SUMMARY)
        seen = state.get(_SUMMARY)
        upto = 0 if seen is None else seen["upto"]
        held: list[Message] = state.get(_MESSAGES, [])
        end = upto + cut_before(held[upto:], keep_last)
        if end <= upto:
            return None
        former = [] if seen is None else [_summary_message(seen["text"])]
        return OlderMessages(former + [each for each in held[upto:end] if not is_system(each)], seen, held[:end])

    def _store_summary(self, part: OlderMessages, text: object) -> str:
        """Store the summary of a part. Raises UsageError, ConflictError."""
        if not isinstance(text, str) or not text.strip():
            message = f"model must return a str, not {text!r}"
            raise UsageError(message, argument="model", value=text)
        end = len(part.held)

        def change(state: Any) -> None:
            if _plain(state.get(_SUMMARY)) != part.seen or _plain(state.get(_MESSAGES, []))[:end] != part.held:
                message = f"session {self._thread_id!r} was summarized or changed while the model was called"
                raise ConflictError(message, thread=self._thread_id)
            state[_SUMMARY] = {"text": text, "upto": end}

        self._write(change)
        return text

    def forget(self) -> bool:
        """Delete the session with all its versions. Return True if it existed. `Store.compact` removes the bytes."""
        was_there = True
        try:
            self._store.delete_thread(self._thread_id)
        except ThreadNotFoundError:
            was_there = False
        return bool(self._board.erase(self._thread_id)) or was_there

    # --- the thread and its entry -----------------------------------------------------

    def _state(self, *channels: str) -> Mapping[str, Any]:
        """Return some channels of the state; an empty state if the session has expired. The read counts as a use."""
        entry = self._board.get(self._thread_id)
        if entry is None:
            return {}
        ttl_s = self._ttl_s or entry.value["ttl_s"]
        held = self._store.thread(self._thread_id).state
        state = {name: _plain(held[name]) for name in channels if name in held}
        if ttl_s is not None and not self._store.read_only:
            used_s = ttl_s if entry.expires is None else ttl_s - _seconds_left(entry.expires)
            if used_s * _REFRESH_PART >= ttl_s:
                with suppress(ConflictError):  # Another process has used the session at the same time.
                    self._board.cas(self._thread_id, {"ttl_s": ttl_s}, expected_version=entry.version, ttl_s=ttl_s)
        return state

    def _write(self, change: Callable[[Any], T]) -> T:
        """Change the state and postpone the end of the session, in one commit. Create the session if it is new."""
        is_deleted = False
        for _ in range(_TRIES_MAX):
            is_deleted = self._end_if_expired() or is_deleted
            try:
                with self._store.transaction() as tx:
                    board = tx.board()
                    entry = board.get(self._thread_id)
                    ttl_s = self._ttl_s or (None if entry is None else entry.value["ttl_s"])
                    board.set(self._thread_id, {"ttl_s": ttl_s}, ttl_s=ttl_s)
                    result = tx.thread(self._thread_id, recreate=is_deleted).edit(change, lazy=True)
            except ThreadDeletedError:
                is_deleted = True
                continue
            except UsageError:
                if not is_deleted or self._store.thread(self._thread_id).version < 0:
                    raise
                is_deleted = False  # Another process has re-created the session.
                continue
            return result
        message = f"session {self._thread_id!r} was changed repeatedly while it was written to"
        raise ConflictError(message, thread=self._thread_id)

    def _end_if_expired(self) -> bool:
        """Delete the thread of a session that has expired. Return True if it was deleted.

        The same commit creates the entry, so only one of several processes deletes the thread.
        """
        with self._store.snapshot() as snapshot:
            is_expired = snapshot.board().get(self._thread_id) is None and snapshot.thread(self._thread_id).version >= 0
        if not is_expired:
            return False
        with suppress(ConflictError, ThreadNotFoundError), self._store.transaction() as tx:
            tx.board().cas(self._thread_id, {"ttl_s": self._ttl_s}, expected_version=0, ttl_s=self._ttl_s)
            tx.delete_thread(self._thread_id)
        return True


class Turn:
    """A turn of a session, for one event: `with session.turn("evt-991") as turn`."""

    def __init__(self, session: Session, event: str) -> None:
        self._session = session
        self.event_id = event
        self._added: list[Encoded] = []
        self._state = "new"
        self.is_resumed = False
        """Whether an earlier turn of this event did not end, because its process died or its block raised.
        """
        self.is_completed = False
        """Whether the event is already done. Messages and working state of this turn then have no effect."""
        self.working: MutableMapping[str, Any] = {}
        """The working state: values keyed by name, stored as they are set, until the turn ends.

        A value that is changed in place must be set again.
        """

    def __enter__(self) -> Self:
        if self._state != "new":
            message = f"the turn of event {self.event_id!r} has already begun: create a new turn"
            raise UsageError(message, argument="event_id", value=self.event_id)
        self.is_resumed, self.is_completed, working = self._session._begin(self.event_id)  # noqa: SLF001 - of this file
        self.working = working if self.is_completed else Working(self._session, self.event_id, working)
        self._state = "open"
        return self

    def __exit__(
        self, kind: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        self._state = "ended"
        if isinstance(self.working, Working):
            self.working.is_open = False
        if kind is None and not self.is_completed:
            self.is_completed = not self._session._end(self.event_id, self._added)  # noqa: SLF001 - of this file

    def add(self, message: Any) -> None:
        """Add a message to the session. It is stored by the commit that ends the turn.

        Args:
            message: a dict in the shape of OpenAI or Anthropic, or a message of LangChain or pydantic.

        Raises:
            UsageError: the argument is not a message, or the turn is not open.
            ValueTypeError, LimitError: the message cannot be stored.
        """
        if self._state != "open":
            message = f"the turn of event {self.event_id!r} is not open: add messages within its `with` block"
            raise UsageError(message, argument="event_id", value=self.event_id)
        self._added.append(Encoded(stored_message(message), path=_MESSAGES))


class Working(MutableMapping[str, Any]):
    """The working state of a turn. Each change is one commit."""

    def __init__(self, session: Session, event: str, held: dict[str, Any]) -> None:
        self._session = session
        self._event = event
        self._held = held
        self.is_open = True

    def __getitem__(self, name: str) -> Any:
        return self._held[name]

    def __setitem__(self, name: str, value: Any) -> None:
        self._check_open()
        encoded = Encoded(value, path=f"working.{name}")
        self._session._set_working(self._event, name, encoded)  # noqa: SLF001 - of this file
        self._held[name] = value

    def __delitem__(self, name: str) -> None:
        self._check_open()
        if name not in self._held:
            raise KeyError(name)
        self._session._set_working(self._event, name)  # noqa: SLF001 - of this file
        del self._held[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._held)

    def __len__(self) -> int:
        return len(self._held)

    def __repr__(self) -> str:
        return repr(self._held)

    def _check_open(self) -> None:
        if not self.is_open:
            message = f"the turn of event {self._event!r} has ended"
            raise UsageError(message, argument="event_id", value=self._event)


def _in(state: Any, name: str, kind: type = dict) -> Any:
    """Return the container called `name`. Create it if it does not exist."""
    if name not in state:
        state[name] = kind()
    return state[name]


def _plain(value: Any) -> Any:
    """Return a view of a state, or a part of a mount, as a plain value."""
    return value.to_python() if hasattr(value, "to_python") else plain(value)


def _summary_message(text: str) -> Message:
    return {"role": "system", "content": text}


def _seconds_left(expires: datetime) -> float:
    return (expires - datetime.now(UTC)).total_seconds()
