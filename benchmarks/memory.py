"""Measures searches, and recalls relative to a scan of the vectors. Checks that forgotten facts are nowhere."""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING, Any
from zlib import crc32

import statelog
from benchmarks.measure import interleave
from benchmarks.result import Result, at_most, exactly
from benchmarks.search import measure_commits, measure_searches
from benchmarks.workload import Bench, BenchWorkload
from statelog import Memory

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

_FACTS = 10_000
_DIMS = 384
_WORDS_PER_FACT = 12
_WORDS = 2_000
_LIMIT = 5
_PER_REPEAT = 40
_RECALL_TIMES_MAX = 1.5
_FORGOTTEN = 200
_SEED = 52


def _measure(bench: Bench) -> Result:
    measured: dict[str, Callable[[Bench], Result]] = {
        "search": measure_searches,
        "commit": measure_commits,
        "recall": _measure_recall,
        "forget": _measure_forget,
    }
    return Result.joined([measure(bench) for name, measure in measured.items() if not bench.rows or name in bench.rows])


class _RandomEmbedder:
    """The embedding model of the benchmark. Each text has its own random vector."""

    def __init__(self) -> None:
        import numpy as np

        self._np = np

    def __call__(self, texts: Sequence[str]) -> list[Any]:
        """Return a vector for each text."""
        draws = [self._np.random.default_rng(crc32(text.encode())) for text in texts]
        return [draw.standard_normal(_DIMS, dtype="f4") for draw in draws]


def _texts(count: int) -> list[str]:
    """Return texts of words, of which a few are frequent and most are rare, as in a language."""
    random = Random(_SEED)
    words = ["".join(random.choices("abcdefghijklmnopqrstuvwxyz", k=random.randint(3, 9))) for _ in range(_WORDS)]
    weights = [1 / (rank + 1) for rank in range(_WORDS)]
    return [" ".join(random.choices(words, weights, k=_WORDS_PER_FACT)) for _ in range(count)]


def _fill(path: Path, texts: Sequence[str]) -> tuple[statelog.Store, Memory]:
    store = statelog.open(path, durability="interval")
    memory = Memory(store, "user/42", embed=_RandomEmbedder(), dims=_DIMS)
    for number, text in enumerate(texts):
        memory.remember(text, key=f"k{number:05d}")
    return store, memory


def _measure_recall(bench: Bench) -> Result:
    """Measure recalls by text and vectors, alternating with a scan of the same vectors for the best five."""
    import numpy as np

    texts = _texts(bench.size(_FACTS, at_least=500))
    questions = [" ".join(text.split()[:4]) for text in texts]
    store, memory = _fill(bench.directory / "recall.state", texts)
    model = _RandomEmbedder()
    rows = np.asarray([model([text])[0] for text in texts], dtype=np.float32)
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    turn = iter(range(1 << 30))

    def scan() -> object:
        query = model([questions[next(turn) % len(questions)]])[0]
        scores = np.einsum("ij,j->i", rows, query / np.linalg.norm(query))
        best = np.argpartition(-scores, _LIMIT)[:_LIMIT]
        return best[np.argsort(-scores[best])]

    def recall() -> object:
        return memory.recall(questions[next(turn) % len(questions)], limit=_LIMIT)

    with store:
        recall()  # The first recall reads the facts into memory.
        count = bench.repeats * bench.size(_PER_REPEAT, at_least=8)
        measured = interleave({"scan": scan, "recall": recall}, count=count)
    ratio = measured["recall"].p50_us / measured["scan"].p50_us
    what = f"recall by text and {len(texts):,} vectors: time, relative to the scan of the vectors alone"
    sides = measured["scan"].side("scan of the vectors"), measured["recall"].side("recall")
    return Result(checks=(at_most(what, ratio, _RECALL_TIMES_MAX),), sides=sides)


def _measure_forget(bench: Bench) -> Result:
    """Forget half of the facts one by one, and the sessions of the scope. Then search for all of them everywhere."""
    count = bench.size(_FORGOTTEN, at_least=20)
    marks = [f"zx{number:05d}qv" for number in range(2 * count)]
    store, memory = _fill(bench.directory / "forget.state", [f"is called {mark}" for mark in marks])
    with store:
        other = Memory(store, "user/43")
        with other.session("s-1").turn("evt-1") as turn:
            turn.add({"role": "user", "content": " ".join(marks[:count])})
        found_before = sum(_is_found(store, memory, mark) for mark in marks[:count])
        for number in range(count):
            memory.forget(f"k{number:05d}")
        Memory.forget_scope(store, "user/43")
        store.compact()
        shown = [mark for mark in marks[:count] if _is_found(store, memory, mark) or _is_in_files(store, mark)]
        kept = sum(_is_found(store, memory, mark) for mark in marks[count:])
    what = f"forgotten facts, of {count}, that a search, a recall or a file shows after compact"
    return Result(
        checks=(
            exactly(what, len(shown), 0, ""),
            exactly("facts found before, and kept facts found after", found_before + kept, 2 * count, ""),
        ),
        sides=(),
    )


def _is_found(store: statelog.Store, memory: Memory, mark: str) -> bool:
    is_recalled = any(mark in str(fact.text) for fact in memory.recall(mark, limit=10))
    return is_recalled or bool(store.search(mark, history=True))


def _is_in_files(store: statelog.Store, mark: str) -> bool:
    files = store.path.parent.glob(f"{store.path.name}*")
    return any(mark.encode() in path.read_bytes() for path in files)


MEMORY = BenchWorkload(
    "memory",
    "memory: search, recall, forget",
    "commit and interval",
    _measure,
    needs=("numpy",),
    extra="vectors",
    rows=("search", "commit", "recall", "forget"),
)
