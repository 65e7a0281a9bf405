"""Compares LangGraph's savers. Only `workload` can be imported without LangGraph."""
