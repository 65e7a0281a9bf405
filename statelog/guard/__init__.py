"""Keeps secrets and injected instructions out of stored values. GUIDE.md has examples."""

from statelog.format.quarantined import Quarantined
from statelog.guard.annotations import Secret
from statelog.guard.handles import Handles, Source, env, keyring
from statelog.guard.injection import injection
from statelog.guard.logs import LogFilter
from statelog.guard.policy import Guard
from statelog.guard.quotation import quote
from statelog.guard.search import SecretFound
from statelog.guard.secrets import Secrets
from statelog.guard.verdicts import Verdict, Where, allow, quarantine, redact, refuse
from statelog.late import listing

__all__ = [
    "Guard",
    "Handles",
    "LogFilter",
    "Quarantined",
    "Secret",
    "SecretFound",
    "Secrets",
    "Source",
    "Verdict",
    "Where",
    "allow",
    "env",
    "injection",
    "keyring",
    "quarantine",
    "quote",
    "redact",
    "refuse",
]

__dir__ = listing(__name__)
