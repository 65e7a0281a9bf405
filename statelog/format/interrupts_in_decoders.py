"""Distinguishes the errors raised while cbor2 decodes: damaged bytes, a failing codec, or an interrupt."""

from __future__ import annotations

from decimal import InvalidOperation

import cbor2

_OF_BYTES = (ValueError, TypeError, UnicodeDecodeError, OverflowError, InvalidOperation)
"""The exact types of the errors that decoders raise if the bytes are not an item of the profile."""


def unwrapped(error: BaseException) -> BaseException:
    """Return the original error of a decoder, because cbor2 wraps every error, even interrupts.

    Raise the result outside of the `except` block that has caught the wrapper. Otherwise the causes of the error form a
    cycle.
    """
    while isinstance(error, cbor2.CBORDecodeError) and error.__cause__ is not None:
        error = error.__cause__
    return error


def is_about_bytes(error: BaseException) -> bool:
    """Return True if an error means that the bytes are not an item of the profile."""
    return type(error) in _OF_BYTES or isinstance(error, cbor2.CBORDecodeError)
