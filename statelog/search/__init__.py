"""Text search over a store. An index beside the file follows the log, and the store confirms each hit."""
