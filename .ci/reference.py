"""Write the reference of the public names as HTML: `python .ci/reference.py DIRECTORY`.

Needs `pip install -e '.[docs,langgraph]'`. A warning of pdoc, of what it cannot resolve or render, is an error.
"""

import importlib
import sys
import warnings
from pathlib import Path

import pdoc

PUBLIC = [
    "statelog",
    "statelog.aio",
    "statelog.errors",
    "statelog.limits",
    "statelog.reducers",
    "statelog.testing",
    "statelog.adapters.langgraph",
]


def main(directory: Path) -> None:
    """Write the pages, one a public module; what is below a module and not in its `__all__` is not public."""
    warnings.simplefilter("error")
    for name in PUBLIC:
        module = importlib.import_module(name)
        for each in getattr(module, "__all__", ()):
            setattr(module, each, getattr(module, each))  # what is imported when it is asked for counts, too
    below = [pattern for name in PUBLIC for pattern in (name, f"!{name}[.].*")]
    pdoc.render.configure(docformat="google")
    pdoc.pdoc(*below, output_directory=directory)


main(Path(sys.argv[1]))
