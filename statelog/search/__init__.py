"""Text search over a store: an index beside the file that follows the log, and hits that the store has confirmed."""
