"""AutoGen: a cache of model calls, and the states of teams by version, in one file."""

from statelog.adapters.autogen.cache import StatelogCacheStore
from statelog.adapters.autogen.teams import load_team, save_team

__all__ = ["StatelogCacheStore", "load_team", "save_team"]
