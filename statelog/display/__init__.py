"""How threads, checkpoints, differences and values look: on one line, in a terminal with rich, in a notebook."""
