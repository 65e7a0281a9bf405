"""The board beside SQLite: rows of the table for entries, tasks, leases and watchers."""
