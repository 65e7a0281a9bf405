"""After a compaction, the raw file has no deleted or expired data, even if it was borrowed. Other data stays."""

from __future__ import annotations

import gc
import itertools
import random
import string
import tracemalloc
from typing import TYPE_CHECKING, Any

import pytest
from cutting import CutError, care_cut_at
from hypothesis import given
from hypothesis import strategies as st

import statelog
from statelog import reducers
from statelog.log.care import compact, sweep, vacuum
from statelog.log.care.vacuum import RetentionReport

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

SCHEMA = {"notes": reducers.merge, "log": reducers.extend, "text": reducers.add}


def text(seed: int, size: int) -> str:
    return "".join(random.Random(seed).choices(string.ascii_letters, k=size))


SECRETS = {
    "inline": "secret-inline-" + text(1, 30),
    "leaf": "secret-leaf-" + text(2, 900),
    "shared leaf": "secret-shared-" + text(3, 9_000),
    "string in pieces": "secret-pieces-" + text(4, 60_000),
    "bytes in pieces": ("secret-bytes-" + text(5, 60_000)).encode(),
}


def samples(value: str | bytes) -> list[bytes]:
    """Bits from all over a value: each is somewhere in the file as long as that piece is."""
    data = value if isinstance(value, bytes) else value.encode()
    return [data[at : at + 12] for at in range(0, len(data) - 12, max(len(data) // 40, 1))]


def found(path: Path, value: str | bytes) -> int:
    data = path.read_bytes()
    return sum(sample in data for sample in samples(value))


@pytest.fixture
def store(tmp_path: Path) -> Iterator[statelog.Store]:
    with statelog.open(tmp_path / "a.state", durability="interval") as opened:
        yield opened
        assert opened.verify().problems == []
        opened.rebuild_index()  # L4: the index does not depend on removed data
        assert opened.verify().problems == []


def put(store: statelog.Store, name: str, value: object) -> statelog.Thread:
    thread = store.thread(name, schema=SCHEMA)
    thread.commit({"notes": {"value": value}})
    return thread


@pytest.mark.parametrize("kind", SECRETS)
def test_secret_of_a_living_thread_is_found(store: statelog.Store, kind: str) -> None:
    """Negative control: the search finds existing data."""
    put(store, "a", SECRETS[kind])
    store.compact()
    assert found(store.path, SECRETS[kind]) == len(samples(SECRETS[kind]))


@pytest.mark.parametrize("order", ["ab", "ba"])
@pytest.mark.parametrize("kind", SECRETS)
def test_text_that_another_thread_wrote_too_is_gone_when_both_are(store: statelog.Store, kind: str, order: str) -> None:
    for name in "ab":
        put(store, name, SECRETS[kind])
    put(store, "c", "remains")
    for name in order:
        store.delete_thread(name)
    store.compact()
    assert found(store.path, SECRETS[kind]) == 0
    assert store.thread("c").state["notes"]["value"] == "remains"


@pytest.mark.parametrize("order", list(itertools.permutations("abc")))
def test_a_borrower_keeps_what_it_borrowed_until_it_is_deleted_too(store: statelog.Store, order: Any) -> None:
    for name in "abc":
        put(store, name, dict(SECRETS))
    for number, name in enumerate(order):
        store.delete_thread(name)
        store.compact()
        for other in order[number + 1 :]:
            assert store.thread(other).state["notes"]["value"] == SECRETS
        assert store.verify().problems == []
    for kind, secret in SECRETS.items():
        assert found(store.path, secret) == 0, kind


@pytest.mark.parametrize("first", ["retained", "deleted"])
def test_text_is_gone_when_the_borrowing_version_has_expired(store: statelog.Store, first: str) -> None:
    secret = SECRETS["string in pieces"]
    put(store, "a", secret)
    borrower = put(store, "b", secret)
    borrower.commit({"notes": {"value": "another"}})
    acts: list[Callable[[], object]] = [
        lambda: store.prune(keep_last=1, threads="b"),
        lambda: store.delete_thread("a"),
    ]
    for act in acts if first == "retained" else acts[::-1]:
        act()
    store.compact()
    assert found(store.path, secret) == 0


def test_text_is_gone_when_owner_and_borrower_have_both_gone_on(store: statelog.Store) -> None:
    secret = SECRETS["shared leaf"]
    for name in "ab":
        put(store, name, secret).commit({"notes": {"value": "another"}})
    store.prune(keep_last=1)
    assert found(store.path, secret)  # thread by thread it may not be taken (V2)
    report = store.compact()
    assert report.vacuumed_nodes > 0
    assert found(store.path, secret) == 0


def test_a_fork_keeps_text_until_its_thread_is_deleted(store: statelog.Store) -> None:
    secret = SECRETS["string in pieces"]
    thread = put(store, "a", secret)
    side = thread.fork("side", update={"log": ["x"]})
    thread.commit({"notes": {"value": "another"}})
    store.prune(keep_last=1)
    store.compact()
    assert side.state["notes"]["value"] == secret
    store.delete_thread("a")
    store.compact()
    assert found(store.path, secret) == 0


@pytest.mark.slow
@pytest.mark.parametrize("owner_goes", [True, False])
def test_pieces_that_the_borrower_went_on_from_are_nobodys(store: statelog.Store, *, owner_goes: bool) -> None:
    """The borrowed long text is gone. A longer text that shares its pieces is the state of another thread."""
    begin = text(6, 80_000)
    threads = {name: store.thread(name, schema=SCHEMA) for name in "ab"}
    for thread in threads.values():
        thread.commit({"text": begin})
    owner, borrower = threads.values()
    borrower.commit({"text": "end"})
    owner.commit({"text": reducers.Overwrite("another")})
    if owner_goes:
        store.delete_thread("a")
    store.prune(keep_last=1)
    assert store.compact().vacuumed_nodes > 0
    for number in range(3):  # the record of the borrowing is gone now
        borrower.commit({"log": [number]})
        if not owner_goes:
            owner.commit({"log": [number]})
        store.prune(keep_last=1)
        store._engine.cache.clear()
        assert borrower.state["text"] == begin + "end"
        store.compact()
    store.delete_thread("b")
    store.compact()
    assert found(store.path, begin) == 0


@pytest.fixture
def half_swept(store: statelog.Store) -> Callable[..., tuple[statelog.Thread, str]]:
    """Return a function that makes a thread `b` with a long text, and returns both.

    The last piece of the text is in a swept record of the thread `a`. The other pieces are in the record of a version
    that is tagged, and therefore not swept.
    """

    def make(*, goes_on: bool) -> tuple[statelog.Thread, str]:
        begin = text(6, 60_000)
        owner, borrower = (store.thread(name, schema=SCHEMA) for name in "ab")
        owner.commit({"text": begin})
        owner.tag("kept")
        owner.commit({"text": "end"})
        borrower.commit({"text": begin + "end"})
        owner.commit({"text": reducers.Overwrite("another")})
        owner.commit({"log": [1]})
        if goes_on:
            borrower.commit({"text": "more"})
        store.prune(keep_last=1)
        return borrower, begin + "end" + "more" * goes_on

    return make


@pytest.mark.parametrize("goes_on", [False, True])
@pytest.mark.parametrize("sweeps", [0, 1, 2])
@pytest.mark.parametrize("owner_goes", ["deleted", "untagged"])
def test_text_stays_when_the_owner_of_its_beginning_goes(
    store: statelog.Store, half_swept: Any, tmp_path: Path, *, goes_on: bool, sweeps: int, owner_goes: str
) -> None:
    borrower, whole = half_swept(goes_on=goes_on)
    for _sweep in range(sweeps):
        store.compact()
    if owner_goes == "deleted":
        store.delete_thread("a")
    else:
        store.thread("a").untag("kept")
        store.prune(keep_last=1)
    assert store.verify().problems == []
    store._engine.cache.clear()
    assert borrower.state["text"] == whole
    with (tmp_path / "stream").open("w+b") as stream, statelog.open(tmp_path / "copy.state") as copy:
        store.export(stream)
        stream.seek(0)
        copy.import_(stream)
        assert copy.verify().problems == []
        assert copy.thread("b").state["text"] == whole
    store.compact()
    store._engine.cache.clear()
    assert borrower.state["text"] == whole
    store.delete_thread("b")
    store.compact()
    assert found(store.path, whole) == 0


@pytest.mark.parametrize("goes_on", [False, True])
def test_text_stays_when_a_copy_of_its_owner_returns_its_loan(
    store: statelog.Store, half_swept: Any, monkeypatch: pytest.MonkeyPatch, *, goes_on: bool
) -> None:
    """The copy is there when the sweep decides which owners have to lend their nodes to everybody."""
    prune = store.prune

    def copy_first(**rules: Any) -> Any:
        store.copy_thread("a", "copy")
        return prune(**rules)

    with monkeypatch.context() as patch:
        patch.setattr(store, "prune", copy_first)
        borrower, whole = half_swept(goes_on=goes_on)
    store.compact()
    store.delete_thread("copy")
    store.delete_thread("a")
    assert store.verify().problems == []
    store._engine.cache.clear()
    assert borrower.state["text"] == whole
    store.delete_thread("b")
    store.compact()
    assert found(store.path, whole) == 0


def test_without_a_loan_the_beginning_of_the_text_would_be_lost(
    store: statelog.Store, half_swept: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Negative control. It repairs the store by deleting the thread that lost a part of its text."""
    half_swept(goes_on=False)
    with monkeypatch.context() as patch:
        patch.setattr(sweep._Sweep, "lend", lambda *_arguments: None)
        store.compact()
    store.delete_thread("a")
    assert {problem.invariant for problem in store.verify().problems} == {"T5"}
    store.delete_thread("b")
    store.compact()


def test_a_sweep_lends_for_records_that_an_earlier_build_left_without_owner(
    store: statelog.Store, half_swept: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    borrower, whole = half_swept(goes_on=False)
    with monkeypatch.context() as patch:
        patch.setattr(sweep._Sweep, "lend", lambda *_arguments: None)
        store.compact()
    store.compact()
    store.delete_thread("a")
    assert store.verify().problems == []
    store._engine.cache.clear()
    assert borrower.state["text"] == whole


@pytest.mark.parametrize("owner_goes", ["deleted", "goes on"])
def test_records_without_owner_lead_to_no_removed_node(store: statelog.Store, owner_goes: str, tmp_path: Path) -> None:
    """A swept record has a borrowed text, and beside it a dict of its former owner that leads to an earlier record."""
    owner = put(store, "a", SECRETS["leaf"])
    owner.commit({"notes": {"shared": SECRETS["shared leaf"]}})
    owner.commit({"log": [1]})
    put(store, "b", SECRETS["shared leaf"])
    store.prune(keep_last=1)
    store.compact()
    if owner_goes == "deleted":
        store.delete_thread("a")
    else:
        owner.commit({"notes": reducers.Overwrite({})})
        store.prune(keep_last=1)
    assert store.verify().problems == []
    with (tmp_path / "stream").open("w+b") as stream, statelog.open(tmp_path / "copy.state") as copy:
        store.export(stream)
        stream.seek(0)
        copy.import_(stream)
        assert copy.verify().problems == []
    store.compact()
    assert found(store.path, SECRETS["leaf"]) == 0


def test_repeated_sweeps_add_no_loans(store: statelog.Store, half_swept: Any) -> None:
    half_swept(goes_on=False)
    for _sweep in range(3):
        store.compact()
    assert sum(record.type == "loan" for record in store.log()) == 1


def test_text_borrowed_again_while_the_sweep_goes_on_stays(
    store: statelog.Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """V1: between the marking and the taking another thread commits the very text."""
    secret = SECRETS["string in pieces"]
    for name in "ab":
        put(store, name, secret).commit({"notes": {"value": "another"}})
    store.prune(keep_last=1)
    cut = vacuum.write_in_portions

    def commit_first(*arguments: Any) -> Any:
        put(store, "c", secret)
        return cut(*arguments)

    monkeypatch.setattr(sweep, "write_in_portions", commit_first)
    store.compact()
    store._engine.cache.clear()
    assert store.thread("c").state["notes"]["value"] == secret


@pytest.mark.slow
@pytest.mark.parametrize("cut_at", range(3))
def test_sweep_that_is_cut_short_is_finished_by_the_next(store: statelog.Store, cut_at: int) -> None:
    values = {f"n{number}": text(number, 5_000) for number in range(150)}
    for name in "ab":
        thread = store.thread(name, schema=SCHEMA)
        for key, value in values.items():
            thread.commit({"notes": {key: value}})
    for name in "ab":
        store.delete_thread(name)
    with pytest.raises(CutError), care_cut_at(store, cut_at):
        store.compact()
    assert store.verify().problems == []
    store.compact()
    assert sum(found(store.path, value) for value in values.values()) == 0


def test_without_the_sweep_the_text_would_be_found(store: statelog.Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """Negative control."""
    monkeypatch.setattr(compact, "sweep_store", lambda *_arguments, **_options: RetentionReport())
    for name in "ab":
        put(store, name, SECRETS["shared leaf"])
    for name in "ab":
        store.delete_thread(name)
    store.compact()
    assert found(store.path, SECRETS["shared leaf"]) == len(samples(SECRETS["shared leaf"]))


def test_a_swept_store_goes_through_export_and_import(store: statelog.Store, tmp_path: Path) -> None:
    public = text(9, 80_000)
    for name in "ab":
        store.thread(name, schema=SCHEMA).commit({"text": public})
    store.thread("b").commit({"text": "end"})
    store.prune(keep_last=1)
    store.delete_thread("a")
    store.compact()
    for number, threads in enumerate((None, ["b"])):
        with (tmp_path / "stream").open("wb") as stream:
            store.export(stream, threads=threads)
        with statelog.open(tmp_path / f"copy{number}.state") as copy, (tmp_path / "stream").open("rb") as stream:
            copy.import_(stream)
            assert copy.verify().problems == []
            copy.compact()
            assert copy.thread("b").state["text"] == public + "end"


STEPS = st.lists(
    st.tuples(
        st.sampled_from(["put", "put", "put", "edit", "tag", "retain", "delete", "compact", "rollback"]),
        st.sampled_from("abc"),
        st.integers(0, 3),
    ),
    max_size=25,
)


@pytest.mark.slow
@given(STEPS)
def test_the_states_of_versions_are_unchanged(tmp_path_factory: pytest.TempPathFactory, steps: Any) -> None:
    path = tmp_path_factory.mktemp("sweep") / "a.state"
    alive = {"a", "b", "c"}
    with statelog.open(path, durability="interval") as store:
        expected: dict[tuple[str, int], Any] = {}
        for kind, name, number in steps:
            if name not in alive:
                continue
            thread = store.thread(name, schema=SCHEMA)
            if kind == "put":
                thread.commit({"notes": {f"n{number}": text(number, 40_000), "leaf": text(number, 5_000)}})
            elif kind == "edit":
                thread.commit({"text": text(9, 30_000 * number) if thread.state.get("text") is None else "more"})
            elif kind == "rollback" and thread.head is not None:
                thread.rollback(min(c.version for c in thread.history()))
            elif kind == "tag" and thread.head is not None:
                thread.tag(f"n{number}")
            elif kind == "retain":
                store.prune(keep_last=1 + number, threads=name)
            elif kind == "delete" and thread.head is not None:
                store.delete_thread(name)
                alive.discard(name)
            elif kind == "compact":
                store.compact()
            store._engine.cache.clear()
            there = {
                (each, c.version): c.state.to_python()
                for each in alive
                for c in store.thread(each, schema=SCHEMA).history()
            }
            assert all(expected.get(version, state) == state for version, state in there.items())
            expected = there
            assert store.verify().problems == []
        store.rebuild_index()
        assert store.verify().problems == []


@pytest.mark.soak
def test_a_sweep_takes_some_ten_bytes_of_memory_for_a_record(path: Path) -> None:
    """Three arrays, and one that they are made of; a Python object for each would take a hundred."""

    def peak(engine: Any) -> tuple[int, int]:
        gc.collect()
        tracemalloc.start()
        looked_at = sweep._Sweep(engine)
        found = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        return found, len(looked_at._lsns)

    with statelog.open(path, durability="interval") as store:
        thread = store.thread("a", schema={"items": reducers.extend})
        peaks = []
        for count in (500, 3500):
            for number in range(count):
                thread.commit({"items": [text(number, 900)]})
            store.prune(keep_last=1)
            peaks.append(peak(store._engine))
        (small, few), (large, many) = peaks
        assert many - few > 3000
        assert (large - small) / (many - few) < 80
