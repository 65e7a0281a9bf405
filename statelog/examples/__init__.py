"""Complete programs, as starting points for your own."""
