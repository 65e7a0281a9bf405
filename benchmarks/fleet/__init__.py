"""Compares the fleet with Litestream, PostgresSaver, and plain requests to the storage."""
