"""Prove a reducer against what it declares, by example."""

from __future__ import annotations

import copy
import inspect
import typing
from typing import TYPE_CHECKING, Any

from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from hypothesis.errors import Flaky, ResolutionFailed

from statelog import reducers
from statelog.errors import UsageError
from statelog.testing.identity import identical
from statelog.testing.strategies import floats, integers, messages, small_values, texts

if TYPE_CHECKING:
    from collections.abc import Callable

    from hypothesis.strategies import SearchStrategy

    from statelog.reducers import Reducer

_SMALL = small_values()
_KEYS = st.sampled_from("abc")
_DICTS = st.dictionaries(_KEYS, _SMALL)
_NESTED = st.one_of(_SMALL, _DICTS)
_CLASHING = st.fixed_dictionaries({"a": st.one_of(st.none(), _DICTS)})
"""Now a dict, now something else under one key."""

_DOMAINS: dict[str, tuple[SearchStrategy[Any], ...]] = {
    "replace": (_SMALL,),
    "add": (integers(), texts(), st.binary(), st.lists(_SMALL), st.lists(_SMALL).map(tuple)),
    "append": (st.lists(_SMALL),),
    "extend": (st.lists(_SMALL),),
    "union": (st.sets(texts()), st.frozensets(integers())),
    "merge": (_DICTS,),
    "deep_merge": (st.dictionaries(_KEYS, _NESTED), _CLASHING),
    "max": (integers() | floats(allow_nan=False), texts(), st.binary()),
    "min": (integers() | floats(allow_nan=False), texts(), st.binary()),
}
"""Values of a built-in reducer by name: what it merges is of one kind. Sums of floats round, so `add` has none."""

_BARE: dict[object, SearchStrategy[Any]] = {
    Any: _SMALL,
    list: st.lists(_SMALL),
    dict: st.dictionaries(_KEYS, _NESTED),
    tuple: st.lists(_SMALL).map(tuple),
    set: st.sets(texts()),
}
"""Annotations that do not say what is inside."""


def check_reducer(
    reducer: Reducer | Callable[[Any, Any], Any],
    *,
    values: SearchStrategy[Any] | None = None,
    max_examples: int = 100,
) -> None:
    """Check that a reducer is a function of its arguments, and has the algebra it declares.

    A store may call a reducer again for the same write, and never expects its arguments to
    change: so it must give equal results for equal arguments and leave them as they are. To
    declare more of a function of your own, `reducers.custom(function, associative=True, ...)`.

    Args:
        reducer: a built-in one, or a function of (current value, write).
        values: what is merged; of a built-in reducer its own kinds of values, of a function
            what its annotations say, if left out.
        max_examples: triples of values to try.

    Raises:
        AssertionError: a counterexample, as small as could be found.
        UsageError: it is no reducer, or there is nothing to try it with.

    """
    known = reducers.from_annotation(reducer)
    if known is None:
        message = f"{reducer!r} is no reducer: one takes two arguments, the value there and the write"
        raise UsageError(message)
    kinds = domains(known) if values is None else (values,)
    triples = st.one_of(*(st.tuples(domain, domain, domain) for domain in kinds))

    @settings(
        max_examples=max_examples,
        deadline=None,
        database=None,
        derandomize=True,
        phases=(Phase.explicit, Phase.generate, Phase.shrink),
        suppress_health_check=list(HealthCheck),
    )
    @given(triples)
    def check(triple: tuple[Any, Any, Any]) -> None:
        _check_triple(known, *triple)

    try:
        check()
    except Flaky as error:
        message = f"{known.spec} gives different results for equal arguments"
        raise AssertionError(message) from error


def domains(reducer: Reducer) -> tuple[SearchStrategy[Any], ...]:
    """Return the kinds of values that a reducer merges, each with its own.

    Raises:
        UsageError: a function does not say what it merges.

    """
    if reducer.name == "upsert":
        key = reducer.parameter
        renamed = messages().map(lambda item: {**item, key: item["id"]})
        return (st.lists(renamed, unique_by=lambda item: repr(item[key])),)
    if reducer.function is None:
        return _DOMAINS[reducer.name]
    try:
        hints = typing.get_type_hints(reducer.function)
        first = next(iter(inspect.signature(reducer.function).parameters))
        return (annotated_values(hints[first]),)
    except (KeyError, NameError, TypeError, StopIteration, ResolutionFailed) as error:
        message = f"{reducer.label} does not say what it merges: annotate its first argument, or pass values="
        raise UsageError(message) from error


def annotated_values(annotation: Any) -> SearchStrategy[Any]:
    """Return values of a type; of containers that do not say what is inside, small things that can be stored."""
    return _BARE[annotation] if annotation in _BARE else st.from_type(annotation)


def _check_triple(reducer: Reducer, a: Any, b: Any, c: Any) -> None:
    f = reducer.label or reducer.spec
    ab = _call(reducer, a, b)
    _same(f"{f} is not a function of its arguments", a, b, ab, _call(reducer, a, b))
    if reducer.commutative:
        _same(f"{f} is not commutative: f(a, b) != f(b, a)", a, b, ab, _call(reducer, b, a))
    if reducer.idempotent:
        _same(f"{f} is not idempotent: f(a, b) != f(f(a, b), b)", a, b, ab, _call(reducer, ab, b))
    if reducer.associative:
        left, right = _call(reducer, ab, c), _call(reducer, a, _call(reducer, b, c))
        if left != right and not identical(left, right):
            message = (
                f"{f} is not associative: f(f(a, b), c) != f(a, f(b, c)) for a = {a!r}, b = {b!r}, c = {c!r}:"
                f" {left!r} != {right!r}"
            )
            raise AssertionError(message)


def _call(reducer: Reducer, current: Any, write: Any) -> Any:
    """Call the reducer on copies, which must come out as they went in."""
    given_current, given_write = copy.deepcopy(current), copy.deepcopy(write)
    merged = copy.deepcopy(reducer(given_current, given_write))
    if not (identical(given_current, current) and identical(given_write, write)):
        message = f"{reducer.label or reducer.spec} changes its arguments: f({current!r}, {write!r})"
        raise AssertionError(message)
    return merged


def _same(claim: str, a: Any, b: Any, first: Any, second: Any) -> None:
    if first != second and not identical(first, second):
        message = f"{claim} for a = {a!r}, b = {b!r}: {first!r} != {second!r}"
        raise AssertionError(message)
