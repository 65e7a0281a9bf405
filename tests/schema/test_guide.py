"""What the guide to types shows, runs and prints that."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import statelog.schema

GUIDE = (Path(statelog.schema.__file__).parent / "README.md").read_text()


def test_the_program_of_the_guide_prints_what_stands_below_it() -> None:
    program, output = re.search(r"```python\n(.*?)```\n\n```\n(.*?)```", GUIDE, flags=re.DOTALL).groups()
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == output
