"""AutoGen on a store: a cache of model calls, and versioned states of teams."""

from statelog.adapters.autogen.cache import StatelogCacheStore
from statelog.adapters.autogen.teams import load_team, save_team

__all__ = ["StatelogCacheStore", "load_team", "save_team"]
