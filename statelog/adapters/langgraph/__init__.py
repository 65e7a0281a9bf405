"""LangGraph on statelog: a checkpointer, a store and a cache, on one file, for many processes and tasks at once.

    from statelog.adapters.langgraph import StatelogSaver, StatelogStore
    with StatelogSaver.open("agent.state") as saver:
        graph = builder.compile(checkpointer=saver, store=StatelogStore(saver.store))

It needs `pip install 'statelog[langgraph]'`. The first use of a name imports it, and LangGraph with it.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

import statelog.adapters.kit.packed  # noqa: F401 - it registers the codecs of stored values
from statelog.late import listing

if TYPE_CHECKING:
    from statelog.adapters.langgraph.memory.cache import StatelogCache
    from statelog.adapters.langgraph.memory.store import StatelogStore
    from statelog.adapters.langgraph.runs import aresume_or_start, resume_or_start
    from statelog.adapters.langgraph.saver.saver import StatelogSaver
    from statelog.adapters.langgraph.values.types import LostTypeWarning

__all__ = [
    "LostTypeWarning",
    "StatelogCache",
    "StatelogSaver",
    "StatelogStore",
    "aresume_or_start",
    "resume_or_start",
]

__dir__ = listing(__name__)

_MODULES = {
    "LostTypeWarning": "values.types",
    "StatelogCache": "memory.cache",
    "StatelogSaver": "saver.saver",
    "StatelogStore": "memory.store",
    "aresume_or_start": "runs",
    "resume_or_start": "runs",
}
_NEEDED = ("langgraph", "langchain_core", "ormsgpack")


def __getattr__(name: str) -> Any:
    """Import the class or function `name` when it is first used."""
    if name not in _MODULES:
        message = f"module {__name__!r} has no attribute {name!r}"
        raise AttributeError(message)
    try:
        return getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)
    except ModuleNotFoundError as error:
        missing = str(error.name).partition(".")[0]
        if missing not in _NEEDED:
            raise
        message = f"{__name__}.{name} needs LangGraph: pip install 'statelog[langgraph]'"
        raise ModuleNotFoundError(message, name=missing) from error
