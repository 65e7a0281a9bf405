"""Python calls of an operation, and the files they are in: counts that do not depend on the machine."""

from __future__ import annotations

import subprocess
import sys
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from threading import Thread
from time import sleep

import pytest

import statelog
from statelog import reducers
from statelog.storage.file import file_identity

PACKAGE = str(Path(statelog.__file__).parent)
GROWTH_MAX = 1.05
ENTRIES = 100
CHAT_TURNS = 5
AGE_COMMITS = 300

# Functions called, and files of these. Lower a number when it shrinks.
PINNED = {
    "commit": (51, 22),
    "commit after another process's, to another thread": (62, 26),
    "commit after another process's, to the same thread": (75, 29),
    "board.set": (52, 23),
    "board.get": (14, 10),
    "board.list, an entry": (0.63, 16),
    "state[...]": (13, 8),
    "search, ten hits": (278, 20),
    "search, ten hits after a commit": (619, 24),
    "StatelogSaver.put": (130, 46),
    "StatelogSaver.put_writes": (106, 37),
    "StatelogSaver.put with what a task has written": (180, 48),
    "StatelogSaver.get_tuple": (139, 25),
}

OTHER = """
import statelog, sys
with statelog.open(sys.argv[1], durability="interval") as store:
    for line in sys.stdin:
        store.thread(line.strip()).commit({"n": 1})
        print("done", flush=True)
"""


@pytest.fixture(autouse=True)
def without_timed_checks(monkeypatch):
    """On a busy machine, more than `LOOK_S` passes between two reads, and every read checks the path of the file."""
    monkeypatch.setattr(file_identity, "LOOK_S", 3600.0)


def counted(operation):
    """Return how many functions of statelog an operation calls, and in how many files, without comprehensions."""
    calls = []

    def note(frame, event, _argument):
        code = frame.f_code
        if event == "call" and code.co_filename.startswith(PACKAGE) and not code.co_name.startswith("<"):
            calls.append(code.co_filename)

    sys.setprofile(note)
    try:
        operation()
    finally:
        sys.setprofile(None)
    return len(calls), len(set(calls))


def least(operation, before=lambda: None):
    """Return the least counts of several runs, because some runs do extra work, such as an advance."""
    found = []
    for _ in range(24):
        before()
        found.append(counted(operation))
    return min(found)


def usual(counts):
    """Return the lower quartile of the counts, because some calls also do timed work."""
    return sorted(counts)[len(counts) // 4]


def check(name, found):
    limits = [GROWTH_MAX * count for count in PINNED[name]]
    assert found[0] <= limits[0], f"{name}: {found[0]} calls"
    assert found[1] <= limits[1], f"{name}: {found[1]} files"


@contextmanager
def aged_store(path):
    """Open a new store and age it: the disk reserve of a new store grows with every commit."""
    with statelog.open(path, durability="interval") as opened:
        thread = opened.thread("own")
        for number in range(AGE_COMMITS):
            thread.commit({"n": number})
        yield opened


@pytest.fixture
def store(path):
    with aged_store(path) as opened:
        yield opened


@pytest.fixture
def commit_elsewhere(store):
    """Commits to a thread, in another process."""
    command = [sys.executable, "-c", OTHER, store.path]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:

        def commit(thread_id):
            process.stdin.write(f"{thread_id}\n")
            process.stdin.flush()
            assert process.stdout.readline() == "done\n"

        yield commit
        process.communicate(timeout=60)


def test_a_commit(store):
    thread = store.thread("own")
    check("commit", least(lambda: thread.commit({"n": 1})))


@pytest.mark.slow
@pytest.mark.parametrize(("which", "thread_id"), [("another", "other"), ("the same", "own")])
def test_a_commit_after_another_processs(store, commit_elsewhere, which, thread_id):
    thread = store.thread("own")
    found = least(lambda: thread.commit({"n": 1}), before=lambda: commit_elsewhere(thread_id))
    check(f"commit after another process's, to {which} thread", found)


def test_set_of_an_entry(store):
    board = store.board()
    board.set("key", 0)
    check("board.set", least(lambda: board.set("key", 1)))


def test_get_of_an_entry(store):
    board = store.board()
    board.set("key", 0)
    check("board.get", least(lambda: board.get("key")))


def test_list_of_entries(store):
    board = store.board()
    for number in range(ENTRIES):
        board.set(f"key-{number:03d}", number)
    calls, files = least(lambda: list(board.list()))
    check("board.list, an entry", (calls / ENTRIES, files))


def test_a_value_of_the_state(store):
    thread = store.thread("own")
    check("state[...]", least(lambda: thread.state["n"]))


HITS = 10


@pytest.fixture
def chats(store):
    """Threads of which each has one message that a search for "refund" finds."""
    opened = [store.thread(f"chat-{number}", schema={"messages": reducers.extend}) for number in range(HITS)]
    for chat in opened:
        texts = (f"a {'refund' if number == 7 else 'word'} of many more" * 5 for number in range(200))
        chat.commit({"messages": [{"role": "user", "content": text} for text in texts]})
    return opened


def search(store):
    assert len(store.search("refund")) == HITS


@pytest.mark.usefixtures("chats")
def test_a_search(store):
    search(store)
    check("search, ten hits", least(lambda: search(store)))


def test_a_search_after_a_commit(store, chats):
    for chat in chats:
        chat.commit({"messages": [{"role": "user", "content": "thanks"}]})
    board = store.board()

    def commit():
        board.set("key", 1)
        assert store.search("nothing at all") == []  # Brings the index up to date.

    check("search, ten hits after a commit", least(lambda: search(store), before=commit))


@pytest.fixture(scope="module")
def chat():
    """The calls of a saver that a small chat makes, a graph of two nodes, in the order in which it makes them."""
    pytest.importorskip("langgraph.graph")
    from langgraph.checkpoint.memory import InMemorySaver
    from langgraph.graph import START, MessagesState, StateGraph

    made = []

    class Noting(InMemorySaver):
        def get_tuple(self, *arguments):
            made.append(("get_tuple", arguments))
            return super().get_tuple(*arguments)

        def put(self, *arguments):
            made.append(("put", arguments))
            return super().put(*arguments)

        def put_writes(self, *arguments):
            made.append(("put_writes", arguments))
            return super().put_writes(*arguments)

    builder = StateGraph(MessagesState)
    builder.add_sequence([(name, lambda _state: {"messages": [("ai", "a few words " * 5)]}) for name in ("one", "two")])
    builder.add_edge(START, "one")
    graph = builder.compile(checkpointer=Noting())
    for _ in range(CHAT_TURNS):
        graph.invoke({"messages": [("user", "a question")]}, {"configurable": {"thread_id": "t"}}, durability="sync")
    return made


@pytest.fixture
def saver(store):
    from statelog.adapters.langgraph import StatelogSaver

    return StatelogSaver(store)


def test_the_calls_of_a_small_chat(chat, tmp_path):
    from statelog.adapters.langgraph import StatelogSaver

    rounds = []
    for number in range(3):
        with aged_store(tmp_path / f"{number}.state") as store:
            saver = StatelogSaver(store)
            rounds.append([counted(partial(getattr(saver, name), *arguments)) for name, arguments in chat])
    found = {"get_tuple": [], "put": [], "put_writes": []}
    for (name, _), counts in zip(chat, zip(*rounds, strict=True), strict=True):
        found[name].append(min(counts))  # On a busy machine, one round in a few also does timed work.
    for name, counts in found.items():
        check(f"StatelogSaver.{name}", usual(counts[1:]))


def test_a_put_of_a_small_chat_uses_the_writes_of_its_task(chat, saver, monkeypatch):
    from statelog.adapters.langgraph.saver import write_groups

    monkeypatch.setattr(write_groups, "_PATIENCE_S", 60)
    found = []
    written = None
    for name, arguments in chat:
        if name == "put_writes":
            written = Thread(target=saver.put_writes, args=arguments)
            saver._gatherer._skips = saver._gatherer._skipped = 0
            written.start()
            while not saver._gatherer._patient:
                assert written.is_alive()
                sleep(0.0001)
        elif name == "put":
            counts = counted(lambda arguments=arguments: saver.put(*arguments))
            if written is not None:
                written.join()
                found.append(counts)
            written = None
    check("StatelogSaver.put with what a task has written", usual(found))
