from __future__ import annotations

import pytest

from statelog.cli.paths import follow_path, format_path, parse_path
from statelog.errors import NotFoundError, UsageError

STATE = {
    "messages": [{"content": "hello"}, {"content": "bye"}],
    "notes": {"a.b": {"": 1}, "3": "three"},
    "pair": (1, 2),
    "text": "abcdef",
    "tags": {1},
}


@pytest.mark.parametrize(
    ("path", "steps"),
    [
        ("messages", ["messages"]),
        ("messages[3].content", ["messages", 3, "content"]),
        ("messages[-5:]", ["messages", slice(-5, None)]),
        ("a[1:2]", ["a", slice(1, 2)]),
        ('notes["a.b"].x-y', ["notes", "a.b", "x-y"]),
        ('["a \\"quoted\\" key"]', ['a "quoted" key']),
    ],
)
def test_a_path_has_keys_positions_and_slices(path, steps):
    assert parse_path(path) == steps


@pytest.mark.parametrize("path", ["", ".a", "a..b", "a[", "a[x]", "a]b", "a.[0]", 'a["x]', "a[0]b", "a[1:2:3]"])
def test_invalid_paths_are_refused(path):
    with pytest.raises(UsageError, match="is not a path"):
        parse_path(path)


@pytest.mark.parametrize("steps", [("a", 0, "b"), ("a.b", "c d", ""), ("x", "[0]", '"', "3"), ("ü",), (".x",)])
def test_a_written_path_is_read_back(steps):
    assert tuple(parse_path(format_path(steps))) == steps


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("messages[-1].content", "bye"),
        ("messages[0:1]", [{"content": "hello"}]),
        ('notes["a.b"][""]', 1),
        ("notes.3", "three"),
        ("pair[1]", 2),
        ("text[2:4]", "cd"),
    ],
)
def test_a_path_leads_to_a_value(path, value):
    assert follow_path(STATE, path) == value


@pytest.mark.parametrize(
    ("path", "reason"),
    [
        ("nope", "the state .* no key 'nope'; its keys are messages"),
        ("messages[2]", r"messages \(list, 2 items\) has no position 2"),
        ("messages.content", "messages .* no key 'content'"),
        ("notes[0]", "notes .* no position"),
        ("tags[0]", r"tags \(set, 1 item\) has no members"),
        ("pair[0].x", r"pair\[0\] \(int\) has no members"),
    ],
)
def test_a_path_to_a_missing_value_raises_with_its_last_valid_part(path, reason):
    with pytest.raises(NotFoundError, match=reason):
        follow_path(STATE, path)
