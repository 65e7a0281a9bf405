"""What README.md shows, runs."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

README = Path(__file__).parents[1] / "README.md"
BLOCKS = re.findall(r"```python\n(.*?)```", README.read_text(encoding="utf-8"), flags=re.DOTALL)


def test_readme_has_code() -> None:
    assert len(BLOCKS) >= 3


@pytest.mark.parametrize("number", range(len(BLOCKS)))
def test_readme_block_runs_in_an_empty_directory(number: int, tmp_path: Path) -> None:
    if "adapters.langgraph" in BLOCKS[number]:
        pytest.importorskip("langgraph", reason="LangGraph is not installed")
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", BLOCKS[number]], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


def test_first_example_is_about_twelve_lines() -> None:
    lines = [line for line in BLOCKS[0].splitlines() if line.strip()]
    assert len(lines) <= 15


def test_set_up_is_two_lines() -> None:
    text = README.read_text(encoding="utf-8")
    for mark in ("<!-- demo line -->", "<!-- test line -->"):
        block = re.search(re.escape(mark) + r"\n```sh\n(.*?)```", text, flags=re.DOTALL)
        assert block is not None
        assert block.group(1).count("\n") == 1


def test_every_file_readme_links_to_exists() -> None:
    for target in re.findall(r"\]\(([^)#]+)\)", README.read_text(encoding="utf-8")):
        assert (README.parent / target).exists(), target
