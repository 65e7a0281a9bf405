"""`python -m benchmarks [NAME]...`: run the workloads here and show them as `statelog bench` does."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from rich.console import Console

from benchmarks import REPEATS_DEFAULT, SCALE_DEFAULT, run
from benchmarks.regression.workloads import WORKLOADS


def main() -> int:
    """Run the workloads that the command line names."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(WORKLOADS))
    parser.add_argument("--scale", type=float, default=SCALE_DEFAULT, help="factor for all sizes; the targets use 1")
    parser.add_argument("--repeats", type=int, default=REPEATS_DEFAULT, help="number of alternating repetitions")
    parser.add_argument("--directory", type=Path, help="directory of the files; default: a temporary one")
    parser.add_argument("--json", action="store_true", help="print one JSON object instead of tables")
    given = parser.parse_args()
    return run(
        given.names,
        workloads=WORKLOADS,
        directory=given.directory,
        scale=given.scale,
        repeats=given.repeats,
        as_json=given.json,
        console=Console(),
    )


if __name__ == "__main__":
    sys.exit(main())
