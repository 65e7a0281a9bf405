"""The long-term memory of an agent: facts, sessions and turns. GUIDE.md has examples."""

from statelog.late import listing
from statelog.memory.erasure import ForgetReport
from statelog.memory.memory import Memory
from statelog.memory.sessions import Session, Turn
from statelog.memory.timeline import Fact

__all__ = ["Fact", "ForgetReport", "Memory", "Session", "Turn"]

__dir__ = listing(__name__)
