"""Adapters: other frameworks' interfaces over one store. Each imports its framework, and nothing else imports them."""
