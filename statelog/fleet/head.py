"""The head of a store: the one object that changes. FLEET.md draws its bytes."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from statelog.errors import CorruptionError, NewerFormatError
from statelog.format import cbor

if TYPE_CHECKING:
    from collections.abc import Iterable

FORMAT = 1
_MAGIC = "statelog fleet"
_STATES = ("opening", "open", "free")
_FIELDS = {"magic", "format", "epoch", "owner", "state", "beat", "base", "tail", "store_id", "gone"}


class Cut(NamedTuple):
    """Where the log of a store is at the end of a segment: its LSN, and the chain digest there."""

    lsn: int
    chain: bytes


class Stretch(NamedTuple):
    """Segments of one epoch in a row.

    Attributes:
        epoch: of those who put them.
        first: number of the first one that counts; numbers are dense.
        last: number of the last one, below `first` if there is none; None as long as the epoch goes on.
        cut: where the log is at its end; None as long as it goes on, or if there is none.

    """

    epoch: int
    first: int
    last: int | None = None
    cut: Cut | None = None


class Base(NamedTuple):
    """An image: the LSN up to which it goes, the epoch that put it, the chain digest there."""

    lsn: int
    epoch: int
    chain: bytes


SHARED = "shared"
"""The owner of a store that many hosts write. No host is named so: the name of one has a `:`."""


@dataclass(frozen=True, slots=True)
class Head:
    """What a head says.

    Attributes:
        epoch: counts owners.
        owner: who owns the store, for people; and 16 bytes that no other opening has.
        state: "opening": the cut of the tail is not written down yet. "free": nobody owns it, the tail is closed.
        beat: moved by the owner.
        base: what the tail begins behind; None: it begins with the log.
        tail: oldest first. Only the last one may go on.
        store_id: of the store, 16 bytes.
        gone: the ids of stores of this name that were deleted.

    """

    epoch: int
    owner: tuple[str, bytes]
    state: Literal["opening", "open", "free"]
    tail: tuple[Stretch, ...]
    store_id: bytes
    base: Base | None = None
    beat: int = 0
    gone: tuple[bytes, ...] = ()

    def encode(self) -> bytes:
        """Return its bytes: equal heads have equal ones."""
        fields: dict[str, Any] = {
            "magic": _MAGIC,
            "format": FORMAT,
            "epoch": self.epoch,
            "owner": list(self.owner),
            "state": self.state,
            "beat": self.beat,
            "base": None if self.base is None else list(self.base),
            "tail": [[each.epoch, each.first, each.last, each.cut and list(each.cut)] for each in self.tail],
            "store_id": self.store_id,
            "gone": list(self.gone),
        }
        return cbor.encode(fields)

    def moved(self) -> Head:
        """Return it with the owner's next beat."""
        return replace(self, beat=self.beat + 1)

    def cut_at(self, last: int, cut: Cut | None) -> Head:
        """Return it with its tail closed."""
        *earlier, going_on = self.tail
        return replace(self, tail=_without_empty((*earlier, going_on._replace(last=last, cut=cut))))

    def begun(self, first: int = 1) -> Head:
        """Return it open, with segments of its epoch to come."""
        return replace(self, state="open", tail=(*self.tail, Stretch(self.epoch, first)))

    def based(self, base: Base, next_number: int) -> Head:
        """Return it with a base that all segments lie in before the next one of the base's epoch."""
        behind = [each for each in self.tail if each.epoch >= base.epoch]
        tail = (each._replace(first=next_number) if each.epoch == base.epoch else each for each in behind)
        return replace(self, base=base, tail=_without_empty(tail))

    @property
    def is_shared(self) -> bool:
        """Whether many hosts write the store."""
        return self.owner[0] == SHARED and self.state == "open"

    @property
    def cut(self) -> Cut | None:
        """Where the log is at the end of the tail, or of the base; None if it goes on, or has not begun."""
        if self.tail:
            return self.tail[-1].cut
        return None if self.base is None else Cut(self.base.lsn, self.base.chain)


def taker(head: Head) -> str:
    """Return a text that names the owner that has taken over a store."""
    who = "hosts that share it" if head.owner[0] == SHARED else head.owner[0]
    return f"{who}, in epoch {head.epoch}"


def decode(name: str, data: bytes) -> Head:
    """Return what a head's bytes say.

    Args:
        name: of the object, for errors.
        data: its bytes.

    Raises:
        CorruptionError: it is none. NewerFormatError: a later release has written it. Facts: object.

    """
    try:
        fields = cbor.decode(data)
        if fields["magic"] != _MAGIC:
            raise _damaged(name)
        needed = fields["format"]
        if type(needed) is int and needed > FORMAT:
            message = f"{name} has format {needed}; this release reads up to format {FORMAT}: take a newer statelog"
            raise NewerFormatError(message, object=name, needed=needed, supported=FORMAT)
        return _checked(name, fields)
    except (CorruptionError, KeyError, TypeError, ValueError, IndexError) as error:
        raise _damaged(name) from error


def _checked(name: str, fields: Any) -> Head:
    owner, nonce = fields["owner"]
    tail = tuple(
        Stretch(epoch, first, last, None if cut is None else Cut(*cut)) for epoch, first, last, cut in fields["tail"]
    )
    base = None if fields["base"] is None else Base(*fields["base"])
    head = Head(
        epoch=fields["epoch"],
        owner=(owner, nonce),
        state=fields["state"],
        tail=tail,
        store_id=fields["store_id"],
        base=base,
        beat=fields["beat"],
        gone=tuple(fields["gone"]),
    )
    known = [each.cut for each in tail if each.cut is not None] + ([Cut(base.lsn, base.chain)] if base else [])
    is_sound = (
        fields.keys() == _FIELDS
        and head.state in _STATES
        and all(type(number) is int and number >= 0 for number in (head.epoch, head.beat))
        and all(stretch.last is not None for stretch in tail[:-1])
        and [stretch.epoch for stretch in tail] == sorted({stretch.epoch for stretch in tail})
        and all(type(cut.lsn) is int and type(cut.chain) is bytes for cut in known)
        and head.encode() == cbor.encode(fields)
    )
    if not is_sound:
        raise _damaged(name)
    return head


def _without_empty(tail: Iterable[Stretch]) -> tuple[Stretch, ...]:
    return tuple(stretch for stretch in tail if stretch.last is None or stretch.last >= stretch.first)


def _damaged(name: str) -> CorruptionError:
    return CorruptionError(f"{name} is damaged, or no head of a store", object=name)
