"""LangGraph on statelog: a checkpointer.

    from statelog.adapters.langgraph import StatelogSaver
    with StatelogSaver.open("agent.state") as saver:
        graph = builder.compile(checkpointer=saver)

Needs `pip install statelog[langgraph]`.
"""

from importlib.util import find_spec

if find_spec("langgraph") is None or find_spec("langgraph.checkpoint") is None:
    message = "statelog.adapters.langgraph needs LangGraph: pip install 'statelog[langgraph]'"
    raise ImportError(message, name="langgraph")

from statelog.adapters.langgraph.saver import StatelogSaver

__all__ = ["StatelogSaver"]
