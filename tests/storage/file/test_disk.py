"""Flushing a file with the call that reaches the disk on each platform."""

import errno
import fcntl
import os
import sys

import pytest

from statelog.storage.file.disk import flush_file, write_all, write_zeros

FULL_FLUSH = 51
"""Of macOS; `fcntl` has it there alone."""


@pytest.fixture
def calls(monkeypatch):
    made = []
    monkeypatch.setattr(os, "fdatasync", lambda descriptor: made.append(("fdatasync", descriptor)))
    monkeypatch.setattr(os, "fsync", lambda descriptor: made.append(("fsync", descriptor)))
    monkeypatch.setattr(fcntl, "F_FULLFSYNC", FULL_FLUSH, raising=False)
    monkeypatch.setattr(fcntl, "fcntl", lambda descriptor, command: made.append((command, descriptor)))
    return made


def test_linux_flushes_data_and_length(calls, monkeypatch):
    monkeypatch.setattr(sys, "platform", "linux")
    flush_file(7)
    assert calls == [("fdatasync", 7)]


def test_macos_flushes_the_cache_of_the_drive(calls, monkeypatch):
    monkeypatch.setattr(sys, "platform", "darwin")
    flush_file(7)
    assert calls == [(FULL_FLUSH, 7)]


@pytest.mark.parametrize(("number", "is_hidden"), [(errno.ENOTSUP, True), (errno.EIO, False)])
def test_fsync_is_used_if_the_drive_cache_cannot_be_flushed(calls, monkeypatch, number, is_hidden):
    def refuse(_descriptor, _command):
        raise OSError(number, "refused")

    monkeypatch.setattr(sys, "platform", "darwin")
    monkeypatch.setattr(fcntl, "fcntl", refuse)
    if is_hidden:
        flush_file(7)
        assert calls == [("fsync", 7)]
    else:
        with pytest.raises(OSError, match="refused"):
            flush_file(7)
        assert calls == []


def test_the_rest_of_a_partial_write_is_written(tmp_path, monkeypatch):
    pwrite, sizes = os.pwrite, []

    def short(descriptor, data, at):
        sizes.append(len(data))
        return pwrite(descriptor, data[: max(len(data) // 2, 1)], at)

    monkeypatch.setattr(os, "pwrite", short)
    with (tmp_path / "file").open("w+b") as file:
        write_all(file.fileno(), bytes(range(100)), 5)
        assert os.pread(file.fileno(), 200, 0) == bytes(5) + bytes(range(100))
    assert sizes[:3] == [100, 50, 25]


@pytest.mark.parametrize("most", [None, 1000])
def test_zeros_are_written_in_small_pieces_and_only_in_the_range(tmp_path, monkeypatch, most):
    pwrite, sizes = os.pwrite, []

    def counted(descriptor, data, at):
        sizes.append(len(data))
        return pwrite(descriptor, data[:most], at)

    (tmp_path / "file").write_bytes(b"x" * 200_000)
    monkeypatch.setattr(os, "pwrite", counted)
    with (tmp_path / "file").open("r+b") as file:
        write_zeros(file.fileno(), 5, 150_000)
    assert (tmp_path / "file").read_bytes() == b"x" * 5 + bytes(149_995) + b"x" * 50_000
    assert max(sizes) == 64 * 1024
