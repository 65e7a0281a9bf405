"""Compares adapters with the storage of their frameworks. Each module needs only its own framework."""
