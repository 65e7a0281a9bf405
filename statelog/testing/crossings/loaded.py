"""Imports all that acts need: processes that are forked from one that has imported this begin at once."""

from statelog.testing.crossings import processes
from statelog.testing.crossings.families import acts

ACTS = acts()
SERVE = processes.serve
