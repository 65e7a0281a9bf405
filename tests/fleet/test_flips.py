"""A flipped bit in shipped data is reported as damage or changes nothing, and does not use much memory."""

from __future__ import annotations

import random
import resource
import sys
import time
from datetime import UTC, datetime

import forks
import pytest
import zstandard

import statelog
from statelog.errors import CorruptionError
from statelog.fleet import connect, segments

TEXT = "".join(chr(97 + number * number % 26) for number in range(3000))


class Shipped:
    """A store in a folder: its objects, and the data restored from them."""

    def __init__(self, folder):
        self.folder, self.url = folder, (folder / "bucket").as_uri()
        (folder / "bucket").mkdir()
        with connect(self.url, cache=folder / "a") as fleet, fleet.open("s", park_after_s=None) as store:
            for number in range(4):
                store.thread("t").commit({"text": TEXT, "n": number}, durable="remote")
            store.remote.base()
            store.thread("u").commit({"n": [1] * 500}, durable="remote")
            self.lsn, self.time = store.last_lsn, datetime.now(UTC)
            time.sleep(0.01)
            store.thread("u").commit({"n": [2] * 500}, durable="remote")
            store.board().set("k", TEXT)
        self.objects = [each for each in (folder / "bucket" / "s").rglob("*") if each.is_file()]
        self.good = {at: self.restored(at) for at in (None, self.lsn, self.time)}

    def restored(self, at=None):
        path = self.folder / "restored.state"
        for each in self.folder.glob("restored.state*"):
            each.unlink()
        with connect(self.url, cache=self.folder / "b") as fleet:
            fleet.restore("s", path, at=at)
        with statelog.open(path, read_only=True) as store:
            states = {
                info.id: [each.state_digest for each in store.thread(info.id).history()] for info in store.threads()
            }
            return store.last_lsn, states, [(entry.key, entry.value) for entry in store.board().list()]

    def check(self, path, at, bit):
        """Flip a bit, and check that it has no effect or raises an error that names the object."""
        data = path.read_bytes()
        path.write_bytes(data[:at] + bytes([data[at] ^ 1 << bit]) + data[at + 1 :])
        try:
            for moment, good in self.good.items():
                assert self.outcome(moment) in (good, "s/"), (path, at, bit, moment)
        finally:
            path.write_bytes(data)

    def outcome(self, moment):
        """Return the restored data, or the beginning of the name of the damaged object."""
        try:
            return self.restored(moment)
        except CorruptionError as error:
            return error.facts["object"][:2]


@pytest.fixture(scope="module")
def shipped(tmp_path_factory):
    return Shipped(tmp_path_factory.mktemp("flips"))


@pytest.mark.soak
def test_each_flipped_bit_before_the_compressed_data_is_detected(shipped):
    path = min((shipped.folder / "bucket").rglob("log/*/*"))
    data = path.read_bytes()
    frame = data.index(b"\x28\xb5\x2f\xfd")
    for at in range(8, frame + 14):
        shipped.check(path, at, random.Random(at).randrange(8))
    for bit in range(8):
        for at in range(frame + 4, frame + 9):
            shipped.check(path, at, bit)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(4))
def test_flipped_bits_anywhere_are_detected_or_harmless(shipped, seed):
    chance = random.Random(seed)
    for path in shipped.objects:
        for _ in range(2):
            shipped.check(path, chance.randrange(path.stat().st_size), chance.randrange(8))


@pytest.mark.slow
def test_a_damaged_last_segment_is_not_named_by_the_new_owners_head(tmp_path):
    url = (tmp_path / "bucket").as_uri()
    (tmp_path / "bucket").mkdir()
    with connect(url, cache=tmp_path / "a") as fleet:
        store = fleet.open("s")
        store.thread("t").commit({"n": 1}, durable="remote")
        path = max((tmp_path / "bucket").rglob("log/*/*"))
        data = path.read_bytes()
        chain = segments.about("s", data).chain
        path.write_bytes(data.replace(chain, bytes([chain[0] ^ 1]) + chain[1:]))
        with connect(url, cache=tmp_path / "b") as other, pytest.raises(CorruptionError) as caught:
            other.open("s", takeover="now", timeout_s=1)
        assert caught.value.facts["object"].startswith("s/log/")
        path.write_bytes(data)
        with connect(url, cache=tmp_path / "c") as other, other.open("s", takeover="now") as again:
            assert again.thread("t").state["n"] == 1
        with pytest.raises(statelog.errors.FencedError):
            store.close()


FRAMES = {
    "a size beyond all memory": b"\x28\xb5\x2f\xfd\xe4" + b"\xff" * 7 + b"\x3f",
    "two gigabytes": b"\x28\xb5\x2f\xfd\xa4" + (2**31 - 1).to_bytes(4, "little"),
    "a window of a gigabyte": b"\x28\xb5\x2f\xfd\x84\xa0" + (2**20).to_bytes(4, "little"),
    "no size": zstandard.ZstdCompressor(write_content_size=False, write_checksum=True).compress(b"x" * 999),
    "no checksum": zstandard.ZstdCompressor(write_checksum=False).compress(b"x" * 999),
    "nothing": b"",
    "no frame": b"statelog" * 9,
}


@pytest.mark.parametrize("frame", FRAMES)
def test_the_size_that_a_frame_claims_is_not_trusted(frame):
    blocks = b"\x02\x00\x80\x01" * 40  # 40 times 128 KiB of the same byte
    for data in (FRAMES[frame], FRAMES[frame] + blocks):
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        with pytest.raises(CorruptionError) as caught:
            segments.inflate("s/log/1/2", data)
        assert caught.value.facts == {"object": "s/log/1/2"}
        assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 64 * 1024


@pytest.mark.parametrize("size", [0, 1, 999, 1024 * 1024, 3_000_000])
def test_whole_frames_are_expanded_and_truncated_ones_are_not(size):
    data = (TEXT.encode() * (size // 3000 + 1))[:size]
    compressed = zstandard.ZstdCompressor(level=3, write_checksum=True).compress(data)
    assert segments.inflate("x", compressed) == data
    assert segments.inflate("x", compressed, size_bytes_max=size) == data
    for less in (1, 4, len(compressed) // 2):
        with pytest.raises(CorruptionError):
            segments.inflate("x", compressed[:-less])
    if size:
        with pytest.raises(CorruptionError):
            segments.inflate("x", compressed, size_bytes_max=size - 1)


@pytest.mark.slow
def test_damage_is_reported_even_with_little_memory(shipped):
    program = (
        "import resource, sys\n"
        "from pathlib import Path\n"
        "from statelog.errors import CorruptionError\n"
        "from statelog.fleet import segments\n"
        "data = bytearray(Path(sys.argv[1]).read_bytes())\n"
        "at = data.index(b'\\x28\\xb5\\x2f\\xfd') + 4\n"
        "used = int(Path('/proc/self/statm').read_text().split()[0]) * resource.getpagesize()\n"
        "resource.setrlimit(resource.RLIMIT_AS, (used + 64 * 1024 * 1024,) * 2)\n"
        "for where in range(at, at + 10):\n"
        "    for bit in range(8):\n"
        "        data[where] ^= 1 << bit\n"
        "        try:\n"
        "            segments.expand('x', bytes(data))\n"
        "        except CorruptionError:\n"
        "            pass\n"
        "        data[where] ^= 1 << bit\n"
    )
    path = max((shipped.folder / "bucket").rglob("log/*/*"), key=lambda each: each.stat().st_size)
    done = forks.run([sys.executable, "-c", program, str(path)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
