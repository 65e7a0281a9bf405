"""The images that a power cut may leave of the work of a program, with its output until then."""

from __future__ import annotations

import random
import subprocess
import sys
import tempfile
from pathlib import Path

from statelog.testing.powerloss.disk import Disk
from statelog.testing.powerloss.images import random_choice, systematic_choices
from statelog.testing.powerloss.recorder import log_directory
from statelog.testing.powerloss.shim import ShimLog
from statelog.testing.powerloss.trace import Mark, read_trace

CUTS = 1 / 8
"""The share of points of a recording at which the power is cut, at random. All points would make too many images."""


def traced(directory, program, *arguments):
    """Run a program on the store `a.state`, and return its disk operations."""
    with (
        tempfile.TemporaryDirectory(dir=log_directory()) as temporary,
        ShimLog.create(Path(temporary) / "log") as log,
    ):
        command = [sys.executable, "-c", program, str(directory / "a.state"), *arguments]
        subprocess.run(command, check=True, env=log.environment(directory))
        return read_trace(log.records(), {})


def images(trace):
    """Yield distinct images, each with the marks that had been made until then."""
    generator, disk, said, seen = random.Random(1), Disk(trace), [], set()
    for at, event in enumerate(trace.events):
        disk.apply(at, event)
        if isinstance(event, Mark) and event.data:
            said.append(event.data.decode().split())
        if generator.random() >= CUTS:
            continue
        units = disk.units()
        choices = [*systematic_choices(units, generator, units_max=2), (None, random_choice(units, generator)[1])]
        for _mode, choice in choices:
            image = disk.image(units, choice)
            if (image.digest, len(said)) not in seen:
                seen.add((image.digest, len(said)))
                yield image, list(said)
