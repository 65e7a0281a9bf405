"""What keeps a log well: verify, rebuild, retention, vacuum, compaction."""
