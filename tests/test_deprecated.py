"""Each old name works for one more release, and warns."""

from __future__ import annotations

import asyncio
from contextlib import contextmanager

import pytest

import statelog
from statelog import aio, durable
from statelog.aio import durable as aio_durable
from statelog.deprecated import DURABLE_NAMES
from statelog.errors import ConflictError, FencedError, UsageError


@contextmanager
def warns(match=" is now "):
    """Check that a DeprecationWarning names the line that used the old name."""
    with pytest.warns(DeprecationWarning, match=match) as caught:
        yield
    assert caught[0].filename == __file__


@pytest.fixture
def store(path):
    with statelog.open(path) as opened:
        for number in range(5):
            opened.thread("t").commit({"n": number})
            opened.board().set("k", number)
        yield opened


def versions(store):
    return [checkpoint.version for checkpoint in store.thread("t").history()]


def test_retain_prunes_and_sets_a_policy(store):
    with warns("retain is now prune"):
        assert store.retain(keep_last=3, threads="t", pinned=[store.thread("t").at(0)]).expired_versions == 1
    assert versions(store) == [4, 3, 2, 0]
    with warns("set_retention"):
        assert store.retain(keep_last=2, as_policy=True).expired_versions == 2
    assert [info.policy["keep_last"] for info in store.threads()] == [2]


def test_retain_on_a_board_prunes_and_sets_a_policy(store):
    board = store.board()
    with warns("retain is now prune"):
        assert board.retain("k", keep_last=3).expired_versions == 2
    with warns("set_retention"):
        assert board.retain("k", keep_last=2, as_policy=True).expired_versions == 1


@pytest.mark.parametrize(("argument", "value"), [("as_policy", "no"), ("pinned", ["first"])])
def test_retain_refuses_the_same_arguments_as_before(store, argument, value):
    with warns(), pytest.raises(UsageError) as caught:
        store.retain(**{"keep_last": 1, "as_policy": True, argument: value})
    assert caught.value.facts == {"argument": argument, "value": value}


def test_fence_shuts_off(store):
    with warns("fence is now shut_off"):
        store.fence(FencedError("taken over"))
    with pytest.raises(FencedError, match="taken over"):
        store.thread("t").commit({"n": 5})


def test_reborn_recreates(store):
    store.delete_thread("t")
    with warns("reborn= is now recreate="):
        assert store.thread("t", reborn=True).commit({"n": 0}).version == 0
    store.delete_thread("t")
    store.thread("u").commit({"n": 1})
    with warns():
        assert store.copy_thread("u", "t", reborn=True).state["n"] == 1
    store.delete_thread("t")
    with store.transaction() as tx, warns():
        assert tx.copy_thread("u", "t", reborn=True).state["n"] == 1


def test_old_names_on_the_loop(store):
    async def use():
        async with aio.open(store.path) as opened:
            with warns():
                assert (await opened.retain(keep_last=2)).expired_versions == 3
            with warns():
                assert (await opened.board().retain("k", keep_last=2, as_policy=True)).expired_versions == 3
            await opened.delete_thread("t")
            with warns():
                await opened.thread("t", reborn=True).commit({"n": 0})
            await opened.delete_thread("t")
            await opened.thread("u").commit({"n": 0})
            with warns():
                await opened.copy_thread("u", "t", reborn=True)
            with warns():
                await opened.fence(FencedError("taken over"))
            assert opened.fenced

    asyncio.run(use())


def test_set_with_an_expected_version_does_as_cas(store):
    board = store.board()
    made = board.set("new", 1, expected_version=0)
    assert board.set("new", 2, expected_version=made.version).value == 2
    with pytest.raises(ConflictError) as caught:
        board.set("new", 3, expected_version=made.version)
    assert caught.value.facts["expected_version"] == made.version


@pytest.mark.parametrize("module", [durable, aio_durable])
@pytest.mark.parametrize(("old", "new"), DURABLE_NAMES.items())
def test_old_names_of_durable(module, old, new):
    with warns(rf"{module.__name__}\.{old} is now {new}"):
        assert getattr(module, old) is getattr(module, new)
    assert old not in dir(module)
    assert new in module.__all__


def test_a_module_has_no_other_names():
    with pytest.raises(AttributeError, match="has no attribute 'other'"):
        durable.other  # noqa: B018


def join(left, *, name, retry="none"):
    return f"{left} {name} {retry}"


def undo(_result, _left, *, name):
    pass


def test_a_keyword_of_a_step_is_an_option_with_a_warning_unless_the_function_takes_it(store):
    @durable.workflow
    def calls(run):
        with warns(match="^name=: pass options with"):
            found = [run.step(abs, -1, name="option")]
        found.append(run.step(join, "a", name="b"))
        found.append(run.step(lambda **given: given, timeout_s=3))
        with warns(match="^compensate=, semantics=: "):
            found.append(
                run.step(join, "a", name="b", semantics="at_most_once", compensate=lambda *_args, **_kwargs: None)
            )
        with warns(match="name="):
            found += run.map(abs, [-1], name="mapped")
        with warns(match="name="):
            found.append(run.start(abs, -2, name="begun").result())
        return found

    info = durable.run(store, calls, id="r")
    assert info.value == [1, "a b none", {"timeout_s": 3}, "a b none", 1, 2]
    steps = durable.steps(store, "r")
    assert [each.name for each in steps if each.kind == "step"][:2] == ["option", "join"]


def test_a_keyword_of_a_step_in_a_block_is_an_option_with_a_warning(store):
    with durable.entered(store, "r") as run, warns(match="name="):
        assert run.step(abs, -1, name="option") == 1
