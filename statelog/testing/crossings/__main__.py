"""The random driver: `python -m statelog.testing.crossings --acts 10000 --seed 1`."""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from statelog.testing.crossings.agreements import ROADS
from statelog.testing.crossings.driver import Driver, Failure, shrink
from statelog.testing.crossings.plans import Plan, PlanStep, draw_plan

_ACTS = (40, 80, 120, 200)
"""The numbers of acts in successive runs. After more acts, it would be slow to compare the store."""

_TOLD_ACTS = 10_000
"""The number of acts between two lines that report progress."""


def main() -> int:
    """Run the crossings with the options of the command line. Return 1 if an agreement fails, 0 otherwise."""
    options = _parse()
    if options.jobs > 1:
        return _side_by_side(options)
    roads = [road for road in options.roads or ROADS if road not in options.without]
    with Driver(roads=roads) as driver:
        if options.replay is not None:
            return _replay(options, driver)
        return _go_on(options, driver)


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m statelog.testing.crossings", description=__doc__)
    parser.add_argument("--acts", type=int, default=10_000, help="total number of acts")
    parser.add_argument("--seed", type=int, default=1, help="seed of the first run; each run adds one")
    parser.add_argument("--jobs", type=int, default=1, help="number of parallel processes")
    parser.add_argument("--check-every", type=int, default=50, help="maximum number of acts between two checks")
    parser.add_argument("--only", action="append", default=[], help="a family of acts to use; may be repeated")
    parser.add_argument("--roads", action="append", choices=ROADS, help="an agreement to check; may be repeated")
    parser.add_argument("--without", action="append", default=[], choices=ROADS, help="an agreement to leave out")
    parser.add_argument("--omit", action="append", default=[], help="an act to leave out")
    parser.add_argument("--failures", type=int, default=1, help="stop after this many failures")
    parser.add_argument(
        "--no-shrink", action="store_true", help="do not search for a shorter plan with the same failure"
    )
    parser.add_argument("--replay", type=Path, help="a file written by --save")
    parser.add_argument("--save", type=Path, help="a folder for failing plans")
    parser.add_argument("--step", type=int, default=1, help=argparse.SUPPRESS)
    return parser.parse_args()


def _side_by_side(options: argparse.Namespace) -> int:
    arguments = [each for each in sys.argv[1:] if not each.startswith("--jobs")]
    if "--jobs" in sys.argv:
        del arguments[sys.argv.index("--jobs") - 1]
    share = [f"--acts={options.acts // options.jobs}", f"--step={options.jobs}"]
    command = [sys.executable, "-m", "statelog.testing.crossings", *arguments, *share]
    children = [subprocess.Popen([*command, f"--seed={options.seed + job}"]) for job in range(options.jobs)]  # noqa: S603
    try:
        codes = [child.wait() for child in children]
        return int(any(codes))
    finally:
        for child in children:
            child.terminate()


def _go_on(options: argparse.Namespace, driver: Driver) -> int:
    begun_s, seed, failures, acts, told = time.monotonic(), options.seed, 0, 0, 0
    while acts < options.acts and failures < options.failures:
        plan = draw_plan(
            seed,
            min(_ACTS[seed % len(_ACTS)], options.acts),
            check_every=options.check_every,
            only=options.only,
            omit=options.omit,
        )
        failure = driver.run(plan)
        acts = driver.acts
        if failure is not None:
            failures += 1
            _report(options, seed, failure, driver)
        if acts // _TOLD_ACTS > told:
            told = acts // _TOLD_ACTS
            _say(f"{acts} acts, up to seed {seed}, {failures} failures")
        seed += options.step
    _summarise(acts, time.monotonic() - begun_s, failures)
    return min(failures, 1)


def _replay(options: argparse.Namespace, driver: Driver) -> int:
    plan = _plan_of(json.loads(options.replay.read_text()))
    failure = driver.run(plan)
    if failure is None:
        _say("all agreed")
        return 0
    _report(options, 0, failure, driver)
    return 1


def _report(options: argparse.Namespace, seed: int, failure: Failure, driver: Driver) -> None:
    _say(f"seed {seed}: {' '.join(failure.kinds)}, after step {failure.at} of {len(failure.plan.steps)}")
    if not options.no_shrink:
        acts = driver.acts
        failure = shrink(failure.plan, failure, driver)
        driver.acts = acts
    plan = failure.plan
    _say(f"{plan.processes} other processes, {'shipped, ' if plan.is_shipped else ''}durability={plan.durability!r}")
    for step in plan.steps[: failure.at + 1]:
        _say(f"   {json.dumps(step)}")
    _say(failure.text)
    if options.save is not None:
        options.save.mkdir(exist_ok=True)
        path = options.save / f"{seed}-{failure.kinds[0].replace(' ', '-')}.json"
        path.write_text(json.dumps(plan.with_steps(plan.steps[: failure.at + 1]).__dict__))
        _say(f"saved as {path}")


def _plan_of(saved: dict[str, Any]) -> Plan:
    steps = map(PlanStep.of, saved["steps"])
    return Plan(tuple(steps), saved["processes"], saved["is_shipped"], saved["durability"])


def _summarise(acts: int, seconds: float, failures: int) -> None:
    _say(f"{acts} acts in {seconds:.0f} s, {acts / max(seconds, 1e-9):.0f} acts/s; {failures} failures")


def _say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
