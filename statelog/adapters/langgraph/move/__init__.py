"""Moving threads between savers."""
