"""Keys below `durable/`: all handles can read them, and only handles of the library can change them."""

import pytest

from statelog import Rules, reducers
from statelog.board.rules import VERBS
from statelog.errors import AccessError, LeaseLostError, UsageError
from statelog.store.board import own_board

KEY = "durable/jobs/1"
OTHER_KEY = "durable/jobs/2"
NAMES_ALL = Rules({"a": {verb: ["**", "durable/**"] for verb in VERBS}})


@pytest.fixture
def own(store):
    board = own_board(store, agent="scheduler")
    board.set(KEY, 1)
    board.set("users", 1)
    return board


@pytest.fixture(params=[{}, {"agent": "a", "rules": NAMES_ALL}], ids=["free", "ruled"])
def bound(request, store, own):  # noqa: ARG001 - there are entries
    return store.board(**request.param)


def test_any_handle_can_read_reserved_keys(bound, own):
    lsn = bound.get(KEY).version
    own.set(KEY, 2)
    assert (bound.get(KEY).value, bound.get(KEY).agent, bound.get(KEY, at=lsn).value) == (2, "scheduler", 1)
    assert [entry.value for entry in bound.history(KEY)] == [2, 1]
    own.set(OTHER_KEY, 0)
    assert [entry.key for entry in bound.list("durable/**")] == [KEY, OTHER_KEY]
    assert [entry.key for entry in bound.list("durable/jobs/*", after=KEY)] == [OTHER_KEY]
    assert (bound.children("durable/"), bound.children("durable/jobs/")) == (["durable/jobs/"], [KEY, OTHER_KEY])
    watch = bound.watch("durable/**", after=0, follow=False)
    assert [event.key for event in watch] == [KEY, KEY, OTHER_KEY]


@pytest.mark.usefixtures("own")
def test_a_snapshot_and_a_transaction_can_read_reserved_keys(store):
    with store.snapshot() as snapshot, store.transaction() as tx:
        assert snapshot.board().get(KEY) == own_board(snapshot).get(KEY) == tx.board().get(KEY)


def test_patterns_that_do_not_name_reserved_keys_skip_them(store, own):
    board = store.board()
    assert [entry.key for entry in board.list("**")] == ["users"]
    assert board.children() == own.children() == ["users"]
    assert [event.key for event in board.watch("**", after=0, follow=False)] == ["users"]
    assert board.claim("**").key == "users"
    assert board.claim("**") is board.claim("*/jobs/*") is None
    assert board.rollback("", to=0) == ["users"]
    assert board.get(KEY).value == 1


def test_children_continue_after_reserved_keys(store, own):
    own.set("durablx", 1)
    own.set("durable", 1)
    assert store.board().children() == ["durable", "durablx", "users"]


@pytest.mark.usefixtures("own")
def test_rules_that_do_not_name_reserved_keys_deny_reading_them(store):
    board = store.board(agent="a", rules=Rules({"a": {"read": ["**"], "write": ["**"]}}))
    with pytest.raises(AccessError):
        board.get(KEY)
    assert (board.list("durable/**"), board.children("durable/")) == ([], [])
    with pytest.raises(UsageError, match="reserved"):
        board.set(KEY, 1)


WRITES = {
    "set": lambda board: board.set(KEY, 2),
    "create": lambda board: board.create(OTHER_KEY, 2),
    "cas": lambda board: board.cas(OTHER_KEY, 2, expected_version=0),
    "update": lambda board: board.update(KEY, reducers.add, 1),
    "delete": lambda board: board.delete(KEY),
    "rollback": lambda board: board.rollback("durable/", to=0),
}
OF_STORE = {
    "claim": lambda board: board.claim("durable/**"),
    "claim one": lambda board: board.claim(KEY),
    "claim of": lambda board: board.claim_of(KEY, 1),
    "dead": lambda board: board.claim("users", max_attempts=1, dead="durable/"),
    "complete": lambda board: board.claim("users").complete(to="durable/"),
    "lease": lambda board: board.lease(KEY).release(),
}


@pytest.mark.parametrize("call", [pytest.param(call, id=name) for name, call in {**WRITES, **OF_STORE}.items()])
def test_a_user_handle_cannot_change_reserved_keys(bound, own, call):
    with pytest.raises(UsageError, match="begins with 'durable/', which is reserved"):
        call(bound)
    assert [entry.version for entry in own.list("durable/**")] == [own.history(KEY)[0].version]


@pytest.mark.parametrize("call", [pytest.param(call, id=name) for name, call in WRITES.items()])
@pytest.mark.parametrize("handle", [{}, {"agent": "a", "rules": NAMES_ALL}], ids=["free", "ruled"])
def test_a_user_handle_of_a_transaction_cannot_change_reserved_keys(store, own, handle, call):
    with store.transaction() as tx, pytest.raises(UsageError, match="reserved"):
        call(tx.board(**handle))
    assert [entry.value for entry in own.list("durable/**")] == [1]


def test_a_library_handle_can_write_claim_and_lease_reserved_keys(own):
    claim = own.claim("durable/jobs/*", max_attempts=1, dead="durable/dead/")
    own.claim_of(KEY, claim.token).renew()
    claim.complete("done", to="durable/done/")
    assert own.get("durable/done/1").value == "done"
    own.update(OTHER_KEY, reducers.add, 2)
    own.claim(OTHER_KEY, max_attempts=1, dead="durable/dead/").fail("no")
    assert own.get("durable/dead/2").value == 2
    with own.lease("durable/leader") as lease:
        own.set("users", 2, fence=lease)
        assert own.delete("durable/dead/2", fence=lease)
    with pytest.raises(LeaseLostError):
        own.set("users", 3, fence=lease)
    assert own.claim("users").value == 2


def test_a_library_handle_of_a_transaction_can_write_reserved_keys(store, own):
    with pytest.raises(ZeroDivisionError), store.transaction() as tx:
        own_board(tx).set(OTHER_KEY, 1 / 0)
    with store.transaction() as tx:
        own_board(tx, agent="b").set(OTHER_KEY, 2)
        tx.thread("t").commit({"x": 1})
        assert tx.board().get(OTHER_KEY).value == 2
    assert (own.get(OTHER_KEY).agent, store.thread("t").state["x"]) == ("b", 1)


def test_retention_policies_can_be_changed_only_by_retain(store):
    board = store.board()
    board.set_retention("t/*", keep_last=2)
    [policy] = board.list("durable/**")
    for call in (lambda: board.delete(policy.key), lambda: board.set(policy.key, {})):
        with pytest.raises(UsageError, match="reserved"):
            call()
    board.set_retention("t/*")
    assert board.list("durable/**") == []
