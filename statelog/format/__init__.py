"""Bytes on disk: pure functions, no file is opened here. FORMAT.md draws them."""
