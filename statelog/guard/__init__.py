"""Keeps secrets out of the file: rules that redact them, and handles that stand for them. GUIDE.md has examples."""

from statelog.guard.annotations import Secret
from statelog.guard.handles import Handles, Source, env, keyring
from statelog.guard.logs import LogFilter
from statelog.guard.policy import Guard
from statelog.guard.search import SecretFound
from statelog.guard.secrets import Secrets

__all__ = ["Guard", "Handles", "LogFilter", "Secret", "SecretFound", "Secrets", "Source", "env", "keyring"]
