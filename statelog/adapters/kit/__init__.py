"""What adapters share: lines of checkpoints, items of lists, packed values."""
