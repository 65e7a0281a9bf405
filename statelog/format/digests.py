"""BLAKE2b from the private module that `hashlib` uses. Importing `hashlib` also loads OpenSSL, which takes 2 ms."""

try:
    from _blake2 import blake2b
except ImportError:  # Other Python interpreters have BLAKE2b elsewhere.
    from hashlib import blake2b

__all__ = ["blake2b"]
