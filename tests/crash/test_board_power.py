"""The power fails beside a board that is flushed now and then: what was handed out is there, and is handed out once."""

import random
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

import statelog
from statelog.errors import CursorError
from statelog.testing.powerloss.disk import Disk
from statelog.testing.powerloss.images import random_choice, systematic_choices
from statelog.testing.powerloss.recorder import log_directory
from statelog.testing.powerloss.shim import ShimLog, is_supported
from statelog.testing.powerloss.trace import Mark, read_trace

pytestmark = pytest.mark.skipif(not is_supported(), reason="recording needs a 64-bit Linux and a C compiler")

IMAGES = 40
CUTS = 1 / 8
"""Of the points of the recording so many are cut, by chance: of all, forty times as many images come as are opened."""

CHILD = """
import sys, statelog
from statelog.board.following import cursor_at
from statelog.testing.powerloss.shim import mark

store = statelog.open(sys.argv[1], durability="interval")
board = store.board()
board.set("seed", 0)
watch = board.watch("**", after=0)
last = 0
for number in range(8):
    for task in range(3):
        board.set(f"q/{number}-{task}", number)
    claim = board.claim("q/*", lease_s=1000)
    mark(f"claim {claim.key} {claim.token}".encode())
    board.set(f"r/{number}", claim.token, fence=claim)
    lease = board.lease(f"name {number % 3}", ttl_s=1000, auto_renew=False)
    mark(f"lease {number % 3} {lease.token}".encode())
    if number % 2:
        claim.complete(to="done/")
    lease.release()
    for event in watch.next_page(0.0):
        mark(f"event {event.cursor} {event.version}".encode())
    with store._engine.read() as view:
        for lsn in range(last + 1, store.last_lsn + 1):
            mark(f"future {cursor_at(view, lsn)} {lsn}".encode())
    last = store.last_lsn
store.close()
"""


@pytest.fixture(scope="module")
def trace(tmp_path_factory):
    directory = tmp_path_factory.mktemp("board")
    with (
        tempfile.TemporaryDirectory(dir=log_directory()) as temporary,
        ShimLog.create(Path(temporary) / "log") as log,
    ):
        path = directory / "a.state"
        subprocess.run([sys.executable, "-c", CHILD, str(path)], check=True, env=log.environment(directory))
        return read_trace(log.records(), {})


def images(trace):
    """Yield distinct images, each with what had been said until then."""
    generator, disk, said, seen = random.Random(1), Disk(trace), [], set()
    for at, event in enumerate(trace.events):
        disk.apply(at, event)
        if isinstance(event, Mark) and event.data:
            said.append(event.data.decode().split())
        if generator.random() >= CUTS:
            continue
        units = disk.units()
        choices = [*systematic_choices(units, generator, units_max=2), (None, random_choice(units, generator)[1])]
        for _mode, choice in choices:
            image = disk.image(units, choice)
            if (image.digest, len(said)) not in seen:
                seen.add((image.digest, len(said)))
                yield image, list(said)


def test_what_was_handed_out_is_there_and_is_not_handed_out_again(trace, tmp_path):
    futures = [line for event in trace.events if isinstance(event, Mark) for line in [event.data.decode().split()]]
    futures = [(cursor, int(lsn)) for what, cursor, lsn in (line for line in futures if line) if what == "future"]
    assert len(futures) > 40
    every = list(images(trace))
    lost = 0
    for number, (image, said) in enumerate(random.Random(2).sample(every, min(IMAGES, len(every)))):
        directory = tmp_path / str(number)
        directory.mkdir()
        image.write(directory)
        if not said and not (directory / "a.state").exists():
            continue
        with statelog.open(directory / "a.state", durability="interval") as store:
            lost += check(store, said, futures)
    assert lost > 40


def check(store, said, futures):
    board, tokens, last = store.board(), set(), store.last_lsn
    for what, subject, number in said:
        if what == "claim":
            assert int(number) in {each.version for each in board.history(subject) if each.kind == "claim"}
        elif what == "event":
            board.watch("**", after=subject, follow=False)
        if what in ("claim", "lease"):
            tokens.add(int(number))
    assert max(tokens, default=0) <= last
    board.set("q/anew", 1)
    assert board.claim("q/*").token not in tokens
    for number in range(3):
        lease = board.lease(f"name {number}", auto_renew=False) if not _is_held(board, number) else None
        assert lease is None or lease.token not in tokens
    gone = [(cursor, lsn) for cursor, lsn in futures if lsn > last][:12]
    for number in range(12):
        board.set("anew", number)
    for cursor, _lsn in gone:
        with pytest.raises(CursorError):
            board.watch("**", after=cursor)
    assert store.verify().problems == []
    return len(gone)


def _is_held(board, number):
    return any(each.name == f"name {number}" and not each.is_over for each in board.leases())
