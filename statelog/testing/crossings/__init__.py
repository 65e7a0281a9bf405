"""Randomised tests that combine all features of a store, from several processes, and compare the store with its copies.

Run it with `python -m statelog.testing.crossings --acts 10000 --seed 1`.
"""

from statelog.testing.crossings.agreements import ROADS, Agreements, Disagreement
from statelog.testing.crossings.driver import Driver, Failure, shrink
from statelog.testing.crossings.plans import Plan, PlanStep, draw_plan

__all__ = ["ROADS", "Agreements", "Disagreement", "Driver", "Failure", "Plan", "PlanStep", "draw_plan", "shrink"]
