"""Adapters beside the storage that their frameworks bring: of each, what is imported needs that framework alone."""
