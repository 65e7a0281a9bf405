"""Who gets what runs emit: webhooks, and functions of this process."""

from __future__ import annotations

import inspect
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, NamedTuple

from statelog.durable.clock import clock
from statelog.durable.keys import text_digest
from statelog.durable.webhook import Webhook, patterns_of
from statelog.durable.workflows import name_of
from statelog.errors import UsageError, WebhookError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from statelog.durable.outbox import Message


class Subscription:
    """A function that gets messages. See `subscription`."""

    def __init__(self, function: Callable[[Message], object], topics: Sequence[str] = ("**",)) -> None:
        if not callable(function) or inspect.iscoroutinefunction(function):
            message = f"a subscriber is a Webhook, or a function that is not async, not {function!r}"
            raise UsageError(message, argument="function", value=function)
        self._function = function
        self._patterns = patterns_of(topics)
        self.topics = tuple(topics)
        self.digest = text_digest(f"{getattr(function, '__module__', '')}.{name_of(function)}")
        """By which the store knows what it has got."""

    def __repr__(self) -> str:
        return f"subscription({self._function!r}, topics={self.topics!r})"

    def fits(self, topic: str) -> bool:
        """Whether it gets messages of a topic."""
        return any(pattern.fits(topic) for pattern in self._patterns)

    def take(self, message: Message) -> None:
        """Call the function."""
        self._function(message)


def subscription(function: Callable[[Message], object], *, topics: Sequence[str] = ("**",)) -> Subscription:
    """Have a function get messages of some topics alone; a function in itself gets all.

    It is called with a `Message`, in the thread that delivers, and the message has left when it returns. If it raises,
    the message comes again later. The store knows the function by its module and name.

    Args:
        function: called with each message, at least once: `message.id` says which one it is.
        topics: as for `Webhook`.

    Raises:
        UsageError: it is no function, or async, or the topics are none.
    """
    return Subscription(function, topics)


class Subscriber(NamedTuple):
    """One of those who are given messages."""

    digest: str
    """Another for each; the same in each process that is given the same ones."""
    target: Webhook | Subscription

    def send(self, message: Message) -> None:
        """Give it a message, and return when it has taken it. Raises whatever it does."""
        if isinstance(self.target, Subscription):
            self.target.take(message)
            return
        time = message.time.isoformat().replace("+00:00", "Z")
        data = {
            "payload": message.payload,
            "run": message.run,
            "thread": message.thread,
            "branch": message.branch,
            "checkpoint": message.checkpoint,
            "gate": message.gate,
            "time": time,
        }
        body = {"type": message.topic, "timestamp": time, "data": data}
        self.target.send(body, id=message.id, now_s=clock().now_us() / 1e6)


def check_subscribers(given: Iterable[Any], argument: str = "outbox") -> tuple[Subscriber, ...]:
    """Return subscribers. Raises UsageError: one is none. Facts: argument, value."""
    if not isinstance(given, Iterable) or isinstance(given, str | bytes):
        message = f"{argument} is a list of webhooks and functions, not {given!r}"
        raise UsageError(message, argument=argument, value=given)
    found: list[Subscriber] = []
    for each in given:
        target = each if isinstance(each, Webhook | Subscription) else Subscription(each)
        same = sum(held.target.digest == target.digest for held in found)
        found.append(Subscriber(f"{target.digest}{f'-{same}' if same else ''}", target))
    return tuple(found)


def shown_error(error: Exception) -> str:
    """Return what the store keeps of a refusal: of a webhook no URL, which its answer may quote."""
    if not isinstance(error, WebhookError):
        return f"{type(error).__name__}: {error}"[:1000]
    status, reason = error.facts["status"], error.facts["reason"]
    return f"answered {status}" if status is not None else str(reason).partition(":")[0]
