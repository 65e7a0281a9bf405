"""Wake-ups across processes: a commit notifies waiters."""
