"""Subscribers, which receive the messages of runs: webhooks, and functions in this process."""

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
    """A function that receives messages. See `subscription`."""

    def __init__(self, function: Callable[[Message], object], topics: Sequence[str] = ("**",)) -> None:
        if not callable(function) or inspect.iscoroutinefunction(function):
            message = f"a subscriber must be a Webhook or a function that is not async, not {function!r}"
            raise UsageError(message, argument="function", value=function)
        self._function = function
        self._patterns = patterns_of(topics)
        self.topics = tuple(topics)
        self.digest = text_digest(f"{getattr(function, '__module__', '')}.{name_of(function)}")
        """The digest under which the store records the messages that the function has received."""

    def __repr__(self) -> str:
        return f"subscription({self._function!r}, topics={self.topics!r})"

    def fits(self, topic: str) -> bool:
        """Return True if the function receives messages with this topic."""
        return any(pattern.fits(topic) for pattern in self._patterns)

    def take(self, message: Message) -> None:
        """Call the function with a message."""
        self._function(message)


def subscription(function: Callable[[Message], object], *, topics: Sequence[str] = ("**",)) -> Subscription:
    """Return a subscriber that passes the messages of some topics to a function. A bare function receives all messages.

    The function is called with a `Message`, in the thread that delivers. It accepts the message by returning. If it
    raises, it is called again later. The store identifies the function by its module and name.

    Args:
        function: called at least once for each message. `message.id` identifies the message.
        topics: as for `Webhook`.

    Raises:
        UsageError: `function` is not a function, or is async, or the topics are not valid.
    """
    return Subscription(function, topics)


class Subscriber(NamedTuple):
    """A webhook or function that receives messages."""

    digest: str
    """Identifies the subscriber. Processes that are given the same subscribers compute the same digests."""
    target: Webhook | Subscription

    def send(self, message: Message) -> None:
        """Send a message. Return when the subscriber has accepted it, or raise the error of the subscriber."""
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
    """Return the given webhooks and functions as subscribers. Raises UsageError. Facts: argument, value."""
    if not isinstance(given, Iterable) or isinstance(given, str | bytes):
        message = f"{argument} must be a list of webhooks and functions, not {given!r}"
        raise UsageError(message, argument=argument, value=given)
    found: list[Subscriber] = []
    for each in given:
        target = each if isinstance(each, Webhook | Subscription) else Subscription(each)
        same = sum(held.target.digest == target.digest for held in found)
        found.append(Subscriber(f"{target.digest}{f'-{same}' if same else ''}", target))
    return tuple(found)


def shown_error(error: Exception) -> str:
    """Return the error text to store. It omits the webhook's URL, and the answer, which may quote the URL."""
    if not isinstance(error, WebhookError):
        return f"{type(error).__name__}: {error}"[:1000]
    status, reason = error.facts["status"], error.facts["reason"]
    return f"answered {status}" if status is not None else str(reason).partition(":")[0]
