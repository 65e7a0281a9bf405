from __future__ import annotations

import json
import math
from datetime import UTC, date, datetime
from decimal import Decimal
from uuid import UUID

import pytest

from statelog.cli.values import describe, dump_json, from_json, render, to_json
from statelog.errors import UsageError

VALUES = {
    "none": None,
    "flag": True,
    "number": 7,
    "huge": -(2**100),
    "ratio": 1.5,
    "missing": float("nan"),
    "endless": float("-inf"),
    "text": "grün",
    "raw": b"\x00\xff",
    "pair": (1, "x"),
    "tags": {"b", "a"},
    "frozen": frozenset({1, 2}),
    "when": datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC),
    "who": UUID(int=1),
    "price": Decimal("1.10"),
    "tricky": {"$bytes": "no bytes"},
    "nested": {"list": [(1,), {"k": b"v"}]},
}
"""One value of each type that can be stored."""


@pytest.mark.parametrize("name", [name for name in VALUES if name != "missing"])
def test_every_type_survives_the_way_through_json(name):
    value = VALUES[name]
    back = from_json(json.loads(dump_json(to_json(value))))
    assert back == value
    assert type(back) is type(value)


def test_nan_survives_the_way_through_json():
    assert math.isnan(from_json(json.loads(dump_json(to_json(math.nan)))))


def test_json_holds_no_character_a_terminal_obeys():
    text = dump_json({"x": "\x1b\x7f\x9b\u202e\n"})
    assert text.isascii()
    assert text.isprintable()


def test_an_object_of_a_codec_is_shown_by_its_repr():
    assert to_json(range(3)) == {"$repr": "range(0, 3)"}


@pytest.mark.parametrize(
    ("value", "document"),
    [
        (date(2020, 2, 3), {"$date": "2020-02-03"}),
        (1j, {"$complex": [0.0, 1.0]}),
        ({1: {b"x"}}, {"$pairs": [1, {"$set": [{"$bytes": "eA=="}]}]}),
    ],
)
def test_everyday_values_pass_through_json(value, document):
    assert to_json(value) == document
    assert from_json(json.loads(dump_json(document))) == value


def test_a_dict_with_other_keys_is_rendered_as_python_writes_it():
    assert render({1: "x", (2, "y"): None}, 80) == "{1: 'x', (2, 'y'): None}"


@pytest.mark.parametrize("document", [{"$what": 1}, {"$bytes": "?"}, {"$set": [[1]]}, {"$uuid": 3}, {"$decimal": "x"}])
def test_json_that_means_no_value_is_refused(document):
    with pytest.raises(UsageError, match=r"\$"):
        from_json({"inside": [document]})


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("a'b", '"a\'b"'),
        ((1,), "(1,)"),
        ({"b", "a"}, "{'a', 'b'}"),
        (set(), "set()"),
        (frozenset({2, 1}), "frozenset(1, 2)"),
        ({"k": [1.0, None]}, "{'k': [1.0, None]}"),
        (VALUES["when"], "datetime(2026-01-02T03:04:05+00:00)"),
        (VALUES["who"], "uuid(00000000-0000-0000-0000-000000000001)"),
        (VALUES["price"], "decimal(1.10)"),
        ("\x1b[2J", r"'\x1b[2J'"),
    ],
)
def test_values_are_shown_as_python_writes_them(value, text):
    assert render(value, 100) == text


def test_a_rendered_value_is_never_longer_than_asked():
    assert render(list(range(1000)), 10) == "[0, 1, 2,…"


def test_only_the_shown_part_of_a_large_value_is_read():
    class Endless(list):
        def __iter__(self):
            while True:
                yield 7

    assert len(render(Endless([1]), 50)) == 50


def test_an_int_python_refuses_to_write_is_shown_in_hexadecimal():
    assert render(1 << 100_000, 20).startswith("0x1000")


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "none"),
        ("abc", "text, 3 characters"),
        (b"abc", "bytes, 3"),
        ([1], "list, 1 item"),
        ({"k": 1, "l": 2}, "dict, 2 keys"),
        ((), "tuple, 0 items"),
        (1.5, "float"),
        (VALUES["price"], "decimal"),
    ],
)
def test_a_description_has_type_and_size(value, text):
    assert describe(value) == text
