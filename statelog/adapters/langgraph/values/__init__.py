"""Converts LangGraph's values to stored values and back."""
