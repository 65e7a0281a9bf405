"""Checks the declared algebra of a reducer with generated examples."""

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
"""Dicts that have either a dict or None under one key."""

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
"""The kinds of values that each built-in reducer merges. `add` has no floats, because their sums are rounded."""

_BARE: dict[object, SearchStrategy[Any]] = {
    Any: _SMALL,
    list: st.lists(_SMALL),
    dict: st.dictionaries(_KEYS, _NESTED),
    tuple: st.lists(_SMALL).map(tuple),
    set: st.sets(texts()),
}
"""Strategies for annotations of containers without element types."""


def check_reducer(
    reducer: Reducer | Callable[[Any, Any], Any],
    *,
    values: SearchStrategy[Any] | None = None,
    max_examples: int = 100,
) -> None:
    """Check that a reducer is deterministic and has the algebra that it declares.

    A store may call a reducer again for the same write. So the reducer must return equal results
    for equal arguments, and must not change its arguments. Declare the algebra of your own
    function with `reducers.custom(function, associative=True, ...)`.

    Args:
        reducer: a built-in reducer, or a function of (current value, write).
        values: a strategy for the values. By default, the kinds of values of a built-in
            reducer, or the annotated types of a function.
        max_examples: the number of triples of values to try.

    Raises:
        AssertionError: there is a counterexample. The message has the smallest one found.
        UsageError: `reducer` is not a reducer, or its values are unknown.
    """
    known = reducers.from_annotation(reducer)
    if known is None:
        message = f"{reducer!r} is not a reducer, which takes two arguments: the current value and the write"
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
    """Return one strategy for each kind of values that a reducer merges.

    Raises:
        UsageError: a function has no annotation.
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
        message = f"the values of {reducer.label} are unknown: annotate its first argument, or pass values="
        raise UsageError(message) from error


def annotated_values(annotation: Any) -> SearchStrategy[Any]:
    """Return a strategy for values of a type. Containers without element types get small storable values."""
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
    """Call the reducer on copies, and check that it does not change them."""
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
