"""`pytest benchmarks` takes --scale, as `statelog bench` does."""

from __future__ import annotations

import sys
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

sys.path.append(str(Path(__file__).parents[1]))

from benchmarks.regression.compared import Compared
from benchmarks.regression.workloads import WORKLOADS
from benchmarks.workload import Bench

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from benchmarks.measure import Operation

_SCALE_DEFAULT = 0.2


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add --scale."""
    parser.addoption(
        "--scale", type=float, default=_SCALE_DEFAULT, help="1: the sizes of the targets (default: %(default)s)"
    )


def pytest_xdist_auto_num_workers(config: pytest.Config) -> int:
    """Return 0, so that pytest-xdist starts no processes: other work would disturb the measurements."""
    config.option.dist = "no"
    return 0


@pytest.fixture(scope="session")
def scale(pytestconfig: pytest.Config) -> float:
    """Return the factor of the sizes, from --scale."""
    value = pytestconfig.getoption("--scale")
    assert isinstance(value, float)
    return value


@pytest.fixture(scope="session")
def operations(
    scale: float, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Callable[[str], dict[str, Operation]]]:
    """Yield a function that returns the sides of a workload. They are prepared on its first call, and stay open."""
    prepared: dict[str, dict[str, Operation]] = {}
    with ExitStack() as stack:

        def prepare(name: str) -> dict[str, Operation]:
            if name not in prepared:
                workload = WORKLOADS[name]
                assert isinstance(workload, Compared)
                bench = Bench(tmp_path_factory.mktemp(name), scale, repeats=1)
                prepared[name] = stack.enter_context(workload.operations(bench))
            return prepared[name]

        yield prepare
