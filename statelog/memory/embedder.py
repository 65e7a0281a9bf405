"""Calls the embedding function of a memory, and checks its results."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any

from statelog.errors import EmbeddingError, StatelogError, UsageError
from statelog.memory.vectors import SHOWN_MAX, check_vectors, import_numpy, of_length_1
from statelog.store.session import session_of

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from statelog.store.store import Store

    Embed = Callable[[list[str]], Sequence[Sequence[float]] | Awaitable[Sequence[Sequence[float]]]]


class Embedder:
    """Makes vectors of texts with the user's function.

    Attributes:
        dims: the size of the vectors.
        embed: the user's function.
        is_async: whether the function is async, so that only `statelog.aio` can call it.
    """

    def __init__(self, store: Store, embed: Any, dims: int | None) -> None:
        """Check the arguments.

        Args:
            store: the store. If it has a guard, texts are redacted before they are embedded.
            embed: a function that takes a list of texts and returns a list of vectors, or an object with the method
                `embed_documents`, such as LangChain's embeddings.
            dims: the size of the vectors.

        Raises:
            UsageError: an argument is not valid.
            ModuleNotFoundError: numpy is missing.
        """
        embed = getattr(embed, "embed_documents", embed)
        if not callable(embed):
            message = f"embed must be a function of a list of texts, not {embed!r}"
            raise UsageError(message, argument="embed", value=embed)
        if type(dims) is not int or dims < 1:
            message = f"dims must be the length of the vectors that embed returns, not {dims!r}"
            raise UsageError(message, argument="dims", value=dims)
        self.np = import_numpy("a memory with embed=")
        self.dims = dims
        self.embed: Embed = embed
        self.is_async = inspect.iscoroutinefunction(embed) or inspect.iscoroutinefunction(type(embed).__call__)
        self._engine = session_of(store).owner

    def vector(self, text: str) -> Any:
        """Return the vector of a text, as an array of float32.

        Raises:
            EmbeddingError: the function raised an exception, or returned something other than one vector.
            UsageError: the function is async.
        """
        if self.is_async:
            message = "embed is async: use statelog.aio.Memory"
            raise UsageError(message, argument="embed")
        text = self._redacted(text)
        try:
            made = self.embed([text])
        except Exception as error:
            raise _raised(error, text) from error
        return self._checked(made, text)

    async def vector_async(self, text: str) -> Any:
        """Return the vector of a text, made by an async function. Raises EmbeddingError."""
        text = self._redacted(text)
        try:
            made = await self.embed([text])  # type: ignore[misc] # an async function returns an awaitable
        except Exception as error:
            raise _raised(error, text) from error
        return self._checked(made, text)

    def unit(self, vector: Any) -> Any:
        """Return a vector of length 1 in the same direction."""
        return of_length_1(self.np, vector)

    def _checked(self, made: object, text: str) -> Any:
        return check_vectors(self.np, made, [text], self.dims)[0]

    def _redacted(self, text: str) -> str:
        """Redact the secrets in a text. A vector can confirm a guess, and `embed` may send the text to a service."""
        guard = self._engine.guard
        return text if guard is None else guard.field_text(text, ("text",))


def _raised(error: Exception, text: str) -> EmbeddingError:
    shown = error.message if isinstance(error, StatelogError) else str(error)
    message = f"embed raised {type(error).__name__}: {shown}"
    return EmbeddingError(message, text=text[:SHOWN_MAX])
