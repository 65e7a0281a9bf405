"""Care that ends early, as if the process had been killed between two of its transactions."""

import contextlib
import itertools


class CutError(Exception):
    """In the place of a kill."""


@contextlib.contextmanager
def care_cut_at(store, step):
    """Raise CutError instead of transaction number `step` of a store's care, counted from 0."""
    engine, count = store._engine, itertools.count()
    care = engine.care

    def cut(work):
        if next(count) == step:
            raise CutError
        return care(work)

    engine.care = cut
    try:
        yield
    finally:
        del engine.care
