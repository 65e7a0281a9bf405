"""A store for the suite agmi (`agent-memory-integrity`), and an attacker who knows its format.

A record of the suite is a version of a thread. The attacker can write the file, and has this library and old copies of
the file, but no key. The attacker creates a new store without a key that has the wanted contents, so that every
checksum, every digest and the chain match. In a store with a key, the attacker keeps the header and the MACs, and
replaces the records and rows. If an old copy has the wanted contents, the attacker puts the copy back instead.
"""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

import lmdb
from agmi.adapters.base import MemoryAdapter, Record

import statelog
from statelog.errors import StatelogError
from statelog.format import cbor
from statelog.format.header import HEADER_KEY, encode_header
from statelog.format.seal import RECORD_MAC_SIZE_BYTES, SEAL_SIZE_BYTES, seal, unseal

FIRST, OTHER = "ctx-A", "ctx-B"
KEY = "the key of the store"
TABLES = (b"meta", b"log", b"index")
MAP_SIZE_BYTES = 1 << 26


class StoreAdapter(MemoryAdapter):
    """A statelog store.

    Args:
        has_key: whether the store has a key.
        has_anchor: whether the program keeps an anchor elsewhere, and takes a new one after each of its commits.
        verifies: whether the program calls `verify` after a restart. If not, it only opens and reads the store.
    """

    name = "statelog"
    supports_replay = supports_metadata = supports_snapshot = True

    def __init__(self, *, has_key: bool, has_anchor: bool, verifies: bool) -> None:
        self._key = KEY if has_key else None
        self._has_anchor = has_anchor
        self._verifies = verifies

    # --- the program ----------------------------------------------------------------

    def setup(self) -> None:
        self._folder = Path(tempfile.mkdtemp(prefix="statelog-agmi-"))
        self._path = self._folder / "agent.state"
        self._anchor: bytes | None = None
        self._copies: list[Path] = []
        self._append(FIRST, ())

    def teardown(self) -> None:
        shutil.rmtree(self._folder)

    def _append(self, context: str, contents: tuple[str, ...]) -> None:
        with statelog.open(self._path, key=self._key) as store:
            for content in contents:
                store.thread(context).commit({"text": content}, metadata={"owner": context, "source": "user"})
            if self._has_anchor:
                self._anchor = store.anchor()

    def seed(self, n: int) -> None:
        for number in range(n):
            self._append(FIRST, (f"first {number}",))
            self._copies.append(Path(shutil.copy(self._path, self._folder / f"copy {number}")))  # by the attacker

    def seed_other(self, n: int) -> None:
        self._append(OTHER, tuple(f"other {number}" for number in range(n)))

    def append_genuine(self) -> None:
        self._append(FIRST, ("a later one",))

    def reload(self) -> None:
        """Nothing is open between two calls."""

    def verify(self) -> bool:
        self.verify_detail = None
        try:
            with statelog.open(self._path, key=self._key, expect=self._anchor) as store:
                for context in (FIRST, OTHER):
                    for version in store.thread(context).history():
                        dict(version.state)
                if self._verifies:
                    problems = store.verify(expect=self._anchor).problems
                    self.verify_detail = problems[0].message if problems else None
        except StatelogError as error:
            self.verify_detail = f"{type(error).__name__}: {error.message}"
        return self.verify_detail is None

    # --- the attacker reads ------------------------------------------------------------

    def _read(self, path: Path) -> dict[str, list[dict]]:
        """Return the content and metadata of all versions in a file, without using its key."""
        copy = self._folder / "read"
        shutil.copy(path, copy)
        with _opened(copy) as (tables, transaction):
            header = cbor.decode(unseal(HEADER_KEY, transaction.get(HEADER_KEY, db=tables[b"meta"])))
            if "mac" in header:
                plain = encode_header(store_id=header["store_id"], created_us=header["created_us"])
                transaction.put(HEADER_KEY, plain, db=tables[b"meta"])
                for key, value in list(transaction.cursor(tables[b"log"])):
                    transaction.put(key, value[:-RECORD_MAC_SIZE_BYTES], db=tables[b"log"])
                for key, value in list(transaction.cursor(tables[b"index"])):
                    transaction.put(key, seal(key, value[:-SEAL_SIZE_BYTES]), db=tables[b"index"])
        with statelog.open(copy, read_only=True) as store:
            return {
                context: [
                    {"content": version.state["text"], "metadata": version.metadata}
                    for version in store.thread(context).history()
                ][::-1]
                for context in (FIRST, OTHER)
            }

    def _records(self, context: str) -> list[Record]:
        found = self._read(self._path)[context]
        return [Record(seq, {"owner": context, **fields}) for seq, fields in enumerate(found)]

    def read_all_raw(self) -> list[Record]:
        return self._records(FIRST)

    def read_other_raw(self) -> list[Record]:
        return self._records(OTHER)

    def identity_of(self, record: Record) -> str:
        return f"{record.fields['owner']} {record.seq}"

    def payload_of(self, record: Record) -> str:
        return record.fields["content"]

    def owner_of(self, record: Record) -> str:
        return record.fields["owner"]

    # --- the attacker writes -------------------------------------------------------------

    def _put(self, wanted: list[dict]) -> None:
        """Replace the versions of the first context by those that the attacker wants."""
        present = self._read(self._path)
        contents = {**present, FIRST: wanted}
        if self._key is None and wanted[: len(present[FIRST])] == present[FIRST]:
            self._commit(self._path, {FIRST: wanted[len(present[FIRST]) :]})
            return
        for copy in self._copies:
            if self._read(copy) == contents:
                shutil.copy(copy, self._path)
                return
        forged = self._folder / "forged"
        forged.unlink(missing_ok=True)
        self._commit(forged, contents)
        with _opened(forged) as (tables, transaction):
            rows = {name: list(transaction.cursor(tables[name])) for name in (b"log", b"index")}
        sizes = {b"log": RECORD_MAC_SIZE_BYTES, b"index": SEAL_SIZE_BYTES}
        with _opened(self._path) as (tables, transaction):
            for name, forged_rows in rows.items():
                former = dict(transaction.cursor(tables[name]))
                transaction.drop(tables[name], delete=False)
                for key, value in forged_rows:
                    new = value
                    if self._key is not None:
                        mac = former.get(key, bytes(64))[-sizes[name] :]
                        new = (value if name == b"log" else value[:-SEAL_SIZE_BYTES]) + mac
                    transaction.put(key, new, db=tables[name])

    def _commit(self, path: Path, contents: dict[str, list[dict]]) -> None:
        """Commit to a store without a key, as anybody can."""
        with statelog.open(path, durability="interval") as store:
            for context, versions in contents.items():
                for version in versions:
                    store.thread(context).commit({"text": version["content"]}, metadata=version["metadata"])

    def write_raw(self, record: Record) -> None:
        versions = self._read(self._path)[FIRST]
        new = {"content": record.fields["content"], "metadata": record.fields["metadata"]}
        self._put([*versions[: record.seq], new, *versions[record.seq + 1 :]])

    def delete_raw(self, seq: int) -> None:
        versions = self._read(self._path)[FIRST]
        self._put([*versions[:seq], *versions[seq + 1 :]])

    def mutate_payload(self, record: Record) -> Record:
        record.fields["content"] += ", changed"
        return record

    def replay_onto(self, victim_seq: int, donor: Record) -> None:
        versions = self._read(self._path)[FIRST]
        versions[victim_seq] = {**versions[victim_seq], "content": donor.fields["content"]}
        self._put(versions)

    def read_meta(self, seq: int) -> dict:
        return self._read(self._path)[FIRST][seq]["metadata"]

    def write_meta(self, seq: int, meta: dict) -> None:
        versions = self._read(self._path)[FIRST]
        versions[seq] = {**versions[seq], "metadata": meta}
        self._put(versions)

    def snapshot_store(self) -> str:
        return self._copy_store(self._path)

    def restore_store(self, token: str) -> None:
        self._restore_store(token, self._path)


class _opened:  # noqa: N801 - it is used as a function
    """Lend the tables of a file to the attacker."""

    def __init__(self, path: Path) -> None:
        self._environment = lmdb.open(str(path), subdir=False, max_dbs=4, map_size=MAP_SIZE_BYTES, lock=False)

    def __enter__(self) -> tuple:
        self._transaction = self._environment.begin(write=True)
        tables = {name: self._environment.open_db(name, txn=self._transaction) for name in TABLES}
        return tables, self._transaction

    def __exit__(self, kind: type[BaseException] | None, *_rest: object) -> None:
        if kind is None:
            self._transaction.commit()
        else:
            self._transaction.abort()
        self._environment.close()
