"""The items of a LangGraph store in a statelog thread: how they are stored, changed and found."""
