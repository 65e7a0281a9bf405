"""Imports all modules that acts need. A process that is forked after this import starts quickly."""

from statelog.testing.crossings import processes
from statelog.testing.crossings.families import acts

ACTS = acts()
SERVE = processes.serve
