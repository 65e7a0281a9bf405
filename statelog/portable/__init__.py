"""Stores in portable form: export, import, and salvage of damaged files.

EXPORT.md draws the stream. This package trusts no input, neither an export nor a damaged file.
"""
