"""The generated part of `statelog.aio` is what `.ci/aio.py` makes of the synchronous API today."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent.parent
GENERATOR = ROOT / ".ci" / "aio.py"

pytestmark = pytest.mark.skipif(not GENERATOR.is_file(), reason="a source distribution does not have the generator")

CALLS = "statelog/aio/generated.py"
THREADS = "statelog/aio/threads.py"
FUNCTIONS = "statelog/aio/durable/generated.py"
RUN = "statelog/aio/durable/operations.py"
BOARD = "statelog/store/board.py"
SWEEP = "    def sweep(self) -> int:\n"
"""The first line of a method of the synchronous board. Tests change it, or put another method before it."""


@pytest.fixture(scope="module")
def aio():
    spec = importlib.util.spec_from_file_location("generator_of_aio", GENERATOR)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def replaced(path, old, new):
    """Return the text of a source with one change."""
    text = (ROOT / path).read_text(encoding="utf-8")
    assert text.count(old) == 1
    return {path: text.replace(old, new)}


def test_the_committed_files_are_those_of_the_sources(aio):
    assert aio.stale(aio.Sources()) == [], "run python .ci/aio.py"


@pytest.mark.parametrize(
    ("path", "old", "new", "stale"),
    [
        (BOARD, SWEEP, "    def sweep(self, limit: int = 0) -> int:\n", CALLS),
        (BOARD, SWEEP, "    def sweep(self) -> float:\n", CALLS),
        (BOARD, SWEEP, f'    def fold(self) -> str:\n        """Fold."""\n        return ""\n\n{SWEEP}', CALLS),
        ("statelog/store/board_reads.py", 'prefix: str = "") -> ', 'prefix: str = "a") -> ', CALLS),
        ("statelog/store/threads.py", "schema: type[M],", "schema: type[M] | None,", THREADS),
        (
            "statelog/durable/retries.py",
            "def retry(store: Store, run: str)",
            "def retry(store: Store, key: str)",
            FUNCTIONS,
        ),
        ("statelog/durable/run.py", "def sleep(self, seconds: float)", "def sleep(self, seconds: int)", RUN),
    ],
    ids=["parameter", "result", "method", "base class", "overload", "function", "run"],
)
def test_a_change_of_a_synchronous_signature_is_reported(aio, path, old, new, stale):
    assert aio.stale(aio.Sources(changed=replaced(path, old, new))) == [stale]


def test_a_change_by_hand_is_reported(aio):
    changed = replaced(CALLS, "self._board.sweep)", "self._board.leases)")
    assert aio.stale(aio.Sources(changed=changed)) == [CALLS]


def test_a_changed_layout_is_not_reported(aio):
    changed = replaced(CALLS, "self._board.sweep)", "\n            self._board.sweep,\n        )")
    assert aio.stale(aio.Sources(changed=changed)) == []


@pytest.mark.parametrize(
    ("decorator", "returned"),
    [("", "Claim"), ("", "Watch"), ("", "AbstractContextManager[int]"), ("    @staticmethod\n", "int")],
)
def test_a_method_that_needs_a_twin_by_hand_is_refused(aio, decorator, returned):
    method = f'{decorator}    def fold(self) -> {returned}:\n        """Fold."""\n\n'
    with pytest.raises(aio.RefusedError, match=r"write fold by hand in statelog\.aio\.board\.Board"):
        aio.generate(aio.Sources(changed=replaced(BOARD, SWEEP, method + SWEEP)))


def test_every_name_in_the_tables_is_a_generated_method(aio):
    sources = aio.Sources()
    generated = {
        f"{twin.sync[1]}.{name}"
        for twin in aio.TWINS
        for name in sources.methods(twin.sync).keys() - sources.names_by_hand(twin.loop)
    }
    assert aio.ON_LOOP | {name for name in aio.NOTES if not name.startswith("durable.")} <= generated
