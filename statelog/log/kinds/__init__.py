"""Kinds of events: a file, or a part of one, for each, and the table that all who read the log know them by."""
