"""Text search over a store. A sidecar file has the index, which follows the log, and the store confirms each hit."""
