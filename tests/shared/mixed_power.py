"""Power cuts of a busy store of a fleet: what it has acknowledged must be on the disk.

The child program writes a random history of threads, entries, leases, durable runs, retention and compaction into a
store of a fleet, whose storage is a folder on the same disk. After each act it prints the end of its log, and a
digest of the content. After some acts it waits for the storage, and prints how much of the log that has.
"""

from __future__ import annotations

import multiprocessing
import random
import shutil
import tempfile
from dataclasses import replace
from hashlib import blake2b
from pathlib import Path
from typing import NamedTuple

from authors import index_of
from power_images import images, traced

import statelog
from statelog.errors import NotFoundError, StatelogError, StoreNotFoundError
from statelog.fleet import connect
from statelog.testing.powerloss.trace import Create, FlushEnd, Mark, WriteFlushed

CHILD = """
import random, sys
sys.path += sys.argv[2:3]
from pathlib import Path
from authors import Author, index_of
from mixed_power import shown
from statelog import durable
from statelog.fleet import connect
from statelog.testing.powerloss.shim import mark

@durable.workflow
def errand(run, number):
    run.step(abs, -number)
    run.commit({"n": number})
    return run.gate("go", payload=number).approved

seed, turns = int(sys.argv[3]), int(sys.argv[4])
chance = random.Random(seed)
here = Path(sys.argv[1]).parent
(here / "bucket").mkdir()

with connect((here / "bucket").as_uri(), cache=here) as fleet, fleet.open("s", ship_ms=20) as store:
    author = Author(store, seed)
    for turn in range(turns):
        if turn % 6 == 3:
            durable.run(store, errand, turn, id=f"run-{turn}")
        elif turn % 6 == 5:
            for gate in durable.gates(store, pending=True)[:1]:
                durable.answer(store, gate.id, approved=True)
            durable.resume_all(store, [errand])
        else:
            author.act()
        mark(f"at {store.last_lsn} {shown(store)}".encode())
        if chance.random() < 0.3:
            last = store.last_lsn
            store.remote.wait(last)
            mark(f"shipped {last}".encode())
        if chance.random() < 0.05:
            store.remote.base()
"""


def shown(store):
    """Return a digest of everything that a store shows."""
    digest = blake2b(digest_size=8)
    for key, payload in sorted(index_of(store).items()):
        digest.update(len(key).to_bytes(4) + key + payload)
    return digest.hexdigest()


class Found(NamedTuple):
    """The results for the images of one recording."""

    images: int
    lost: list[str]
    wrong: list[str]


def record(folder, seed, turns):
    """Return the disk operations of the child."""
    return traced(folder, CHILD, str(Path(__file__).parent), str(seed), str(turns))


def without_flushes(trace, ending):
    """Return the trace of a disk that ignores flushes of files whose first name has this ending."""
    files = {event.file for event in trace.events if isinstance(event, Create) and event.name.endswith(ending)}
    flushes = (FlushEnd, WriteFlushed)
    kept = (event for event in trace.events if not (isinstance(event, flushes) and event.file in files))
    return replace(trace, events=tuple(kept))


def examine(trace, images_max, seed=0, *, until_bad=False):
    """Look at distinct images of a trace: at the store's file, and at what its storage restores.

    With `until_bad` it ends with the first image that has lost something or shows something wrong.
    """
    marks = [event.data.decode().split() for event in trace.events if isinstance(event, Mark)]
    at = {int(line[1]): line[2] for line in marks if line and line[0] == "at"}
    chosen = random.Random(seed)
    every = list(images(trace))
    some = chosen.sample(every, min(images_max, len(every)))
    lost, wrong = [], []
    for number, (image, said) in enumerate(some):
        if until_bad and (lost or wrong):
            return Found(number, lost, wrong)
        with tempfile.TemporaryDirectory(dir=_fast()) as folder:
            image.write(Path(folder))
            for path, what in ((_local, "at"), (_restored, "shipped")):
                wanted = max((int(line[1]) for line in said if line[0] == what), default=0)
                try:
                    last, digest, problems = path(Path(folder))
                except StatelogError as error:
                    wrong.append(f"image {number}, {what}: {error!r}")
                    continue
                if last < wanted:
                    lost.append(f"image {number}, {what}: {wanted} was acknowledged, {last} is there")
                if problems or (digest is not None and at.get(last, digest) != digest):
                    wrong.append(f"image {number}, {what}: at {last} it shows something else; {problems[:1]}")
    return Found(len(some), lost, wrong)


def _local(folder):
    found = list(folder.glob("s*.state"))
    return _look(found[0]) if found else (0, None, [])


def _restored(folder):
    path = folder / "restored.state"
    try:
        with connect((folder / "bucket").as_uri(), cache=folder / "elsewhere") as fleet:
            fleet.restore("s", path)
    except (NotFoundError, StoreNotFoundError):
        return 0, None, []
    return _look(path)


def _look(path):
    with statelog.open(path, durability="interval") as store:
        return store.last_lsn, shown(store), store.verify().problems


def _fast():
    return "/dev/shm" if Path("/dev/shm").is_dir() else None


def examine_seed(seed, turns, images_max):
    """Record a history, and look at its images; for a worker process."""
    folder = Path(tempfile.mkdtemp(dir=_fast()))
    try:
        return examine(record(folder, seed, turns), images_max, seed)
    finally:
        shutil.rmtree(folder)


def campaign(wanted, workers, *, first=0, turns=40, images_max=1500, progress=None):
    """Check `wanted` images of one history after another. Return the combined results."""
    total, lost, wrong = 0, [], []
    with multiprocessing.get_context("spawn").Pool(workers) as pool:
        each = min(images_max, -(-wanted // workers))
        tasks = ((seed, turns, each) for seed in range(first, first + wanted))
        for found in pool.imap_unordered(_examine_one, tasks):
            total, lost, wrong = total + found.images, lost + found.lost, wrong + found.wrong
            if progress is not None:
                progress(total, lost, wrong)
            if total >= wanted or len(lost) + len(wrong) > 20:
                pool.terminate()
                break
    return Found(total, lost, wrong)


def _examine_one(task):
    return examine_seed(*task)
