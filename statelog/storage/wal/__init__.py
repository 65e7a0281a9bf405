"""The write-ahead log (WAL) beside the data file, and its checkpoints."""
