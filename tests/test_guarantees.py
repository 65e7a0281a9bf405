"""Guarantees of GUARANTEES.md: its tables name tests, and these exist; those that no other file proves."""

from __future__ import annotations

import ast
import re
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given

import statelog
from statelog.format import cbor
from statelog.storage import faults
from statelog.testing import identical, values

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).parents[1]
NAMED = re.compile(r"`(tests/[\w/]+\.py::[\w:]+)`")


def tables() -> list[list[str]]:
    """Return the cells of all rows below the headings of the tables of guarantees."""
    section = (ROOT / "statelog/GUARANTEES.md").read_text(encoding="utf-8")
    found = []
    for table in re.findall(r"(?:^\|.*\n)+", section, flags=re.MULTILINE):
        rows = [[cell.strip() for cell in line.strip().strip("|").split("|")] for line in table.splitlines()]
        found += rows[2:]
    return found


ROWS = tables()


def test_there_are_tables() -> None:
    assert {len(row) for row in ROWS} == {2, 3}
    assert len(ROWS) > 15


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row[0][:40])
def test_every_cell_names_the_test_that_proves_it(row: list[str]) -> None:
    for cell in row[1:]:
        assert NAMED.findall(cell), cell


@pytest.mark.slow
def test_every_test_named_is_one() -> None:
    names = sorted({name for row in ROWS for cell in row for name in NAMED.findall(cell)})
    defined = {test for file in {name.split("::")[0] for name in names} for test in names_in(file)}
    assert [name for name in names if name not in defined] == []


def names_in(file: str) -> Iterator[str]:
    """Yield the names of the tests that a file defines: functions, methods of classes, and machines of Hypothesis."""
    tree = ast.parse((ROOT / file).read_text(encoding="utf-8"))
    for node in tree.body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield f"{file}::{node.name}"
        elif isinstance(node, ast.ClassDef):
            yield from (f"{file}::{node.name}::{each.name}" for each in node.body if isinstance(each, ast.FunctionDef))
        elif isinstance(node, ast.Assign):
            yield from (f"{file}::{each.id}::runTest" for each in node.targets if isinstance(each, ast.Name))


# --- what no other file proves --------------------------------------------------------


@pytest.fixture
def store(tmp_path: Path) -> Iterator[statelog.Store]:
    with statelog.open(tmp_path / "a.state") as opened:
        yield opened


@pytest.fixture
def _disarmed() -> Iterator[None]:
    yield
    faults.disarm()


@pytest.mark.usefixtures("_disarmed")
def test_a_reader_sees_the_last_commit_while_another_goes_on(store: statelog.Store) -> None:
    """A commit of two threads stands still, all written and none committed: a reader gets by, and sees neither."""
    for name in "ab":
        store.thread(name).commit({"n": 1})
    is_written, may_end = threading.Event(), threading.Event()

    def stop() -> None:
        is_written.set()
        may_end.wait(30)

    def commit() -> None:
        with store.transaction() as both:
            for name in "ab":
                both.thread(name).commit({"n": 2})

    faults.arm("commit.before_lmdb_commit", action=stop)
    writer = threading.Thread(target=commit)
    writer.start()
    assert is_written.wait(30)
    seen = [store.thread(name).state["n"] for name in "ab"]
    records = len(list(store.log()))
    assert not may_end.is_set()
    may_end.set()
    writer.join()
    assert (seen, records) == ([1, 1], 4)
    assert [store.thread(name).state["n"] for name in "ab"] == [2, 2]


@pytest.mark.slow
@given(value=values())
def test_values_come_back_from_the_file_exactly(tmp_path_factory: pytest.TempPathFactory, value: Any) -> None:
    path = tmp_path_factory.mktemp("values") / "a.state"
    with statelog.open(path, durability="interval") as store:
        store.thread("t").commit({"value": value, "nested": {"list": [value]}})
    with statelog.open(path, read_only=True) as store:
        assert identical(store.thread("t").state, {"value": value, "nested": {"list": [value]}})


def test_values_that_look_alike_are_told_apart(store: statelog.Store) -> None:
    """Negative control of the comparison above."""
    store.thread("t").commit({"value": 1})
    assert not identical(store.thread("t").state, {"value": 1.0})
    assert not identical(store.thread("t").state, {"value": True})


def test_dicts_come_back_in_the_order_of_their_encoded_keys(store: statelog.Store) -> None:
    keys = ["b", "aa", "a", "", "zz", "é", "abc"]
    store.thread("t").commit({"value": dict.fromkeys(keys), "large": {key * 40: "x" * 100 for key in keys}})
    state = store.thread("t").state
    for found in (state["value"], state["large"]):
        assert list(found) == sorted(found, key=cbor.encode)
    assert list(state["value"]) == ["", "a", "b", "aa", "zz", "é", "abc"]
