"""What the page on the command line shows, runs, in the order of the page; and its sentences are short."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from statistics import mean

import pytest

import statelog
from statelog.cli import main

PAGE = (Path(statelog.__file__).parent / "cli" / "README.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"```sh\n(.*?)```", PAGE, re.DOTALL)


@pytest.fixture
def shell(tmp_path):
    """Run a block in an empty directory, where `python` and `statelog` are those of the tests."""
    tools = tmp_path / "bin"
    tools.mkdir()
    for name, arguments in (("python", ""), ("statelog", "-m statelog ")):
        (tools / name).write_text(f'#!/bin/sh\nexec "{sys.executable}" {arguments}"$@"\n')
        (tools / name).chmod(0o755)
    directory = tmp_path / "empty"
    directory.mkdir()
    environment = {**os.environ, "PATH": f"{tools}:{os.environ['PATH']}"}

    def run_block(block):
        command = ["bash", "-eu", "-c", block]
        return subprocess.run(command, cwd=directory, env=environment, capture_output=True, text=True, check=False)

    return run_block


def test_every_block_runs_after_those_before_it(shell):
    assert len(BLOCKS) > 10
    for block in BLOCKS:
        done = shell(block)
        assert (done.returncode, done.stderr.count("statelog: ")) == (0, 0), (block, done.stderr)


def test_a_block_that_fails_is_seen(shell):
    assert shell("statelog threads none.state\ntrue\n").returncode == 11


def test_every_command_is_on_the_page():
    elsewhere = {"bench", "crashtest", "import-langgraph", "export-langgraph"}
    assert [name for name in main.commands if f"`{name}`" not in PAGE and f"statelog {name} " not in PAGE] == sorted(
        elsewhere, key=[*main.commands].index
    )


def test_its_sentences_are_short():
    prose = re.sub(r"```.*?```|^[|#][^\n]*$", "", PAGE, flags=re.DOTALL | re.MULTILINE)
    sentences = [len(each.split()) for each in re.split(r"[.:!?]\s|\n\n", prose) if len(each.split()) > 1]
    assert len(sentences) > 40
    assert mean(sentences) <= 16
    assert sorted(sentences)[int(len(sentences) * 0.95)] <= 30
