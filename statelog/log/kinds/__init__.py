"""Kinds of events, and the table of kinds, which everything that reads the log uses."""
