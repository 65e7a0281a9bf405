"""Crossings: everything a store can do, in any order, by several processes, with each copy compared.

Run it with `python -m statelog.testing.crossings --acts 10000 --seed 1`.
"""

from statelog.testing.crossings.agreements import ROADS, Agreements, Disagreement
from statelog.testing.crossings.driving import Driver, Failure, shrink
from statelog.testing.crossings.plans import Plan, Step, draw_plan

__all__ = ["ROADS", "Agreements", "Disagreement", "Driver", "Failure", "Plan", "Step", "draw_plan", "shrink"]
