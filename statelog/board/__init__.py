"""The board: entries that agents share, by key. DESIGN.md section 8."""
