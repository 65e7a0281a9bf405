"""The public objects: the store, its threads, checkpoints, mounts, views and transactions."""
