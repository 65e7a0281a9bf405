"""LangGraph's savers beside one another: only `workload` is imported without its packages."""
