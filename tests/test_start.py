"""Tests the modules that `import statelog` loads. Names that load late behave like all other names."""

from __future__ import annotations

import ast
import errno
import json
import os
import pickle
import subprocess
import sys
from pathlib import Path

import pytest

import statelog
from statelog import reducers
from statelog.log.care.policies import POLICY_STEP_VERSIONS

FACE = Path(statelog.__file__)
SLOW = {"_hashlib", "asyncio", "ctypes", "difflib", "html", "logging", "platform", "ssl", "tempfile", "uuid"}
"""Modules of the standard library that load slowly and that neither a commit nor a write to the board needs."""


def run(program, *arguments):
    """Run a program in another process, and return its output, decoded from JSON."""
    answer = subprocess.run([sys.executable, "-P", "-c", program, *arguments], capture_output=True, check=True)
    return json.loads(answer.stdout)


def loaded_by(program, *arguments):
    """Return the modules that a program loads, without those of the interpreter."""
    counted = f"import json, sys\nbefore = {{*sys.modules}}\n{program}\nprint(json.dumps([*{{*sys.modules}} - before]))"
    return set(run(counted, *arguments))


def ours(modules):
    return {name for name in modules if name.partition(".")[0] == "statelog"}


@pytest.mark.slow
def test_importing_loads_few_modules():
    assert len(ours(loaded_by("import statelog"))) <= 143


@pytest.mark.slow
def test_a_commit_loads_few_modules(tmp_path):
    program = "import statelog\nwith statelog.open(sys.argv[1]) as store:\n    store.thread('t').commit({'a': 1})"
    assert len(ours(loaded_by(program, str(tmp_path / "s")))) <= 143


@pytest.mark.slow
@pytest.mark.parametrize("act", ["thread('t').commit({'a': 1})", "board(agent='a').set('k', 1)"])
def test_a_short_process_loads_no_slow_module(act, tmp_path):
    program = f"import statelog\nwith statelog.open(sys.argv[1]) as store:\n    store.{act}"
    assert not loaded_by(program, str(tmp_path / "s")) & SLOW


@pytest.mark.slow
def test_importing_makes_no_data_class():
    assert not loaded_by("import statelog") & {"dataclasses", "inspect"}


@pytest.mark.slow
def test_every_public_name_can_be_imported_by_itself():
    program = f"import json, sys\nfrom statelog import {', '.join(statelog.__all__)}\nprint(json.dumps(dir()))"
    assert set(statelog.__all__) <= set(run(program))


@pytest.mark.slow
def test_a_star_import_brings_every_public_name():
    program = "import json\nfrom statelog import *\nprint(json.dumps(dir()))"
    assert set(statelog.__all__) <= set(run(program))


@pytest.mark.slow
def test_dir_also_lists_names_that_are_not_loaded():
    assert set(statelog.__all__) <= set(run("import json, statelog\nprint(json.dumps(dir(statelog)))"))


def test_type_checkers_and_programs_find_the_same_names():
    (checked,) = [node for node in ast.parse(FACE.read_text()).body if isinstance(node, ast.If)]
    imported = {(node.module, alias.name) for node in checked.body for alias in node.names}
    (call,) = [node for node in ast.walk(checked) if isinstance(node, ast.Call)]
    late = ast.literal_eval(call.args[1])
    names_of = {
        module: [("statelog", module.rpartition(".")[2])] if not names else [(module, name) for name in names]
        for module, names in late.items()
    }
    assert {pair for pairs in names_of.values() for pair in pairs} == imported


def test_an_unknown_name_raises_attribute_error():
    with pytest.raises(AttributeError, match="module 'statelog' has no attribute 'Bord'"):
        _ = statelog.Bord
    with pytest.raises(ImportError, match="Bord"):
        from statelog import Bord  # noqa: F401


def test_a_late_name_is_the_object_of_its_module():
    from statelog.store.board import Board

    assert statelog.Board is Board
    assert vars(statelog)["Board"] is Board


@pytest.mark.parametrize("name", statelog.__all__)
def test_public_classes_and_functions_are_pickled_by_name(name):
    thing = getattr(statelog, name)
    if isinstance(thing, type) or callable(thing):
        assert pickle.loads(pickle.dumps(thing)) is thing


@pytest.mark.slow
def test_a_pickle_is_read_by_a_process_that_has_imported_nothing():
    program = "import json, pickle, sys\nprint(json.dumps(pickle.loads(bytes.fromhex(sys.argv[1])).value))"
    assert run(program, pickle.dumps(reducers.Overwrite([1])).hex()) == [1]


def test_results_of_a_store_are_instances_of_public_classes(tmp_path):
    with statelog.open(tmp_path / "s") as store:
        board = store.board(agent="a")
        board.set("k", 1)
        assert isinstance(board, statelog.Board)
        assert isinstance(next(iter(board.list())), statelog.Entry)
        assert isinstance(store.thread("t").commit({"a": 1}), statelog.Checkpoint)


class _NoDescriptor:
    """Makes the import of retention fail, as if no file descriptor were free."""

    def find_spec(self, name, _path=None, _target=None):
        if name == "statelog.log.care.retention":
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))


def test_a_durable_commit_does_not_fail_if_retention_cannot_be_loaded(tmp_path, monkeypatch):
    with statelog.open(tmp_path / "s") as store:
        thread = store.thread("t")
        thread.commit({"a": 0})
        store.set_retention(threads="t", keep_last=1)
        with monkeypatch.context() as patch:
            patch.delitem(sys.modules, "statelog.log.care.retention")
            patch.delattr("statelog.log.care.retention")
            patch.setattr(sys, "meta_path", [_NoDescriptor(), *sys.meta_path])
            for number in range(1, 2 * POLICY_STEP_VERSIONS - 1):
                thread.commit({"a": number})
        assert len(list(thread.history())) == 2 * POLICY_STEP_VERSIONS - 1
        thread.commit({"a": -1})
        assert len(list(thread.history())) < POLICY_STEP_VERSIONS
