"""The event log and the index derived from it: append, look up, verify, rebuild.

The log is the truth. `index.py` alone says what a record does to the index; commits and
`rebuild` both go through it, so that the two cannot differ (invariant L4).
"""
