"""gate.py JUNIT COUNTS [REGEX]: judge a framework's own tests with the adapter in the place of the framework's class.

Each failure has to be explained by REGEX, which says what only the framework's own class has; the adapter has to have
been called; something has to have passed. Else the exit code is 1.
"""

from __future__ import annotations

import json
import re
import sys
from collections import Counter
from pathlib import Path
from xml.etree import ElementTree as Tree

NOTHING = "$^"


def told(case: Tree.Element) -> str | None:
    """Return what is told of a failure, None of a test that did not fail."""
    for kind in ("failure", "error"):
        found = case.find(kind)
        if found is not None:
            return f"{case.get('classname')}::{case.get('name')}\n{found.get('message')}\n{found.text}"
    return None


def main(junit: str, counts: str, explaining: str = NOTHING) -> bool:
    """Print the judgement; return whether it is good."""
    pattern = re.compile(explaining or NOTHING)
    explained: Counter[str] = Counter()
    unexplained = []
    passed = skipped = 0
    for case in Tree.parse(junit).iter("testcase"):
        text = told(case)
        if text is None:
            skipped += case.find("skipped") is not None
            passed += case.find("skipped") is None
        elif found := pattern.search(text):
            explained[found[0]] += 1
        else:
            unexplained.append(text)
    calls: Counter[str] = Counter()
    for line in Path(counts).read_text().splitlines() if Path(counts).exists() else ():
        calls.update(json.loads(line))
    for text in unexplained:
        print("unexplained:", "\n  ".join(text.splitlines()[:3]))
    print("calls:", dict(calls))
    print("explained:", dict(explained))
    numbers = (passed, explained.total(), len(unexplained), skipped)
    print("{} passed, {} explained, {} unexplained, {} skipped".format(*numbers))
    return bool(passed and calls and not unexplained)


if __name__ == "__main__":
    sys.exit(not main(*sys.argv[1:]))
