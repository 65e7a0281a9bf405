"""The kinds of events, and the table of kinds, which all readers of the log use."""
