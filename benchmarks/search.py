"""Compares searches with a hand-made FTS5 table, and measures commits with an index, and its costs."""

from __future__ import annotations

import sqlite3
import time
from functools import partial
from itertools import accumulate
from random import Random
from typing import TYPE_CHECKING

import statelog
from benchmarks.corpus import Corpus
from benchmarks.measure import interleave
from benchmarks.result import Result, at_most
from statelog import reducers
from statelog.storage.file.index_file import index_path

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from benchmarks.workload import Bench

_MESSAGES = 1_000_000
_PER_THREAD = 1_000
_PER_COMMIT = 100
_TEXT_BYTES = 200
_WORDS = 20_000
_SHORT_WORDS = 100
"""The number of frequent short words. Half of a text consists of them, so 200 bytes have 35 words, as in English."""
_COMMON_WORDS = 200
_LETTERS = "etaoinshrdlucmfwypvbgkjqxz"
_SEED = 52
_LIMIT = 10
_PER_REPEAT = 40
_COMMITS_PER_REPEAT = 200

_SEARCH_TIMES_MAX = 1.3
_COMMIT_TIMES_MAX = 1.05
_SIZE_TIMES_MAX = 0.8
_BUILD_TIMES_MAX = 1.5


class WordTexts:
    """Makes texts from a vocabulary with a few frequent words and many rare words, as in a natural language."""

    def __init__(self) -> None:
        self._random = Random(_SEED)
        short = {self._word(2, 3) for _ in range(_SHORT_WORDS)}
        self._words = [*sorted(short), *sorted({self._word(3, 10) for _ in range(_WORDS)} - short, key=self._by_chance)]
        self._sums = list(accumulate(1 / (rank + 1) for rank in range(len(self._words))))

    def _word(self, least: int, most: int) -> str:
        return "".join(self._random.choices(_LETTERS, k=self._random.randint(least, most)))

    def _by_chance(self, _word: str) -> float:
        return self._random.random()

    def make(self, count: int) -> Iterator[str]:
        """Yield texts of 200 bytes."""
        for _ in range(count):
            text = " ".join(self._random.choices(self._words, cum_weights=self._sums, k=50))
            yield text[: text.rfind(" ", 0, _TEXT_BYTES + 1)]

    def query(self, text: str) -> str:
        """Return two words of a text that are not among the most frequent ones."""
        common = {*self._words[:_COMMON_WORDS]}
        rare = [word for word in text.split() if word not in common] or text.split()
        return " ".join(self._random.sample(rare, min(2, len(rare))))


def measure_searches(bench: Bench) -> Result:
    """Measure the creation and size of an index, and searches. Compare them with a table filled from memory."""
    source = WordTexts()
    texts = list(source.make(bench.size(_MESSAGES, at_least=2 * _PER_THREAD)))
    path = bench.directory / "search.state"
    _fill(path, texts)
    peer, peer_s = _peer(bench.directory / "peer.db", texts)
    queries = [source.query(text) for text in texts[:: max(len(texts) // 500, 1)]]
    turns = {name: iter(queries * 1000) for name in ("statelog", "FTS5")}
    select = (
        "SELECT thread, position, text, snippet(t, 2, '', '', '…', 24), rank FROM t WHERE t MATCH ?"
        " ORDER BY rank LIMIT ?"
    )
    with statelog.open(path) as store:
        began_s = time.perf_counter()
        store.search("nothing")
        build_s = time.perf_counter() - began_s
        measured = interleave(
            {
                "statelog": lambda: store.search(next(turns["statelog"]), limit=_LIMIT),
                "FTS5": lambda: peer.execute(select, (next(turns["FTS5"]), _LIMIT)).fetchall(),
            },
            count=bench.repeats * bench.size(_PER_REPEAT, at_least=16),
        )
        missed = sum(
            len(store.search(query, limit=_LIMIT)) != len(peer.execute(select, (query, _LIMIT)).fetchall())
            for query in queries[:50]
        )
    peer.close()
    size = index_path(path).stat().st_size / sum(len(text) for text in texts)
    what = f"search of {len(texts):,} messages of {_TEXT_BYTES} B: time, relative to the same query on an FTS5 table"
    return Result(
        checks=(
            at_most(what, measured["statelog"].p50_us / measured["FTS5"].p50_us, _SEARCH_TIMES_MAX),
            at_most("index: size, relative to its text", size, _SIZE_TIMES_MAX),
            at_most("index: time to build it, relative to a bulk insert of FTS5", build_s / peer_s, _BUILD_TIMES_MAX),
            at_most("searches, of 50, that find a different number of texts than FTS5", missed, 0, ""),
        ),
        sides=(measured["statelog"].side("search"), measured["FTS5"].side("an FTS5 table by hand")),
        notes=(f"index made in {build_s:.2f} s, FTS5 filled in {peer_s:.2f} s; commits of {_PER_COMMIT} messages",),
    )


def _fill(path: Path, texts: list[str]) -> None:
    schema = {"messages": reducers.extend}
    with statelog.open(path, durability="interval") as store:
        for start in range(0, len(texts), _PER_COMMIT):
            messages = [{"role": "user", "content": text} for text in texts[start : start + _PER_COMMIT]]
            store.thread(f"chat-{start // _PER_THREAD}", schema=schema).commit({"messages": messages})


def _peer(path: Path, texts: list[str]) -> tuple[sqlite3.Connection, float]:
    """Return a typical table for a search over messages, and the seconds in which it was filled."""
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute("PRAGMA journal_mode=WAL")
    connection.execute("CREATE VIRTUAL TABLE t USING fts5(thread UNINDEXED, position UNINDEXED, text)")
    began_s = time.perf_counter()
    connection.execute("BEGIN")
    rows = ((f"chat-{at // _PER_THREAD}", at % _PER_THREAD, text) for at, text in enumerate(texts))
    connection.executemany("INSERT INTO t VALUES(?, ?, ?)", rows)
    connection.execute("COMMIT")
    return connection, time.perf_counter() - began_s


def measure_commits(bench: Bench) -> Result:
    """Measure durable commits of a message to a store that is searched, alternating with one that has no index."""
    texts = Corpus().endless(_TEXT_BYTES)
    with (
        statelog.open(bench.directory / "with.state") as indexed,
        statelog.open(bench.directory / "without.state") as plain,
    ):
        for store in (indexed, plain):
            store.thread("t", schema={"messages": reducers.append}).commit({"messages": next(texts)})
        indexed.configure_search()
        indexed.search("nothing")
        threads = {"with": indexed.thread("t"), "without": plain.thread("t")}
        operations = {
            name: partial(lambda thread: thread.commit({"messages": next(texts)}), thread)
            for name, thread in threads.items()
        }
        measured = interleave(operations, count=bench.repeats * bench.size(_COMMITS_PER_REPEAT, at_least=24))
    ratio = measured["with"].p50_us / measured["without"].p50_us
    what = "durable commit of a message with an index: time, relative to one without"
    sides = measured["with"].side("commit, with an index"), measured["without"].side("commit, without")
    return Result(checks=(at_most(what, ratio, _COMMIT_TIMES_MAX),), sides=sides)
