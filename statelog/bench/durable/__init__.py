"""Durable execution, measured beside DBOS on SQLite."""
