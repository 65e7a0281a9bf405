"""Appends to the WAL with partial writes of the operating system."""

import os
import shutil

import pytest

from statelog.storage.file.sidecar_files import journal_path
from statelog.storage.wal.wal_format import HALVES_AT, Groups


@pytest.mark.parametrize("taken", [1, 7, 300])
def test_a_group_written_in_pieces_is_complete_after_a_kill(
    store_file, append, check_whole, open_store_file, tmp_path, monkeypatch, taken
):
    store_file.committer.submit(append)
    wal, pwrite, calls = store_file.wal, os.pwrite, []

    def write_some(descriptor, data, at):
        if descriptor == wal.descriptor and at >= HALVES_AT[0]:
            calls.append(len(data))
            data = data[:taken]
        return pwrite(descriptor, data, at)

    monkeypatch.setattr(os, "pwrite", write_some)
    assert store_file.committer.submit(append) == 2
    monkeypatch.undo()
    assert len(calls) > 1
    shared = wal.shared_state
    assert [group.lsn for group in Groups(wal.descriptor, wal.session, shared.epoch, shared.lsn_before)][-1] == 2
    copy = tmp_path / "killed.state"
    shutil.copy(journal_path(store_file.path), journal_path(copy))
    shutil.copy(store_file.path, copy)
    assert check_whole(open_store_file(copy)) == 2
