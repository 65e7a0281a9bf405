"""BLAKE2b, from the module that `hashlib` takes it from. `hashlib` itself loads OpenSSL, which takes 2 ms."""

try:
    from _blake2 import blake2b
except ImportError:  # an interpreter that has it elsewhere
    from hashlib import blake2b

__all__ = ["blake2b"]
