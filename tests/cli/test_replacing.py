"""The target of `export`: never a file of the store, and an earlier export only once the new one is complete."""

import os
import resource
import stat
import subprocess
import sys
import threading

import forks
import pytest

import statelog

LIMIT_SIZE_BYTES = 50_000


def permissions(path):
    return stat.S_IMODE(path.stat().st_mode)


def imported(run, source, target):
    """Return True if an export is complete."""
    return run("import", target, source).code == 0


@pytest.fixture
def earlier(run, state, tmp_path):
    """An earlier export, alone in its directory."""
    directory = tmp_path / "exports"
    directory.mkdir()
    assert run("export", state, "-o", directory / "good.exp").code == 0
    return directory / "good.exp"


# --- files of the store ----------------------------------------------------------------


@pytest.mark.parametrize("suffix", ["", "-lock", "-journal", "-control", "-wake"])
@pytest.mark.parametrize("through", ["name", "symlink to the target", "symlink to the store", "hard link"])
def test_an_export_over_a_file_of_its_store_is_refused_and_changes_nothing(run, state, tmp_path, suffix, through):
    store, own = state, state.with_name(f"{state.name}{suffix}")
    target = own
    if through == "symlink to the target":
        target = tmp_path / "link"
        target.symlink_to(own)
    elif through == "symlink to the store":
        store = tmp_path / "link"
        store.symlink_to(state)
    elif through == "hard link":
        if not own.exists():
            own.write_bytes(b"")
        target = tmp_path / "link"
        target.hardlink_to(own)
    before = {each: each.read_bytes() for each in tmp_path.rglob("*") if each.is_file()}
    answer = run("export", store, "-o", target)
    assert (answer.code, answer.out, answer.err.count("\n")) == (2, "", 1)
    assert str(target) in answer.err
    assert {each: each.read_bytes() for each in tmp_path.rglob("*") if each.is_file()} == before


# --- an earlier export ------------------------------------------------------------------


@pytest.mark.parametrize(("arguments", "code"), [(["--thread", "nope"], 3), (["--since", "999"], 2)], ids=str)
def test_a_failed_export_keeps_the_earlier_one(run, state, earlier, arguments, code):
    before = earlier.read_bytes()
    answer = run("export", state, "-o", earlier, *arguments)
    assert (answer.code, answer.err.count("\n")) == (code, 1)
    assert earlier.read_bytes() == before
    assert list(earlier.parent.iterdir()) == [earlier]


@pytest.mark.slow
def test_an_export_to_a_full_disk_keeps_the_earlier_one_and_names_the_file(start, state, earlier):
    before = earlier.read_bytes()
    with statelog.open(state) as store:
        store.thread("other").commit({"large": os.urandom(4 * LIMIT_SIZE_BYTES)})
    limits = (LIMIT_SIZE_BYTES, resource.getrlimit(resource.RLIMIT_FSIZE)[1])
    process = start(
        "export", state, "-o", earlier, preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    )
    out, err = process.communicate()
    assert (process.returncode, out) == (statelog.errors.StorageError.exit_code, "")
    assert err == f"statelog: {earlier}: File too large\n"
    assert earlier.read_bytes() == before
    assert list(earlier.parent.iterdir()) == [earlier]


def test_an_interrupted_export_keeps_the_earlier_one(run, state, earlier, monkeypatch):
    def export(_store, stream, **_options):
        stream.write(b"half")
        stream.flush()
        raise KeyboardInterrupt

    before = earlier.read_bytes()
    monkeypatch.setattr(statelog.Store, "export", export)
    assert run("export", state, "-o", earlier).code == 130
    assert earlier.read_bytes() == before
    assert list(earlier.parent.iterdir()) == [earlier]


HALF_AN_EXPORT = """
import sys, time
import statelog
from statelog.cli import main

def export(_store, stream, **_options):
    stream.write(b"half")
    stream.flush()
    print("half", flush=True)
    time.sleep(60)

statelog.Store.export = export
main(["export", *sys.argv[1:]])
"""


@pytest.fixture
def half_exported(state, earlier):
    """Start a process that has written half of an export to the same file."""
    command = [sys.executable, "-c", HALF_AN_EXPORT, str(state), "-o", str(earlier)]
    child = forks.Popen(command, stdout=subprocess.PIPE, text=True)
    assert child.stdout.readline() == "half\n"
    yield child
    child.kill()
    child.communicate()


def test_the_next_export_removes_the_temporary_file_of_a_killed_one(run, state, earlier, half_exported):
    half_exported.kill()
    half_exported.wait()
    assert [entry.suffix for entry in sorted(earlier.parent.iterdir())] == [".exporting", ".exp"]
    other = earlier.parent / ".other.exp.0123456789abcdef.exporting"
    other.write_bytes(b"of another target")
    assert run("export", state, "-o", earlier).code == 0
    assert sorted(earlier.parent.iterdir()) == [other, earlier]


def test_the_temporary_file_of_a_running_export_is_kept(run, state, earlier, half_exported):
    assert half_exported.poll() is None
    assert run("export", state, "-o", earlier).code == 0
    assert [entry.suffix for entry in sorted(earlier.parent.iterdir())] == [".exporting", ".exp"]


def test_an_export_gets_its_name_only_once_it_is_on_the_disk(run, state, earlier, monkeypatch):
    before = earlier.read_bytes()
    flushed = []

    def flush(descriptor):
        flushed.append((os.fstat(descriptor).st_ino, os.fstat(descriptor).st_size, earlier.read_bytes()))

    monkeypatch.setattr("statelog.cli.output_file.flush_file", flush)
    with statelog.open(state) as store:
        store.thread("other").commit({"more": True})
    assert run("export", state, "-o", earlier).code == 0
    assert flushed == [(earlier.stat().st_ino, earlier.stat().st_size, before)]


def test_an_export_through_a_symlink_replaces_the_file_and_not_the_link(run, state, earlier, tmp_path):
    link = tmp_path / "link"
    link.symlink_to(earlier)
    inode = earlier.stat().st_ino
    with statelog.open(state) as store:
        store.thread("other").commit({"more": True})
    assert run("export", state, "-o", link).code == 0
    assert link.is_symlink()
    assert earlier.stat().st_ino != inode
    assert list(earlier.parent.iterdir()) == [earlier]
    assert imported(run, earlier, tmp_path / "b.state")
    assert run("log", tmp_path / "b.state", "--json").out == run("log", state, "--json").out


def test_an_export_through_a_dangling_symlink_creates_the_file(run, state, tmp_path):
    link = tmp_path / "link"
    link.symlink_to("new.exp")
    assert run("export", state, "-o", link).code == 0
    assert link.is_symlink()
    assert imported(run, tmp_path / "new.exp", tmp_path / "b.state")


def test_an_export_can_have_the_longest_name_of_the_file_system(run, state, tmp_path):
    target = tmp_path / ("x" * 255)
    assert run("export", state, "-o", target).code == 0
    assert imported(run, target, tmp_path / "b.state")


# --- permissions ------------------------------------------------------------------------


@pytest.mark.parametrize("mode", [0o600, 0o640, 0o664])
def test_a_new_export_is_readable_by_every_reader_of_the_store(run, state, tmp_path, mode):
    state.chmod(mode)
    assert run("export", state, "-o", tmp_path / "new.exp").code == 0
    assert permissions(tmp_path / "new.exp") == mode


def test_a_replaced_export_keeps_its_permissions(run, state, earlier):
    earlier.chmod(0o640)
    inode = earlier.stat().st_ino
    assert run("export", state, "-o", earlier).code == 0
    assert (permissions(earlier), earlier.stat().st_ino != inode) == (0o640, True)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away")
def test_an_export_replaced_by_root_keeps_its_owner(run, state, earlier):
    os.chown(earlier, 12345, 23456)
    assert run("export", state, "-o", earlier).code == 0
    assert (earlier.stat().st_uid, earlier.stat().st_gid) == (12345, 23456)


@pytest.mark.skipif(os.geteuid() == 0, reason="nothing is write-protected for root")
def test_a_write_protected_export_is_not_replaced(run, state, earlier):
    earlier.chmod(0o444)
    before = earlier.read_bytes()
    answer = run("export", state, "-o", earlier, "--thread", "other")
    assert answer.err == f"statelog: {earlier}: Permission denied\n"
    assert earlier.read_bytes() == before


# --- targets that are not regular files ------------------------------------------------------------


def test_a_fifo_is_written_to_and_not_replaced(run, state, earlier, tmp_path):
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    read = []
    reader = threading.Thread(target=lambda: read.append(fifo.read_bytes()), daemon=True)
    reader.start()
    assert run("export", state, "-o", fifo).code == 0
    reader.join(timeout=30)
    assert read == [earlier.read_bytes()]
    assert fifo.is_fifo()


def test_a_full_device_is_named(run, state):
    answer = run("export", state, "-o", "/dev/full")
    assert (answer.code, answer.err) == (
        statelog.errors.StorageError.exit_code,
        "statelog: /dev/full: No space left on device\n",
    )


def test_a_missing_directory_is_named_with_the_file(run, state, tmp_path):
    target = tmp_path / "missing" / "a.exp"
    answer = run("export", state, "-o", target)
    assert answer.code == statelog.errors.StoreNotFoundError.exit_code
    assert answer.err == f"statelog: {target}: No such file or directory\n"
