"""Encodes and decodes the bytes on disk. This package has only pure functions and opens no file.

FORMAT.md draws the bytes.
"""
