"""Which imports need LangGraph."""

from __future__ import annotations

import subprocess
import sys

import pytest


def run(code):
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)


def test_importing_statelog_loads_no_langgraph():
    done = run(
        "import sys, statelog, statelog.adapters, statelog.adapters.langgraph; print('langgraph' in sys.modules)"
    )
    assert (done.stdout.strip(), done.stderr) == ("False", "")


@pytest.mark.slow
@pytest.mark.parametrize("name", ["StatelogStore", "StatelogCache"])
def test_without_langgraph_one_error_names_the_package_to_install(name):
    done = run(f"import sys; sys.modules['langgraph'] = None\nfrom statelog.adapters.langgraph import {name}")
    assert done.returncode != 0
    assert f"{name} needs LangGraph: pip install 'statelog[langgraph]'" in done.stderr


@pytest.mark.slow
def test_unknown_names_raise_attribute_error():
    done = run("from statelog.adapters.langgraph import Nothing")
    assert "ImportError: cannot import name 'Nothing'" in done.stderr
