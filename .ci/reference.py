"""Write the reference of the public names as HTML: `python .ci/reference.py DIRECTORY`.

Needs `pip install -e '.[docs]'`. Other frameworks than LangGraph are replaced by empty classes where they are not
installed, because no single environment can have all of them. A warning of pdoc, about anything that it cannot resolve
or render, is an error.
"""

import importlib
import importlib.abc
import importlib.machinery
import importlib.util
import inspect
import sys
import types
import warnings
from pathlib import Path

import pdoc

PUBLIC = [
    "statelog",
    "statelog.aio",
    "statelog.aio.durable",
    "statelog.aio.fleet",
    "statelog.durable",
    "statelog.errors",
    "statelog.fleet",
    "statelog.guard",
    "statelog.limits",
    "statelog.memory",
    "statelog.otel",
    "statelog.reducers",
    "statelog.testing",
    "statelog.adapters.agent_framework",
    "statelog.adapters.autogen",
    "statelog.adapters.claude_agent_sdk",
    "statelog.adapters.crewai",
    "statelog.adapters.google_adk",
    "statelog.adapters.langgraph",
    "statelog.adapters.openai_agents",
    "statelog.adapters.pydantic_ai",
    "statelog.adapters.strands",
]
FRAMEWORKS = [
    "agent_framework",
    "agents",
    "autogen_agentchat",
    "autogen_core",
    "claude_agent_sdk",
    "crewai",
    "google.adk",
    "google.genai",
    "openai",
    "pydantic_ai",
    "strands",
]


class _EmptyClass(type):
    """The metaclass of replacements. An attribute of a replacement is a replacement, too."""

    def __getattr__(cls, name: str) -> type:
        if name.startswith("_"):
            raise AttributeError(name)
        return _replacement(cls.__module__, name)


def _replacement(module: str, name: str) -> type:
    body = {
        "__module__": module,
        "__init__": lambda _self, *_args, **_options: None,
        "__class_getitem__": classmethod(lambda cls, _item: cls),
        "__get_pydantic_core_schema__": classmethod(lambda _cls, _source, _handler: {"type": "any"}),
    }
    return _EmptyClass(name, (), body)


class _EmptyModules(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Finds the modules of frameworks that are not installed. Each name of such a module is an empty class."""

    def __init__(self, roots: list[str]) -> None:
        self._roots = roots

    def find_spec(self, name, path=None, target=None):  # noqa: ARG002 - the signature is Python's
        if any(name == root or name.startswith(f"{root}.") or root.startswith(f"{name}.") for root in self._roots):
            return importlib.machinery.ModuleSpec(name, self, is_package=True)
        return None

    def create_module(self, spec):
        return types.ModuleType(spec.name)

    def exec_module(self, module):
        def attribute(name: str) -> type:
            if name.startswith("_"):
                raise AttributeError(name)
            made = _replacement(module.__name__, name)
            setattr(module, name, made)  # A name has one class, however often it is imported.
            return made

        module.__getattr__ = attribute


def _is_installed(name: str) -> bool:
    try:
        return importlib.util.find_spec(name) is not None
    except ModuleNotFoundError:
        return False


def _show_inherited(shown: type, public: list[object]) -> None:
    """Make pdoc show the methods that a class inherits from a class that is not public."""
    for base in shown.__mro__[1:]:
        if base.__module__.startswith("statelog.") and base not in public and base.__module__ != "statelog.deprecated":
            for name, value in vars(base).items():
                if not name.startswith("_") and name not in vars(shown):
                    setattr(shown, name, value)


def main(directory: Path) -> None:
    """Write one page for each public module. Names that are not in its `__all__` are left out."""
    warnings.simplefilter("error")
    sys.meta_path.append(_EmptyModules([name for name in FRAMEWORKS if not _is_installed(name)]))
    public = []
    for name in PUBLIC:
        module = importlib.import_module(name)
        for each in getattr(module, "__all__", ()):
            setattr(module, each, getattr(module, each))  # Also the names that are imported on demand.
            public.append(getattr(module, each))
    for each in {thing for thing in public if inspect.isclass(thing) and thing.__module__.startswith("statelog.")}:
        _show_inherited(each, public)
    below = [pattern for name in PUBLIC for pattern in (name, f"!{name}[.].*")]
    pdoc.render.configure(docformat="google")
    pdoc.pdoc(*below, output_directory=directory)


main(Path(sys.argv[1]))
