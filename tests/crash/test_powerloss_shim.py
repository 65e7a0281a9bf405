"""The preloaded library logs changes of files in order, and makes calls fail."""

import errno
import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

import statelog
from statelog.errors import StorageError, UsageError
from statelog.testing.powerloss.shim import Action, Fault, ShimLog, SystemCall, build_shim, is_supported, mark
from statelog.testing.powerloss.trace import (
    Create,
    DirectoryFlushBegin,
    DirectoryFlushEnd,
    FlushBegin,
    FlushEnd,
    Link,
    Mark,
    Rename,
    Truncate,
    Unlink,
    Write,
    WriteFlushed,
    read_trace,
)

pytestmark = pytest.mark.skipif(not is_supported(), reason="recording needs a 64-bit Linux and a C compiler")

LOG_BYTES = 1 << 22


@pytest.fixture
def watched(tmp_path):
    directory = tmp_path / "watched"
    directory.mkdir()
    return directory


@pytest.fixture
def log(tmp_path):
    with ShimLog.create(tmp_path / "log", capacity_bytes=LOG_BYTES) as created:
        yield created


@pytest.fixture
def run(log, watched):
    """Run a script in a recorded process, in the watched directory. Return its exit status and output."""

    def run_script(script):
        path = os.pathsep.join([str(Path(statelog.__file__).parents[1]), *sys.path])
        done = subprocess.run(
            [sys.executable, "-c", "import mmap, os, errno\n" + textwrap.dedent(script)],
            cwd=watched,
            env={**log.environment(watched), "PYTHONPATH": path},
            capture_output=True,
            text=True,
            timeout=600,
            check=False,
        )
        assert done.returncode <= 0, done.stderr
        return done.returncode, done.stdout

    return run_script


def events(log, base=None):
    return list(read_trace(log.records(), base).events)


@pytest.mark.slow
def test_writes_are_logged_with_their_data_and_place(run, log):
    run(
        """
        f = os.open("file", os.O_RDWR | os.O_CREAT)
        os.write(f, b"one")
        os.writev(f, [b"t", b"wo"])
        os.pwrite(f, b"three", 100)
        os.lseek(f, 50, os.SEEK_SET)
        os.write(f, b"four")
        a = os.open("file", os.O_WRONLY | os.O_APPEND)
        os.write(a, b"five")
        os.pwritev(os.dup(f), [b"s", b"ix"], 7)
        """
    )
    assert events(log) == [
        Create(0, "file"),
        Write(0, 0, b"one"),
        Write(0, 3, b"two"),
        Write(0, 100, b"three"),
        Write(0, 50, b"four"),
        Write(0, 105, b"five"),
        Write(0, 7, b"six"),
    ]


def test_flushes_are_logged_with_their_beginning_and_end(run, log):
    run(
        """
        f = os.open("file", os.O_RDWR | os.O_CREAT)
        os.write(f, b"x")
        os.fsync(f)
        os.fdatasync(f)
        d = os.open("file", os.O_RDWR | os.O_DSYNC)
        os.pwrite(d, b"y", 1)
        os.pwritev(f, [b"z"], 2, os.RWF_DSYNC)
        os.fsync(os.open(".", os.O_RDONLY))
        """
    )
    assert events(log) == [
        Create(0, "file"),
        Write(0, 0, b"x"),
        FlushBegin(0),
        FlushEnd(0, 2),
        FlushBegin(0),
        FlushEnd(0, 4),
        Write(0, 1, b"y", synchronous=True),
        WriteFlushed(0, 6),
        Write(0, 2, b"z", synchronous=True),
        WriteFlushed(0, 8),
        DirectoryFlushBegin("."),
        DirectoryFlushEnd(".", 10),
    ]


def test_names_and_lengths_are_logged(run, log):
    run(
        """
        os.close(os.open("a", os.O_RDWR | os.O_CREAT))
        os.link("a", "b")
        os.rename("a", "c")
        os.truncate("c", 10)
        os.unlink("b")
        d = os.open(".", os.O_RDONLY)
        os.close(os.open("e", os.O_WRONLY | os.O_CREAT, dir_fd=d))
        os.ftruncate(os.open("c", os.O_RDWR | os.O_TRUNC), 5)
        os.posix_fallocate(os.open("c", os.O_RDWR), 0, 20)
        """
    )
    assert events(log) == [
        Create(0, "a"),
        Link(0, "a", "b"),
        Rename(0, "a", "c"),
        Truncate(0, 10),
        Unlink("b"),
        Create(1, "e"),
        Truncate(0, 0),
        Truncate(0, 5),
        Truncate(0, 20),
    ]


def test_a_new_file_is_another_one_even_if_it_has_the_inode_of_an_old_one(run, log):
    run(
        """
        for n in range(2):
            f = os.open("file", os.O_RDWR | os.O_CREAT)
            os.write(f, b"%d" % n)
            os.close(f)
            os.unlink("file")
        """
    )
    assert [event for event in events(log) if isinstance(event, Write)] == [Write(0, 0, b"0"), Write(1, 0, b"1")]


def test_files_elsewhere_are_not_logged(run, log, tmp_path):
    run(f"os.write(os.open({str(tmp_path / 'other')!r}, os.O_RDWR | os.O_CREAT), b'x')")
    assert events(log) == []


@pytest.mark.slow
def test_marks_are_logged_in_order_with_the_writes(run, log):
    run(
        """
        from statelog.testing.powerloss.shim import mark
        f = os.open("file", os.O_RDWR | os.O_CREAT)
        mark(b"before")
        os.write(f, b"x")
        mark(b"after")
        """
    )
    assert events(log) == [Create(0, "file"), Mark(b"before"), Write(0, 0, b"x"), Mark(b"after")]


def test_a_mark_of_a_process_not_recorded_is_refused():
    with pytest.raises(StorageError, match="not recorded"):
        mark(b"x")


def test_several_processes_share_one_log(run, log):
    run(
        """
        f = os.open("file", os.O_RDWR | os.O_CREAT)
        for n in range(4):
            if os.fork() == 0:
                for k in range(50):
                    os.pwrite(f, b"%d" % n, 100 * n + k)
                os._exit(0)
        for n in range(4):
            os.wait()
        """
    )
    written = [event.offset for event in events(log) if isinstance(event, Write)]
    assert sorted(written) == [100 * n + k for n in range(4) for k in range(50)]


def test_a_file_mapped_for_writing_is_named_as_unspecified(run, log):
    run(
        """
        f = os.open("file", os.O_RDWR | os.O_CREAT)
        os.ftruncate(f, 4096)
        mmap.mmap(f, 4096)[0] = 1
        """
    )
    assert read_trace(log.records()).unspecified == {"file"}


def test_operations_that_cannot_be_logged_are_reported(run, log, watched):
    (watched / "from").write_bytes(b"x" * 100)
    run("os.sendfile(os.open('to', os.O_RDWR | os.O_CREAT), os.open('from', os.O_RDONLY), 0, 100)")
    with pytest.raises(UsageError, match="sendfile"):
        read_trace(log.records(), {"from": b"x" * 100})


def test_a_file_that_is_not_in_the_base_is_reported(run, log, watched):
    (watched / "old").write_bytes(b"x")
    run("os.open('old', os.O_RDWR)")
    with pytest.raises(UsageError, match="old existed before"):
        read_trace(log.records())


def test_a_full_log_is_an_error_and_not_a_short_trace(run, log):
    run(f"os.write(os.open('file', os.O_RDWR | os.O_CREAT), bytes({LOG_BYTES}))")
    with pytest.raises(StorageError, match="more was written"):
        list(log.records())


@pytest.mark.parametrize(
    ("call", "script"),
    [
        (SystemCall.WRITE, "os.write(f, b'x')"),
        (SystemCall.WRITE, "os.pwritev(f, [b'x'], 0)"),
        (SystemCall.GROW, "os.pwrite(f, b'x', 1000)"),
        (SystemCall.FLUSH, "os.fsync(f)"),
        (SystemCall.FLUSH, "os.fdatasync(f)"),
        (SystemCall.TRUNCATE, "os.ftruncate(f, 3)"),
        (SystemCall.OPEN, "os.open('file', os.O_RDONLY)"),
        (SystemCall.RENAME, "os.rename('file', 'other')"),
        (SystemCall.RENAME, "os.link('file', 'other')"),
        (SystemCall.UNLINK, "os.unlink('file')"),
    ],
)
@pytest.mark.parametrize("error", [errno.EIO, errno.ENOSPC])
def test_a_call_that_is_to_fail_fails_once_without_effect(run, log, watched, call, script, error):
    (watched / "file").write_bytes(b"12345")
    log.arm(Fault(call, Action.FAIL, error, nth=2 if call is SystemCall.OPEN else 1))
    _status, said = run(
        f"""
        f = os.open("file", os.O_RDWR)
        for _ in range(2):
            try:
                {script}
                print("done")
            except OSError as e:
                print(e.errno, open("/proc/self/fd/%d" % f, "rb").read() == b"12345")
        """
    )
    assert said.splitlines() == [f"{error} True", "done"]
    assert log.strikes == 1


def test_a_persistent_fault_fails_every_call_from_the_nth_on(run, log):
    log.arm(Fault(SystemCall.WRITE, nth=3, persistent=True))
    _status, said = run(
        """
        f = os.open("file", os.O_RDWR | os.O_CREAT)
        for n in range(5):
            try:
                print(os.write(f, b"x"))
            except OSError as e:
                print(errno.errorcode[e.errno])
        """
    )
    assert said.split() == ["1", "1", "EIO", "EIO", "EIO"]


def test_a_write_may_take_effect_and_report_a_failure(run, log, watched):
    log.arm(Fault(SystemCall.WRITE, Action.FAIL_AFTER))
    _status, said = run(
        """
        try:
            os.write(os.open("file", os.O_RDWR | os.O_CREAT | os.O_DSYNC), b"abc")
        except OSError as e:
            print("failed")
        """
    )
    assert said == "failed\n"
    assert (watched / "file").read_bytes() == b"abc"
    assert events(log)[1:] == [Write(0, 0, b"abc", synchronous=True, refused=True)]


def test_a_write_may_be_short_or_ignored_and_a_flush_ignored(run, log):
    write_twice = "f = os.open('file', os.O_RDWR | os.O_CREAT); print(os.write(f, b'abcde')); os.write(f, b'f')"
    log.arm(Fault(SystemCall.WRITE, Action.SHORT))
    assert run(write_twice)[1] == "3\n"
    log.reset()
    log.arm(Fault(SystemCall.WRITE, Action.IGNORE))
    assert run(write_twice + "; os.rename('file', 'old')")[1] == "5\n"
    assert events(log, {"file": b""})[0] == Write(0, 5, b"f")
    log.reset()
    log.arm(Fault(SystemCall.FLUSH, Action.IGNORE))
    run("os.fsync(os.open('new', os.O_RDWR | os.O_CREAT))")
    assert events(log) == [Create(0, "new"), FlushBegin(0)]


@pytest.mark.parametrize(("action", "written"), [(Action.KILL, b""), (Action.KILL_AFTER, b"x")])
def test_a_call_may_kill_before_or_after_its_effect(run, log, watched, action, written):
    log.arm(Fault(SystemCall.WRITE, action))
    status, _said = run("os.write(os.open('file', os.O_RDWR | os.O_CREAT), b'x')")
    assert status == -9
    assert (watched / "file").read_bytes() == written
    run(
        "os.write(os.open('more', os.O_RDWR | os.O_CREAT), b'y')"
    )  # The mutex of the log was not lost with the dead process.


def test_calls_are_counted(run, log):
    run("f = os.open('file', os.O_RDWR | os.O_CREAT); os.write(f, b'x'); os.pwrite(f, b'y', 0); os.fsync(f)")
    assert log.calls() == {
        SystemCall.WRITE: 2,
        SystemCall.FLUSH: 1,
        SystemCall.TRUNCATE: 0,
        SystemCall.OPEN: 1,
        SystemCall.RENAME: 0,
        SystemCall.UNLINK: 0,
        SystemCall.GROW: 1,
    }


@pytest.mark.slow
def test_the_library_compiles_without_a_warning(tmp_path):
    from statelog.testing.powerloss import shim

    assert build_shim().exists()
    command = ["cc", "-std=c11", *shim._WARNINGS, "-Werror", "-O2", "-c", str(shim.SOURCE), "-o", str(tmp_path / "o")]
    assert subprocess.run(command, capture_output=True, check=False).stderr == b""
