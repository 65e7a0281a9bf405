"""How commands open stores: sizes and names."""

from __future__ import annotations

import json
import os
import re
import resource
import subprocess
import sys
from random import Random

import pytest

import statelog

GIB = 1 << 30
STORE_COMMANDS = [
    ["threads"],
    ["history", "t"],
    ["show", "t"],
    ["diff", "t"],
    ["tree"],
    ["log"],
    ["stat"],
    ["verify"],
    ["tag", "t", "name"],
    ["rollback", "t", "0"],
    ["fork", "t", "aside"],
    ["copy", "t", "u"],
    ["rebuild-index"],
    ["retain", "--keep-last", "1"],
    ["compact"],
    ["delete", "t"],
    ["recover"],
]
"""In an order in which each command can run on the result of the one before."""

NO_UTF_8 = os.fsdecode(b"caf\xe9.state")


def few_addresses():
    resource.setrlimit(resource.RLIMIT_AS, (4 * GIB, 4 * GIB))


def fill(path, **options):
    with statelog.open(path, **options) as store:
        store.thread("t").commit({"a": 1})
        store.thread("t").commit({"a": 2})
    return path


def finish(process):
    out, err = process.communicate(timeout=300)
    return process.returncode, out, err


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="the limit is one of Linux")
def test_commands_work_where_the_address_space_is_small(path):
    fill(path)
    commands = [[command, str(path), *arguments] for command, *arguments in STORE_COMMANDS if command != "recover"]
    commands += [["recover", str(path), "--max-size", "64M"]]
    several = [sys.executable, "-c", _RUN_SEVERAL, json.dumps(commands)]
    done = subprocess.run(several, preexec_fn=few_addresses, capture_output=True, text=True, check=False, timeout=600)
    assert (done.returncode, done.stderr) == (0, "")


_RUN_SEVERAL = """
import json, sys
from click.testing import CliRunner
from statelog.cli import main
for command in json.loads(sys.argv[1]):
    result = CliRunner().invoke(main, command)
    assert result.exit_code == 0, (command, result.stderr)
"""


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="the limit is one of Linux")
def test_a_size_beyond_the_address_space_names_the_option(start, path):
    fill(path)
    code, out, err = finish(start("threads", path, "--max-size", "8G", preexec_fn=few_addresses))
    assert (code, out) == (8, "")
    assert err.endswith("open with a smaller max_size_bytes (--max-size, as in --max-size 1G)\n")


@pytest.mark.slow
def test_every_command_on_a_store_takes_its_size(run, path):
    fill(path)
    for command, *arguments in STORE_COMMANDS:
        answer = run(command, path, *arguments, "--max-size", "64M")
        assert answer.code == 0, (command, answer.err)


@pytest.mark.slow
def test_the_size_option_is_the_quota(run, path):
    fill(path)
    assert (
        run("stat", path, "--max-size", "64 MiB", "--json").document["map_size_bytes"] == 60 << 20
    )  # A sixteenth of it is a reserve.
    assert run("stat", path, "--json").document["map_size_bytes"] == 240 * GIB
    large = json.dumps({"a": Random(1).randbytes(1_000_000).hex()})
    answer = run("fork", path, "t", "aside", "--max-size", "1M", "--update", large)
    assert (answer.code, answer.out) == (5, "")
    assert "quota" in answer.err


@pytest.mark.parametrize(
    ("size", "what"), [("much", "is not a size"), ("1K", "is less than a store needs"), ("", "is not a size")]
)
def test_invalid_sizes_are_refused(run, path, size, what):
    answer = run("threads", fill(path), "--max-size", size)
    assert (answer.code, answer.out) == (2, "")
    assert what in answer.err


@pytest.mark.slow
def test_a_name_that_is_not_utf_8_is_a_valid_name(run, start, tmp_path):
    path = fill(tmp_path / NO_UTF_8)
    assert finish(start("threads", path))[0] == 0
    for command, *arguments in STORE_COMMANDS:
        answer = run(command, path, *arguments)
        assert answer.code == 0, (command, answer.err)
    assert sorted(os.fsencode(each.name) for each in tmp_path.iterdir()) == [b"caf\xe9.state", b"caf\xe9.state-lock"]


@pytest.mark.slow
def test_an_export_and_a_salvaged_store_may_have_names_that_are_not_utf_8(run, tmp_path):
    path, export, copy, saved = (tmp_path / f"{part}{NO_UTF_8}" for part in ("", "export", "copy", "saved"))
    fill(path)
    for arguments in (["export", path, "-o", export], ["import", copy, export], ["salvage", path, saved]):
        answer = run(*arguments)
        assert answer.code == 0, (arguments, answer.err)
    for made in (copy, saved):
        with statelog.open(made, read_only=True) as store:
            assert store.thread("t").state == {"a": 2}


def test_a_missing_store_with_a_name_that_is_not_utf_8_is_named_in_ascii(start, tmp_path):
    code, out, err = finish(start("threads", tmp_path / NO_UTF_8))
    assert (code, out) == (11, "")
    assert err.endswith("caf\\udce9.state\n")


def test_a_store_of_a_similar_name_is_suggested(run, path):
    fill(path)
    answer = run("threads", path.with_name(f"{path.name}x"))
    assert (answer.code, answer.out) == (11, "")
    assert re.search(rf"\(did you mean {re.escape(str(path))}\?\)\n$", answer.err)
