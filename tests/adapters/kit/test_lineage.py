"""Threads as trees of checkpoints by parent, values as encoded items, and versions that expire one by one."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import statelog
from statelog.adapters.kit import items
from statelog.adapters.kit.lineage import Follows, Lineage
from statelog.adapters.kit.shared_items import Twins
from statelog.errors import ConflictError, CorruptionError, ThreadDeletedError, UsageError
from statelog.format import cbor
from statelog.format.unregistered import Unregistered
from statelog.store.session import session_of


@pytest.fixture
def store(tmp_path):
    with statelog.open(tmp_path / "s", durability="interval") as opened:
        yield opened
        assert opened.verify().ok


def commit(lineage, id, parent=None, line="main", **values):
    writes = [items.put(name, cbor.encode(value)) for name, value in values.items()]
    return lineage.commit(writes, id=id, parent=parent, line=line, fork=f"fork-{id}")


def test_checkpoints_form_lines_and_forks(store):
    lineage = Lineage(store, "t")
    a = commit(lineage, "a", x=1)
    b = commit(lineage, "b", a, x=2)
    c = commit(lineage, "c", a, x=3)
    d = commit(lineage, "d", None, y=4)
    e = commit(lineage, "e", None, line="other", z=5)
    thread = store.thread("t")
    assert [checkpoint.id for checkpoint in thread.history(limit=2)] == ["b", "a"]
    assert thread.at(0).state == {}
    assert (b.branch, c.branch, d.branch, e.branch) == ("main", "fork-c", "fork-d", "other")
    assert c.parent == a
    assert (d.state, e.state) == ({"y": 4}, {"z": 5})
    assert [head.branch for head in lineage.heads()] == ["main", "fork-c", "fork-d", "other"]
    assert lineage.find("c") == c
    assert lineage.find("none") is None
    assert [checkpoint.id for checkpoint in lineage.versions("main", None, 9)] == ["b", "a"]
    assert lineage.versions("main", 2, 9) == [a]
    with pytest.raises(ConflictError) as raised:
        lineage.commit([], id="f", parent=a, line="main", fork="f", at_head=True)
    assert (raised.value.expected_version, raised.value.actual_version) == (1, 2)


def test_a_checkpoint_with_the_same_id_replaces_the_earlier_one(store):
    lineage = Lineage(store, "t")
    a = commit(lineage, "a", x=1)
    b = commit(lineage, "b", a, x=2)
    again = commit(lineage, "b", a, x=3)
    assert lineage.find("b") == again != b
    assert lineage.superseded() == {"b": again.lsn}
    lineage.commit_aside("aside", [], untag=["b"])
    assert lineage.find("b") == b


def test_a_deleted_thread_stays_deleted(store):
    lineage = Lineage(store, "t")
    a = commit(lineage, "a", x=1)
    lineage.commit_aside("aside", [items.put("y", b"\x01")])
    store.delete_thread("t")
    with pytest.raises(ThreadDeletedError):
        commit(lineage, "b", a)
    with pytest.raises(ThreadDeletedError):
        lineage.commit_aside("aside", [])
    assert lineage.heads() == []
    assert lineage.find("a") is None


def test_the_first_value_of_a_write_is_kept(store):
    lineage = Lineage(store, "t")
    for value in (b"\x01", b"\x02"):
        made = lineage.commit_aside("aside", [items.put_once("x", value), items.put("y", value)])
    assert made.state == {"x": 1, "y": 2}
    assert lineage.commit_aside("aside", [items.remove("x")]).state == {"y": 2}


def test_the_first_value_and_a_later_one_can_be_joined(store):
    lineage = Lineage(store, "t")

    def join(held, new):
        return held if held == new else cbor.encode(cbor.decode(held) + cbor.decode(new))

    for value in ("a", "b", "c" * 5000):
        made = lineage.commit_aside("aside", [items.put_once("x", cbor.encode(value), join)])
    assert made.state == {"x": "ab" + "c" * 5000}
    before = made.state_digest
    held = cbor.encode(str(made.state["x"]))
    assert lineage.commit_aside("aside", [items.put_once("x", held, join)]).state_digest == before
    assert store.verify().ok


def test_equal_values_are_stored_as_references(store):
    lineage = Lineage(store, "t")
    text = cbor.encode("x" * 3000)
    lineage.commit_aside("aside", [items.append("list", [text])])
    a = commit(lineage, "a")
    before = store.last_lsn
    for twins in (Twins("aside", [("list", "lisu")]), Twins("nowhere", [("a", "b")]), None):
        lineage.commit([items.append("x", [text])], id=f"{twins}"[:9], parent=a, line="", fork="f", twins=twins)
    sizes = [record.size_bytes for record in store.log(after=before) if record.type == "checkpoint"]
    assert sizes[0] < 600
    assert min(sizes[1:]) > 3000


def test_nodes_stored_by_a_successor_are_referenced(store):
    lineage = Lineage(store, "t")
    text = cbor.encode("x" * 3000)
    a = commit(lineage, "a")
    b = lineage.commit([items.append("x", [text])], id="b", parent=a, line="", fork="f")
    before = store.last_lsn
    for number, followed in enumerate(([a], [b], [])):
        lineage.commit_aside(f"aside {number}", [items.append("list", [text])], followed=followed)
    sizes = [record.size_bytes for record in store.log(after=before) if record.type == "checkpoint"]
    assert sizes[0] < 600
    assert min(sizes[1:]) > 3000
    assert {str(lineage.head(f"aside {number}").state["list"][0]) for number in range(3)} == {"x" * 3000}
    assert store.verify().ok


lists = st.lists(st.integers() | st.text(min_size=40, max_size=90), max_size=90)


@pytest.mark.slow
@settings(max_examples=60, deadline=None)
@given(lists, lists, st.data())
def test_an_edited_list_equals_a_newly_built_list(tmp_path_factory, held, new, data):
    start = data.draw(st.integers(0, len(held)))
    stop = data.draw(st.integers(start, len(held)))
    with statelog.open(tmp_path_factory.mktemp("edit") / "s", durability="interval") as store:
        lineage = Lineage(store, "t")
        made = lineage.commit_aside("b", [items.put("x", cbor.encode(held))])
        assert items.read_list(items.read(made.state)["x"]) == [cbor.encode(value) for value in held]
        edited = lineage.commit_aside("b", [items.edit("x", start, stop, [cbor.encode(value) for value in new])])
        expected = [*held[:start], *new, *held[stop:]]
        assert edited.state == {"x": expected}
        anew = lineage.commit_aside("c", [items.put("x", cbor.encode(expected))])
        assert anew.state_digest == edited.state_digest
        stored = items.read(anew.state)["x"]
        assert items.count(stored) == len(expected)
        known = {}
        for _ in range(2):
            if not isinstance(stored, bytes):
                parts = items.gather(stored, known, list)
                assert [item for part in parts for item in part] == items.read_list(stored)
        assert cbor.decode(items.whole(stored)) == expected
        assert store.verify().ok


channels = st.sampled_from(["a", "b", "c"])
stored_values = st.one_of(
    st.integers(),
    st.text(max_size=300),
    st.dictionaries(st.text(max_size=3), st.text(max_size=90), max_size=3),
    st.lists(st.text(max_size=90), max_size=40),
).map(cbor.encode)
channel_writes = st.one_of(
    st.builds(items.put, channels, stored_values),
    st.builds(items.put_once, channels, stored_values),
    st.builds(items.remove, channels),
    st.builds(lambda text: items.append("list", [cbor.encode(text)]), st.text(max_size=90)),
)


@pytest.mark.slow
@given(st.lists(st.lists(channel_writes, max_size=4), min_size=1, max_size=6))
def test_the_state_after_writes_equals_the_stored_state(tmp_path_factory, commits):
    with statelog.open(tmp_path_factory.mktemp("after") / "s", durability="interval") as store:
        lineage = Lineage(store, "t")
        known, made = {}, None
        for number, writes in enumerate(commits):
            made = lineage.commit(writes, id=f"{number}", parent=made, line="main", fork="f")
            known = items.after(known, writes, made)
            read = items.read(made.state)
            assert {name: items.identity(items.opened(stored)) for name, stored in known.items()} == {
                name: items.identity(stored) for name, stored in read.items()
            }


def test_items_are_checked(store):
    for bad in (b"", b"\x01\x01", b"\xff", b"\x18\x01"):
        for make in (items.put, items.put_once, lambda name, item: items.append(name, [item])):
            with pytest.raises(CorruptionError):
                make("x", bad)
        with pytest.raises(CorruptionError):
            items.edit("x", 0, 0, [b"\x01", bad])
    lineage = Lineage(store, "t")
    lineage.commit_aside("b", [items.put("x", cbor.encode(["a" * 90]))])
    for start, stop in ((0, 2), (2, 2), (1, 0), (-1, 0)):
        with pytest.raises(UsageError, match="'x'"):
            lineage.commit_aside("b", [items.edit("x", start, stop, [])])


def test_keys_of_a_range_are_listed(store):
    names = [f"{number:03}" for number in range(200)]
    made = Lineage(store, "t").commit_aside("b", [items.put(name, b"\x01") for name in (*names, "1", "0100")])
    assert list(items.keys_between(made.state, "010", "020")) == names[10:20]
    assert items.keys_between(made.state, "300", "400") == {}
    assert items.get(made.state, "nothing") is None


@pytest.mark.slow
@pytest.mark.parametrize("count", [0, 1, 3, 40, 2000])
def test_ranges_read_in_sequence_equal_ranges_read_alone(store, count):
    names = [f"{number:04}" for number in range(0, 2 * count, 2)]
    made = Lineage(store, "t").commit_aside("b", [items.put(name, cbor.encode(name)) for name in names])
    ranges = items.Ranges(made.state)
    chance = random.Random(count)
    for number in [*range(2 * count + 3, -3, -1), *(chance.randrange(2 * count + 3) for _ in range(200))]:
        first, last = f"{max(number, 0):04}", f"{max(number, 0) + chance.randrange(9):04}"
        expected = items.keys_between(made.state, first, last)
        assert list(ranges.between(first, last).items()) == list(expected.items())
        assert list(expected) == [name for name in names if first <= name < last]


def test_a_parent_is_found_by_id_and_by_search_alike(store):
    lineage = Lineage(store, "t")
    a = commit(lineage, "a", x=1)
    b = commit(lineage, "b", a, x=2)
    c = commit(lineage, "c", b, x=3)
    other = commit(lineage, "other", a, x=4)
    assert lineage.find_parent(c, "b", {}) == b
    assert lineage.find_parent(other, "a", {}) == a
    assert lineage.find_parent(c, "other", {}) == other
    assert lineage.find_parent(c, "none", {}) is None
    assert lineage.find_parent(a, "b", {}) == b
    again = commit(lineage, "b", a, x=5)
    assert lineage.find_parent(c, "b", lineage.superseded()) == again == lineage.find("b")
    last = commit(lineage, "d", again, x=6)
    assert lineage.find_parent(last, "b", lineage.superseded()) == again


def test_an_item_of_a_codec_is_decoded():
    prefix = items.codec_prefix("name")
    for payload in (b"", b"x" * 23, b"x" * 24, b"x" * 300, b"x" * 70_000):
        item = items.wrap(prefix, payload)
        assert items.unwrap(prefix, item) == payload
        assert cbor.decode(item, loosely=True) == Unregistered("name", payload)


def test_versions_expire_one_by_one(store):
    thread = store.thread("t")
    made = [thread.commit({"x": f"{number}" * 900}) for number in range(10)]
    fork = thread.fork("f", at=3)
    thread.tag("kept", 4)
    report = store.expire([made[number] for number in (1, 3, 4, 6, 9)])
    assert report.expired_versions == 2
    assert [checkpoint.version for checkpoint in thread.history()][::-1] == [0, 2, 3, 4, 5, 7, 8, 9]
    assert fork.head.state["x"] == "3" * 900
    assert [checkpoint.state["x"][0] for checkpoint in thread.history()] == list("98754320")
    assert store.expire([]).expired_versions == 0


@pytest.mark.slow
@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(st.booleans(), st.sampled_from(["a", "b", "b/c", "c", "d"]), st.booleans()), max_size=12))
def test_a_taken_id_is_known_even_if_another_process_committed_it(tmp_path_factory, commits):
    with statelog.open(tmp_path_factory.mktemp("ids") / "s", durability="interval") as store:
        lineages = Lineage(store, "t"), Lineage(store, "t")
        last, again = {}, {}
        for number, (which, id, is_aside) in enumerate(commits):
            lineage = lineages[which]
            if is_aside:
                lineage.commit_aside("aside", [items.put("x", cbor.encode(number))])
            made = lineage.commit([items.put("x", cbor.encode(number))], id=id, parent=None, line="main", fork="f")
            if id in last:
                again[id] = made.lsn
            last[id] = made.lsn
        assert lineages[0].superseded() == again
        for id, lsn in last.items():
            assert lineages[1].find(id).lsn == lsn


def test_a_failed_side_branch_is_not_mistaken_for_a_later_one_with_its_number(store):
    lineage = Lineage(store, "t")
    a = lineage.commit([items.put("x", b"\x01")], id="a", parent=None, line="main", fork="f")
    work = lineage.aside("writes", [items.put("y", b"\x02")], followed=[a])

    def fail(batch):
        work(batch)
        raise RuntimeError

    with pytest.raises(RuntimeError):
        session_of(store).write(fail)
    b = lineage.commit([items.put("x", b"\x02")], id="b", parent=a, line="main", fork="f")
    lineage.commit([items.put("x", b"\x03")], id="c", parent=a, line="main", fork="f")
    for _ in range(3):
        made = lineage.commit_aside("writes", [items.put("y", b"\x04")], followed=[b])
        assert made.branch == "writes"
        assert made.state == {"y": 4}
    assert lineage.find("c").branch == "f"
    assert lineage.find("c").state == {"x": 3}


def test_a_write_to_a_deleted_thread_is_refused_even_if_the_id_is_used_again(store):
    lineage = Lineage(store, "t")
    lineage.commit([], id="a", parent=None, line="main", fork="f")
    store.delete_thread("t")
    now = Follows(2**62, None)
    b = lineage.commit([], id="b", parent=None, line="main", fork="f", follows=now)
    for _ in range(2):
        lineage.commit_aside("writes", [items.put("x", b"\x01")], followed=[b], follows=[now])
    with pytest.raises(ThreadDeletedError):
        lineage.commit_aside("writes", [items.put("x", b"\x02")], followed=[b], follows=[now, Follows(None, "a")])
    assert lineage.head("writes").state == {"x": 1}
