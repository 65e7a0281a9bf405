"""The items of a LangGraph store as a statelog thread: how they lie there, how they change, how they are found."""
