"""Namespaces of many lines: the index of ids answers like reading every line, and reads no more than it returns."""

from __future__ import annotations

import tempfile
from pathlib import Path
from unittest.mock import patch

import pytest

pytest.importorskip("langgraph.checkpoint.base", reason="needs langgraph")

from histories import config
from hypothesis import given
from hypothesis import strategies as st
from langgraph.checkpoint.base import empty_checkpoint

from statelog.adapters.kit.lineage import Lineage
from statelog.adapters.langgraph import StatelogSaver
from statelog.adapters.langgraph.saver import by_ids

IDS = [f"1ef{number:05d}-0000-6000-8000-000000000000" for number in range(8)]
OTHER_IDS = ["z", "zz:a", "0", "1ef00003-0000-6000-8000-000000000000|a"]
NAMESPACES = ["", "a", "1ef00003", "child:1", "child:1|leaf:2", "z"]
WITHOUT_ORDER = [("", "an/odd~id"), ("", "x" * 120), ("n" * 120, IDS[0])]
"""Names whose digests are in the index of ids."""

PUTS = st.lists(
    st.tuples(
        st.sampled_from(NAMESPACES) | st.just(""),
        st.sampled_from(IDS) | st.sampled_from(IDS + OTHER_IDS),
        st.none() | st.sampled_from(IDS),
        st.sampled_from(["r1", "r2", "r3"]),
    ),
    max_size=30,
    unique_by=lambda put: put[:2],
)


def put(saver, namespace, id, parent, run_id, thread="t"):
    checkpoint = {**empty_checkpoint(), "id": id, "channel_values": {"x": id}, "channel_versions": {"x": 1}}
    return saver.put(config(thread, namespace, parent), checkpoint, {"run_id": run_id}, {"x": 1})


def told(found):
    return found.config, found.metadata, found.parent_config


def asked(saver, thread="t"):
    """Return everything that depends on the order of checkpoints."""
    found = []
    for namespace in (*NAMESPACES, "n" * 120):
        latest = saver.get_tuple(config(thread, namespace))
        found.append(latest and told(latest))
        found.append([told(each) for each in saver.list(config(thread, namespace))])
        for id in (*IDS[::3], *OTHER_IDS, "an/odd~id"):
            listed = saver.list(config(thread, namespace), before=config(thread, namespace, id), limit=3)
            found.append([told(each) for each in listed])
    return found


@pytest.fixture
def saver(path):
    with StatelogSaver.open(path, durability="interval") as opened:
        yield opened


def fresh(saver):
    """Return a saver that remembers nothing."""
    return StatelogSaver(saver.store)


@given(
    history=PUTS,
    again=PUTS,
    odd=st.sampled_from(WITHOUT_ORDER),
    doomed=st.sets(st.sampled_from(["r1", "r2"])),
    passed=st.sampled_from([0, 2, 64]),
)
def test_the_index_gives_the_same_answers_as_reading_every_line(history, again, odd, doomed, passed):
    with (
        tempfile.TemporaryDirectory() as folder,
        StatelogSaver.open(Path(folder) / "s", durability="interval") as saver,
        patch.object(by_ids, "_NAMESPACES_MAX", passed),
    ):
        for each in history:
            put(saver, *each)
        put(saver, "", "1eg", None, "r3")  # There must be a thread to copy.
        for act in (
            lambda: None,
            lambda: saver.delete_for_runs(sorted(doomed)),
            lambda: commit_as_an_older_release(saver),
            lambda: saver.copy_thread("t", "copy"),
            lambda: [put(saver, *each) for each in again],
            lambda: put(saver, *odd, None, "odd"),
        ):
            act()
            for thread in ("t", "copy"):
                with patch.object(by_ids, "FEW_LINES", 1 << 30):
                    expected = asked(fresh(saver), thread)
                with patch.object(by_ids, "FEW_LINES", 0):
                    assert asked(fresh(saver), thread) == expected


def commit_as_an_older_release(saver):
    """Commit to the first line of a thread of LangGraph, which is refused now."""
    with patch("statelog.store.frameworks.is_line", lambda _name: False):
        saver.store.thread("t").commit({"x": 1}, id="1ef00002")


def fork(saver, count, namespace=""):
    put(saver, namespace, IDS[0], None, "r")
    for number in range(count):
        put(saver, namespace, f"1eff{number:04}-0000-6000-8000-000000000000", IDS[0], "r")


@pytest.mark.parametrize("namespace", ["", "child:1"])
def test_no_more_lines_are_read_than_are_returned(saver, namespace):
    fork(saver, 300, namespace)
    for number in range(20):
        put(saver, f"other:{number}", IDS[1], None, "r")
    with (
        patch.object(Lineage, "heads", side_effect=AssertionError),
        patch.object(Lineage, "at", autospec=True, side_effect=Lineage.at) as at,
    ):
        latest = fresh(saver).get_tuple(config("t", namespace))
        assert (latest.config["configurable"]["checkpoint_id"][:8], at.call_count) == ("1eff0299", 1)
        listed = [
            each.config["configurable"]["checkpoint_id"][:8] for each in saver.list(config("t", namespace), limit=10)
        ]
        assert (listed, at.call_count) == ([f"1eff{number:04}" for number in range(299, 289, -1)], 11)


def test_an_id_with_the_prefix_of_a_namespace_is_not_skipped(saver):
    fork(saver, 20)
    put(saver, "1eff0019", IDS[0], None, "r")
    put(saver, "1eff0018-", IDS[0], None, "r")
    with patch.object(Lineage, "heads", side_effect=AssertionError):
        latest = fresh(saver).get_tuple(config("t"))
        assert latest.config["configurable"]["checkpoint_id"][:9] == "1eff0019-"
        assert len([*saver.list(config("t", ""))]) == 21


@pytest.mark.parametrize("before", ["\ud800", "1eff0002" + "x" * 1000, "späte"])
def test_any_text_can_be_a_cursor(saver, before):
    fork(saver, 20)
    listed = [each.checkpoint["id"] for each in saver.list(config("t", ""), before=config("t", "", before))]
    assert listed == sorted((each for each in listed if each < before), reverse=True)
    assert len(listed) == (4 if before.startswith("1eff0002") else 21)


def test_pages_continue_below_the_last_one_despite_concurrent_puts(saver):
    fork(saver, 100)
    listed = saver.list(config("t", ""))
    found = [next(listed) for _ in range(3)]
    put(saver, "", "1eff9999-0000-6000-8000-000000000000", IDS[0], "r")  # Above the bound, so it is not listed.
    put(saver, "", "1eff0050-5000-6000-8000-000000000000", IDS[0], "r")  # Below the bound, so it is listed.
    saver.delete_for_runs(["none"])
    found += listed
    ids = [each.config["configurable"]["checkpoint_id"] for each in found]
    assert ids == sorted({*ids}, reverse=True)
    assert (len(ids), "1eff9999-0000-6000-8000-000000000000" in ids) == (102, False)


def test_lines_are_read_if_an_unordered_name_comes_between(saver):
    fork(saver, 100)
    listed = saver.list(config("t", ""))
    found = [next(listed) for _ in range(3)]
    put(saver, "", "1eff0050-odd~id", IDS[0], "r")
    put(saver, "", "1eff0040-0000-6000-8000-000000000000", IDS[1], "again")  # Superseded.
    found += listed
    ids = [each.config["configurable"]["checkpoint_id"] for each in found]
    assert ids == sorted({*ids}, reverse=True)
    assert (len(ids), "1eff0050-odd~id" in ids) == (102, True)
    assert [each.metadata["run_id"] for each in found if "1eff0040" in each.checkpoint["id"]] == ["again"]


@pytest.mark.parametrize("few_lines", [0, 1 << 30])
@pytest.mark.parametrize("drawn", [0, 1, 9])
def test_a_list_ends_if_its_thread_is_deleted_during_it(saver, few_lines, drawn):
    fork(saver, 40)
    with patch.object(by_ids, "FEW_LINES", few_lines):
        listed = saver.list(config("t", ""))
        found = [next(listed) for _ in range(drawn)]
        saver.delete_thread("t")
        found += listed
    assert len(found) <= 16  # Only those of a page that was read before.
    assert [each.checkpoint["id"] for each in found] == sorted((each.checkpoint["id"] for each in found), reverse=True)
