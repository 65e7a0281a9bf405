"""The bytes on disk. This room has pure functions, and opens no file. FORMAT.md draws the bytes."""
