"""Parts shared by adapters: trees of checkpoints, encoded items, packed values."""
