"""The kinds of events, and the table of these kinds that all code that reads the log uses."""
