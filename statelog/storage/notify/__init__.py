"""Wake-ups across processes: commits notify the waiters."""
