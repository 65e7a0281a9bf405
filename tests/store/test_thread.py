"""Threads: commits, versions, branches, tags, and finding checkpoints again."""

from __future__ import annotations

import operator
import subprocess
import sys
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Annotated, TypedDict

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import statelog
from statelog import reducers
from statelog.errors import ClosedError, ConflictError, LimitError, SchemaError
from statelog.testing import SCHEMA, StoreModel, assert_matches, histories, identical, perform_all


class Research(TypedDict):
    query: str
    findings: Annotated[list[str], operator.add]
    step_count: Annotated[int, operator.add]
    notes: Annotated[dict, reducers.merge]
    messages: Annotated[list[dict], reducers.upsert("id")]


@dataclass
class Counted:
    total: Annotated[int, operator.add] = 0
    name: str = ""


@pytest.fixture
def thread(store):
    return store.thread("ticket-42", schema=Research)


def versions(checkpoints):
    return [checkpoint.version for checkpoint in checkpoints]


# --- committing ---------------------------------------------------------------------


def test_parallel_writes_of_one_superstep_merge_in_order(thread):
    thread.commit({"query": "lmdb", "step_count": 1}, metadata={"node": "plan"})
    thread.commit({"findings": ["a"]}, {"findings": ["b"], "step_count": 1}, {"query": "redb"})
    assert thread.state == {"query": "redb", "findings": ["a", "b"], "step_count": 2}
    assert thread.version == 1


def test_a_commit_without_writes_is_a_checkpoint(store):
    thread = store.thread("t")
    first = thread.commit()
    second = thread.commit({}, metadata={"only": "metadata"})
    assert (first.version, second.version) == (0, 1)
    assert first.state_digest == second.state_digest
    assert second.state == {}
    assert second.channels_written == ()


def test_a_superstep_without_changes_stores_no_new_node(store):
    thread = store.thread("t", schema={"items": reducers.upsert("id")})
    first = thread.commit({"items": [{"id": number} for number in range(500)]})
    second = thread.commit({"items": {"id": "new"}}, {"items": reducers.Remove("new")})
    assert second.state_digest == first.state_digest
    assert next(store.log(after=second.lsn - 1)).size_bytes < 300


def test_a_dataclass_or_model_instance_is_a_write(store):
    thread = store.thread("t", schema=Counted)
    thread.commit(Counted(total=2, name="x"))
    thread.commit(Counted(total=3, name="y"))
    assert thread.state == {"total": 5, "name": "y"}


def test_expected_version_lets_the_first_of_two_win(thread):
    seen = thread.commit({"query": "a"}).version
    thread.commit({"query": "b"}, expected_version=seen)
    with pytest.raises(ConflictError) as caught:
        thread.commit({"query": "c"}, expected_version=seen)
    assert (caught.value.thread, caught.value.expected_version, caught.value.actual_version) == ("ticket-42", 0, 1)
    thread.commit({"query": "c"}, expected_version=caught.value.actual_version)
    assert thread.state["query"] == "c"


def test_a_thread_object_sees_commits_of_others(store):
    mine, theirs = store.thread("t"), store.thread("t")
    assert mine.state == {}
    theirs.commit({"x": 1})
    assert (mine.version, mine.state) == (0, {"x": 1})
    mine.commit({"y": 2})
    assert theirs.state == {"x": 1, "y": 2}


def test_later_changes_of_a_value_by_its_caller_have_no_effect(store):
    thread, value = store.thread("t"), {"list": [1], "large": list(range(1000))}
    thread.commit({"x": value})
    value["list"].append(2)
    value["large"].clear()
    read = thread.state["x"].to_python()
    read["list"].append(3)
    assert thread.state["x"] == {"list": [1], "large": list(range(1000))}


@pytest.mark.parametrize("count", [1, 31, 32, 33, 64, 100])
def test_versions_over_page_boundaries_are_found(store, count):
    thread = store.thread("t")
    made = [thread.commit({"n": number}) for number in range(count)]
    assert versions(made) == list(range(count))
    assert [thread.at(number) for number in range(count)] == made
    assert list(thread.history()) == made[::-1]


def test_channels_of_any_name_are_distinguished(store):
    thread = store.thread("t")
    state = {name: name for name in ("x", "X", "é", "𝄞", " ", "\x00", "a" * 255, "messages[3].x", "main")}
    thread.commit(state)
    assert thread.state == state
    assert sorted(thread.state) == sorted(state)


def test_a_thread_can_have_thousands_of_channels(store):
    thread = store.thread("t")
    thread.commit({f"channel {number}": number for number in range(3000)})
    thread.commit({"channel 1500": "changed"})
    assert thread.state["channel 1500"] == "changed"
    assert len(thread.state) == 3000
    assert store.verify().problems == []


# --- schemas are remembered --------------------------------------------------------------


def test_a_thread_opened_without_schema_has_its_reducers(store, thread):
    thread.commit({"findings": ["a"], "step_count": 1})
    again = store.thread("ticket-42")
    again.commit({"findings": ["b"], "step_count": 1})
    assert again.state == {"findings": ["a", "b"], "step_count": 2}


def test_channels_can_be_added_later(store):
    store.thread("t", schema={"a": reducers.add}).commit({"a": 1})
    wider = store.thread("t", schema={"a": reducers.add, "b": reducers.append})
    assert next(store.threads()).channels == {"a": "add"}
    wider.commit({"b": 1})
    assert next(store.threads()).channels == {"a": "add", "b": "append"}
    assert store.thread("t").commit({"b": 2}).state == {"a": 1, "b": [1, 2]}


def test_a_narrower_schema_is_allowed_and_keeps_the_rest(store):
    store.thread("t", schema={"a": reducers.add, "b": reducers.add}).commit({"a": 1, "b": 1})
    narrow = store.thread("t", schema={"a": reducers.add})
    narrow.commit({"a": 1})
    assert narrow.state == {"a": 2, "b": 1}


def test_a_different_reducer_is_refused_with_both_names(store, thread):
    thread.commit({"step_count": 1})
    with pytest.raises(SchemaError, match=r"-add \+max"):
        store.thread("ticket-42", schema={"step_count": reducers.max})


def test_a_thread_without_a_schema_can_get_one(store):
    store.thread("t").commit({"free": 1, "m": [{"id": 1}]})
    schema = {"free": reducers.add, "m": reducers.upsert("id")}
    thread = store.thread("t", schema=schema)
    thread.commit({"free": 1, "m": [{"id": 1, "x": "y" * 100}, {"id": 2}]})
    assert thread.state == {"free": 2, "m": [{"id": 1, "x": "y" * 100}, {"id": 2}]}


def test_a_user_function_is_remembered_by_name(store):
    store.thread("t", schema={"x": min_of_both}).commit({"x": 3})
    assert next(store.threads()).channels["x"].endswith("min_of_both")
    assert store.thread("t", schema={"x": min_of_both}).commit({"x": 5}).state["x"] == 3
    assert store.thread("t").state["x"] == 3
    with pytest.raises(SchemaError, match="min_of_both"):
        store.thread("t").commit({"x": 1})


def min_of_both(current, write):
    return min(current, write)


# --- finding checkpoints ---------------------------------------------------------------------


def test_a_checkpoint_is_found_by_every_kind_of_target(thread):
    made = [thread.commit({"step_count": 1}, id=f"step {number}" if number % 2 else None) for number in range(70)]
    thread.tag("tagged", 40)
    for number in (0, 1, 31, 32, 40, 69):
        checkpoint = made[number]
        assert thread.at(number) == checkpoint
        assert thread.at(checkpoint.id) == checkpoint
        assert thread.at(checkpoint.time) == checkpoint
        assert thread.at(checkpoint) == checkpoint
    assert thread.at("tagged") == made[40]
    assert thread.at("step 33") == made[33]


def test_a_time_names_the_last_checkpoint_at_or_before_it(thread):
    made = [thread.commit({"step_count": 1}) for _ in range(100)]
    moment = timedelta(microseconds=1)
    for number in (0, 1, 31, 32, 50, 98):
        assert thread.at(made[number].time) == made[number]
        assert thread.at(made[number + 1].time - moment) == made[number]
    assert thread.at(datetime.now(UTC) + timedelta(days=1)) == made[-1]
    assert thread.at(datetime.max.replace(tzinfo=UTC)) == made[-1]


def test_a_naive_time_is_local_time(thread):
    checkpoint = thread.commit({"step_count": 1})
    local = checkpoint.time.astimezone().replace(tzinfo=None)
    assert thread.at(local) == checkpoint


def test_times_are_searched_through_branch_points(store):
    thread = store.thread("t")
    made = [thread.commit({"n": number}) for number in range(40)]
    branch = thread.fork("branch", at=35)
    later = [thread.commit({"n": number}) for number in range(40, 45)]
    own = [branch.commit({"n": -number}) for number in range(40)]
    for number in (0, 31, 32, 35):
        assert branch.at(made[number].time) == made[number]
    assert branch.at(later[0].time) == made[35]
    for checkpoint in (own[0], own[20], own[39]):
        assert branch.at(checkpoint.time) == checkpoint
        assert thread.at(checkpoint.time) == later[-1]


def test_a_tag_does_not_hide_a_given_checkpoint(thread):
    first = thread.commit({"query": "a"}, id="one")
    second = thread.commit({"query": "b"})
    thread.tag("one", second)
    assert thread.at("one") == second
    assert thread.at(first) == first
    assert thread.rollback(first).state["query"] == "a"


def test_history_is_newest_first_and_bounded(thread):
    for _ in range(100):
        thread.commit({"step_count": 1})
    assert versions(thread.history(limit=10)) == list(range(99, 89, -1))
    assert versions(thread.history()) == list(range(99, -1, -1))
    assert versions(thread.history(limit=0)) == []
    assert versions(thread.history(limit=1000)) == list(range(99, -1, -1))
    assert versions(thread.history(before=5)) == [4, 3, 2, 1, 0]
    assert versions(thread.history(limit=2, before=50)) == [49, 48]
    for before in (0, -5):
        assert versions(thread.history(before=before)) == []
    assert versions(thread.history(limit=3, before=10_000)) == [99, 98, 97]


def test_concurrent_commits_do_not_change_a_history_that_has_begun(thread):
    for _ in range(100):
        thread.commit({"step_count": 1})
    seen = []
    for checkpoint in thread.history():
        seen.append((checkpoint.version, checkpoint.state["step_count"]))
        thread.commit({"step_count": 1})
        if len(seen) == 40:
            thread.rollback(3)
            thread.fork("meanwhile", at=2)
    assert seen == [(number, number + 1) for number in range(99, -1, -1)]


# --- going back -------------------------------------------------------------------------------


def test_a_rollback_is_a_version_with_an_old_state(thread):
    for number in range(10):
        thread.commit({"findings": [f"finding {number}"]})
    back = thread.rollback(3, metadata={"why": "wrong turn"})
    assert (back.version, back.kind, back.metadata) == (10, "rollback", {"why": "wrong turn"})
    assert back.state_digest == thread.at(3).state_digest
    assert thread.state["findings"] == [f"finding {number}" for number in range(4)]
    assert back.parent == thread.at(3)
    assert thread.commit({"findings": ["on"]}).state["findings"][-2:] == ["finding 3", "on"]
    assert versions(thread.history(limit=3)) == [11, 10, 9]


def test_a_rollback_can_be_undone(thread):
    for number in range(5):
        thread.commit({"query": str(number)})
    thread.rollback(0)
    thread.rollback(4)
    assert thread.state["query"] == "4"
    thread.rollback(5)
    assert thread.state["query"] == "0"


def test_a_rollback_to_the_head_is_one_more_version(thread):
    thread.commit({"query": "a"})
    assert thread.rollback(0).version == 1
    assert thread.state["query"] == "a"


@pytest.mark.slow
def test_a_rollback_writes_one_small_record(store):
    thread = store.thread("t")
    for number in range(50):
        thread.commit({"large": [number] * 5000, "text": "x" * 50_000})
    back = thread.rollback(0)
    assert next(store.log(after=back.lsn - 1)).size_bytes < 300


def test_a_rollback_accepts_any_target(thread):
    first = thread.commit({"query": "a"}, id="mine")
    thread.tag("tagged")
    for target in (0, "mine", "tagged", first, first.time, first.id):
        thread.commit({"query": "b"})
        assert thread.rollback(target).state["query"] == "a"


# --- branches -----------------------------------------------------------------------------------


def test_a_fork_shares_the_past_and_continues_independently(thread):
    for number in range(5):
        thread.commit({"findings": [str(number)], "query": "lmdb"})
    alternative = thread.fork("what-if", at=1, update={"query": "redb"})
    assert alternative.branch == "what-if"
    assert (alternative.version, alternative.state["query"]) == (2, "redb")
    assert alternative.state["findings"] == ["0", "1"]
    assert alternative.at(1) == thread.at(1)
    assert alternative.at(2) != thread.at(2)
    assert alternative.head.parent == thread.at(1)
    assert versions(alternative.history()) == [2, 1, 0]
    thread.commit({"query": "unchanged"})
    assert alternative.state["query"] == "redb"


def test_a_fork_without_update_has_the_head_at_which_it_begins(thread):
    made = thread.commit({"query": "a"})
    branch = thread.fork("b")
    assert (branch.head, branch.version) == (made, 0)
    assert branch.commit({"query": "c"}).version == 1


def test_forks_of_forks_have_the_versions_of_all_their_ancestors(store):
    thread = store.thread("t")
    made = [thread.commit({"n": number}) for number in range(10)]
    line = thread
    for depth in range(5):
        line = line.fork(f"depth {depth}", at=5 + depth if depth else 5)
        made = [*made[: line.version + 1], line.commit({"n": f"own {depth}"})]
        assert [line.at(number) for number in range(len(made))] == made
    assert versions(line.history()) == list(range(len(made) - 1, -1, -1))


def test_a_fork_at_a_shared_version_begins_at_the_branch_of_its_handle(store):
    thread = store.thread("t")
    for number in range(5):
        thread.commit({"n": number})
    child = thread.fork("child", at=3)
    grandchild = child.fork("grandchild", at=1)
    infos = {branch.name: (branch.parent, branch.base_version, branch.head_version) for branch in thread.branches()}
    assert infos == {"main": (None, -1, 4), "child": ("main", 3, 3), "grandchild": ("child", 1, 1)}
    assert grandchild.commit({"n": "new"}).version == 2
    assert child.at(2).state == {"n": 2}


def test_a_fork_at_a_tag_of_another_branch_begins_at_that_branch(store):
    thread = store.thread("t")
    thread.commit({"n": 0})
    other = thread.fork("other", update={"n": "other 1"})
    other.commit({"n": "other 2"})
    other.tag("there")
    third = thread.fork("third", at="there", update={"n": "third"})
    assert [checkpoint.state["n"] for checkpoint in third.history()] == ["third", "other 2", "other 1", 0]
    assert {branch.name: branch.parent for branch in thread.branches()}["third"] == "other"


def test_branches_can_be_opened_again(store):
    thread = store.thread("t", schema={"n": reducers.add})
    thread.commit({"n": 1})
    thread.fork("other", update={"n": 1})
    assert store.thread("t", branch="other").state == {"n": 2}
    assert store.thread("t", schema={"n": reducers.add}, branch="other").commit({"n": 1}).state == {"n": 3}
    assert thread.checkout("other").checkout("main").state == {"n": 1}
    assert repr(thread.checkout("other")) == "<Thread 't' branch 'other' version 2: n>"


def test_many_branches_are_listed_in_order(store):
    thread = store.thread("t")
    thread.commit({"n": 0})
    for number in range(50):
        thread.fork(f"branch {50 - number}")
    assert [branch.name for branch in thread.branches()] == ["main", *(f"branch {50 - n}" for n in range(50))]


# --- tags ---------------------------------------------------------------------------------------


def test_tags_are_set_moved_and_removed(thread):
    first = thread.commit({"query": "a"})
    second = thread.commit({"query": "b"})
    assert thread.tag("best") == second
    assert thread.tags() == {"best": second}
    thread.tag("best", 0)
    thread.tag("other", second)
    assert thread.tags() == {"best": first, "other": second}
    thread.untag("best")
    assert thread.tags() == {"other": second}


def test_tags_belong_to_the_thread_not_to_a_branch(store):
    thread = store.thread("t")
    thread.commit({"n": 0})
    other = thread.fork("other", update={"n": 1})
    other.tag("there")
    assert thread.at("there") == other.head
    assert store.thread("u").tags() == {}


def test_a_tag_survives_later_commits(thread):
    made = thread.commit({"query": "a"})
    thread.tag("keep")
    for _ in range(40):
        thread.commit({"step_count": 1})
    thread.rollback(3)
    assert thread.at("keep") == made


# --- all operations together ------------------------------------------------------------------------


@pytest.mark.slow
@settings(max_examples=settings.default.max_examples // 3)
@given(histories(max_size=20), st.booleans())
def test_any_history_ends_with_the_contents_of_its_model(tmp_path_factory, history, reopen):
    path = tmp_path_factory.mktemp("history") / "a.state"
    model = StoreModel()
    perform_all(history, model, schema=SCHEMA)
    with statelog.open(path, durability="interval") as store:
        perform_all(history, store, schema=SCHEMA)
        if not reopen:
            assert_matches(store, model)
    with statelog.open(path) as store:
        assert_matches(store, model)
        assert store.verify().problems == []
        for thread_id in model.thread_ids():
            assert identical(store.thread(thread_id).state, model.thread(thread_id).state)


def test_a_handle_without_a_schema_obeys_reducers_declared_later(store):
    bare = store.thread("t")
    bare.commit({"count": 5})
    store.thread("t", schema={"count": reducers.add}).commit({"count": 1})
    with pytest.raises(SchemaError) as caught:
        bare.commit({"count": 1})
    assert caught.value.stored == {"count": "add"}
    assert store.thread("t").commit({"count": 1}).state["count"] == 7


def test_a_declared_channel_never_written_is_empty_in_a_mount(store):
    thread = store.thread("t", schema={"found": reducers.extend, "notes": reducers.merge, "query": reducers.replace})
    with thread.mount() as state:
        assert state["found"] == []
        state["notes"]["k"] = {"nested": [1, 2]}
        with pytest.raises(KeyError):
            state["query"]
    assert thread.state == {"notes": {"k": {"nested": [1, 2]}}}


@pytest.mark.parametrize("depth", [None, 500])
def test_a_cycle_or_a_deep_value_in_a_mount_is_a_limit_error(store, depth):
    thread = store.thread("t")
    thread.commit({"d": {"x": 1}})
    value = []
    if depth is None:
        value.append(value)
    for _ in range(depth or 0):
        value = [value]
    with pytest.raises(LimitError), thread.mount() as state:
        state["d"]["x"] = value
    assert thread.state == {"d": {"x": 1}}


def test_a_conflict_of_a_mount_names_thread_and_channel(store):
    thread = store.thread("t")
    thread.commit({"n": 1})
    mount = thread.mount()
    mount.__enter__()["n"] = 5
    thread.commit({"n": 2})
    with pytest.raises(ConflictError, match="channel 'n'") as raised:
        mount.__exit__(None, None, None)
    error = raised.value
    assert (error.thread, error.channel, error.expected_version, error.actual_version) == ("t", "n", 0, 1)
    assert thread.state == {"n": 2}


def test_the_state_of_an_unchanged_head_is_the_same_view(store):
    thread = store.thread("t")
    assert thread.state is thread.state == {}
    thread.commit({"x": 1, "list": [1, 2]})
    state = thread.state
    assert thread.state is state
    store.thread("another").commit({"x": 2})
    assert thread.state is state
    thread.commit({"x": 3})
    assert (thread.state["x"], state["x"]) == (3, 1)
    thread.rollback(0)
    assert (thread.state, thread.state is state) == (state, False)


def test_a_state_cannot_be_changed_by_its_holder(store):
    thread = store.thread("t")
    thread.commit({"list": [[1]], "dict": {"a": [1]}, "bytes": b"x"})
    state = thread.state
    state["list"][0].append(2)
    state["dict"]["a"].append(2)
    state.to_python()["list"].clear()
    with pytest.raises(TypeError):
        state["list"] = []
    assert thread.state is state == {"list": [[1]], "dict": {"a": [1]}, "bytes": b"x"}


@pytest.mark.slow
def test_a_state_shows_commits_of_another_process(path):
    with statelog.open(path, durability="interval") as store:
        thread = store.thread("t")
        thread.commit({"x": 1})
        assert thread.state["x"] == 1
        script = "import statelog, sys; statelog.open(sys.argv[1], durability='interval').thread('t').commit({'x': 2})"
        subprocess.run([sys.executable, "-c", script, path], check=True)
        assert thread.state["x"] == 2


def test_a_state_inside_a_transaction_shows_staged_writes(store):
    store.thread("t").commit({"x": 1})
    with store.transaction() as tx:
        thread = tx.thread("t")
        assert thread.state["x"] == 1
        thread.commit({"x": 2})
        assert (thread.state["x"], store.thread("t").state["x"]) == (2, 1)
    assert thread.state["x"] == store.thread("t").state["x"] == 2


def test_the_state_of_a_closed_store_raises(path):
    with statelog.open(path) as store:
        thread = store.thread("t")
        thread.commit({"x": 1})
        assert thread.state["x"] == 1
    with pytest.raises(ClosedError):
        thread.state  # noqa: B018 - asks
