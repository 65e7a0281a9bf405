"""Power cuts during a mixed workload: threads, board, leases, durable runs, retention, compaction, shipping."""

from __future__ import annotations

import os

import pytest
from mixed_power import campaign, examine, record, without_flushes

from statelog.testing.powerloss.shim import is_supported

pytestmark = pytest.mark.skipif(not is_supported(), reason="recording needs a 64-bit Linux and a C compiler")

IMAGES = 30
SOAK_IMAGES = 100_000
TURNS = 14


@pytest.fixture(scope="module")
def trace(tmp_path_factory):
    return record(tmp_path_factory.mktemp("mixed"), 3, TURNS)


@pytest.mark.slow
def test_acknowledged_or_shipped_commits_are_on_the_disk(trace):
    found = examine(trace, IMAGES)
    assert found == (IMAGES, [], [])


@pytest.mark.slow
@pytest.mark.parametrize("ending", ["-journal", ""])
def test_disk_that_forgets_flushes_is_detected(trace, ending):
    found = examine(without_flushes(trace, ending), 3 * IMAGES, until_bad=True)
    assert found.lost + found.wrong != []


@pytest.mark.soak
def test_images_of_the_mixed_workload_are_sound(soak_scale):
    found = campaign(int(SOAK_IMAGES * soak_scale), os.cpu_count() or 1)
    assert (found.lost, found.wrong) == ([], [])
    assert found.images >= int(SOAK_IMAGES * soak_scale)
