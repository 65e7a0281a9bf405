"""Power cuts of a board that is flushed at intervals: claims are stored, and each entry is claimed once."""

import random

import pytest
from power_images import images, traced

import statelog
from statelog.errors import CursorError
from statelog.testing.powerloss.shim import is_supported
from statelog.testing.powerloss.trace import Mark

pytestmark = pytest.mark.skipif(not is_supported(), reason="recording needs a 64-bit Linux and a C compiler")

IMAGES = 40

CHILD = """
import sys, statelog
from statelog.board.events import cursor_at
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
    for event in watch.poll()[0]:
        mark(f"event {event.cursor} {event.version}".encode())
    with store._engine.read() as view:
        for lsn in range(last + 1, store.last_lsn + 1):
            mark(f"future {cursor_at(view, lsn)} {lsn}".encode())
    last = store.last_lsn
store.close()
"""


@pytest.fixture(scope="module")
def trace(tmp_path_factory):
    return traced(tmp_path_factory.mktemp("board"), CHILD)


@pytest.mark.slow
def test_delivered_events_are_durable_and_not_delivered_again(trace, tmp_path):
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
