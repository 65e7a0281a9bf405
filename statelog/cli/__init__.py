"""The command line: `statelog ...`. It sees of the rest what any user sees."""

from statelog.cli.application import main

__all__ = ["main"]
