"""Moves threads between savers."""
