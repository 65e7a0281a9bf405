"""A host of a shared store in a process with many files open."""

from __future__ import annotations

import os
import resource

from test_sharing import add


def test_a_process_with_many_files_open_hears_of_others(host):
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(4096, hard), hard))
    files = [os.open(os.devnull, os.O_RDONLY) for _ in range(1100)]
    try:
        a, b = host("a"), host("b", poll_s=60)
        add(a)
        assert b.remote.wait(a.last_lsn, timeout_s=10)
    finally:
        for file in files:
            os.close(file)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
