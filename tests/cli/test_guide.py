"""The guide to the command line has every command. The tests of all guides run its code blocks."""

from __future__ import annotations

from pathlib import Path

import statelog
from statelog.cli import main

PAGE = (Path(statelog.__file__).parent / "cli" / "GUIDE.md").read_text(encoding="utf-8")
ELSEWHERE = {"bench", "crashtest", "import-langgraph", "export-langgraph", "import-sessions"}
"""Commands with their own pages."""


def test_every_command_is_on_the_page():
    absent = [name for name in main.commands if f"`{name}`" not in PAGE and f"statelog {name} " not in PAGE]
    assert set(absent) == ELSEWHERE
