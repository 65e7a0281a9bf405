"""The output of every command fits the terminal, or 80 columns without one."""

from __future__ import annotations

import operator
import re

import pytest
from terminals import on_terminal

import statelog
from statelog import reducers
from statelog.cli.output import Output

THREAD = "customer-support/conversation-4711/2026-11-27"
COMMANDS = [
    ["threads"],
    ["threads", "--relative"],
    ["history", THREAD],
    ["history", THREAD, "--relative", "--ids"],
    ["history", THREAD, "--branch", "deeper"],
    ["show", THREAD],
    ["show", THREAD, "--path", "messages"],
    ["diff", THREAD, "0", "deeper"],
    ["tree"],
    ["log"],
    ["log", "--relative"],
    ["tag", THREAD, "--ids"],
    ["stat"],
    ["verify"],
    ["rollback", THREAD, "3"],
    ["fork", THREAD, "another"],
    ["copy", THREAD, "another"],
    ["retain", "--keep-last", "5"],
]
SCHEMA = {"messages": operator.add, "steps": operator.add, "notes": reducers.merge, "plan": reducers.replace}


@pytest.fixture
def wordy(path):
    """A store with long names and values."""
    with statelog.open(path) as store:
        thread = store.thread(THREAD, schema=SCHEMA)
        for step in range(12):
            message = {"role": "assistant", "content": f"message {step}, with quite some text in it " * 5}
            plan = "\n".join(f"{number}. a step of the plan{', done' * (number < step)}" for number in range(8))
            metadata = {"node": "assistant", "step": step, "model": "of-a-very-long-name-2026-11"}
            thread.commit(
                {"messages": [message], "steps": 1, "notes": {f"n{step}": "x" * 99}, "plan": plan}, metadata=metadata
            )
        thread.tag("a tag of quite some length, and more", 3)
        aside = thread.fork("what-if-it-went-otherwise", at=3, update={"steps": 5})
        aside.fork("deeper", update={"plan": "none"})
    return path


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_output_fits_80_columns_without_a_terminal(run, wordy, monkeypatch, command):
    monkeypatch.delenv("COLUMNS", raising=False)
    answer = run(command[0], wordy, *command[1:])
    assert (answer.code, answer.out != "") == (0, True)
    assert [line for line in (answer.out + answer.err).splitlines() if len(line) > 80] == []


def test_threads_fit_80_columns_with_their_policies(run, wordy, monkeypatch):
    monkeypatch.delenv("COLUMNS", raising=False)
    run("retain", wordy, "--keep-last", "100", "--max-age", "30d", "--as-policy")
    lines = run("threads", wordy, "--absolute").out.splitlines()
    assert max(map(len, lines)) <= 80
    assert "last 10" in lines[1]
    monkeypatch.setenv("COLUMNS", "120")
    assert "channels" in run("threads", wordy, "--absolute").out


def test_output_uses_the_available_width(run, wordy, monkeypatch):
    monkeypatch.setenv("COLUMNS", "150")
    for command in (["threads"], ["history", THREAD], ["show", THREAD], ["log"]):
        width = max(map(len, run(command[0], wordy, *command[1:]).out.splitlines()))
        assert 110 < width <= 150, command


def test_an_invalid_width_is_ignored(run, wordy, monkeypatch):
    for columns in ("wide", "0", "-1", "٣"):
        monkeypatch.setenv("COLUMNS", columns)
        assert max(map(len, run("history", wordy, THREAD).out.splitlines())) <= 80


def test_a_name_is_cut_only_as_a_last_resort(run, wordy, monkeypatch):
    monkeypatch.setenv("COLUMNS", "100")
    assert THREAD in run("threads", wordy, "--relative").out


def test_a_wrapped_last_column_is_complete(capsys, monkeypatch):
    monkeypatch.delenv("COLUMNS", raising=False)
    told = " ".join(f"word{number}" for number in range(40))
    Output(as_json=False).table(("invariant", "problem"), [("E2", told)], whole=("invariant",), wrap=True)
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) <= 80
    assert " ".join(" ".join(lines[1:]).split()) == f"E2 {told}"


@pytest.mark.slow
def test_on_a_terminal_times_are_relative_unless_exact_is_given(wordy):
    assert re.search(r"\d+[smh] ago", on_terminal("history", wordy, THREAD, TERM="xterm"))
    exact = on_terminal("history", wordy, THREAD, "--absolute", TERM="xterm")
    assert "ago" not in exact
    assert re.search(r"\.\d{6}Z", exact)


@pytest.mark.slow
@pytest.mark.parametrize("command", [["history", THREAD], ["diff", THREAD], ["stat"], ["verify"]], ids=" ".join)
def test_a_dumb_terminal_gets_plain_text(wordy, command):
    told = on_terminal(command[0], wordy, *command[1:], TERM="dumb")
    assert told.replace("\n", "").isprintable()
    assert "\x1b" in on_terminal("history", wordy, THREAD, TERM="xterm")


@pytest.mark.slow
def test_a_dumb_terminal_gets_trees_in_ascii(wordy):
    assert on_terminal("tree", wordy, TERM="dumb").isascii()
