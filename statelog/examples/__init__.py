"""Programs that run, to begin one's own with."""
