"""Explores every order in which requests of writers reach a storage, also late, repeated, or without an answer.

A writer is a generator of `protocol.Request`s, and of messages to the explorer, which take no time.

- Requests that change something have faults. The answer is UNKNOWN and the request arrives at any later time: at once
  if the answer was lost, or never if the request was lost. Or it is answered, and arrives again at any later time. Or
  it is done, but answered as REFUSED, because a client library has sent it twice.
- A writer is cloned at any time, as if the snapshot of a machine was resumed twice.
- Generators cannot be copied. So a copy is a new generator that gets the same answers. Writers are equal if their
  frames are equal, so no program may have an iterator on its stack while it yields.
- A token is a digest of the bytes of an object, as an ETag is.
"""

from __future__ import annotations

import hashlib
from collections import deque
from functools import cache
from itertools import pairwise
from typing import Any, NamedTuple

from statelog.fleet import names
from statelog.fleet.archive import Outcome, StoredObject
from statelog.fleet.head import BaseImage, Cut, HeadContents, Stretch
from statelog.fleet.protocol import END, CreateObject, ListObjects, ReadObject, ReadToken, SwapObject
from statelog.format import cbor


class Put(NamedTuple):
    """Overwrites an object without a condition. No real protocol does this."""

    name: str
    data: bytes


class Remove(NamedTuple):
    """Removes objects, as a collector does."""

    names: tuple[str, ...]


class Myself(NamedTuple):
    """Asks for the number of the clone, because each clone commits different data."""


class Acknowledged(NamedTuple):
    """Reports that a commit was acknowledged."""

    epoch: int
    number: int
    data: bytes


class Owning(NamedTuple):
    """Reports that the writer owns an epoch."""

    epoch: int
    owner: tuple[str, bytes]


class Served(NamedTuple):
    """Reports that a reader has read the segments after a base. The answer is the data, or None if it was removed."""

    base: BaseImage | None
    segments: tuple[str, ...]


class LostError(AssertionError):
    """A guarantee was broken. The message has the events."""


CHANGES = (CreateObject, SwapObject, Put, Remove)
_TOLD = (Myself, Acknowledged, Owning, Served)


class Storage:
    """The objects at one time. Equal storages with one origin are one object."""

    def __init__(self, objects, known):
        self.objects = objects
        self._known = known
        self._done = {}

    def _with(self, objects):
        key = frozenset(objects.items())
        if key not in self._known:
            self._known[key] = Storage(objects, self._known)
        return self._known[key]

    def ask(self, request):
        """Return the storage after a request, and its answer."""
        key = (type(request), request)  # Named tuples with equal fields are equal even if their classes differ.
        if key not in self._done:
            self._done[key] = self._ask(request)
        return self._done[key]

    def _ask(self, request):
        objects = self.objects
        match request:
            case ReadObject(name):
                return self, StoredObject(objects[name], token_of(objects[name])) if name in objects else None
            case ReadToken(name):
                return self, token_of(objects[name]) if name in objects else None
            case ListObjects(prefix, after):
                return self, tuple(sorted(name for name in objects if name.startswith(prefix) and name > after))
            case Remove(gone):
                return self._with({name: data for name, data in objects.items() if name not in gone}), None
            case CreateObject(name, _) if name in objects:
                return self, Outcome.REFUSED
            case SwapObject(name, _, token) if name not in objects or token_of(objects[name]) != token:
                return self, Outcome.REFUSED
        return self._with({**objects, request.name: request.data}), token_of(request.data)


class Writer:
    """A program at one point. Equal ones are one object."""

    def __init__(self, program, answers, request, known):
        self.request = request
        self._program = program
        self._answers = answers
        self._known = known
        self._next = {}

    @classmethod
    def begun(cls, program):
        return cls._at(program, (), {})

    @classmethod
    def _at(cls, program, answers, known):
        running = program()
        request = None
        try:
            request = next(running)
            for answer in answers:
                request = running.send(answer)
        except StopIteration:
            request = None
        frames = _frames(running)
        if frames not in known:
            known[frames] = cls(program, answers, request, known)
        return known[frames]

    def told(self, answer):
        """Return the writer after an answer."""
        if answer not in self._next:
            self._next[answer] = self._at(self._program, (*self._answers, answer), self._known)
        return self._next[answer]


def _frames(running):
    """Return an identity of the point that a generator has reached."""
    found = []
    while running is not None and running.gi_frame is not None:
        frame = running.gi_frame
        here = tuple((name, _frozen(value)) for name, value in frame.f_locals.items())
        found.append((frame.f_code.co_name, frame.f_lasti, here))
        running = running.gi_yieldfrom
    return tuple(found)


def _frozen(value: Any):
    if isinstance(value, list | tuple):
        return tuple(_frozen(each) for each in value)
    return frozenset(value) if isinstance(value, set) else value


class World(NamedTuple):
    """The state of everything at one time, and the promises until then."""

    storage: Storage
    writers: tuple[tuple[Writer, str], ...]
    late: frozenset
    faults: int
    clones: int
    acknowledged: frozenset = frozenset()
    owners: frozenset = frozenset()
    served: tuple[bytes, ...] = ()


class Explorer:
    """Explores all worlds that programs can reach.

    Args:
        programs: the programs by name.
        faults: the maximum number of faults on the way to a world.
        clones: the maximum number of clones.
        cloned: the names of the programs to clone. Empty means all.
    """

    def __init__(self, programs, *, faults=0, clones=0, cloned=()):
        writers = tuple((Writer.begun(program), name) for name, program in programs.items())
        self._cloned = set(cloned or programs)
        self._first = World(Storage({}, {}), writers, frozenset(), faults, clones)
        self._came_from = {}

    def explore(self):
        """Return the number of worlds, and of those without a successor. Raises LostError."""
        first = self._told(self._first)
        self._came_from = {first: None}
        todo, ends = deque([first]), 0
        while todo:
            world = todo.popleft()
            for what, after in self._steps(world):
                try:
                    reached = self._told(after)
                    problem = None if reached in self._came_from else broken(reached)
                except LostError as error:
                    reached, problem = after, str(error)
                if problem is not None:
                    raise LostError("\n  ".join([problem, *self._events(world), what]))
                if reached not in self._came_from:
                    self._came_from[reached] = (world, what)
                    todo.append(reached)
            ends += all(writer.request is None for writer, _name in world.writers)
        return len(self._came_from), ends

    def _events(self, world):
        found = []
        while (before := self._came_from[world]) is not None:
            world, what = before
            found.append(what)
        return found[::-1]

    def _steps(self, world):
        """Yield each possible next event with the world after it."""
        for at, (writer, name) in enumerate(world.writers):
            request = writer.request
            if request is None:
                continue
            storage, answer = world.storage.ask(request)
            done = world._replace(storage=storage)
            yield f"{name}: {shown(request)}", _answered(done, at, answer)
            if world.clones and name in self._cloned:
                clone = (writer, f"{name}{chr(ord('`') + len(world.writers))}")
                yield f"{name} is cloned", world._replace(clones=world.clones - 1, writers=(*world.writers, clone))
            if world.faults and isinstance(request, CHANGES):
                later = {"late": world.late | {request}, "faults": world.faults - 1}
                yield f"{name}: late: {shown(request)}", _answered(world._replace(**later), at, Outcome.UNKNOWN)
                if storage is not world.storage:
                    yield f"{name}: to be repeated: {shown(request)}", _answered(done._replace(**later), at, answer)
                    refused = done._replace(faults=world.faults - 1)
                    yield f"{name}: done, but refused: {shown(request)}", _answered(refused, at, Outcome.REFUSED)
        for request in world.late:
            storage, _ = world.storage.ask(request)
            if storage is not world.storage:  # Otherwise, the request has no effect, as if it had never arrived.
                yield f"arrives: {shown(request)}", world._replace(storage=storage, late=world.late - {request})

    def _told(self, world):
        """Return the world once all writers wait for the storage."""
        at = 0
        while at < len(world.writers):
            writer, name = world.writers[at]
            if isinstance(writer.request, _TOLD):
                world = _heard(world, at, writer.request, name)
            else:
                at += 1
        return world


def _answered(world, at, answer):
    writer, name = world.writers[at]
    return world._replace(writers=(*world.writers[:at], (writer.told(answer), name), *world.writers[at + 1 :]))


def _heard(world, at, told, name):
    match told:
        case Myself():
            return _answered(world, at, name)
        case Acknowledged(epoch, number, data):
            for other in world.acknowledged:
                if other[:2] == (epoch, number) and other.data != data:
                    raise LostError(f"{told} and {other} were both acknowledged")
            return _answered(world._replace(acknowledged=world.acknowledged | {told}), at, None)
        case Owning(epoch, owner):
            for other in world.owners:
                if other.epoch == epoch and other.owner != owner:
                    raise LostError(f"both {owner} and {other.owner} own epoch {epoch}")
            return _answered(world._replace(owners=world.owners | {told}), at, None)
    data = _data_in(world.storage, told.base, told.segments)
    if data is None:
        return _answered(world, at, None)
    shorter, longer = sorted((data, world.served), key=len)
    if longer[: len(shorter)] != shorter:
        raise LostError(f"{data} was served, and {world.served} before")
    return _answered(world._replace(served=longer), at, data)


def broken(world):
    """Return the guarantee that a world breaks, or None."""
    return _broken(world.storage, world.acknowledged, world.served)


@cache
def _broken(storage, acknowledged, served):
    found = restored(storage)
    if found is None:
        return "the head names what is gone"
    positions = [lsn_of(data) for data in found]
    if any(after != before + 1 for before, after in pairwise([0, *positions])):
        return f"{found} is not in a row"
    for each in acknowledged:
        if found.count(each.data) != 1:
            return f"{each} was acknowledged, and what is restored is {found}"
    if found[: len(served)] != served:
        return f"{served} was served, and what is restored is {found}"
    return None


@cache
def restored(storage):
    """Return the data that can be restored now, or None if a part was removed."""
    if names.HEAD not in storage.objects:
        return ()
    head = _head_in(storage.objects[names.HEAD])
    listed = tuple(name for name in storage.objects if name.startswith("log/"))
    return _data_in(storage, head.base, leads_to(head, listed))


def leads_to(head, listed):
    """Return the names of the segments of a head. Those of an open tail are in `listed`."""
    found = []
    for stretch in head.tail:
        number = stretch.first
        while number <= stretch.last if stretch.last is not None else names.segment(stretch.epoch, number) in listed:
            found.append(names.segment(stretch.epoch, number))
            number += 1
    return tuple(found)


def _data_in(storage, base, segments):
    wanted = [*([list_name(base)] if base else []), *segments]
    if any(name not in storage.objects for name in wanted):
        return None
    data = [each for name in wanted for each in storage.objects[name].split(b"\n")]
    return tuple(each for each in data if each != END)


def _head_in(data):
    """Return a head, even one that the protocol cannot read, because negative controls put such heads."""
    fields = cbor.decode(data)
    tail = tuple(Stretch(*each[:3], each[3] and Cut(*each[3])) for each in fields["tail"])
    return HeadContents(
        fields["epoch"],
        tuple(fields["owner"]),
        fields["state"],
        tail,
        b"",
        fields["base"] and BaseImage(*fields["base"]),
    )


def list_name(base):
    """Return the name of the object that lists the pieces of a base. In this model, the object is the data."""
    return names.base(base.lsn, base.epoch) + "list"


def cut_of(data):
    return Cut(lsn_of(data), digest_of(data))


def lsn_of(data):
    return int(data.split(b" ")[0])


@cache
def digest_of(data):
    return hashlib.blake2b(data, digest_size=6).digest()


def token_of(data):
    return digest_of(data).hex()


def shown(request):
    """Return a request in readable form."""
    if isinstance(request, CreateObject | SwapObject) and request.name == names.HEAD:
        head = _head_in(request.data)
        what = f"epoch {head.epoch}, {head.state}, of {head.owner[0]}, beat {head.beat}, base {head.base}, {head.tail}"
        return f"{type(request).__name__} head: {what}"
    return repr(request)
