"""A checkpoint as `list` returns it. It is decoded on first use, because most callers of `list` want few values."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from langgraph.checkpoint.base import CheckpointTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from langchain_core.runnables import RunnableConfig
    from langgraph.checkpoint.base import Checkpoint, CheckpointMetadata, PendingWrite


class ListedTuple(CheckpointTuple):
    """A CheckpointTuple that decodes `checkpoint` and `pending_writes` on first use, which may raise errors."""

    _decode: Callable[[], CheckpointTuple]
    _decoded: CheckpointTuple | None

    @classmethod
    def of(
        cls,
        config: RunnableConfig,
        metadata: CheckpointMetadata,
        parent_config: RunnableConfig | None,
        decode: Callable[[], CheckpointTuple],
    ) -> ListedTuple:
        """Return a tuple that `decode` will complete."""
        made = tuple.__new__(cls, (config, None, metadata, parent_config, None))
        made._decode = decode  # noqa: SLF001 - a tuple has no __init__ of its own
        made._decoded = None  # noqa: SLF001
        return made

    def _whole(self) -> CheckpointTuple:
        if self._decoded is None:
            self._decoded = self._decode()
        return self._decoded

    @property
    def checkpoint(self) -> Checkpoint:  # type: ignore[override]  # The base class has a field.
        """See `CheckpointTuple.checkpoint`."""
        return self._whole().checkpoint

    @property
    def pending_writes(self) -> list[PendingWrite] | None:  # type: ignore[override]  # The base class has a field.
        """See `CheckpointTuple.pending_writes`."""
        return self._whole().pending_writes

    # The inherited methods of tuple would return the fields without decoding them, so each method decodes them first.

    def __iter__(self) -> Iterator[Any]:
        return iter(self._whole())

    def __getitem__(self, index: Any) -> Any:
        return self._whole()[index]

    def __contains__(self, value: object) -> bool:
        return value in self._whole()

    def __eq__(self, other: object) -> bool:
        return self._whole() == (other._whole() if isinstance(other, ListedTuple) else other)

    def __ne__(self, other: object) -> bool:
        return not self == other

    __hash__ = None  # type: ignore[assignment]  # Its parts are not hashable.

    def __repr__(self) -> str:
        return repr(self._whole())

    def __reduce__(self) -> tuple[Any, ...]:
        return (CheckpointTuple, tuple(self._whole()))

    def __reduce_ex__(self, _protocol: Any) -> tuple[Any, ...]:
        return self.__reduce__()

    def count(self, value: Any) -> int:
        """See `tuple.count`."""
        return tuple(self._whole()).count(value)

    def index(self, value: Any, *bounds: Any) -> int:
        """See `tuple.index`."""
        return tuple(self._whole()).index(value, *bounds)

    def __mul__(self, number: Any) -> Any:
        return tuple(self._whole()) * number

    __rmul__ = __mul__

    def __add__(self, other: Any) -> Any:
        return tuple(self._whole()) + other

    def _replace(self, **changes: Any) -> CheckpointTuple:  # type: ignore[override]  # It takes any field.
        return self._whole()._replace(**changes)

    def _asdict(self) -> dict[str, Any]:
        return self._whole()._asdict()
