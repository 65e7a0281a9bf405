"""The data file: opening, checks, space, compaction, and reading its tables."""
