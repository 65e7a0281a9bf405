"""Members in C of Python's objects: as attributes, and as memory."""

import gc
import weakref

import pytest

from statelog.kernels import marks

KINDS = {
    marks.CommitterMarks: (["leader"], ["groups", "commits", "expected"], []),
    marks.DeferredMarks: (
        ["transaction", "waiting", "journaled"],
        ["settling_thread", "apart", "commits", "_size_bytes_max", "_pages_max", "_records_max", "number"],
        ["has_room"],
    ),
    marks.EnvironmentMarks: (["locks", "handles"], ["process_id", "writer_thread", "map_address"], ["is_shut"]),
    marks.KeeperMarks: ([], ["commits"], ["is_at_work", "flushes"]),
    marks.SteadyMarks: (
        ["_session"],
        ["at", "end", "lsn", "flushed", "_epoch", "_descriptor", "_size_bytes"],
        ["is_broken", "is_dirty"],
    ),
    marks.TransactionMarks: (
        ["appended", "rows", "waiting"],
        ["changes", "first_lsn", "size_bytes", "number"],
        ["is_flushed"],
    ),
    marks.WaitingMarks: (["records", "rows", "last"], ["first_lsn", "size_bytes", "count"], []),
    marks.LastMarks: (["transaction", "memory"], ["changes"], []),
    marks.LookMarks: ([], ["descriptor", "place", "turn_us"], []),
    marks.CacheMarks: (["_young"], ["_size", "_half", "_overhead"], []),
}


@pytest.mark.parametrize("base", KINDS)
def test_members_are_apart_from_each_other(base):
    kind = type("Kind", (base,), {})
    made, (objects, numbers, flags) = kind(), KINDS[base]
    assert [getattr(made, name) for name in (*objects, *numbers, *flags)] == (
        [None] * len(objects) + [0] * len(numbers) + [False] * len(flags)
    )
    expected = {name: [name] for name in objects}
    expected |= {name: (-1) ** at * (2**63 - 1 - at) for at, name in enumerate(numbers)}
    for at, flag in enumerate(flags):
        expected[flag] = bool(at % 2)
    for name, value in expected.items():
        setattr(made, name, value)
    assert {name: getattr(made, name) for name in expected} == expected
    assert vars(made) == {}
    for flag in flags:
        setattr(made, flag, not expected[flag])
    assert all(getattr(made, flag) is not expected[flag] for flag in flags)


def test_times_are_floats():
    made = type("Kind", (marks.LookMarks,), {"__slots__": ()})()
    assert made.look_at_s == 0.0
    made.look_at_s = 1e9 + 0.125
    assert made.look_at_s == 1e9 + 0.125


@pytest.mark.parametrize(("name", "wrong"), [("at", "x"), ("at", 2**64), ("is_dirty", 1), ("_epoch", None)])
def test_a_value_of_another_type_is_refused(name, wrong):
    made = type("Kind", (marks.SteadyMarks,), {})()
    with pytest.raises((TypeError, OverflowError, SystemError)):
        setattr(made, name, wrong)


def test_cycles_through_members_are_collected():
    kind = type("Kind", (marks.WaitingMarks,), {})
    first, second = kind(), kind()
    first.last, second.last, second.records = second, first, [first]
    gone = [weakref.ref(first), weakref.ref(second)]
    del first, second
    gc.collect()
    assert [there() for there in gone] == [None, None]
    assert gc.collect() == 0


def test_a_class_goes_with_its_last_object():
    kind = type("Kind", (marks.WaitingMarks,), {})
    made, gone = [kind() for _ in range(3)], weakref.ref(kind)
    del kind
    gc.collect()
    assert gone() is not None
    del made
    gc.collect()
    assert gone() is None
