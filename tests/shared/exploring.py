"""Every order of requests and answers of writers on one storage, with requests that are lost or late, and clones.

A writer is a generator. It cannot be copied, so each step begins one anew and sends it the answers it has had. Two
worlds are equal if the storage, what is under way, and the frames of all generators are.

The storage's token of an object is its bytes, as an S3's is a digest of them.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from statelog.errors import FencedError
from statelog.fleet import names
from statelog.fleet.archive import Found, Outcome
from statelog.fleet.head import Cut, decode
from statelog.fleet.protocol import Create, List, Look, Read, Swap


class Writer(NamedTuple):
    """A program, and what it was answered. A clone has the nonce of another, and writes something else from then on."""

    program: Any
    nonce: bytes
    answers: tuple
    cloned_at: int | None = None


class Standing(NamedTuple):
    """Where a writer is."""

    request: Any
    """None if it has ended."""
    frames: tuple
    acknowledged: tuple
    served: tuple


class World(NamedTuple):
    objects: tuple
    late: tuple
    writers: tuple
    faults: int
    clones: int


class Remove(NamedTuple):
    """Asks to remove an object: of a collector."""

    name: str


def cut_of(data):
    return Cut(int(data.rpartition(b"-")[2]), data)


def restored(objects):
    """Return what anybody restores: the data of the segments that the head leads to; None while nobody may."""
    found = objects.get(names.HEAD)
    if found is None:
        return ()
    head = decode(names.HEAD, found)
    if head.state == "opening":
        return None
    data = []
    for stretch in head.tail:
        number = stretch.first
        while stretch.last is None or number <= stretch.last:
            name = names.segment(stretch.epoch, number)
            if name not in objects:
                assert stretch.last is None, f"{name} is named, and gone"
                break
            data.append(objects[name])
            number += 1
    return tuple(data)


class Explorer:
    """A search for a world in which something was lost. `find` returns how many worlds there are.

    Takers can fence each other for ever: worlds of more epochs are not looked at.
    """

    def __init__(self, writers, *, faults=0, clones=0, epochs=3):
        self._epochs = epochs
        self._first = World(
            (), (), tuple(Writer(program, b"%d" % n, ()) for n, program in enumerate(writers)), faults, clones
        )
        self._standing = {}

    def find(self):
        seen, todo = set(), [self._first]
        while todo:
            world = todo.pop()
            standing = [self.standing(writer) for writer in world.writers]
            key = (
                world.objects,
                world.late,
                tuple((each[1:], each.request) for each in standing),
                world.faults,
                world.clones,
            )
            if key in seen:
                continue
            seen.add(key)
            objects = dict(world.objects)
            if names.HEAD in objects and decode(names.HEAD, objects[names.HEAD]).epoch > self._epochs:
                continue
            self._check(objects, standing)
            todo += self._next(world, standing)
        return len(seen)

    def standing(self, writer):
        if writer not in self._standing:
            self._standing[writer] = self._replayed(writer)
        return self._standing[writer]

    @staticmethod
    def _replayed(writer):
        acknowledged, served, label = [], [], [writer.nonce]
        running = writer.program(writer.nonce, label, acknowledged, served)
        request = None
        try:
            request = next(running)
            for number, answer in enumerate(writer.answers):
                if number == writer.cloned_at:
                    label[0] += b"clone"
                request = running.send(answer)
        except (StopIteration, FencedError):
            return Standing(None, (), tuple(acknowledged), tuple(served))
        frames = []
        inner = running
        while inner is not None and hasattr(inner, "gi_frame"):
            frame = inner.gi_frame
            frames.append(
                (frame.f_code.co_name, frame.f_lasti, repr(sorted(frame.f_locals.items(), key=lambda each: each[0])))
            )
            inner = inner.gi_yieldfrom
        return Standing(request, tuple(frames), tuple(acknowledged), tuple(served))

    @staticmethod
    def _check(objects, standing):
        found = restored(objects)
        if found is None:
            return
        for each in standing:
            for data in each.acknowledged:
                assert found.count(data) == 1, f"{data} was acknowledged, and is there {found.count(data)} times"
            for served in each.served:
                assert found[: len(served)] == served, f"{served} was served, and {found} is there"

    def _next(self, world, standing):
        for number, each in enumerate(standing):
            if each.request is not None:
                yield from self._steps(world, number, each.request)
        for at, request in enumerate(world.late):
            objects, _answer = carry_out(dict(world.objects), request)
            yield world._replace(objects=_frozen(objects), late=world.late[:at] + world.late[at + 1 :])
        if world.clones:
            clone = world.writers[0]._replace(cloned_at=len(world.writers[0].answers))
            yield world._replace(writers=(*world.writers, clone), clones=world.clones - 1)

    def _steps(self, world, number, request):
        objects, answer = carry_out(dict(world.objects), request)
        done = world._replace(objects=_frozen(objects))
        yield _answered(done, number, answer)
        if world.faults and isinstance(request, Create | Swap):
            one_less = {"faults": world.faults - 1}
            yield _answered(done._replace(**one_less), number, Outcome.UNKNOWN)  # the answer is lost
            yield _answered(world._replace(**one_less), number, Outcome.UNKNOWN)  # the request is lost
            late = tuple(sorted((*world.late, request), key=repr))
            yield _answered(world._replace(late=late, **one_less), number, Outcome.UNKNOWN)  # it comes later


def _answered(world, number, answer):
    writer = world.writers[number]
    now = writer._replace(answers=(*writer.answers, answer))
    return world._replace(writers=(*world.writers[:number], now, *world.writers[number + 1 :]))


def _frozen(objects):
    return tuple(sorted(objects.items()))


def carry_out(objects, request):
    """Return the objects after a request, and its answer."""
    if isinstance(request, Read):
        data = objects.get(request.name)
        return objects, None if data is None else Found(data, data.hex())
    if isinstance(request, Look):
        data = objects.get(request.name)
        return objects, None if data is None else data.hex()
    if isinstance(request, List):
        return objects, tuple(sorted(name for name in objects if name.startswith(request.prefix)))
    if isinstance(request, Create):
        if request.name in objects:
            return objects, Outcome.REFUSED
        return {**objects, request.name: request.data}, request.data.hex()
    if isinstance(request, Remove):
        return {name: data for name, data in objects.items() if name != request.name}, True
    assert isinstance(request, Swap)
    if objects.get(request.name, b"").hex() != request.token or request.name not in objects:
        return objects, Outcome.REFUSED
    return {**objects, request.name: request.data}, request.data.hex()
