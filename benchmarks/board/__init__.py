"""Compares the board with SQLite. There are rows for entries, tasks, leases and watchers."""
