"""Wake-ups across processes: a commit wakes the waiters of all processes."""
