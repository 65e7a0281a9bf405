"""The data file of a store: its creation, checks, locks and sidecar files."""
