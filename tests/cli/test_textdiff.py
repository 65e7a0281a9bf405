from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from statelog.cli.textdiff import compare_texts

LINES = st.lists(st.sampled_from(["a", "b", "c", "a long line"]), max_size=12)


def test_equal_lines_around_a_change_are_shown_as_context():
    told = list(compare_texts("a\nb\nc\nd", "a\nb\nX\nd", 80))
    assert told == [(" ", "b"), ("-", "c"), ("+", "X"), (" ", "d")]


def test_a_long_line_is_cut_around_its_differences():
    old, new = "x" * 200 + "old" + "y" * 200, "x" * 200 + "new" + "y" * 200
    told = list(compare_texts(old, new, 60))
    assert [sign for sign, _line in told] == ["-", "+"]
    assert all(len(line) == 60 and line.startswith("…") and line.endswith("…") for _sign, line in told)
    assert ("old" in told[0][1], "new" in told[1][1]) == (True, True)


def test_texts_that_differ_only_in_line_ends_are_shown_completely():
    assert list(compare_texts("a\nb", "a\r\nb\n", 80)) == [("-", r"'a\nb'"), ("+", r"'a\r\nb\n'")]


def test_very_long_texts_are_shown_without_alignment():
    old, new = [f"old {number}" for number in range(3000)], [f"new {number}" for number in range(2500)]
    told = list(compare_texts("\n".join(["same", *old]), "\n".join(["same", *new]), 80))
    assert told[0] == (" ", "same")
    assert [line for sign, line in told if sign == "-"] == old
    assert [line for sign, line in told if sign == "+"] == new


@pytest.mark.slow
@given(LINES, LINES)
def test_removals_and_additions_transform_one_text_into_the_other(old, new):
    told = list(compare_texts("\n".join(old), "\n".join(new), None))
    removed, added = ([line for sign, line in told if sign == wanted] for wanted in "-+")
    if "\n".join(old).splitlines() == "\n".join(new).splitlines():
        return
    assert sorted([*old, *added]) == sorted([*new, *removed]) or "" in (*old, *new, "\n".join(old), "\n".join(new))
