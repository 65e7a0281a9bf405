"""Opens other projects' savers as sources: DynamoDB, Redis without modules, and LMDB. They are only read.

None of these savers lists every thread, and none returns a checkpoint's writes in LangGraph's order. So this module
reads the rows to find the checkpoints and the positions of their writes. The savers read only the values.
"""

from __future__ import annotations

import json
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, cast
from urllib.parse import parse_qsl, urlsplit, urlunsplit

from langgraph.checkpoint.base import BaseCheckpointSaver, writes_sort_key

from statelog.adapters.langgraph.move.endpoints import CheckpointKey, Endpoint
from statelog.adapters.langgraph.move.untouched import UntouchedSerializer
from statelog.adapters.langgraph.saver.checkpoint_reader import WritePosition
from statelog.errors import CorruptionError, FormatError, StorageError, StoreNotFoundError, UsageError
from statelog.redaction import redacted_url

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from langchain_core.runnables import RunnableConfig
    from langgraph.checkpoint.base import CheckpointTuple

DYNAMODB, REDIS, LMDB = "dynamodb:", ("redis://", "rediss://"), "lmdb:"
NAMES = (DYNAMODB, *REDIS, LMDB)
"""The prefixes with which a source's name begins."""


class ForeignRows(Protocol):
    """Reads the rows of a database."""

    def places(self) -> Iterable[tuple[CheckpointKey, str | None]]:
        """Return the places of all checkpoints with their parents' ids."""

    def writes(self, place: CheckpointKey) -> list[WritePosition]:
        """Return the positions of the writes of a checkpoint, in the order in which the saver returns them."""

    def check(self, place: CheckpointKey, found: CheckpointTuple) -> str | None:
        """Return the reason why `found` differs from the checkpoint that was put, or None."""


class OrderedSaver(BaseCheckpointSaver[Any]):
    """A saver that returns writes in LangGraph's order, and raises an error if data is missing."""

    def __init__(self, saver: BaseCheckpointSaver[Any], rows: ForeignRows, name: str) -> None:
        super().__init__(serde=UntouchedSerializer())
        self._saver, self._rows, self._name = saver, rows, name

    def get_tuple(self, config: RunnableConfig) -> CheckpointTuple | None:
        """Return the checkpoint that the config names.

        Raises:
            CorruptionError: the source has lost one of the checkpoint's values or writes. Facts: path, thread,
                checkpoint.
        """
        found = self._saver.get_tuple(config)
        # Return early if the checkpoint is missing, or pickled or encrypted as a whole: the caller checks for these.
        if found is None or not isinstance(found.checkpoint, dict):
            return found
        place = CheckpointKey.of(config)
        rows, writes = self._rows.writes(place), found.pending_writes or []
        why = self._rows.check(place, found)
        if [(row.task_id, row.channel) for row in rows] != [(write[0], write[1]) for write in writes]:
            why = f"it has {len(rows)} pending writes, but values for only {len(writes)}"
        if why is not None:
            message = (
                f"checkpoint {place.checkpoint_id} of thread {place.thread_id!r} is incomplete in {self._name}: {why}"
            )
            raise CorruptionError(message, path=self._name, thread=place.thread_id, checkpoint=place.checkpoint_id)
        pairs = sorted(zip(rows, writes, strict=True), key=lambda pair: _sort_key(pair[0]))
        checkpoint = cast("Any", _with_texts(found.checkpoint))
        return found._replace(checkpoint=checkpoint, pending_writes=[write for _row, write in pairs])


def _with_texts(checkpoint: Any) -> dict[str, Any]:
    """Return a checkpoint whose versions are strings, as in StatelogSaver, so that LangGraph can compare both."""
    seen = {node: _texts(versions) for node, versions in checkpoint["versions_seen"].items()}
    return {**checkpoint, "channel_versions": _texts(checkpoint["channel_versions"]), "versions_seen": seen}


def _texts(versions: dict[str, Any]) -> dict[str, Any]:
    return {name: f"{each:032}.{0:016}" if type(each) is int else each for name, each in versions.items()}


def _sort_key(row: WritePosition) -> Any:
    return writes_sort_key(row.path, row.task_id, row.number)


@dataclass(slots=True)
class ForeignEndpoint(Endpoint):
    """A source whose rows this module reads."""

    rows: ForeignRows

    def places(self) -> Iterable[tuple[CheckpointKey, str | None]]:
        """Return the places of all checkpoints with their parents' ids, in any order."""
        return self.rows.places()

    def written(self, place: CheckpointKey) -> list[WritePosition]:
        """Return the positions of the writes of a checkpoint, in LangGraph's order."""
        return sorted(self.rows.writes(place), key=_sort_key)

    def lost(self, found: CheckpointTuple) -> str | None:
        """Return what the source has lost of a checkpoint's metadata, or None. It cannot be restored."""
        step = found.metadata.get("step")
        if type(step) is int and found.metadata.get("source") in _SOURCES:
            return None
        return f"the application's metadata has replaced LangGraph's: step is {step!r}"


_SOURCES = ("input", "loop", "update", "fork")


@contextmanager
def opened_foreign(name: str) -> Iterator[Endpoint]:
    """Open the source that `name` refers to.

    Raises:
        UsageError: the name is not valid, or its package is not installed.
        StoreNotFoundError: there is no such database.
        FormatError: the database has no checkpoints.
        StorageError: the database reported an error.
    """
    how = _opened_lmdb if name.startswith(LMDB) else _opened_dynamodb if name.startswith(DYNAMODB) else _opened_redis
    with how(name) as (saver, rows):
        shown = redacted_url(name)
        yield ForeignEndpoint(shown, OrderedSaver(saver, rows, shown), rows)


def _missing(packages: str) -> UsageError:
    return UsageError(f"this needs a package that is not installed: pip install {packages}")


# --- LMDB -----------------------------------------------------------------------------


@dataclass(slots=True)
class _LmdbRows:
    saver: Any
    decode: Callable[[bytes], Any]

    def _read(self, table: Any, prefix: bytes = b"") -> Iterator[tuple[list[str], Any]]:
        with self.saver.env.begin() as txn, closing(txn.cursor(db=table)) as cursor:
            is_there = cursor.set_range(prefix) if prefix else cursor.first()
            while is_there and cursor.key().startswith(prefix):
                yield cursor.key().decode().split("\0"), self.decode(cursor.value())
                is_there = cursor.next()

    def places(self) -> Iterable[tuple[CheckpointKey, str | None]]:
        for names, value in self._read(self.saver._db):  # noqa: SLF001 - its tables have no public name
            yield CheckpointKey(*names), value["parent_checkpoint_id"]

    def writes(self, place: CheckpointKey) -> list[WritePosition]:
        prefix = f"{place.thread_id}\0{place.namespace}\0{place.checkpoint_id}\0".encode()
        rows = self._read(self.saver._writes_db, prefix)  # noqa: SLF001
        return [WritePosition(value["task_id"], int(names[-1]), value["channel"], "") for names, value in rows]

    def check(self, place: CheckpointKey, found: CheckpointTuple) -> str | None:
        return None


@contextmanager
def _opened_lmdb(name: str) -> Iterator[tuple[BaseCheckpointSaver[Any], ForeignRows]]:
    try:
        from langgraph_checkpoint_lmdb import lmdb as package
    except ImportError:
        raise _missing("langgraph-checkpoint-lmdb") from None
    path = Path(name.removeprefix(LMDB))
    if not path.exists():
        message = f"no database at {path}"
        raise StoreNotFoundError(message, path=str(path))
    lmdb = package.lmdb
    try:
        with lmdb.open(str(path), readonly=True, create=False, subdir=path.is_dir(), max_dbs=16) as environment:
            saver = package.LMDBSaver(environment, serde=UntouchedSerializer())
            yield saver, _LmdbRows(saver, saver._deserialize)  # noqa: SLF001 - its envelope has no public reader
    except (lmdb.InvalidError, lmdb.NotFoundError, lmdb.ReadonlyError):
        message = f"{path} contains no checkpoints of langgraph-checkpoint-lmdb"
        raise FormatError(message, path=str(path)) from None
    except lmdb.Error as error:
        message = f"{path}: {error}"
        raise StorageError(message, path=str(path)) from error


# --- Redis ----------------------------------------------------------------------------


@dataclass(slots=True)
class _RedisRows:
    saver: Any
    owners: dict[tuple[str, str, str, str], str] = field(default_factory=dict)
    """The id of the checkpoint that put a value last, keyed by thread, namespace, channel and version."""
    parents: dict[CheckpointKey, str | None] = field(default_factory=dict)

    def places(self) -> Iterable[tuple[CheckpointKey, str | None]]:
        saver, serialiser = self.saver, UntouchedSerializer()
        for registered in saver.client.hvals(f"{saver.prefix}:threads"):
            named = json.loads(registered)
            thread, namespace = named["thread"], named["ns"]
            versions: dict[str, dict[str, Any]] = {}
            # The index lists ids in the order of the puts, so the last put owns a value.
            for member in saver.client.zrange(f"{saver.prefix}:idx:{thread}:{namespace}", 0, -1):
                id = member.decode()
                raw = saver.client.get(f"{saver.prefix}:cp:{thread}:{namespace}:{id}")
                if raw is None:  # The checkpoint has expired.
                    continue
                payload = serialiser.loads_typed(_unpacked(raw))
                versions[id] = payload["checkpoint"].get("channel_versions") or {}
                before = versions.get(payload["parent_id"], {})
                for channel, version in versions[id].items():
                    if before.get(channel) != version:
                        self.owners[thread, namespace, channel, str(version)] = id
                place = CheckpointKey(thread, namespace, id)
                self.parents[place] = payload["parent_id"]
                yield place, payload["parent_id"]

    def writes(self, place: CheckpointKey) -> list[WritePosition]:
        saver, serialiser = self.saver, UntouchedSerializer()
        key = f"{saver.prefix}:wr:{place.thread_id}:{place.namespace}:{place.checkpoint_id}"
        found = []
        for name, raw in saver.client.hgetall(key).items():
            task_id, _, number = name.decode().rpartition(":")
            _task, channel, _value = serialiser.loads_typed(_unpacked(raw))
            found.append(WritePosition(task_id, int(number), channel, ""))
        return sorted(found, key=lambda row: (row.task_id, row.number))

    def check(self, place: CheckpointKey, found: CheckpointTuple) -> str | None:
        # Redis stores a value under its channel and version. A fork reuses versions, and so overwrites values.
        for channel, version in found.checkpoint["channel_versions"].items():
            owner = self.owners.get((place.thread_id, place.namespace, channel, str(version)))
            if owner is not None and owner not in self._line(place):
                return f"checkpoint {owner}, on a different branch, has overwritten the value of channel {channel!r}"
            key = f"{self.saver.prefix}:blob:{place.thread_id}:{place.namespace}:{channel}:{version}"
            if channel not in found.checkpoint["channel_values"] and not self.saver.client.exists(key):
                return f"the value of channel {channel!r} is missing"
        return None

    def _line(self, place: CheckpointKey) -> set[str]:
        """Return the ids of a checkpoint and its ancestors."""
        line: set[str] = set()
        here: CheckpointKey | None = place
        while here is not None and here.checkpoint_id not in line:
            line.add(here.checkpoint_id)
            parent = self.parents.get(here)
            here = CheckpointKey(place.thread_id, place.namespace, parent) if parent else None
        return line


def _unpacked(raw: bytes) -> tuple[str, bytes]:
    from langgraph_checkpoint_plainredis.saver import _unpack_typed

    unpacked: tuple[str, bytes] = _unpack_typed(raw)
    return unpacked


@contextmanager
def _opened_redis(name: str) -> Iterator[tuple[BaseCheckpointSaver[Any], ForeignRows]]:
    try:
        import redis
        from langgraph_checkpoint_plainredis import RedisSaver
    except ImportError:
        raise _missing("langgraph-checkpoint-plainredis") from None
    parts = urlsplit(name)
    options = dict(parse_qsl(parts.query))
    prefix = options.pop("prefix", "lg")
    url = urlunsplit(parts._replace(query="&".join(f"{key}={value}" for key, value in options.items())))
    shown = redacted_url(name)
    try:
        saver = RedisSaver(url=url, prefix=prefix, serde=UntouchedSerializer())
        with closing(saver.client):
            if not saver.client.exists(f"{prefix}:threads"):
                message = (
                    f"{shown} contains no checkpoints of langgraph-checkpoint-plainredis with the prefix {prefix!r}"
                )
                raise FormatError(message, path=shown)
            yield saver, _RedisRows(saver)
    except redis.RedisError as error:
        message = f"{shown}: {type(error).__name__}"
        raise StorageError(message, path=shown) from error


# --- DynamoDB -------------------------------------------------------------------------


@dataclass(slots=True)
class _DynamoRows:
    saver: Any

    def _pages(self, method: str, **asked: Any) -> Iterator[dict[str, Any]]:
        for page in self.saver.client.get_paginator(method).paginate(TableName=self.saver.table_name, **asked):
            yield from page["Items"]

    def places(self) -> Iterable[tuple[CheckpointKey, str | None]]:
        rows = self._pages(
            "scan",
            FilterExpression="begins_with(PK, :begin)",
            ExpressionAttributeValues={":begin": {"S": "CHECKPOINT_"}},
            ProjectionExpression="PK, ns, id, parent_checkpoint_id",
        )
        for row in rows:
            thread = row["PK"]["S"].removeprefix("CHECKPOINT_")
            yield CheckpointKey(thread, row["ns"]["S"], row["id"]["S"]), row.get("parent_checkpoint_id", {}).get("S")

    def writes(self, place: CheckpointKey) -> list[WritePosition]:
        rows = self._pages(
            "query",
            KeyConditionExpression="PK = :key",
            ExpressionAttributeValues={
                ":key": {"S": f"WRITES_{place.thread_id}#{place.namespace}#{place.checkpoint_id}"}
            },
            ProjectionExpression="task_id, idx, channel, task_path",
        )
        return [
            WritePosition(
                row["task_id"]["S"], int(row["idx"]["N"]), row["channel"]["S"], row.get("task_path", {}).get("S", "")
            )
            for row in rows
        ]

    def check(self, place: CheckpointKey, found: CheckpointTuple) -> str | None:
        return None


@contextmanager
def _opened_dynamodb(name: str) -> Iterator[tuple[BaseCheckpointSaver[Any], ForeignRows]]:
    try:
        from botocore.exceptions import BotoCoreError, ClientError
        from langgraph_checkpoint_aws import DynamoDBSaver
    except ImportError:
        raise _missing("langgraph-checkpoint-aws") from None
    table = name.removeprefix(DYNAMODB)
    try:
        saver = DynamoDBSaver(table)
        saver.serde = saver.serializer.serde = UntouchedSerializer()
        saver.client.describe_table(TableName=table)
        yield saver, _DynamoRows(saver)
    except ClientError as error:
        code = error.response.get("Error", {}).get("Code", "")
        if code == "ResourceNotFoundException":
            message = f"no table {table!r} in DynamoDB"
            raise StoreNotFoundError(message, path=name) from None
        message = f"{name}: {code}"
        raise StorageError(message, path=name) from error
    except (BotoCoreError, ValueError) as error:  # For example, the region or the credentials are missing.
        message = f"{name}: {error}"
        raise StorageError(message, path=name) from error
