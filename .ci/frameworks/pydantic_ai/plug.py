"""Count the calls of the adapter in our own contract: pydantic-ai's sdist brings no tests."""

from counting import counted

from statelog.adapters.pydantic_ai import StatelogConversationStore

counted(StatelogConversationStore, "read_record", "read_records", "write_record", "delete_record", "read_history")
