"""Maintenance of a log: verification, rebuild, retention, vacuum, compaction, purge."""
