"""Shows threads, checkpoints, differences and values: on one line, in a terminal with rich, or in a notebook."""
