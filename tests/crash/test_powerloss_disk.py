"""The rules by which a disk may lose data that was not flushed."""

import pytest

from statelog.testing.powerloss.disk import ALL_SECTORS, Choice, Disk
from statelog.testing.powerloss.trace import (
    Create,
    DirectoryFlushBegin,
    DirectoryFlushEnd,
    FlushBegin,
    FlushEnd,
    Link,
    Rename,
    Trace,
    Truncate,
    Unlink,
    Write,
    WriteFlushed,
)

PAGE = 4096
OLD, NEW = b"o" * PAGE, b"n" * PAGE


def disk_after(*events, base=None):
    base = {"file": OLD * 3} if base is None else base
    disk = Disk(Trace(base, {name: number for number, name in enumerate(base)}, events, frozenset()))
    for at, event in enumerate(events):
        disk.apply(at, event)
    return disk


def image(disk, choose=lambda _unit: 0, torn=None):
    units = disk.units()
    choice = Choice(tuple(choose(unit) for unit in units), {0: torn} if torn else {})
    return disk.image(units, choice).as_base()


def nothing(disk):
    return image(disk)


def everything(disk):
    return image(disk, lambda unit: unit.levels)


def test_unflushed_writes_may_be_present_or_lost():
    disk = disk_after(Write(0, PAGE, NEW))
    assert nothing(disk) == {"file": OLD * 3}
    assert everything(disk) == {"file": OLD + NEW + OLD}


def test_pages_of_one_write_are_independent():
    disk = disk_after(Write(0, 0, NEW * 3))
    assert [unit.page for unit in disk.units()] == [0, 1, 2]
    assert image(disk, lambda unit: unit.page != 1) == {"file": NEW + OLD + NEW}


def test_a_write_across_a_page_boundary_is_two_units():
    disk = disk_after(Write(0, PAGE - 2, b"abcd"))
    assert image(disk, lambda unit: unit.page == 1)["file"][PAGE - 2 : PAGE + 2] == b"oocd"


def test_a_page_written_twice_has_one_of_its_contents():
    disk = disk_after(Write(0, 0, b"first"), Write(0, 2, b"two"))
    assert {image(disk, lambda _unit, n=n: n)["file"][:5] for n in range(3)} == {b"ooooo", b"first", b"fitwo"}


def test_a_torn_page_has_sectors_of_both():
    disk = disk_after(Write(0, 0, NEW))
    assert image(disk, torn=0b00000101)["file"] == b"n" * 512 + b"o" * 512 + b"n" * 512 + OLD[1536:] + OLD * 2
    assert image(disk, torn=ALL_SECTORS)["file"] == NEW + OLD * 2


def test_a_flush_makes_everything_before_its_beginning_durable():
    disk = disk_after(Write(0, 0, NEW), FlushBegin(0), Write(0, PAGE, NEW), FlushEnd(0, 1))
    assert nothing(disk) == {"file": NEW + OLD * 2}
    assert everything(disk) == {"file": NEW * 2 + OLD}


def test_a_flush_that_has_not_returned_makes_nothing_durable():
    assert nothing(disk_after(Write(0, 0, NEW), FlushBegin(0))) == {"file": OLD * 3}


def test_a_flush_of_one_file_does_not_flush_another():
    disk = disk_after(Write(0, 0, NEW), Write(1, 0, NEW), FlushBegin(0), FlushEnd(0, 2), base={"a": OLD, "b": OLD})
    assert nothing(disk) == {"a": NEW, "b": OLD}


def test_a_synchronous_write_flushes_only_its_own_pages():
    disk = disk_after(Write(0, 0, NEW), Write(0, PAGE, NEW, synchronous=True), WriteFlushed(0, 1))
    assert nothing(disk) == {"file": OLD + NEW + OLD}


def test_no_later_flush_makes_writes_of_a_failed_flush_durable():
    failed = (Write(0, 0, NEW), FlushBegin(0), FlushEnd(0, 1, failed=True))
    disk = disk_after(*failed, FlushBegin(0), FlushEnd(0, 3))
    assert nothing(disk) == {"file": OLD * 3}
    again = disk_after(*failed, Write(0, 0, b"x"), FlushBegin(0), FlushEnd(0, 4))
    assert nothing(again)["file"][:2] == b"xn"


def test_a_refused_synchronous_write_may_be_present():
    disk = disk_after(Write(0, 0, NEW, synchronous=True, refused=True), FlushBegin(0), FlushEnd(0, 1))
    assert nothing(disk) == {"file": OLD * 3}
    assert everything(disk) == {"file": NEW + OLD * 2}


def test_a_file_may_have_become_longer_without_its_content():
    disk = disk_after(Write(0, 3 * PAGE, NEW * 2))
    assert nothing(disk) == {"file": OLD * 3}
    assert image(disk, lambda unit: unit.page is None) == {"file": OLD * 3 + bytes(2 * PAGE)}
    assert image(disk, lambda unit: unit.page == 4) == {"file": OLD * 3 + bytes(PAGE) + NEW}


def test_a_truncation_may_have_happened_or_not():
    disk = disk_after(Truncate(0, PAGE))
    assert nothing(disk) == {"file": OLD * 3}
    assert everything(disk) == {"file": OLD}
    flushed = disk_after(Truncate(0, PAGE), FlushBegin(0), FlushEnd(0, 1))
    assert nothing(flushed) == {"file": OLD}


NAMINGS = [
    (Create(1, "new"), {"file": b"x", "new": b""}),
    (Link(0, "file", "also"), {"file": b"x", "also": b"x"}),
    (Rename(0, "file", "moved"), {"moved": b"x"}),
    (Unlink("file"), {}),
]


@pytest.mark.parametrize(("naming", "after"), NAMINGS)
def test_a_name_is_durable_after_a_flush_of_its_directory(naming, after):
    base = {"file": b"x"}
    unsynced = disk_after(naming, base=base)
    assert nothing(unsynced) == base
    assert everything(unsynced) == after
    assert nothing(disk_after(naming, DirectoryFlushBegin("."), DirectoryFlushEnd(".", 1), base=base)) == after


@pytest.mark.parametrize(("naming", "_after"), NAMINGS)
def test_a_flush_of_another_directory_makes_no_name_durable(naming, _after):
    elsewhere = (DirectoryFlushBegin("sub"), DirectoryFlushEnd("sub", 1))
    assert nothing(disk_after(naming, *elsewhere, base={"file": b"x"})) == {"file": b"x"}


def test_a_renamed_file_may_have_its_new_name_and_not_its_content():
    replace = (Create(1, "temporary"), Write(1, 0, b"new"), Rename(1, "temporary", "file"))
    disk = disk_after(*replace, base={"file": b"old"})
    assert image(disk, lambda unit: unit.file is None) == {"file": b""}
    assert nothing(disk) == {"file": b"old"}


def test_images_with_equal_contents_have_equal_digests():
    disk = disk_after(Write(0, 0, OLD))
    units = disk.units()
    assert disk.image(units, Choice((0,))).digest == disk.image(units, Choice((1,))).digest
    other = disk_after(Write(0, 0, NEW))
    assert other.image(other.units(), Choice((1,))).digest != disk.image(units, Choice((1,))).digest


def test_an_image_writes_files_with_all_their_names(tmp_path):
    disk = disk_after(Link(0, "file", "also"), base={"file": b"x"})
    units = disk.units()
    disk.image(units, Choice((1,))).write(tmp_path)
    assert (tmp_path / "also").samefile(tmp_path / "file")


def test_files_written_through_memory_are_in_no_image():
    trace = Trace({"a": b"x", "a-lock": b"y"}, {"a": 0, "a-lock": 1}, (), frozenset({"a-lock"}))
    assert nothing(Disk(trace)) == {"a": b"x"}
