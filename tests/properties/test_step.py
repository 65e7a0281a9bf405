"""T6: a step makes the same nodes from writes as the general path, in any order.

The bytes of its record are those that the general encoders make from these nodes.
"""

import operator
from contextlib import ExitStack, contextmanager
from unittest import mock

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import statelog
from statelog import kernels, reducers
from statelog.adapters.kit.items import put, put_once, read, remove, whole
from statelog.adapters.kit.lineage import Lineage
from statelog.errors import StatelogError
from statelog.format import cbor
from statelog.format.keys import VERSIONS_PER_PAGE, decode_place, encode_page_key
from statelog.format.record import ENVELOPE_SIZE_BYTES, Nodes, decode_record, encode_record
from statelog.limits import LEAF_SIZE_BYTES_MAX
from statelog.log import operations as writer
from statelog.log.events import encode_checkpoint
from statelog.log.kinds.table import decode_event
from statelog.reducers import Overwrite, Prepared, Remove
from statelog.testing import strategies as own

SCHEMA = {
    "step": operator.add,
    "found": operator.add,
    "log": reducers.extend,
    "messages": reducers.upsert("id"),
    "others": reducers.upsert("id"),
    "notes": reducers.merge,
    "plain": reducers.replace,
}

sizes = st.sampled_from([60, 62, 63, 70, 4080, 4092, 4093, 4094, 4100, 5000, 9000, 16_380, 16_381, 16_382, 17_000])
texts = st.builds(lambda size, letter: letter * size, sizes, st.sampled_from("xyz"))
large = st.one_of(
    texts,
    texts.map(str.encode),
    st.builds(lambda text, number: {"role": "user", "content": text, "n": number}, texts, st.integers(0, 3)),
    st.lists(texts, max_size=3),
    st.lists(texts, max_size=3).map(tuple),
    st.builds(lambda text, other: {"a": {"b": [text, {"c": other}], "t": (text,)}, "": None}, texts, texts),
    st.builds(lambda count, size: ["w" * size] * count, st.integers(0, 300), st.integers(0, 90)),
    st.builds(lambda count: {f"{number:03}": number for number in range(count)}, st.integers(0, 900)),
    st.builds(lambda count: {"of": {f"element {number}" for number in range(count)}}, st.integers(0, 600)),
)
items = st.one_of(own.values(), st.text(max_size=200), large)
messages = st.lists(
    st.one_of(
        st.builds(lambda number, text: {"id": f"m{number}", "text": text}, st.integers(0, 60), st.text(max_size=90)),
        st.builds(lambda number: Remove(f"m{number}"), st.integers(0, 60)),
        st.sampled_from([reducers.REMOVE_ALL, {"text": "no id"}, {"id": [1, 2], "text": "x"}]),
    ),
    min_size=1,
    max_size=4,
)
writes = st.lists(
    st.one_of(
        st.builds(lambda value: {"step": value}, st.one_of(st.integers(-5, 5), own.floats(), st.just(2**70))),
        st.builds(lambda value: {"found": value}, st.lists(items, max_size=6)),
        st.builds(lambda value: {"log": value}, st.lists(items, max_size=3)),
        st.builds(lambda value: {"messages": value}, messages),
        st.builds(lambda value: {"messages": value, "others": value}, messages),
        st.builds(lambda value: {"others": value}, messages),
        st.builds(lambda value: {"notes": value}, st.dictionaries(st.text(max_size=3), items, max_size=2)),
        st.builds(lambda value: {"plain": value}, items),
        st.builds(lambda value: {"found": Overwrite(value)}, st.lists(items, max_size=3)),
        st.builds(lambda value: {"plain": value, "step": 1}, items),
    ),
    min_size=1,
    max_size=3,
)


def nodes_of(store, lsn):
    """The nodes of a record, in the order of their digests: theirs in the record may be another."""
    with store._engine.read() as view:
        record = bytes(view.transaction.get_log(lsn))
    return sorted((digest, record[at : at + size]) for _type, digest, at, size, _total in kernels.record_nodes(record))


def assert_encoded_alike(store, lsn):
    """Check that the bytes of a record and its page equal those of the general encoders."""
    with store._engine.read() as view:
        data = bytes(view.transaction.get_log(lsn))
        record = decode_record(data, lsn)
        event = decode_event(record)
        body, digest = encode_checkpoint(event, lsn)
        assert (body, digest) == (record.body, event.digest)
        rows_at = ENVELOPE_SIZE_BYTES + len(body)
        nodes_at = rows_at + 29 * record.node_count
        again, _chain = encode_record(
            record.type,
            lsn=lsn,
            time_us=record.time_us,
            previous_chain=record.previous_chain,
            body=body,
            nodes=Nodes(record.node_count, data[rows_at:nodes_at], data[nodes_at:]),
            flags=record.flags,
        )
        assert again == data
        page, first = b"", event.version - event.version % VERSIONS_PER_PAGE
        if event.branch:
            first = max(first, view.branch(event.thread, event.branch).base_version + 1)
        last = min(view.head_version(event.thread, event.branch), first + VERSIONS_PER_PAGE - 1)
        for version in range(first, last + 1):
            page = kernels.page_append(page, version, *view.entry(event.thread, event.branch, version))
        assert view.transaction.get_index(encode_page_key(event.thread, event.branch, event.version)) == page


def commit_to(store, thread_id, update):
    """Commit through the thread's schema."""
    return store.thread(thread_id, schema=SCHEMA).commit(*update)


def commit_aside(store, thread_id, update):
    """Commit items to a branch."""
    return Lineage(store, thread_id).commit_aside("aside", update)


@contextmanager
def only(*, step=True):
    """Let commits and rollbacks be made in some ways alone; yields a list that gets those that were taken."""
    taken = []

    def watch(owner, name, way, is_allowed):
        function = getattr(owner, name)

        def watched(*arguments):
            made = function(*arguments) if is_allowed else None
            if made is not None:
                taken.append(way)
            return made

        return mock.patch.object(owner, name, watched)

    with ExitStack() as stack:
        for name in ("take_step", "take_rollback"):
            stack.enter_context(watch(writer, name, "step", step))
        yield taken


WAYS = [{}, {"step": False}]


def commit_alike(stores, thread_id, commits, commit=commit_to):
    """Commit to each store in another way. Return the ways that were taken in the first store.

    If a value is replaced, the general path refers to common nodes, but a step stores small nodes again.
    """
    ways = []
    for update in commits:
        outcomes, stored = [], []
        for store, way in zip(stores, WAYS, strict=True):
            with only(**way) as taken:
                try:
                    made = commit(store, thread_id, update)
                    outcomes.append((made.lsn, made.state_digest))
                    stored.append(nodes_of(store, made.lsn))
                    assert_encoded_alike(store, made.lsn)
                except StatelogError as error:
                    outcomes.append((type(error), str(error)))
            if store is stores[0]:
                ways += taken
        assert outcomes[0] == outcomes[1]
        if stored:
            assert_stored_alike(*stored)
    assert places(stores[0]) == places(stores[1])
    return ways


def assert_stored_alike(by_step, by_general_path):
    """Both stored the same nodes; or the step some more that are too small to be found again over the whole store."""
    found = {digest for digest, _data in by_general_path}
    again = [data for digest, data in by_step if digest not in found]
    assert len(by_step) - len(again) == len(by_general_path)
    assert all(len(data) <= LEAF_SIZE_BYTES_MAX for data in again)
    assert again or by_step == by_general_path


def places(store):
    """Return the index entries of nodes that are shared across the store, without their numbers in a record."""
    with store._engine.read() as view:
        found = dict(view.transaction.scan_index(b"d"))
    return {key: decode_place(payload)._replace(node=0) for key, payload in found.items()}


@pytest.fixture(scope="module")
def stores(tmp_path_factory):
    directory = tmp_path_factory.mktemp("step")
    with ExitStack() as stack:
        opened = [stack.enter_context(statelog.open(directory / name, durability="interval")) for name in "ab"]
        yield opened
        assert [store.verify().problems for store in opened] == [[], []]


@pytest.fixture(autouse=True)
def _same_ids(monkeypatch):
    """Gives the same identities to items without one on both sides."""
    monkeypatch.setattr("uuid.uuid4", lambda: "an-identity")


thread_numbers = iter(range(10**9))


@pytest.mark.slow
@given(commits=st.lists(writes, min_size=1, max_size=12))
def test_a_step_equals_the_general_path(stores, commits):
    commit_alike(stores, f"t{next(thread_numbers)}", commits)


@pytest.mark.slow
def test_common_commits_are_steps(stores):
    fill = [[{"log": [f"entry {number}" * 6], "messages": [{"id": f"a{number}"}]}] for number in range(60)]
    taken = commit_alike(
        stores, "common", [*fill, *[[{"log": [number]}, {"log": ["b"], "step": 1}] for number in range(200)]]
    )
    assert len(taken) > 200
    assert taken.count("step") > 190
    updates = [
        [{"messages": [{"id": f"b{number}", "text": "t" * 100}]}, {"plain": "p" * number}] for number in range(300)
    ]
    assert commit_alike(stores, "common", updates).count("step") > 200


MESSAGES = {
    "text": lambda key: f"{key} text" * 600,
    "chat": lambda key: {"id": key, "role": "user", "content": f"{key} chat" * 600},
    "several large": lambda key: {"id": key, "in": f"{key} in " * 400, "out": [f"{key} out " * 400]},
    "nested": lambda key: {"id": key, "call": {"arguments": {"of": [f"{key} " * 550] * 2}, "n": [1] * 9}},
}


@pytest.mark.slow
@pytest.mark.parametrize("name", MESSAGES)
@pytest.mark.parametrize("channel", ["log", "messages", "plain"])
def test_large_items_are_steps_and_are_found_again_by_another_thread(stores, name, channel):
    """The second commits are also steps. They refer to existing nodes, and the index records the borrower."""
    if channel == "messages" and name == "text":
        return
    fill = [[{"log": [f"entry {n}" * 6], "messages": [{"id": f"a{n}", "x": "y" * 50}]}] for n in range(9)]
    items = [MESSAGES[name](f"{channel} {number:03}") for number in range(40)]
    commits = [[{channel: item if channel == "plain" else [item]}] for item in items]
    thread_id = f"large {name} {channel}"
    taken = commit_alike(stores, thread_id, fill)
    assert commit_alike(stores, thread_id, commits) == ["step"] * 40
    assert commit_alike(stores, f"{thread_id} again", fill) == taken
    assert commit_alike(stores, f"{thread_id} again", commits) == ["step"] * 40
    for store in stores:
        assert store.thread(thread_id).state[channel] == store.thread(f"{thread_id} again").state[channel]


def test_trees_of_several_nodes_and_cut_strings_are_not_steps(stores):
    no_steps = [{f"f{each:03}": each for each in range(900)}, "x" * 17_000, set(range(900)), list(range(900))]
    assert commit_alike(stores, "no steps", [[{"plain": 1}], [{"plain": 2}]]) == ["step"]
    assert commit_alike(stores, "no steps", [[{"plain": value}] for value in no_steps]) == []


GROWING = {
    "numbers": lambda number: [number],
    "the same": lambda _number: ["same"],
    "texts": lambda number: [f"{number} " * 30],
    "long texts": lambda number: [f"{number} " * 500],
    "several": lambda number: [{"n": number, "k": each, "text": "x" * (each * number % 90)} for each in range(13)],
    "many": lambda number: [number * 100 + each for each in range(60 + number % 60)],
    "unequal": lambda number: [f"{number:04}" * (number * number % 700)] * (number % 4),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", GROWING)
@pytest.mark.parametrize("channel", ["log", "messages"])
def test_a_list_whose_last_chunk_closes_is_grown_by_a_step(stores, name, channel):
    """So is one whose first level closes, too, but not if the second level closes, which is about one in 256."""
    commits = []
    for number in range(220):
        items = GROWING[name](number)
        if channel == "messages":
            items = [{"id": f"{number}-{each}", "text": item} for each, item in enumerate(items)]
        commits.append([{channel: items}, {"step": 1}])
    taken = commit_alike(stores, f"growing {name} {channel}", commits)
    # It is no step if the list is too short for a tree, if no item is added, or if the second level closes.
    assert taken.count("step") > {"many": 200, "unequal": 155, "numbers": 170}.get(name, 205)
    tree = stores[0].thread(f"growing {name} {channel}").state[channel]
    assert list(tree) == list(stores[1].thread(f"growing {name} {channel}").state[channel])


@pytest.mark.slow
@given(st.lists(st.lists(st.tuples(st.booleans(), st.integers(0, 140), st.integers(0, 400)), max_size=3), max_size=30))
def test_lists_that_grow_by_leaps_equal_those_of_the_general_path(stores, growths):
    """Two lists grow in one commit by any number of items. One is sometimes replaced, so that none of it is cached."""
    commits = [[{"log": list(range(300)), "messages": [{"id": f"at first {n}"} for n in range(200)]}]]
    for number, growth in enumerate(growths):
        log = ["y" * size for is_log, count, size in growth if is_log for _ in range(count)]
        messages = [
            {"id": f"{number} {each} {n}", "t": "z" * (size % 90)}
            for each, (is_log, count, size) in enumerate(growth)
            if not is_log
            for n in range(count)
        ]
        commits.append([{"log": log, "messages": messages}, {"log": Overwrite([])} if number % 11 == 10 else {}])
    commit_alike(stores, f"t{next(thread_numbers)}", commits)


def test_steps_with_ids_and_metadata_beside_other_records_of_a_transaction(tmp_path):
    """In a transaction with several records, none is the last one of the log when it is made."""
    with statelog.open(tmp_path / "a", durability="interval") as store:
        thread = store.thread("named", schema=SCHEMA)
        thread.commit({"step": 1})
        for number in range(70):
            made = thread.commit({"step": 1}, id=f"id {number}", metadata={"number": number})
            assert_encoded_alike(store, made.lsn)
            assert thread.at(f"id {number}") == made
        with store.transaction() as together:
            inside = together.thread("named", schema=SCHEMA)
            several = [inside.commit({"step": number}, id=f"{number}") for number in range(3)]
        for made in several:
            assert_encoded_alike(store, made.lsn)
            assert thread.at(made.id) == made
        assert store.verify().problems == []


names = st.one_of(st.integers(980, 1010), st.integers(0, 1100)).map("c{:05}".format)
encoded = items.map(cbor.encode)
channel_writes = st.one_of(
    st.builds(put, names, encoded),
    st.builds(put_once, names, encoded),
    st.builds(remove, names),
    st.builds(lambda name: Prepared(name, reducers.add, cbor.encode(1)), names),
)


def _grown(number, count, size=0):
    """Writes of names that come behind all earlier ones."""
    return [put(f"g{number:05}-{each:03}", cbor.encode("x" * size or number)) for each in range(count)]


ASCENDING = {
    "one": lambda number: _grown(number, 1),
    "large ones": lambda number: _grown(number, 1, 70 + number % 200),
    "several": lambda number: _grown(number, 1 + number % 9),
    "many": lambda number: _grown(number, 40 + number % 70),
    "and the last one again": lambda number: [
        put(f"g{max(number - 1, 0):05}-000", cbor.encode("again")),
        *_grown(number, 2),
    ],
    "and the last one gone": lambda number: [remove(f"g{max(number - 1, 0):05}-001"), *_grown(number, 2)],
}


@pytest.mark.slow
@pytest.mark.parametrize("name", ASCENDING)
def test_a_state_that_grows_at_its_end_is_made_by_steps_where_chunks_close_too(stores, name):
    commits = [ASCENDING[name](number) for number in range(60 if name == "many" else 300)]
    taken = commit_alike(stores, f"ascending {name}", commits, commit_aside)
    assert taken.count("step") > 0.8 * len(commits)
    state = stores[0].thread(f"ascending {name}").checkout("aside").state
    assert list(state) == sorted(state)


@pytest.mark.slow
@settings(max_examples=settings.default.max_examples // 2)
@given(commits=st.lists(st.lists(channel_writes, min_size=1, max_size=4), min_size=1, max_size=12))
def test_a_step_in_a_state_of_many_channels(stores, commits):
    thread_id = f"t{next(thread_numbers)}"
    fill = [put(f"c{number:05}", cbor.encode(number)) for number in range(1000)]
    commit_alike(stores, thread_id, [fill, *commits], commit_aside)
    for store in stores:
        made = store.thread(thread_id).checkout("aside").head
        again = [put(name, whole(stored)) for name, stored in read(made.state).items()]
        assert commit_aside(store, f"again {thread_id}", again).state_digest == made.state_digest


@pytest.mark.slow
def test_channels_in_order_are_steps(stores):
    commits = [[put_once(f"{number:05}", cbor.encode(f"write {number}" * 8))] for number in range(700)]
    assert len(commit_alike(stores, "ordered", commits, commit_aside)) > 550
    assert commit_alike(stores, "ordered", commits[::-1][:20], commit_aside) == [], "what stays may have to be joined"
    assert stores[0].thread("ordered").checkout("aside").head.version == 720


targets = st.tuples(st.integers(0, 40), st.booleans(), st.sampled_from([0, 20, 60_000]))


@pytest.mark.slow
@given(st.lists(targets, min_size=1, max_size=40))
def test_a_rollback_equals_that_of_the_general_path(stores, rollbacks):
    """Also on branches, and with much metadata."""
    thread_id = f"t{next(thread_numbers)}"
    outcomes = []
    for store, way in zip(stores, WAYS, strict=True):
        with only(**way):
            thread = store.thread(thread_id, schema=SCHEMA)
            thread.commit({"step": 1, "log": ["x" * 90]})
            outcomes.append([])
            for number, (target, is_fork, size) in enumerate(rollbacks):
                if is_fork:
                    thread = thread.fork(f"fork {number}", at=target % (thread.version + 1))
                made = thread.rollback(target % (thread.version + 1), metadata={"why": "x" * size})
                assert_encoded_alike(store, made.lsn)
                outcomes[-1].append((made.lsn, made.kind, made.state_digest, made.version, made.parent.version))
                thread.commit({"step": 1})
    assert outcomes[0] == outcomes[1]


@pytest.mark.slow
def test_common_rollbacks_are_direct(stores):
    for store in stores:
        thread = store.thread("back and forth", schema=SCHEMA)
        for _ in range(70):
            thread.commit({"step": 1})
        with only() as taken:
            for number in range(60):
                thread.rollback(number)
                thread.commit({"step": 1})
        assert taken.count("step") > 100


@pytest.mark.parametrize("expected", [0, 2, True, "1"])
def test_refusals_equal_those_of_a_batch(stores, expected):
    outcomes = []
    for store, way in zip(stores, WAYS, strict=True):
        outcomes.append([])
        thread = store.thread(f"refused {expected!r}", schema=SCHEMA)
        thread.commit({"step": 1})
        thread.commit({"step": 1})
        with only(**way):
            for act in (
                lambda thread: thread.commit({"step": 1}, expected_version=expected),
                lambda thread: thread.rollback(0, expected_version=expected),
                lambda thread: thread.rollback(7),
                lambda thread: thread.commit({"step": "text"}),
            ):
                with pytest.raises(StatelogError) as caught:
                    act(thread)
                outcomes[-1].append((type(caught.value), str(caught.value), caught.value.facts))
                assert thread.version == 1
    assert outcomes[0] == outcomes[1]


@pytest.mark.slow
def test_long_keyed_lists_with_equal_fingerprints(stores):
    """Identities are told apart by more than 16 bits."""
    many = [{"id": f"{number:06}"} for number in range(9000)]
    commits = [[{"messages": many}], *[[{"messages": [{"id": f"new {number}"}]}] for number in range(300)]]
    commits += [[{"messages": [{"id": f"{number * 29:06}", "changed": True}]}] for number in range(40)]
    assert len(commit_alike(stores, "prints", commits)) > 200


@pytest.mark.slow
def test_two_channels_with_the_same_list_go_their_own_ways(stores):
    def message(number, text="y" * 60):
        return {"id": f"m{number}", "text": text}

    both = [[{"messages": [message(number)], "others": [message(number)]}] for number in range(2)]
    parted = [[{"messages": [message(2)], "others": [message(3)]}]]
    alone = [[{"others": [message(number)]}] for number in (4, 5, 6)]
    again = [[{"others": [message(number, "again")]}] for number in (4, 3)]
    assert len(commit_alike(stores, "twins", [*both, *parted, *alone, *again])) >= 4
    state = stores[0].thread("twins").state
    assert [item["id"] for item in state["others"]] == ["m0", "m1", "m3", "m4", "m5", "m6"]
    assert [item["id"] for item in state["messages"]] == ["m0", "m1", "m2"]
