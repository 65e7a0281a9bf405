"""The event log and the index derived from it: append, look up, verify, rebuild.

The log is authoritative. Only `index.py` and `kinds/` define how a record changes the index. Commits and `rebuild` both
use these modules, so they cannot disagree (invariant L4).
"""
