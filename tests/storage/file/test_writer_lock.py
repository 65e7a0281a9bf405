import os
import signal
import struct
import threading
import time

import pytest

from statelog.errors import ForkedError, FormatError, StorageError, StoreLockedError, UsageError
from statelog.kernels import writer_page_size
from statelog.storage.file import writer_lock
from statelog.storage.file.writer_lock import FILE_SIZE_BYTES, WriterLock

needs_mutex = pytest.mark.skipif(writer_page_size() == 0, reason="no robust mutexes here")
QUEUE = struct.Struct("=II")
QUEUE_AT = 32
"""Where the page has the next ticket and the one served."""
TURN_END_AT = 16
"""Where the page has the time at which the next in line may take the lock; 0: at once."""

OPEN = """
from statelog.storage.file import writer_lock
from statelog.storage.file.writer_lock import WriterLock
descriptor = os.open(sys.argv[1], os.O_RDWR)
path = Path(sys.argv[1])
if "byte" in sys.argv:
    writer_lock.writer_page_size = lambda: 0
lock = WriterLock(descriptor, path)
counters = os.open(str(path) + "-counters", os.O_RDWR | os.O_CREAT)

def count(place):
    number = int.from_bytes(os.pread(counters, 8, place), "big") + 1
    time.sleep(0)
    os.pwrite(counters, number.to_bytes(8, "big"), place)
    return number
"""

HOLD = (
    OPEN
    + """
lock.acquire(30)
say("held")
sys.stdin.readline()
lock.release()
say("released")
"""
)

WAIT = (
    OPEN
    + """
signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background job ignores it
try:
    say("waits")
    lock.acquire(30)
except KeyboardInterrupt:
    say("interrupted", lock.is_held)
    sys.stdin.readline()
    lock.acquire(30)
say("held")
lock.release()
"""
)

TOGETHER = (
    OPEN
    + """
def run_together(processes, work):
    gate, opener = os.pipe()
    for _ in range(processes):
        if os.fork() == 0:
            mine = WriterLock(descriptor, path)
            os.read(gate, 1)
            work(mine)
            os._exit(0)
    os.write(opener, bytes(processes))
    assert {os.wait()[1] for _ in range(processes)} == {0}
"""
)

INCREMENT = (
    TOGETHER
    + """
def increment(lock):
    for _ in range(300):
        if "unlocked" not in sys.argv:
            lock.acquire(30)
        count(0)
        lock.release()

run_together(4, increment)
say(int.from_bytes(os.pread(counters, 8, 0), "big"))
"""
)

SHARE = (
    TOGETHER
    + """
PROCESSES, TOTAL = 8, 4000

def share(lock):
    lock.acquire(30)
    ready = count(0)
    lock.release()
    mine = total = 0
    while total < TOTAL:
        lock.acquire(30)
        ready = int.from_bytes(os.pread(counters, 8, 0), "big")
        total = count(8) if ready == PROCESSES else 0
        if total and os.pread(counters, 8, 24) != os.getpid().to_bytes(8):
            os.pwrite(counters, os.getpid().to_bytes(8), 24)
            count(16)
        lock.release("turns" in sys.argv)
        mine += 0 < total <= TOTAL
    say(mine)

run_together(PROCESSES, share)
say(int.from_bytes(os.pread(counters, 8, 16), "big"))
"""
)

STORM = (
    OPEN
    + """
import random
random.seed(7)
children = []

def start():
    child = os.fork()
    if child == 0:
        mine = WriterLock(descriptor, path)
        while os.getppid() == parent:
            mine.acquire(30)
            mine.release()
        os._exit(0)
    children.append(child)

def kill_first():
    os.kill(children[0], signal.SIGKILL)
    os.waitpid(children.pop(0), 0)

parent = os.getpid()
abandoned = 0
try:
    for turn in range(150):
        while len(children) < 3:
            start()
        time.sleep(random.random() * 0.003)
        os.kill(children[0], random.choice([signal.SIGKILL, signal.SIGSTOP]))
        try:
            abandoned += lock.acquire(0.2)
        except StoreLockedError:  # the one stopped is the owner
            kill_first()
            abandoned += lock.acquire(20)
        lock.mark_repaired()
        lock.release()
        kill_first()
finally:
    while children:
        kill_first()
say(abandoned > 0)
"""
)

FORK = (
    OPEN
    + """
lock.acquire(30)
child = os.fork()
if child == 0:
    said = [lock.is_held]
    lock.release()
    for use in (lambda: lock.acquire(0), lock.try_acquire, lock.mark_repaired):
        try:
            use()
        except ForkedError:
            said.append("forked")
    say(*said)
    os._exit(0)
os.waitpid(child, 0)
say(lock.is_held)
sys.stdin.readline()
lock.release()
"""
)

COME_BACK = (
    OPEN
    + """
import time
say("waits")
lock.acquire(30)
lock.release(True)
time.sleep(0.001)  # more than the grace, less than a turn
lock.acquire(30)
say(int.from_bytes(os.pread(counters, 8, 0), "big"))
lock.release()
"""
)

COUNT_ONCE = (
    OPEN
    + """
say("waits")
lock.acquire(30)
count(0)
lock.release()
"""
)

EXIT = (
    OPEN
    + """
lock.acquire(30)
say("held")
"""
)


@pytest.fixture(params=[pytest.param("mutex", marks=needs_mutex), "byte"])
def kind(request, monkeypatch):
    """The lock of this system, and the one for systems without robust mutexes."""
    if request.param == "byte":
        monkeypatch.setattr(writer_lock, "writer_page_size", lambda: 0)
    return request.param


@pytest.fixture
def descriptor(path):
    opened = os.open(path, os.O_RDWR | os.O_CREAT)
    yield opened
    os.close(opened)


@pytest.fixture
def lock(descriptor, path):
    opened = WriterLock(descriptor, path, is_first=True)
    yield opened
    opened.close()


def wait_for_waiters(descriptor, count):
    """Wait until `count` processes wait in the queue of the page."""
    for _ in range(20_000):
        following, serving = QUEUE.unpack(os.pread(descriptor, QUEUE.size, QUEUE_AT))
        if following - serving == count:
            return
        time.sleep(0.0005)
    raise AssertionError((following, serving))


def said(child):
    """Return the numbers that a child prints before it exits successfully."""
    output, errors = child.communicate(timeout=300)
    assert child.returncode == 0, errors
    return [int(line) for line in output.split()]


@pytest.mark.usefixtures("lock")
def test_one_process_writes_at_a_time(kind, start_child):
    assert said(start_child(INCREMENT, kind)) == [1200]


@pytest.mark.usefixtures("lock")
def test_without_the_lock_the_same_processes_lose_increments(start_child):
    """Negative control: the previous test detects a lock that does not exclude."""
    assert said(start_child(INCREMENT, "unlocked"))[0] < 1200


@pytest.mark.slow
@needs_mutex
@pytest.mark.usefixtures("lock")
@pytest.mark.parametrize("how", ["one by one", "turns"])
def test_processes_that_write_continuously_share_the_lock_evenly(start_child, how):
    least = 0
    for _ in range(5):  # On a busy machine, a process that the system does not run loses some turns, but not all.
        *shares, changes = said(start_child(SHARE, how))
        assert (len(shares), sum(shares)) == (8, 4000)
        assert (changes <= 4000 // 4) == (how == "turns")
        least = max(least, min(shares))
        if least >= 0.7 * 4000 / 8:
            return
    pytest.fail(f"one of 8 processes had the lock {least} times of 4000 at most")


@needs_mutex
@pytest.mark.usefixtures("lock")
def test_a_process_that_reserves_its_turn_and_does_not_return_blocks_no_other(start_child, lock, descriptor):
    lock.acquire(0)
    children = [start_child(WAIT), start_child(WAIT)]
    wait_for_waiters(descriptor, 2)
    lock.release(goes_on=True)
    assert [child.communicate(timeout=300)[0] for child in children] == ["waits\nheld\n"] * 2


@needs_mutex
@pytest.mark.parametrize("pause_s", [0.0, 0.002])
def test_waiters_wait_only_for_an_owner_that_returned_soon_before(lock, descriptor, path, pause_s):
    def ends_at_once(user, *, goes_on=True):
        user.acquire(0)
        user.release(goes_on)
        return os.pread(descriptor, 8, TURN_END_AT) == bytes(8)

    other, found = WriterLock(descriptor, path), set()
    assert ends_at_once(lock)
    for _ in range(100):
        assert ends_at_once(other, goes_on=False)  # The next turn is then a new one.
        time.sleep(0.002)
        assert ends_at_once(lock)
        if pause_s:
            time.sleep(pause_s)
        found.add(ends_at_once(lock))
    assert (False in found) == (pause_s == 0.0)  # True: another process used the processor in the meantime.
    other.close()


@pytest.mark.slow
@needs_mutex
def test_an_owner_that_returns_after_the_grace_period_queues_behind_the_waiters(start_child, lock, descriptor):
    is_behind = []
    for counted in range(1, 6):  # A waiter that the system does not run for two slices of 2 ms is overtaken.
        lock.acquire(20)
        first = start_child(COME_BACK)
        wait_for_waiters(descriptor, 1)
        second = start_child(COUNT_ONCE)
        wait_for_waiters(descriptor, 2)
        lock.release()
        is_behind.append(first.communicate(timeout=300)[0] == f"waits\n{counted}\n")
        assert second.communicate(timeout=300)[0] == "waits\n"
    assert any(is_behind)


def test_owners_after_a_killed_one_are_notified_until_one_has_repaired_the_store(kind, lock, start_child):
    child = start_child(HOLD, kind)
    assert child.stdout.readline() == "held\n"
    child.kill()
    child.wait()
    assert lock.acquire(20)
    lock.release()
    assert lock.try_acquire()
    assert lock.needs_repair
    lock.mark_repaired()
    assert not lock.needs_repair
    lock.release()
    assert not lock.acquire(0)
    assert not lock.needs_repair


@needs_mutex
def test_a_waiter_gets_the_lock_of_a_killed_owner_and_is_notified(lock, start_child):
    child = start_child(HOLD)
    assert child.stdout.readline() == "held\n"
    threading.Timer(0.05, child.kill).start()
    assert lock.acquire(20)


@needs_mutex
@pytest.mark.parametrize("stop", [signal.SIGKILL, signal.SIGSTOP])
def test_a_killed_or_stopped_waiter_blocks_no_other(lock, start_child, descriptor, stop):
    lock.acquire(0)
    child = start_child(WAIT)
    wait_for_waiters(descriptor, 1)
    child.send_signal(stop)
    for _ in range(200):
        lock.release()
        assert not lock.acquire(1)
    lock.release()


@needs_mutex
def test_a_stopped_waiter_gets_the_lock_when_it_continues(lock, start_child, descriptor):
    lock.acquire(0)
    child = start_child(WAIT)
    wait_for_waiters(descriptor, 1)
    child.send_signal(signal.SIGSTOP)
    for _ in range(20):
        lock.release()
        lock.acquire(1)
    child.send_signal(signal.SIGCONT)
    lock.release()
    assert child.communicate(timeout=300)[0] == "waits\nheld\n"


def test_a_stopped_owner_is_an_error_after_the_timeout(kind, lock, start_child, path):
    child = start_child(HOLD, kind)
    assert child.stdout.readline() == "held\n"
    child.send_signal(signal.SIGSTOP)
    with pytest.raises(StoreLockedError) as caught:
        lock.acquire(0.1)
    assert caught.value.facts == {"path": str(path), "timeout_s": 0.1}
    assert not lock.try_acquire()
    assert not lock.is_held
    child.send_signal(signal.SIGCONT)
    child.stdin.write("go\n")
    child.stdin.flush()
    assert not lock.acquire(20)


@needs_mutex
def test_waiters_that_timed_out_leave_the_queue(lock, start_child, descriptor):
    child = start_child(HOLD)
    assert child.stdout.readline() == "held\n"
    for _ in range(300):
        with pytest.raises(StoreLockedError):
            lock.acquire(0)
    wait_for_waiters(descriptor, 0)


@pytest.mark.slow
@needs_mutex
@pytest.mark.usefixtures("lock")
def test_processes_killed_and_stopped_at_any_point_do_not_lose_the_lock(start_child):
    output, errors = start_child(STORM).communicate(timeout=300)
    assert output == "True\n", errors


def test_an_interrupt_while_waiting_is_raised_and_the_lock_is_not_owned(kind, lock, start_child):
    lock.acquire(0)
    child = start_child(WAIT, kind)
    assert child.stdout.readline() == "waits\n"
    time.sleep(0.02)
    child.send_signal(signal.SIGINT)
    assert child.stdout.readline() == "interrupted False\n"
    lock.release()
    lock.acquire(1)
    child.stdin.write("go\n")
    child.stdin.flush()
    lock.release()
    assert child.communicate(timeout=300)[0] == "held\n"


@needs_mutex
def test_an_interrupt_at_any_point_leaves_no_orphaned_lock(lock, descriptor, path):
    class InterruptError(Exception):
        pass

    def interrupt(*_):
        raise InterruptError

    other = WriterLock(descriptor, path)
    before = signal.signal(signal.SIGALRM, interrupt)
    interrupts = 0
    try:
        for turn in range(1000):
            try:
                signal.setitimer(signal.ITIMER_REAL, 0.00001 + turn % 50 * 0.000002)
                while True:
                    lock.acquire(1)
                    lock.release()
            except InterruptError:
                interrupts += 1
            lock.release()
            assert other.try_acquire()
            other.release()
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    assert interrupts == 1000


def test_a_forked_child_neither_owns_nor_releases_the_lock_of_its_parent(kind, lock, start_child):
    child = start_child(FORK, kind)
    assert child.stdout.readline() == "False forked forked forked\n"
    assert child.stdout.readline() == "True\n"
    assert not lock.try_acquire()
    child.stdin.write("go\n")
    child.stdin.flush()
    assert not lock.acquire(20)


def test_the_next_owner_learns_of_an_owner_that_exited_without_a_release(kind, lock, start_child):
    """Python unmaps the page before the process ends."""
    child = start_child(EXIT, kind)
    output, errors = child.communicate(timeout=300)
    assert (output, child.returncode) == ("held\n", 0), errors
    assert lock.acquire(0)


@needs_mutex
def test_the_next_owner_is_notified_of_a_dropped_lock(lock, descriptor, path):
    dropped = WriterLock(descriptor, path)
    dropped.acquire(0)
    del dropped
    assert lock.acquire(0)


@needs_mutex
def test_another_thread_cannot_release(lock):
    lock.acquire(0)
    caught = []

    def release():
        with pytest.raises(UsageError) as error:
            lock.release()
        caught.append(error)

    thread = threading.Thread(target=release)
    thread.start()
    thread.join()
    assert caught
    assert lock.is_held


@pytest.mark.usefixtures("kind")
def test_a_lock_is_released_any_number_of_times_and_refused_once_closed(lock):
    lock.release()
    lock.release()
    lock.acquire(0)
    lock.close()
    assert not lock.is_held
    with pytest.raises(UsageError):
        lock.acquire(0)


@pytest.mark.usefixtures("kind")
def test_a_short_file_is_refused(descriptor, path):
    with pytest.raises(FormatError) as caught:
        WriterLock(descriptor, path)
    assert caught.value.path == str(path)


@needs_mutex
@pytest.mark.parametrize("offset", [0, 7, 8, 12, 14])
def test_a_page_of_another_build_is_refused(lock, descriptor, path, offset):
    byte = os.pread(descriptor, 1, offset)
    os.pwrite(descriptor, bytes([byte[0] ^ 1]), offset)
    with pytest.raises(FormatError) as caught:
        WriterLock(descriptor, path)
    assert caught.value.path == str(path)
    with pytest.raises(StorageError):
        lock.acquire(0)
    assert not lock.is_held


@needs_mutex
def test_arbitrary_numbers_in_the_queue_do_no_harm(lock, descriptor):
    for numbers in [(0, 0), (5, 900), (900, 5), (2**32 - 1, 0), (2**31, 0)]:
        os.pwrite(descriptor, QUEUE.pack(*numbers), QUEUE_AT)
        assert not lock.acquire(1)
        lock.release()


@needs_mutex
@pytest.mark.usefixtures("lock")
def test_tickets_wrap_around_after_the_largest_number(start_child, descriptor):
    os.pwrite(descriptor, QUEUE.pack(2**32 - 50, 2**32 - 50), QUEUE_AT)
    assert said(start_child(INCREMENT)) == [1200]


@pytest.mark.usefixtures("kind", "lock")
def test_a_re_created_lock_forgets_an_owner_from_before_a_reboot(descriptor, path):
    os.pwrite(descriptor, b"\1" * FILE_SIZE_BYTES, 0)
    assert not WriterLock(descriptor, path, is_first=True).acquire(0)


@pytest.mark.usefixtures("kind", "lock")
def test_a_file_that_cannot_be_written_is_reported(path):
    descriptor = os.open(path, os.O_RDONLY)
    with pytest.raises(StorageError):
        WriterLock(descriptor, path, is_first=True)
    os.close(descriptor)


@pytest.mark.usefixtures("kind")
def test_an_opening_from_before_a_fork_is_refused(lock, monkeypatch):
    monkeypatch.setattr(writer_lock.os, "getpid", lambda: 1)
    with pytest.raises(ForkedError):
        lock.acquire(0)
