"""Compares durable execution with DBOS on SQLite."""
