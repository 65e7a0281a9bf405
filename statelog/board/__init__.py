"""The board: entries that agents share, by key. DESIGN.md here has the invariants."""
