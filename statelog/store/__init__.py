"""What users hold: the store, its threads, checkpoints, mounts, views and transactions."""
