"""Stores written by the release that settled a format are read by every later one (see make_golden.py)."""

from __future__ import annotations

import gzip
import importlib.util
import json
from pathlib import Path

import pytest

import statelog
from statelog.testing import StoreModel, assert_matches, perform_all

HERE = Path(__file__).parent
GOLDEN = sorted(HERE.glob("format_*.state.gz"))


def load_maker():
    spec = importlib.util.spec_from_file_location("make_golden", HERE / "make_golden.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


MAKER = load_maker()


@pytest.fixture(params=GOLDEN, ids=lambda path: path.name.split(".")[0])
def golden(request, tmp_path):
    """A copy of a golden store, and what was told of it."""
    path = tmp_path / "golden.state"
    path.write_bytes(gzip.decompress(request.param.read_bytes()))
    return path, json.loads(request.param.with_suffix("").with_suffix(".json").read_text())


def test_there_is_a_golden_store_for_every_format():
    names = {path.name for path in GOLDEN}
    assert names >= {
        f"format_{version}_{name}.state.gz" for version in range(1, MAKER.FORMAT + 1) for name in MAKER.NAMES[version]
    }


def test_a_golden_store_is_found_as_it_was_left(golden):
    path, told = golden
    with statelog.open(path, read_only=True) as store:
        assert store.verify().problems == []
        assert {"format": told["format"], **MAKER.describe(store)} == told


def test_the_anchor_of_a_golden_store_holds_after_it_was_brought_to_this_format(golden):
    path, _told = golden
    with statelog.open(path, read_only=True) as store:
        anchor = store.anchor()
    with statelog.open(path, expect=anchor) as store:
        assert store.verify(expect=anchor).ok
        for info in store.threads():
            store.thread(info.id).commit({"total": 1})
        store.prune(keep_last=1)
        store.compact()
        assert store.verify(expect=anchor).ok


def test_a_golden_store_is_gone_on_with(golden):
    path, told = golden
    with statelog.open(path) as store:
        for info in store.threads():
            thread = store.thread(info.id)
            version = thread.version
            total = thread.state.get("total", 0)
            assert thread.commit({"total": 1}).version == version + 1
            assert thread.state["total"] == total + 1
            if version:
                thread.rollback(version)
        store.rebuild_index()
        assert store.verify().problems == []
        assert store.last_lsn > len(told["log"])


def model_of_history():
    model = StoreModel()
    perform_all(MAKER.HISTORY, model, schema=MAKER.SCHEMA)
    return model


@pytest.mark.slow
@pytest.mark.parametrize("source", [path for path in GOLDEN if "whole" in path.name], ids=lambda path: path.name)
def test_a_golden_store_has_the_contents_of_its_history(source, tmp_path):
    path = tmp_path / "golden.state"
    path.write_bytes(gzip.decompress(source.read_bytes()))
    with statelog.open(path) as store:
        assert_matches(store, model_of_history())


@pytest.mark.slow
@pytest.mark.parametrize("source", [path for path in GOLDEN if "whole" in path.name], ids=lambda path: path.name)
def test_the_same_history_has_the_same_state_digests_today(source, tmp_path):
    told = json.loads(source.with_suffix("").with_suffix(".json").read_text())
    with statelog.open(tmp_path / "today.state") as store:
        perform_all(MAKER.HISTORY, store, schema=MAKER.SCHEMA)
        found = MAKER.describe(store)
    for thread_id, thread in told["threads"].items():
        for branch, versions in thread["versions"].items():
            today = found["threads"][thread_id]["versions"][branch]
            assert [each[4] for each in today] == [each[4] for each in versions]


def test_the_history_is_one_that_succeeds_throughout():
    model = StoreModel()
    for operation in MAKER.HISTORY:
        before = model.last_lsn
        perform_all((operation,), model, schema=MAKER.SCHEMA)
        assert model.last_lsn > before, operation


@pytest.mark.slow
def test_the_maker_of_golden_stores_still_works(tmp_path):
    for name in (name for names in MAKER.NAMES.values() for name in names):
        MAKER.make(tmp_path / f"{name}.state", name)
        with statelog.open(tmp_path / f"{name}.state") as store:
            assert store.verify().problems == []
            assert len(MAKER.describe(store)["log"]) == store.last_lsn
