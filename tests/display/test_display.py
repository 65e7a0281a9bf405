"""How threads, checkpoints, differences and views look; none of it may be long, or fail, or run what is stored."""

from __future__ import annotations

import copy
import io
import pickle
import subprocess
import sys
from html.parser import HTMLParser

import pytest
from rich.console import Console
from rich.pretty import pretty_repr

import statelog
from statelog.adapters.kit.packed import Packed

EVIL = "<script>alert('x')</script>\x1b[2J\u202e&"
LINE_MAX = 1200


@pytest.fixture
def thread(store):
    """A thread with a change of every kind."""
    thread = store.thread("chat")
    thread.commit({"plan": "look", "notes": {"a": 1, "b": [1, {"deep": True}]}, "gone": 1})
    thread.commit({"plan": "act", "notes": {"a": 2, "c": None}}, metadata={"node": "act"})
    return thread


@pytest.fixture
def large(store):
    """A thread in which everything is as large as can be."""
    thread = store.thread(EVIL * 5)
    channels = {f"{EVIL}{number}": "x" * 1000 for number in range(300)}
    thread.commit({**channels, EVIL: [EVIL * 1000] * 500, "nested": {"a": {"b": [[[[[[[[[1]]]]]]]]]}}, "int": 7**9000})
    thread.commit(
        {
            EVIL: {EVIL * 5 + str(number): EVIL for number in range(5000)},
            "bytes": b"x" * 100_000,
            "items": list(range(5000)),
        },
        metadata={EVIL: EVIL * 10},
    )
    return thread


def shown_objects(thread):
    """Return one of each kind."""
    head = thread.head
    return [
        thread,
        head,
        statelog.diff(head.parent, head),
        head.state,
        head.state["items" if "items" in head.state else "notes"],
    ]


def rendered(thing):
    """Return what rich prints of something, to 80 columns without colour."""
    stream = io.StringIO()
    Console(file=stream, width=80).print(thing)
    return stream.getvalue()


class Elements(HTMLParser):
    """The elements of a page, checked to be closed in order, and its text."""

    def __init__(self, page):
        super().__init__()
        self.names, self.text, self._open = [], "", []
        self.feed(page)
        self.close()
        assert self._open == []

    def handle_starttag(self, tag, attrs):
        assert {name for name, _value in attrs} <= {"style", "open"}
        self.names.append(tag)
        self._open.append(tag)

    def handle_endtag(self, tag):
        assert self._open.pop() == tag

    def handle_data(self, data):
        self.text += data


def test_a_repr_shows_the_main_facts(store, thread):
    assert repr(thread) == "<Thread 'chat' branch 'main' version 1: gone, plan, notes>"
    assert repr(thread.at(0)) == f"<Checkpoint 'chat' branch 'main' version 0 id {thread.at(0).id}: gone, plan, notes>"
    assert repr(statelog.diff(*map(thread.at, (0, 1)))) == "<Diff of 4 changes: plan ~1, notes +1 -1 ~1>"
    assert repr(statelog.diff(thread.head, thread.head)) == "<Diff of 0 changes>"
    assert repr(thread.head.state["notes"]) == "{'a': 2, 'c': None}"
    assert repr(store.thread("new")) == "<Thread 'new' branch 'main', empty>"


@pytest.mark.slow
@pytest.mark.parametrize("number", range(5))
def test_a_repr_is_one_bounded_printable_line(large, number):
    line = repr(shown_objects(large)[number])
    assert len(line) < LINE_MAX
    assert line.isprintable()


def test_objects_that_can_no_longer_be_read_have_a_repr(path):
    with statelog.open(path) as store:
        thread = store.thread("t")
        thread.commit({"items": list(range(5000))})
        thread.commit({"items": list(range(4000))})
        things = shown_objects(thread)
    assert repr(things[0]) == "<Thread 't' branch 'main', ClosedError>"
    for thing in things:
        assert "ClosedError" in repr(thing)
        assert "ClosedError" in thing._repr_html_()
        assert "ClosedError" in rendered(thing)


def test_rich_shows_history_differences_and_state(thread):
    history, state, diff, *_views = map(rendered, shown_objects(thread))
    assert ("version" in history, "node='act'" in history) == (True, True)
    assert ("notes  2 keys" in state, "plan: 'act'" in state) == (True, True)
    assert ("what was" in diff, "'look'" in diff, "'act'" in diff, "notes.a" in diff) == (True,) * 4


def test_rich_shows_names_and_values_where_it_writes_a_repr(thread):
    assert pretty_repr(thread) == "Thread(id='chat', branch='main', version=1)"
    assert pretty_repr(thread.at(0)).startswith("Checkpoint(")
    assert "Change(path=('plan',), kind='changed', old='look', new='act')" in pretty_repr(
        statelog.diff(thread.at(0), thread.at(1)), max_width=200
    )


def test_a_notebook_shows_history_differences_and_state(thread):
    history, state, diff, *_views = (Elements(thing._repr_html_()) for thing in shown_objects(thread))
    assert ("table" in history.names, "details" in history.names) == (True, True)
    assert "node='act'" in history.text
    assert ("details" in state.names, "plan: 'act'" in state.text) == (True, True)
    assert ("what waswhat is" in diff.text, "plan'look''act'" in diff.text) == (True, True)
    assert diff.names.count("tr") == 5


@pytest.mark.slow
@pytest.mark.parametrize("number", range(5))
def test_a_page_is_bounded_and_runs_nothing_that_is_stored(large, number):
    page = shown_objects(large)[number]._repr_html_()
    assert len(page) < 200_000
    assert set(Elements(page).names) <= {
        *("div", "code", "details", "summary", "small", "p"),
        *("table", "thead", "tbody", "tr", "th", "td"),
    }
    assert page.isprintable()


@pytest.mark.slow
@pytest.mark.parametrize("number", range(5))
def test_output_of_rich_is_bounded_and_has_no_control_characters(large, number):
    told = rendered(shown_objects(large)[number])
    assert len(told) < 200_000
    assert told.replace("\n", "").isprintable()


def test_square_brackets_are_not_markup(store):
    thread = store.thread("[bold]t")
    thread.commit({"[red]x": "[/red]"})
    assert "[red]x: '[/red]'" in rendered(thread.head)
    assert "[bold]t" in rendered(thread)


@pytest.mark.slow
def test_a_repr_and_a_page_need_no_rich(path):
    code = (
        "import sys; sys.modules['rich'] = None\n"
        "import statelog\n"
        f"store = statelog.open({str(path)!r})\n"
        "thread = store.thread('t'); thread.commit({'x': [1]})\n"
        "print(repr(thread), repr(thread.head), thread.state, thread._repr_html_()[:5])\n"
        "store.close()"
    )
    done = subprocess.run([sys.executable, "-W", "error", "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith(
        "<Thread 't' branch 'main' version 0: x> <Checkpoint 't' branch 'main' version 0 id 2~"
    )


def test_a_change_and_an_entry_with_an_int_too_long_to_write_are_shown(store):
    thread = store.thread("t")
    old, new = thread.commit({"n": 1}), thread.commit({"n": 2**20_000})
    assert repr(list(statelog.diff(old, new))) == "[Change(path=('n',), kind='changed', old=1, new=<int>)]"
    assert "<int>" in repr(store.board().set("k", 2**20_000))


def test_a_packed_value_names_the_way_to_read_it():
    packed = Packed(b"\xa1x")
    with pytest.raises(AttributeError, match=r"What wrote it returns the object, for example graph\.get_state"):
        packed.content  # noqa: B018 - the access raises
    assert not hasattr(packed, "content")
    assert copy.deepcopy(packed) == pickle.loads(pickle.dumps(packed)) == packed
