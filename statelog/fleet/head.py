"""The head of a store: its only object that changes. FLEET.md draws its bytes."""

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
    """A position in the log, at the end of a segment: the last LSN, and its chain digest."""

    lsn: int
    chain: bytes


class Stretch(NamedTuple):
    """Consecutive segments of one epoch.

    Attributes:
        epoch: epoch of their owner.
        first: number of the first valid segment. Numbers have no gaps.
        last: number of the last segment, below `first` if there is none; None while the epoch
            continues.
        cut: position in the log at the end of the stretch; None while the stretch continues, or if it has no segment.
    """

    epoch: int
    first: int
    last: int | None = None
    cut: Cut | None = None


class BaseImage(NamedTuple):
    """An image: its last LSN, the epoch that put it, and the chain digest of that LSN."""

    lsn: int
    epoch: int
    chain: bytes


SHARED = "shared"
"""The owner of a store that many hosts write. The name of a real owner differs, because it has a `:`."""


@dataclass(frozen=True, slots=True)
class HeadContents:
    """The contents of a head.

    Attributes:
        epoch: number of owners so far.
        owner: the owner's name, for messages, and 16 bytes that are unique to this opening.
        state: "opening": the tail's cut is not recorded yet. "free": the store has no owner, and
            the tail is closed.
        beat: a counter that the owner increments to show that it is alive.
        base: the base before the tail; None if the tail begins at the start of the log.
        tail: oldest first. Only the last stretch may continue.
        store_id: id of the store, 16 bytes.
        gone: ids of deleted stores that had this name.
    """

    epoch: int
    owner: tuple[str, bytes]
    state: Literal["opening", "open", "free"]
    tail: tuple[Stretch, ...]
    store_id: bytes
    base: BaseImage | None = None
    beat: int = 0
    gone: tuple[bytes, ...] = ()

    def encode(self) -> bytes:
        """Return the encoded head. Equal heads have equal bytes."""
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

    def moved(self) -> HeadContents:
        """Return the head with the owner's next beat."""
        return replace(self, beat=self.beat + 1)

    def cut_at(self, last: int, cut: Cut | None) -> HeadContents:
        """Return the head with its tail closed at segment `last`, whose end is the position `cut` in the log."""
        *earlier, going_on = self.tail
        return replace(self, tail=_without_empty((*earlier, going_on._replace(last=last, cut=cut))))

    def begun(self, first: int = 1) -> HeadContents:
        """Return the head with a new, open-ended stretch of its epoch at the end of the tail."""
        return replace(self, state="open", tail=(*self.tail, Stretch(self.epoch, first)))

    def based(self, base: BaseImage, next_number: int) -> HeadContents:
        """Return the head with a base that covers all segments before `next_number` in the base's epoch."""
        behind = [each for each in self.tail if each.epoch >= base.epoch]
        tail = (each._replace(first=next_number) if each.epoch == base.epoch else each for each in behind)
        return replace(self, base=base, tail=_without_empty(tail))

    @property
    def is_shared(self) -> bool:
        """Whether many hosts write the store."""
        return self.owner[0] == SHARED and self.state == "open"

    @property
    def cut(self) -> Cut | None:
        """Position at the end of the tail, or of the base; None if the tail continues or nothing was shipped."""
        if self.tail:
            return self.tail[-1].cut
        return None if self.base is None else Cut(self.base.lsn, self.base.chain)


def taker(head: HeadContents) -> str:
    """Return the name of the owner that has taken a store over, for messages."""
    who = "hosts that share it" if head.owner[0] == SHARED else head.owner[0]
    return f"{who}, in epoch {head.epoch}"


def decode(name: str, data: bytes) -> HeadContents:
    """Decode a head.

    Args:
        name: name of the object, for errors.
        data: bytes of the object.

    Raises:
        CorruptionError: the bytes are not a head.
        NewerFormatError: a later release has written it. Facts: object.
    """
    try:
        fields = cbor.decode(data)
        if fields["magic"] != _MAGIC:
            raise _damaged(name)
        needed = fields["format"]
        if type(needed) is int and needed > FORMAT:
            message = f"{name} has format {needed}; this release reads up to format {FORMAT}: install a newer statelog"
            raise NewerFormatError(message, object=name, needed=needed, supported=FORMAT)
        return _checked(name, fields)
    except (CorruptionError, KeyError, TypeError, ValueError, IndexError) as error:
        raise _damaged(name) from error


def _checked(name: str, fields: Any) -> HeadContents:
    owner, nonce = fields["owner"]
    tail = tuple(
        Stretch(epoch, first, last, None if cut is None else Cut(*cut)) for epoch, first, last, cut in fields["tail"]
    )
    base = None if fields["base"] is None else BaseImage(*fields["base"])
    head = HeadContents(
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
    return CorruptionError(f"{name} is damaged, or is not the head of a store", object=name)
