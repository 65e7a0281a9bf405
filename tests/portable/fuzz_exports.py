"""Imports mutated exports. As a script, it runs for a given time.

    python tests/portable/fuzz_exports.py --seconds 60 [--seed 1]

The corpus is in corpus/. `--write-corpus` writes it again after a change of a format.
"""

from __future__ import annotations

import argparse
import io
import operator
import random
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from unittest import mock

import xxhash
from apart import Piece, join, split

import statelog
from statelog import reducers
from statelog.errors import ConflictError, CorruptionError, FormatError, StatelogError, UsageError
from statelog.format.record import ENVELOPE_SIZE_BYTES, FLAG_VACUUMED, FLAGS_AT, record_lsn
from statelog.portable.frames import RECORD
from statelog.portable.streams import export_store, import_stream

CORPUS = Path(__file__).parent / "corpus"
INTERESTING = (bytes(4), b"\xff" * 4, b"\x7f\xff\xff\xff", b"\x00\x00\x00\x01", b"\x80\x00")


def corpus():
    """Return the exports by name."""
    return {path.stem: path.read_bytes() for path in sorted(CORPUS.glob("*.export"))}


def mutate_bytes(rng, data):
    """Return bytes with a random change."""
    data = bytearray(data)
    for _ in range(rng.choice((1, 1, 1, 2, 4))):
        at = rng.randrange(len(data) + 1)
        what = rng.randrange(6)
        if what == 0 and at < len(data):
            data[at] ^= 1 << rng.randrange(8)
        elif what == 1 and at < len(data):
            data[at] = rng.randrange(256)
        elif what == 2:
            del data[at : at + rng.randrange(1, 9)]
        elif what == 3:
            data[at:at] = rng.randbytes(rng.randrange(1, 5))
        elif what == 4:
            data[at : at + 4] = rng.choice(INTERESTING)
        else:
            data[at : at + 8] = data[:8]
    return bytes(data)


def sealed(payload, lsn):
    """Return a record with its correct checksum for an LSN."""
    is_short = len(payload) > FLAGS_AT and payload[FLAGS_AT] & FLAG_VACUUMED
    checksum = xxhash.xxh3_64_intdigest(payload[8:]) + (lsn * 0x9E3779B97F4A7C15 if is_short else 0)
    return (checksum % 2**64).to_bytes(8) + payload[8:]


def mutate_export(rng, data):
    """Return a wrong export, mostly with correct checksums of frames and of records."""
    pieces = split(data)
    for _ in range(rng.choice((1, 1, 2))):
        index = rng.randrange(1, len(pieces))
        what = rng.randrange(10)
        if what < 7:
            kind, payload = pieces[index]
            payload = mutate_bytes(rng, payload)
            if kind == RECORD and len(pieces[index].payload) >= ENVELOPE_SIZE_BYTES and rng.random() < 0.8:
                payload = sealed(payload, record_lsn(pieces[index].payload))
            pieces[index] = Piece(kind, payload)
        elif what == 7 and len(pieces) > 2:
            del pieces[index]
        elif what == 8:
            pieces.insert(index, rng.choice(pieces))
        else:
            other = rng.randrange(1, len(pieces))
            pieces[index], pieces[other] = pieces[other], pieces[index]
    try:
        return join(pieces)
    except StatelogError:  # Not even a trailer is left.
        return mutate_bytes(rng, data)


def attempt(data, directory):
    """Import bytes into a new store, and return the outcome.

    Raises:
        AssertionError: the import failed wrongly: with another error, or one without its place, or with a
            store that does not verify or cannot be read.
    """
    path = directory / "fuzzed.state"
    for leftover in directory.glob("fuzzed.state*"):
        leftover.unlink()
    with statelog.open(path, durability="interval") as store:
        try:
            import_stream(store._engine, io.BytesIO(data))
            outcome = "ok"
        except (CorruptionError, FormatError) as error:
            if "offset" not in error.facts:
                raise AssertionError(error) from error
            outcome = type(error).__name__
        except ConflictError:  # By its header, it begins later.
            outcome = "ConflictError"
        problems = store.verify().problems
        assert problems == [], problems
        read_everything(store)
    assert sorted(entry.name for entry in directory.iterdir()) == ["fuzzed.state", "fuzzed.state-lock"]
    return outcome


def read_everything(store):
    """Read every state of every version. Schemas and codecs may be unknown here. Other errors fail."""
    for info in store.threads():
        try:
            thread = store.thread(info.id)
        except StatelogError:
            continue
        for branch in thread.branches():
            for checkpoint in thread.checkout(branch.name).history():
                checkpoint.ancestor(1)
                try:
                    _ = checkpoint.metadata, checkpoint.state.to_python()
                except (UsageError, CorruptionError):
                    continue


def write_corpus():
    """Write the corpus: small stores, with fixed times and ids."""
    clock = iter(range(1_800_000_000_000_000_000, 2_000_000_000_000_000_000, 1_000_000))
    with (
        tempfile.TemporaryDirectory() as directory,
        mock.patch("time.time_ns", clock.__next__),
        mock.patch("secrets.token_bytes", lambda size: bytes(range(size))),
        statelog.open(Path(directory) / "corpus.state") as store,
    ):
        schema = {"m": operator.add, "u": reducers.upsert("id"), "d": reducers.merge, "s": reducers.union}
        for name in ("one", "two"):
            thread = store.thread(name, schema=schema)
            thread.commit(
                {"m": ["a" * 100], "u": [{"id": "1", "text": "b" * 80}]}, metadata={"node": "plan"}, id="mine"
            )
            thread.commit({"d": {f"key {number}": number for number in range(20)}, "s": {1, "x", (2, 3)}})
            thread.commit({"m": [f"item {number} of a list that grows" for number in range(30)]})
            thread.tag("good", 1)
            thread.fork("other", at=1, update={"d": {"more": "c" * 5000}})
            thread.rollback(0)
        _write(store, "log")
        _write(store, "thread", threads=["one"])
        _write(store, "threads", threads=["one", "two"])
        store.prune(keep_last=1, threads="one")
        store.set_retention(keep_last=5, threads="two")
        _write(store, "log-retained")
        _write(store, "thread-retained", threads=["one"])
        store.delete_thread("two")
        _write(store, "log-deleted")


def _write(store, name, **options):
    with (CORPUS / f"{name}.export").open("wb") as stream:
        export_store(store._engine, stream, **options)


def main():
    """Fuzz for some time, or write the corpus."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--write-corpus", action="store_true")
    options = parser.parse_args()
    if options.write_corpus:
        write_corpus()
        return 0
    rng = random.Random(options.seed)
    exports = corpus()
    outcomes: Counter[str] = Counter()
    started = time.monotonic()
    with tempfile.TemporaryDirectory() as directory:
        while time.monotonic() - started < options.seconds:
            name = rng.choice(list(exports))
            data = mutate_export(rng, exports[name])
            try:
                outcomes[attempt(data, Path(directory))] += 1
            except BaseException:
                path = Path(tempfile.gettempdir()) / f"export-that-failed-{options.seed}-{outcomes.total()}"
                path.write_bytes(data)
                sys.stderr.write(f"seed {options.seed}, attempt {outcomes.total()} (of {name}), kept as {path}\n")
                raise
    sys.stdout.write(f"{outcomes.total()} attempts: {dict(outcomes)}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
