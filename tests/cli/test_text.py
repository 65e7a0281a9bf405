from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from statelog.cli.text import count, escape, format_age, format_duration, format_size, format_time, parse_size, shorten


@pytest.mark.parametrize(
    ("text", "safe"),
    [
        ("plain", "plain"),
        ("grün 漢字", "grün 漢字"),
        ("\x1b[31mred", r"\x1b[31mred"),
        ("bell\x07 del\x7f", r"bell\x07 del\x7f"),
        ("c1\x9b31m", r"c1\x9b31m"),
        ("line\nline\ttab\r", r"line\nline\ttab\r"),
        ("turned\u202eround", r"turned\u202eround"),
        ("zero\u200bwidth", r"zero\u200bwidth"),
        ("lone\udc80", r"lone\udc80"),
    ],
)
def test_characters_that_steer_a_terminal_are_escaped(text, safe):
    assert escape(text) == safe


def test_line_breaks_are_kept_on_request():
    assert escape("a\n\tb\x1b", keep_lines=True) == "a\n\tb\\x1b"


def test_shortened_text_ends_in_an_ellipsis():
    assert shorten("abcdef", 4) == "abc…"
    assert shorten("abcd", 4) == "abcd"


def test_a_time_written_exactly_is_read_back_exactly():
    time = datetime(2026, 1, 2, 3, 4, 5, 678901, tzinfo=UTC)
    assert format_time(time) == "2026-01-02 03:04:05.678901Z"
    assert datetime.fromisoformat(format_time(time)) == time


@pytest.mark.parametrize(
    ("age_s", "text"),
    [
        (0, "0s ago"),
        (59.9, "59s ago"),
        (60, "1m ago"),
        (7199, "1h ago"),
        (86_400 * 6, "6d ago"),
        (604_800 * 60, "60w ago"),
        (-1, "2026-01-02 00:00:01.000000Z"),
    ],
)
def test_ages_are_rounded_down_and_future_times_are_exact(age_s, text):
    now = datetime(2026, 1, 2, tzinfo=UTC)
    assert format_age(now - timedelta(seconds=age_s), now) == text


@pytest.mark.parametrize(
    ("text", "size"),
    [("1048576", 2**20), ("64M", 2**26), ("64 MiB", 2**26), ("1.5g", 3 * 2**29), ("8 B", 8), ("1K", 1024)],
)
def test_a_size_is_parsed_in_its_printed_and_shorter_forms(text, size):
    assert parse_size(text) == size


@pytest.mark.parametrize("text", ["", "M", "1X", "-1", "1 2", "1MM", "٣"])
def test_texts_that_are_not_sizes_return_none(text):
    assert parse_size(text) is None


@pytest.mark.parametrize(
    ("size", "text"),
    [(0, "0 B"), (999, "999 B"), (4096, "4 KiB"), (1536, "1.5 KiB"), (250_000, "244 KiB"), (2**50, "1024 TiB")],
)
def test_sizes_have_three_digits(size, text):
    assert format_size(size) == text


@pytest.mark.parametrize(("duration", "text"), [(2.345, "2.3 s"), (0.0123, "12.3 ms"), (0.00005, "50 us")])
def test_durations_have_a_unit(duration, text):
    assert format_duration(duration) == text


def test_nouns_agree_with_their_number():
    assert [count(1, "branch"), count(2, "branch")] == ["1 branch", "2 branches"]
    assert count(1200, "record") == "1,200 records"
