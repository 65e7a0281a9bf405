"""A file system that is really full, where LMDB gets short writes instead of errors."""

import contextlib
import random
import subprocess

import pytest

import statelog
from statelog import reducers
from statelog.errors import StoreFullError

SIZE_BYTES = 3 << 20


@pytest.fixture
def small_disk(tmp_path):
    """A file system of 3 MiB, for which it takes the right to mount one: root has it mostly, a user may not.

    Without it the promise is still tested, on refusals by the shim (test_faults.py); what only a real one shows is that
    writes come short.
    """
    directory = tmp_path / "disk"
    directory.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", f"size={SIZE_BYTES}", "tmpfs", str(directory)]
    try:
        mounted = subprocess.run(command, capture_output=True, text=True, check=False)
    except FileNotFoundError:
        pytest.skip("the command mount, which makes a small file system, is missing")
    if mounted.returncode:
        pytest.skip(f"a small file system cannot be made: {mounted.stderr.strip()}")
    yield directory
    subprocess.run(["umount", str(directory)], check=True)


def fill(store, thread, size_bytes, generator):
    """Commit until the disk is full. Return the number of commits, and the refused text."""
    for number in range(10_000):
        text = generator.randbytes(size_bytes // 2).hex()
        try:
            store.thread(thread).commit({"text": text})
        except StoreFullError:
            return number, text
    raise AssertionError


@pytest.mark.slow
@pytest.mark.parametrize("size_bytes", [pytest.param(1500, marks=pytest.mark.soak), 8_000, 60_000, 300_000])
def test_a_full_disk_can_be_read_emptied_and_filled_repeatedly(small_disk, size_bytes):
    generator = random.Random(size_bytes)  # Text that does not compress.
    with statelog.open(small_disk / "agent.state") as store:
        store.thread("other").commit({"n": 0})
        first, _text = fill(store, "t0", size_bytes, generator)
        for turn in range(3):
            thread = f"t{turn}"
            assert len(store.thread(thread).state["text"]) == size_bytes // 2 * 2
            assert store.prune(keep_last=2, threads=thread).freed_bytes > 0
            made, refused = fill(store, thread, size_bytes, generator)
            assert made > first // 4
            with pytest.raises(
                StoreFullError, match="disk is full"
            ):  # Another text might fit, because its pieces may take one page less.
                store.thread(thread).commit({"text": refused})
            store.delete_thread(thread)
            made, _text = fill(store, f"t{turn + 1}", size_bytes, generator)
            assert made > first // 4
            assert store.verify().ok
        assert store.path.stat().st_size <= SIZE_BYTES
    with statelog.open(small_disk / "agent.state") as store:
        assert store.thread("other").state == {"n": 0}
        assert store.verify().ok


def _fill_all_but(path, pages):
    """Fill the disk with a file, except for some pages."""
    with path.open("ab", buffering=0) as file:
        for size in (65536, 4096):
            with contextlib.suppress(OSError):
                while file.write(bytes(size)) == size:
                    pass
        file.truncate(max(file.tell() - 4096 * pages, 0))


@pytest.mark.slow
@pytest.mark.parametrize("durability", ["commit", "interval"])
def test_commits_work_again_when_the_disk_has_room_whatever_was_left(small_disk, durability):
    ballast, made = small_disk / "ballast", 0
    with statelog.open(small_disk / "agent.state", durability=durability) as store:
        thread = store.thread("t", schema={"log": reducers.extend})
        for turn in range(12):
            thread.commit({"log": [made]})
            made += 1
            _fill_all_but(ballast, turn * 3)
            for _ in range(100):
                with contextlib.suppress(StoreFullError):
                    thread.commit({"log": [made]})
                    made += 1
            ballast.unlink()
            thread.commit({"log": [made]})
            made += 1
        assert thread.state["log"] == [*range(made)]
        assert store.verify().ok


def test_on_a_full_disk_no_store_is_created_and_no_file_is_left(small_disk):
    (small_disk / "ballast").write_bytes(bytes(SIZE_BYTES - 8192))
    with pytest.raises(StoreFullError):
        statelog.open(small_disk / "agent.state")
    assert [entry.name for entry in small_disk.iterdir()] == ["ballast"]


@pytest.fixture
def closed(small_disk):
    """A closed store on the small disk."""
    with statelog.open(small_disk / "agent.state") as store:
        for number in range(30):
            store.thread("t").commit({"n": number, "text": "x" * 2000})
    return store.path


def test_a_closed_store_on_a_full_disk_is_readable_and_writable_when_there_is_room(closed, small_disk):
    before = closed.read_bytes()
    _fill_all_but(small_disk / "ballast", 0)
    with statelog.open(closed, read_only=True) as store:
        assert store.thread("t").state["n"] == 29
    with pytest.raises(StoreFullError):
        statelog.open(closed)
    assert closed.read_bytes() == before
    (small_disk / "ballast").unlink()
    with statelog.open(closed) as store:
        assert store.thread("t").commit({"n": 30}).version == 30


def test_a_closed_store_can_be_emptied_on_a_disk_with_20_kb_left(closed, small_disk):
    _fill_all_but(small_disk / "ballast", 5)
    with statelog.open(closed) as store:
        assert store.prune(keep_last=2).freed_bytes > 0
        assert store.thread("t").commit({"n": 30}).version == 30
        assert store.verify().ok


@pytest.mark.slow
@pytest.mark.parametrize("size_bytes", [1500, 60_000])
def test_a_full_disk_refuses_a_compaction_and_keeps_the_store(small_disk, size_bytes):
    with statelog.open(small_disk / "agent.state") as store:
        fill(store, "t", size_bytes, random.Random(size_bytes))
        last = store.last_lsn
        with pytest.raises(StoreFullError):
            store.compact()
        assert store.verify().ok
        assert store.last_lsn == last
    assert sorted(entry.name for entry in small_disk.iterdir()) == ["agent.state", "agent.state-lock"]
