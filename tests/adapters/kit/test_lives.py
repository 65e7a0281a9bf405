"""Names that are used again after the deletion of their threads."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest

import statelog
from statelog import reducers
from statelog.adapters.kit import parts, pieces
from statelog.adapters.kit.directory import Directory
from statelog.adapters.kit.lives import forget, gone, write
from statelog.errors import BranchNotFoundError

SCHEMA = {"items": reducers.extend}


@pytest.fixture
def store(path):
    with statelog.open(path, durability="interval") as opened:
        yield opened
        assert opened.verify().ok


def add(within, item, **where):
    return write(within, "t", SCHEMA, lambda thread: thread.commit({"items": [item]}), **where)


def test_a_deleted_id_can_be_used_again(store):
    for number in range(3):
        add(store, number)
        assert store.thread("t").state["items"] == [number]
        assert gone(store, "t")
        assert not gone(store, "t")


def test_the_memory_of_a_thread_is_dropped(store):
    forget(store, "t")
    for number in range(3):
        add(store, number)
    forget(store, "t")
    assert [made.version for made in store.thread("t").history()] == [2]
    assert store.thread("t").state["items"] == [0, 1, 2]


@pytest.mark.parametrize("kind", ["parts", "pieces"])
def test_a_version_is_not_built_from_a_version_of_the_deleted_thread(store, kind, monkeypatch):
    def write(name):
        if kind == "parts":
            parts.put(store, "t", parts.cut({"by": name, "list": [f"{name}{n}" for n in range(4)]}))
        else:
            text = ",".join(f'{{"{name}": {n}}}' for n in range(4))
            pieces.Pieces().write(store, "t", text.encode(), lambda _tx, _id: None)

    def meanwhile(*arguments):
        result = before(*arguments)
        if not done:
            done.append(1)
            gone(store, "t")
            for _ in range(2):
                write("other")
        return result

    write("old")
    write("older")
    done = []
    if kind == "parts":
        before = parts._differences
        monkeypatch.setattr(parts, "_differences", meanwhile)
    else:
        before = pieces._split
        monkeypatch.setattr(pieces, "_split", meanwhile)
    write("last")
    state = store.thread("t").state
    if kind == "parts":
        assert parts.join(state) == {"by": "last", "list": [f"last{n}" for n in range(4)]}
    else:
        assert b"other" not in b"".join(state[pieces.CHANNEL].to_python())


def test_a_deleted_id_can_be_used_again_in_a_transaction(store):
    add(store, 1)
    gone(store, "t")
    with store.transaction() as tx:
        add(tx, 2)
        add(tx, 3)
    assert store.thread("t").state["items"] == [2, 3]


def test_a_branch_of_a_deleted_thread_does_not_exist(store):
    add(store, 1)
    store.thread("t").fork("b")
    gone(store, "t")
    with pytest.raises(BranchNotFoundError):
        add(store, 2, branch="b")


def test_concurrent_writes_and_deletions_lose_no_later_write(path):
    with statelog.open(path, durability="interval") as store, ThreadPoolExecutor(4) as pool:

        def work(number):
            for turn in range(40):
                if number == 0:
                    gone(store, "t")
                else:
                    add(store, (number, turn))

        for done in [pool.submit(work, number) for number in range(4)]:
            done.result()
        add(store, "last")
        assert store.thread("t").state["items"][-1] == "last"
        assert store.verify().ok


def test_a_directory_has_the_listed_entries(store):
    directory = Directory("x:directory")
    assert directory.all(store) == {}
    with store.transaction() as tx:
        directory.put(tx, {"b": {"z": 1, "a": 2}, "a": None})
    directory.put(store, {"c": 1})
    assert list(directory.all(store)) == ["a", "b", "c"]
    assert list(directory.get(store, "b")) == ["z", "a"]
    directory.remove(store, "a", "b", "unknown")
    assert directory.all(store) == {"c": 1}
    assert directory.get(store, "a") is None


def test_a_directory_can_have_names_of_any_length(store):
    directory, names = Directory("x:directory"), ["~", "a~b", "x" * 5000, "x" * 5001, "é" * 300, "short"]
    directory.put(store, {name: number for number, name in enumerate(names)})
    assert directory.all(store) == {name: number for number, name in enumerate(names)}
    assert [directory.get(store, name) for name in names] == [*range(6)]
    directory.remove(store, *names[:5])
    assert directory.all(store) == {"short": 5}


def test_removing_a_name_from_a_missing_directory_is_allowed(store):
    Directory("x:directory").remove(store, "a")
    assert Directory("x:directory").all(store) == {}
