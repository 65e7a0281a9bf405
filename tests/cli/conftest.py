"""Example stores, and two ways to run a command: in this process and in a new one."""

from __future__ import annotations

import json
import operator
import subprocess
import sys
from dataclasses import dataclass

import forks
import pytest
from click.testing import CliRunner

import statelog
from statelog import reducers
from statelog.cli import main

SCHEMA = {"query": reducers.replace, "findings": operator.add, "steps": operator.add, "notes": reducers.merge}


@dataclass(frozen=True)
class Answer:
    """The result of a command."""

    code: int
    out: str
    err: str

    @property
    def document(self):
        """The one JSON document on stdout."""
        return json.loads(self.out)

    @property
    def documents(self):
        """One JSON document per line."""
        return [json.loads(line) for line in self.out.splitlines()]


@pytest.fixture
def run():
    """Run a command in this process."""

    def run_here(*arguments, stdin=None):
        result = CliRunner().invoke(main, [str(argument) for argument in arguments], input=stdin)
        return Answer(result.exit_code, result.stdout, result.stderr)

    return run_here


@pytest.fixture
def start():
    """Start a command in a new process, which is killed at the end of the test."""
    started = []

    def start_there(*arguments, **options):
        options = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True, **options}
        begin = subprocess.Popen if "env" in options else forks.Popen  # Python reads the locale when it starts.
        process = begin([sys.executable, "-m", "statelog", *map(str, arguments)], **options)
        started.append(process)
        return process

    yield start_there
    for process in started:
        process.kill()
        process.communicate()


@pytest.fixture
def state(path):
    """A store with two threads; `ticket-42` has two branches and a tag."""
    with statelog.open(path) as store:
        thread = store.thread("ticket-42", schema=SCHEMA)
        thread.commit({"query": "lmdb", "steps": 1, "findings": [], "notes": {}}, metadata={"node": "plan"})
        thread.commit({"findings": ["a"]}, {"findings": ["b"], "steps": 1}, metadata={"node": "search"})
        thread.commit({"notes": {"a.b": {"deep": [1, 2, {"x": 3}]}}}, id="mine")
        thread.tag("good", 1)
        thread.fork("what-if", at=1, update={"query": "redb"})
        store.thread("other").commit({"anything": True})
    return path
