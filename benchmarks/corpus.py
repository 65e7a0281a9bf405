"""Generated text that cannot be compressed, the same in every run."""

from __future__ import annotations

import base64
import itertools
import random
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator


class Corpus:
    """A source of random text."""

    def __init__(self, seed: int = 1) -> None:
        self._random = random.Random(seed)

    def text(self, size_bytes: int) -> str:
        """Return ASCII text."""
        return base64.b64encode(self._random.randbytes(size_bytes * 3 // 4 + 3)).decode("ascii")[:size_bytes]

    def below(self, stop: int) -> int:
        """Return a number in [0, stop)."""
        return self._random.randrange(stop)

    def messages(self, count: int, size_bytes: int) -> list[dict[str, Any]]:
        """Return chat messages with `size_bytes` of text each."""
        return [self.message(number, size_bytes) for number in range(count)]

    def message(self, number: int, size_bytes: int) -> dict[str, Any]:
        """Return one chat message."""
        return {"id": f"m{number}", "role": "user", "content": self.text(size_bytes)}

    def endless(self, size_bytes: int, *, start: int = 0, ahead: int = 0) -> Iterator[dict[str, Any]]:
        """Return endless chat messages. Generate the first `ahead` at once, so that their generation is not timed."""
        messages = (self.message(number, size_bytes) for number in itertools.count(start))
        return itertools.chain(list(itertools.islice(messages, ahead)), messages)
