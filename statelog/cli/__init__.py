"""The command line: `statelog ...`. It uses only public names of the other packages."""

from statelog.cli.application import main

__all__ = ["main"]
