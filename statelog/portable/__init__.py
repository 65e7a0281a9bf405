"""Stores in portable form: export, import, and what can be saved of a damaged file.

EXPORT.md draws the stream. Nothing that is read here is trusted: neither an export nor a damaged file.
"""
