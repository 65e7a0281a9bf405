"""How LangGraph's values become ours and come back."""
