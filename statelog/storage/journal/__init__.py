"""The write-ahead log beside the file, and recovery from it."""
