"""Intact and damaged pages of LMDB's file, and the guarantees for a page that passes the checks."""

from __future__ import annotations

import gc
import mmap
import struct
import sys
from contextlib import contextmanager

import lmdb
import pytest
from corruption_pages import PageMap
from hypothesis import given
from hypothesis import strategies as st

import statelog
from statelog.kernels import (
    NODE_LONG,
    PAGE_BRANCH,
    PAGE_FREE,
    PAGE_LEAF,
    PAGE_OWN,
    PageReader,
    address_of,
    new_seen,
    page_in_use,
)
from statelog.storage.file.preopen_checks import read_live_meta

PAGE = 4096


def pages_of(path, pairs):
    """Have LMDB write a table, and return its pages by number."""
    options = {"subdir": False, "map_size": 1 << 26, "sync": False}
    with lmdb.open(str(path), **options) as environment, environment.begin(write=True) as transaction:
        for key, value in pairs:
            transaction.put(key, value)
    data = path.read_bytes()
    return [data[at : at + PAGE] for at in range(0, len(data), PAGE)]


def look(page, **options):
    reader = PageReader(memoryview(page), len(page))
    try:
        return reader.read(0, **options)
    finally:
        reader.close()


def kind_of(page):
    return struct.unpack_from("=H", page, 10)[0]


def damage(page, at, new):
    return page[:at] + new + page[at + len(new) :]


@pytest.fixture(scope="module")
def pages(tmp_path_factory):
    pairs = [(b"key %04d" % n * (1 + n % 3), b"value" * (n % 40)) for n in range(2000)]
    pairs.append((b"long", bytes(50_000)))
    return pages_of(tmp_path_factory.mktemp("lmdb") / "file", pairs)


@pytest.fixture(scope="module")
def leaf(pages):
    return next(page for page in pages if kind_of(page) == PAGE_LEAF and b"long" not in page)


@pytest.fixture(scope="module")
def branch(pages):
    return next(page for page in pages if kind_of(page) == PAGE_BRANCH)


def test_files_written_by_lmdb_are_sound(pages):
    for number, page in enumerate(pages):
        if kind_of(page) in (PAGE_BRANCH, PAGE_LEAF):
            facts = look(page, lists_all=True)
            assert facts.fault == ""
            assert facts.number == number
            assert len(facts.nodes) == facts.node_count


def test_nodes_lie_where_lmdb_put_them(pages):
    found = {}
    for page in pages:
        if kind_of(page) == PAGE_LEAF:
            for node in look(page, lists_all=True).nodes:
                key = page[node.key_at : node.key_at + node.key_size]
                found[key] = page[node.data_at : node.data_at + node.value] if not node.flags else node
    assert found[b"key 0007" * 2] == b"value" * 7
    assert (found[b"long"].flags, found[b"long"].value) == (NODE_LONG, 50_000)
    assert len(found) == 2001


def test_of_a_leaf_only_nodes_with_flags_are_listed_unless_asked(pages):
    listed = [node for page in pages if kind_of(page) == PAGE_LEAF for node in look(page).nodes]
    assert [node.flags for node in listed] == [NODE_LONG]


@pytest.mark.parametrize(
    ("at", "new", "fault"),
    [
        (10, b"\x04", "type"),
        (12, b"\x11", "bounds"),
        (12, b"\x10\x00", "bounds"),
        (12, struct.pack("=H", PAGE), "bounds"),
        (14, struct.pack("=H", PAGE + 2), "bounds"),
        (16, b"\x01\x00", "outside"),
        (16, struct.pack("=H", PAGE - 2), "outside"),
    ],
)
def test_a_header_or_pointer_that_cannot_be_is_named(leaf, at, new, fault):
    assert fault in look(damage(leaf, at, new)).fault


def test_a_node_less_or_one_twice_is_named(leaf):
    (lower,) = struct.unpack_from("=H", leaf, 12)
    assert "bounds" in look(damage(leaf, 12, struct.pack("=H", lower - 2))).fault
    assert "order" in look(damage(leaf, 18, leaf[16:18])).fault


def test_keys_that_do_not_ascend_or_leave_the_bounds_are_named(leaf, branch):
    nodes = look(leaf, lists_all=True).nodes
    first, last = (leaf[node.key_at : node.key_at + node.key_size] for node in (nodes[0], nodes[-1]))
    assert look(leaf, low=first, high=last + b"\0").fault == ""
    assert "order" in look(leaf, low=first + b"\0").fault
    assert "order" in look(leaf, high=last).fault
    assert "order" in look(damage(leaf, nodes[3].key_at, b"\xff")).fault
    inner = look(branch).nodes[2]
    assert "order" in look(damage(branch, inner.key_at, b"\xff")).fault


def test_the_first_key_of_a_branch_page_may_be_anything(branch):
    first = look(branch).nodes[0]
    changed = damage(branch, first.key_at, b"\xff" * first.key_size)
    assert look(changed).fault == ""


def test_integer_keys_are_compared_as_integers():
    def integers(*numbers):
        nodes = [struct.pack("=IHH", 8, 0, 8) + struct.pack("=QQ", number, 0) for number in numbers]
        upper = PAGE - 24 * len(nodes)
        pointers = b"".join(struct.pack("=H", upper + 24 * index) for index in range(len(nodes)))
        head = struct.pack("=QHHHH", 0, 0, PAGE_LEAF, 16 + len(pointers), upper)
        return (head + pointers).ljust(upper, b"\0") + b"".join(nodes)

    page = integers(1, 2, 256)
    assert look(page, has_integer_keys=True).fault == ""
    assert "order" in look(page).fault, "as bytes they are in another order"
    assert "order" in look(integers(1, 256, 2), has_integer_keys=True).fault
    assert "outside" in look(damage(page, PAGE - 18, b"\x07"), has_integer_keys=True).fault


@given(st.data())
def test_any_flipped_bit_is_named_or_leaves_the_search_unchanged(leaf, data):
    """If a page passes in spite of a flip, its keys and the places of their values are unchanged, except for bytes of
    keys.

    A key may also include the byte that pads its node to an even size. Its seal or the order of the log shows that.
    """
    at = data.draw(st.integers(12, len(leaf) - 1))
    flipped = damage(leaf, at, bytes([leaf[at] ^ 1 << data.draw(st.integers(0, 7))]))
    facts = look(flipped, lists_all=True)
    if not facts.fault:
        for found, before in zip(facts.nodes, look(leaf, lists_all=True).nodes, strict=True):
            if found.key_size == before.key_size + 1 and (before.key_size + before.value) % 2:
                found = found._replace(key_size=before.key_size, data_at=before.data_at)
            assert found[1:] == before[1:]


def test_a_key_that_takes_the_padding_of_its_node_passes(leaf):
    """The exception of the test above exists. If this was noticed, that test could be stricter."""
    nodes = look(leaf, lists_all=True).nodes
    odd = next(node for node in nodes if (node.key_size + node.value) % 2)
    grown = look(damage(leaf, odd.key_at - 2, bytes([odd.key_size + 1])), lists_all=True)
    assert not grown.fault
    assert [node.key_size for node in grown.nodes] != [node.key_size for node in nodes]


# --- the free list ------------------------------------------------------------------


@contextmanager
def mapped(data):
    """Yield a function that returns whether a page is free."""
    with mmap.mmap(-1, len(data)) as memory:
        memory[:] = data
        view = memoryview(memory)
        start = address_of(view)

        def is_free_there(transaction_id, number):
            with view[number * PAGE + 32 : number * PAGE + 40] as lent:
                return page_in_use(lent, PAGE, start, transaction_id, new_seen(), may_be_own=False) == PAGE_FREE

        yield is_free_there
        view.release()
        gc.collect()  # cffi's buffer holds the map


def is_free(data, transaction_id, number):
    with mapped(data) as is_free_there:
        return is_free_there(transaction_id, number)


@pytest.fixture(scope="module", params=[300, 300_000])
def churned(request, tmp_path_factory):
    """A store that has many free pages: its bytes without the reserve behind them, and the id of its last commit."""
    path = tmp_path_factory.mktemp("churned") / "agent.state"
    with statelog.open(path) as store:
        thread = store.thread("t")
        for number in range(40):
            thread.commit({f"x{number % 7}": "x" * request.param})
        store.prune(keep_last=1)
    with path.open("rb") as file:
        meta = read_live_meta(file.fileno(), path)
    return path.read_bytes()[: (meta.last_page + 1) * PAGE], meta.transaction_id


def free_pages(data):
    """Return the numbers of the free pages, by a walk over all pages."""
    offsets = PageMap(data).offsets()
    return {at // PAGE for place, found in offsets.items() if str(place).startswith("free page") for at in found}


@pytest.mark.slow
def test_exactly_the_pages_of_the_free_list_are_free(churned):
    data, transaction_id = churned
    free = free_pages(data)
    assert len(free) > 5
    with mapped(data) as is_free_there:
        found = {number for number in range(len(data) // PAGE) if is_free_there(transaction_id, number)}
    assert found == free


@pytest.mark.slow
def test_the_page_of_a_value_lent_by_lmdb_is_free_or_in_use(churned):
    data, transaction_id = churned
    with mmap.mmap(-1, len(data)) as memory:
        memory[:] = data
        view = memoryview(memory)
        start = address_of(view)

        def found(number, *, map_address=start, may_be_own=False, seen=None):
            lent = view[number * PAGE + 32 : number * PAGE + 40]
            seen = seen or new_seen()
            number = page_in_use(lent, PAGE, map_address, transaction_id, seen, may_be_own=may_be_own)
            lent.release()
            return number

        pages = range(len(data) // PAGE)
        free = free_pages(data)
        assert {number for number in pages if found(number) == PAGE_FREE} == free
        assert all(found(number) == number for number in pages if number not in free)
        borne = {number: int.from_bytes(data[number * PAGE :][:8], sys.byteorder) for number in pages}
        for number in free:
            assert found(number, map_address=0) in (borne[number], PAGE_OWN), "nothing can be told"
            assert found(number, map_address=0, may_be_own=True) == PAGE_OWN
            assert found(number, may_be_own=True) == (PAGE_FREE if borne[number] == number else PAGE_OWN)
        seen = new_seen()
        for _again in range(2):  # the second time, the cache has the pages in use
            assert {number for number in pages if found(number, seen=seen) == PAGE_FREE} == free
        view.release()
        gc.collect()  # cffi's buffer holds the map


@pytest.mark.slow
def test_a_page_that_was_in_use_in_one_commit_is_looked_for_in_the_next(churned):
    data, transaction_id = churned
    with mmap.mmap(-1, len(data)) as memory:
        memory[:] = data
        view = memoryview(memory)
        start = address_of(view)
        number = min(free_pages(data))
        lent, seen = view[number * PAGE + 32 : number * PAGE + 40], new_seen()
        # The free list of these commits is not known, so the page counts as in use.
        for earlier in (transaction_id - 1, transaction_id + 1):
            assert page_in_use(lent, PAGE, start, earlier, seen, may_be_own=False) == number
        assert page_in_use(lent, PAGE, start, transaction_id, seen, may_be_own=False) == PAGE_FREE
        lent.release()
        view.release()
        gc.collect()


@pytest.mark.slow
def test_it_is_told_of_the_last_commit_alone(churned):
    data, transaction_id = churned
    number = min(free_pages(data))
    assert is_free(data, transaction_id, number)
    assert not is_free(data, transaction_id - 1, number)
    assert not is_free(data, transaction_id + 1, number)
    at = (~transaction_id & 1) * PAGE + 144
    later = data[:at] + struct.pack("=Q", transaction_id + 1) + data[at + 8 :]
    assert not is_free(later, transaction_id, number)
