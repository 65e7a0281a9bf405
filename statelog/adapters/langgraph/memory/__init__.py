"""The store of items, and the cache."""
