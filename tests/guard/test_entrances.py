"""Puts a canary into a guarded store at every entrance, and searches every exit and the raw files for it.

ENTRANCES and EXITS are the tables. The last tests compare ENTRANCES with the source. A function that stages records, or
a method that takes values, must be in a table, so a new one fails here until somebody adds it.
"""

from __future__ import annotations

import ast
import asyncio
import base64
import contextlib
import io
import json
import logging
import operator
import threading
from functools import cache
from http.server import BaseHTTPRequestHandler, HTTPServer
from importlib.util import find_spec
from pathlib import Path
from random import Random
from urllib.parse import urlencode

import pytest

pytest.importorskip("re2")

from click.testing import CliRunner

import statelog
from benchmarks.guard_texts import SECRETS
from statelog import Guard, GuardError, Memory, SecretError, aio, durable, guard, reducers
from statelog.cli import main
from statelog.errors import CheckError

RANDOM = Random(50)
RULE = SECRETS["github-token"](RANDOM)
"""A canary that a rule finds."""
FIELD = "hunter2 and more"
"""A canary that only `fields=` names."""
NAMED = SECRETS["named-secret"](RANDOM)
"""A canary that looks random, beside a sensitive name."""
VALUE = 'va1ue"of/a+canary é'
"""A canary that is the value of a handle."""
PACKAGE = Path(statelog.__file__).parent


def forms():
    """Return the forms of all canaries. None of them may be found anywhere."""
    found = [RULE, FIELD, NAMED, VALUE, json.dumps(VALUE)[1:-1], base64.b64encode(VALUE.encode()).decode()]
    return [form.encode() for form in found]


def canary():
    """Return a value with all canaries in it."""
    return {
        "text": f"the key is {RULE}, and\n{VALUE}",
        "password": FIELD,
        "api_key": NAMED,
        "header": f"Authorization: Bearer {NAMED}",
        "json": json.dumps({"auth": RULE, "b": VALUE}),
        "base64": base64.b64encode(f"user:{VALUE}".encode()).decode(),
        "list": [RULE, (VALUE, {RULE}), RULE.encode()],
    }


TEXT = f"failed with {RULE} and {VALUE}"


def guard_of_test():
    handles = guard.Handles({"canary": lambda: VALUE})
    handles.resolve("$CRED{canary}", tool="test")
    return Guard(secrets=guard.Secrets(fields=["**.password"]), handles=handles)


def opened(path, **options):
    return statelog.open(path, guard=guard_of_test(), **options)


def refused(work):
    """Check that a call with a canary in a name is refused, and that the error does not show it."""
    with pytest.raises(SecretError) as caught:
        work()
    assert not any(form in repr(caught.value).encode() for form in forms())


# --- entrances ---------------------------------------------------------------------------


def commit(store):
    thread = store.thread("t")
    thread.commit({"a": canary()}, metadata=canary())
    thread.commit({"a": TEXT}, {"b": [canary()]})
    thread.commit({"password": FIELD, "api_key": NAMED, "n": {"client_secret": NAMED}, "c/password": FIELD})


def commit_with_reducers(store):
    schema = {
        "add": operator.add,
        "append": reducers.append,
        "upsert": reducers.upsert("id"),
        "merge": reducers.merge,
        "deep": reducers.deep_merge,
        "union": reducers.union,
        "extend": reducers.extend,
        "python": reducers.custom(lambda a, b: [*a, f"token {b[0]} {RULE}"]),
    }
    thread = store.thread("r", schema=schema)
    for _ in range(3):
        thread.commit(
            {
                "add": [canary()],
                "append": canary(),
                "upsert": [{"id": RULE, "v": canary()}],
                "merge": canary(),
                "deep": {"x": canary()},
                "union": {RULE, VALUE},
                "extend": [TEXT],
                "python": [TEXT],
            }
        )
    thread.commit({"add": reducers.Overwrite([canary()])})


def large_values(store):
    store.thread("l").commit(
        {"text": "x" * 40_000 + TEXT + "y" * 40_000, "list": [{"v": canary(), "n": "z" * 99}] * 300}
    )
    store.thread("l").commit({"edge": "x" * 16_370 + RULE + "y" * 16_384})


def mount(store):
    with store.thread("m").mount() as state:
        state["a"] = canary()
    with store.thread("m").mount(lazy=True) as state:
        state["b"] = [canary()] * 500
    with store.thread("m").mount(lazy=True) as state:
        state["b"].append(TEXT)
        state["b"][3]["password"] = FIELD


def edit(store):
    store.thread("e").edit(lambda state: state.update(a=canary()))
    store.thread("e").edit(lambda state: state.update(b=statelog.Encoded(canary())), metadata=canary())


def fork_and_rollback(store):
    thread = store.thread("f")
    thread.commit({"a": 1})
    thread.commit({"a": 2})
    thread.rollback(0, metadata=canary())
    thread.fork("b", update={"a": canary()}, metadata=canary())


def transaction(store):
    with store.transaction() as tx:
        tx.thread("x").commit({"a": canary()}, metadata=canary())
        tx.thread("y").edit(lambda state: state.update(a=canary()))
        tx.board().set("x", canary())


def copy(store):
    store.thread("c").commit({"a": canary()}, metadata=canary())
    store.copy_thread("c", "d")
    refused(lambda: store.copy_thread("c", RULE))


def names(store):
    thread = store.thread("n")
    thread.commit({"a": 1})
    refused(lambda: store.thread(RULE).commit({"a": 1}))
    refused(lambda: store.thread(VALUE).commit({"a": 1}))
    refused(lambda: thread.commit({RULE: 1}))
    refused(lambda: thread.commit({"a": {RULE: 1}}))
    refused(lambda: thread.commit({"a": 1}, metadata={RULE: 1}))
    refused(lambda: thread.commit({"a": 1}, id=RULE))
    refused(lambda: thread.fork(RULE))
    refused(lambda: thread.tag(RULE))
    refused(lambda: store.thread("s", schema={RULE: reducers.replace}).commit({RULE: 1}))
    refused(lambda: store.set_retention(keep_last=1, threads=f"{RULE}*"))


def board(store):
    board = store.board(agent="a")
    board.set("k", canary())
    board.set("config/password", FIELD)
    board.set("config/api_key", NAMED)
    board.create("c", canary())
    board.cas("k", canary(), expected_version=board.get("k").version)
    refused(lambda: board.set(f"k/{RULE}", 1))
    refused(lambda: store.board(agent=RULE).set("k", 1))
    board.update("k", reducers.merge, canary())
    refused(lambda: board.lease(RULE).__enter__())
    refused(lambda: board.claim(f"{RULE}/*", wait_s=0.01))


def claims(store):
    board = store.board(agent="a")
    for end in ("complete", "fail", "release", "dead"):
        board.set(f"q/{end}", canary())
        claim = board.claim(f"q/{end}")
        if end == "complete":
            claim.complete(canary())
        elif end == "release":
            claim.release()
        else:
            claim.fail(TEXT)


def durable_run(store):
    def returns(_given):
        return canary()

    def raises(_given):
        raise ValueError(TEXT, canary())

    def transacts(tx, given):
        tx.thread("of-transaction").commit({"a": given})
        return canary()

    @durable.workflow(name="canaries")
    def flow(run, given):
        run.step_with(
            durable.StepOptions(commit=lambda result: {"x": result}, emit=lambda result: ("topic", result)),
            returns,
            canary(),
        )
        with contextlib.suppress(ValueError):
            run.step_with(durable.StepOptions(retry=durable.Retry(attempts=2, first_delay_s=0.001)), raises, canary())
        run.transact(transacts, canary())
        run.commit({"y": canary()}, metadata=canary())
        run.emit("topic", canary())
        run.set_event("event", canary())
        answer = run.gate("ask", canary())
        mail = run.recv("mail")
        return [given, answer.payload, mail]

    durable.run(store, flow, canary(), id="run", thread="of-run")
    durable.answer(store, durable.gates(store)[0].id, approved=True, payload=canary(), by="me")
    durable.send(store, "run", canary(), topic="mail")
    info = durable.run(store, flow, canary(), id="run", thread="of-run", wait_s=5)
    assert info.status == "completed", info

    @durable.workflow(name="fails")
    def fails(_run):
        raise RuntimeError(TEXT)

    assert durable.run(store, fails, id="failed").status == "failed"
    refused(lambda: durable.start(store, flow, 1, id=RULE))


def langgraph(store):
    pytest.importorskip("langgraph")
    from langchain_core.messages import AIMessage, HumanMessage
    from langgraph.graph import START, StateGraph
    from langgraph.graph.message import MessagesState
    from langgraph.types import interrupt

    from statelog.adapters.langgraph import StatelogCache, StatelogSaver, StatelogStore

    def node(_state):
        return {"messages": [AIMessage(TEXT, additional_kwargs=canary())] * 2}

    def asks(_state):
        interrupt(canary())

    def fails(_state):
        raise ValueError(TEXT)

    saver, config = StatelogSaver(store), {"configurable": {"thread_id": "lg", "key": RULE}, "metadata": canary()}
    graph = StateGraph(MessagesState)
    for name, function in (("node", node), ("asks", asks), ("fails", fails)):
        graph.add_node(name, function)
    for edge in ((START, "node"), ("node", "asks"), ("node", "fails")):
        graph.add_edge(*edge)
    app = graph.compile(checkpointer=saver)
    for _ in range(2):
        with contextlib.suppress(ValueError):
            app.invoke({"messages": [HumanMessage(TEXT)] * 40}, config)
    app.update_state(config, {"messages": [HumanMessage(TEXT)]}, as_node="node")
    saver.put_writes(saver.get_tuple(config).config, [("channel", canary())], task_id="task")
    items = StatelogStore(store)
    items.put(("ns",), "k", canary())
    refused(lambda: items.put(("ns", RULE), "k", {"a": 1}))
    refused(lambda: items.put(("ns",), RULE, {"a": 1}))
    cache = StatelogCache(store)
    cache.set({(("ns",), "k"): (canary(), None)})
    refused(lambda: cache.set({((RULE,), "k"): (1, None)}))


def adapters(store):
    from statelog.adapters.kit import items, pieces

    items.commit(store.thread("kit"), items.put("a", statelog.Encoded(canary()).item), metadata=canary())
    items.commit(store.thread("kit"), items.append("b", [statelog.Encoded(canary()).item]))
    items.commit(store.thread("kit"), items.edit("b", 0, 1, [statelog.Encoded(canary()).item]))
    items.commit(store.thread("kit"), items.put_once("c", statelog.Encoded(canary()).item))
    texts = pieces.Pieces()
    for number in range(2):
        texts.write(store, "pieces", json.dumps([canary() | {"list": number}] * 9).encode(), lambda _tx, _id: None)


def durable_block(store):
    with durable.entered(store, id="block") as run:
        run.step_with(durable.StepOptions(name="step"), lambda given: given, canary())


def many_threads(store):
    def work(number):
        for turn in range(5):
            store.thread(f"g{number}").commit({"a": canary(), "n": turn})

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def asyncio_of(store):
    async def work():
        async with aio.open(store.path, guard=guard_of_test(), durability=store.durability) as other:
            await other.thread("aio").commit({"a": canary()}, metadata=canary())
            await other.board(agent="a").set("aio", canary())
            with pytest.raises(SecretError):
                await other.board(agent="a").claim(f"{RULE}/*", wait_s=0.01)

    asyncio.run(work())


def schedule(store):
    pytest.importorskip("cronsim")

    @durable.workflow(name="scheduled")
    def flow(_run, given):
        return given

    durable.schedule(store, "daily", flow, canary(), cron="0 0 * * *")


def imported(store):
    other = store.path.with_name("other.state")
    with statelog.open(other) as unguarded:
        unguarded.thread("i").commit({"a": TEXT}, metadata={"a": RULE})
        stream, threads = io.BytesIO(), io.BytesIO()
        unguarded.export(stream)
        unguarded.export(threads, threads=["i"])
    for path in store.path.parent.glob("other.state*"):
        path.unlink()
    refused(lambda: store.import_(io.BytesIO(stream.getvalue())))
    refused(lambda: store.import_(io.BytesIO(threads.getvalue())))


def memory(store):
    made = Memory(store, "user/42")
    for _ in range(2):
        made.remember(TEXT, key="k", source=TEXT, metadata=canary())
    made.remember(TEXT, pinned=True)
    session = made.session("s-1")
    for number in range(2):
        with session.turn(f"evt-{number}") as turn:
            turn.working["plan"] = canary()
            turn.add({"role": "user", "content": TEXT, "more": canary()})
    session.summarize(lambda _messages: TEXT, keep_last=1)
    refused(lambda: made.remember("x", key=RULE))
    refused(lambda: Memory(store, f"user/{RULE}").remember("x"))
    refused(lambda: made.session(RULE).turn("evt").__enter__())
    refused(lambda: session.turn(RULE).__enter__())


ENTRANCES = {
    "thread.commit": commit,
    "reducers": commit_with_reducers,
    "large values": large_values,
    "mount": mount,
    "edit": edit,
    "fork and rollback": fork_and_rollback,
    "transaction": transaction,
    "copy": copy,
    "names": names,
    "board": board,
    "claims": claims,
    "durable": durable_run,
    "durable block": durable_block,
    "many threads": many_threads,
    "asyncio": asyncio_of,
    "schedule": schedule,
    "langgraph": langgraph,
    "adapters": adapters,
    "memory": memory,
    "import": imported,
}

# --- exits ---------------------------------------------------------------------------------


def raw_files(store):
    return b"".join(path.read_bytes() for path in store.path.parent.iterdir() if path.is_file())


def shell(store):
    ids = [info.id for info in store.threads()]
    commands = [
        ["threads"],
        ["log"],
        ["stat"],
        ["runs"],
        ["gates"],
        ["outbox", "ls"],
        ["schedules"],
        ["board", "ls"],
        ["quarantine", "list"],
    ]
    commands += [["show", id] for id in ids] + [["history", id] for id in ids] + [["runs", "run"], ["runs", "failed"]]
    commands += [["diff", ids[0], "0", "-1"]] if ids else []
    told = b""
    for command, *rest in commands:
        for more in ([], ["--json"]):
            result = CliRunner().invoke(main, [command, *rest[:1], str(store.path), *rest[1:], *more])
            if command in ("show", "history", "diff"):
                result = CliRunner().invoke(main, [command, str(store.path), *rest, *more])
            told += result.output.encode()
    return told


def shown(store):
    """Return the output of a Python shell and a notebook."""
    things = [store, store.board(), *store.log(), *store.board().list()]
    for info in store.threads():
        with contextlib.suppress(statelog.NotFoundError):
            thread = store.thread(info.id)
            things += [info, thread, thread.state, *thread.history(), *(each.metadata for each in thread.history())]
            things += [each.state.to_python() for each in thread.history() if hasattr(each.state, "to_python")]
    texts = [repr(thing) for thing in things] + [str(thing) for thing in things]
    texts += [thing._repr_html_() for thing in things if hasattr(thing, "_repr_html_")]
    return "\n".join(texts).encode()


def export(store):
    whole, some = io.BytesIO(), io.BytesIO()
    store.export(whole)
    store.export(some, threads=[info.id for info in store.threads()])
    image = io.BytesIO()
    store.image(image)
    return whole.getvalue() + some.getvalue() + image.getvalue()


def webhook(store):
    pytest.importorskip("httpx2")
    told = []

    class Receiver(BaseHTTPRequestHandler):
        def do_POST(self):
            told.append(str(self.headers).encode() + self.rfile.read(int(self.headers["content-length"])))
            self.send_response(200)
            self.end_headers()

        def log_message(self, *_args):
            pass

    server = HTTPServer(("127.0.0.1", 0), Receiver)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        hook = durable.Webhook(
            f"http://127.0.0.1:{server.server_port}/", secret="whsec_" + base64.b64encode(bytes(32)).decode()
        )
        durable.deliver(store, [hook])
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
    return b"".join(told)


def compared(store):
    """Return what watches and comparisons show, and the bodies of the log."""
    told = []
    with store.board().watch(after=0, follow=False) as events, contextlib.suppress(statelog.NotFoundError):
        told += events
    for info in store.threads():
        with contextlib.suppress(statelog.NotFoundError):
            thread = store.thread(info.id)
            told.append(statelog.diff(None, thread.head).changes)
            told.append(statelog.diff(None, thread.head)._repr_html_())
    told += [record.body for record in store.log()]
    return repr(told).encode()


def page(store):
    """Return all answers of the API of `statelog ui`. Without starlette there is no such exit."""
    if find_spec("starlette") is None:
        return b""
    from statelog.inspector.server import make_app

    app = make_app(store, token="secret", host="127.0.0.1:1")

    async def get(path, **query):
        told = []

        async def send(message):
            told.append(message.get("body", b""))
            assert message.get("status", 200) in (200, 404), (path, query, told)

        async def receive():
            return {"type": "http.request", "body": b""}

        headers = [(b"host", b"127.0.0.1:1"), (b"cookie", b"statelog-1=secret")]
        scope = {"type": "http", "method": "GET", "path": path, "query_string": urlencode(query).encode()}
        scope |= {"headers": headers, "scheme": "http", "root_path": "", "http_version": "1.1"}
        await app(scope, receive, send)
        return b"".join(told)

    async def get_all():
        told = [await get("/api/store"), await get("/api/threads")]
        assert all(told)
        for info in store.threads():
            answers = ("", "/versions", "/version", "/diff", "/messages")
            told += [await get(f"/api/thread{answer}", id=info.id) for answer in answers]
            told += [await get("/api/thread/value", id=info.id, channel=channel) for channel in info.channels]
        told += [await get(f"/api/board{answer}") for answer in ("", "/claims", "/leases")]
        for entry in store.board().list():
            told += [await get(f"/api/board{answer}", key=entry.key) for answer in ("/entry", "/value")]
        told += [await get("/api/runs"), await get("/api/log"), await get("/api/health")]
        told += [await get("/api/run", id=run.id) for run in durable.runs(store)]
        told += [await get("/api/log/body", lsn=record.lsn) for record in store.log()]
        return b"".join(told)

    return asyncio.run(get_all())


TRACES = {}
"""The traces of stores, by path."""


@contextlib.contextmanager
def traced(store):
    """Trace a store, and stores opened later, with all contents, if OpenTelemetry is installed."""
    if find_spec("opentelemetry.exporter") is None:
        yield
        return
    from otlp import Kept

    import statelog.otel

    TRACES[store.path] = kept = Kept()
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv("OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT", "true")
        statelog.otel.instrument(store, **kept.providers)
        statelog.otel.instrument(**kept.providers)
        try:
            yield
        finally:
            statelog.otel.uninstrument()
            del TRACES[store.path]


def traces(store):
    """Return spans, events and metrics, as objects and as OTLP sends them."""
    kept = TRACES.get(store.path)
    return b"" if kept is None else kept.everything().encode(errors="backslashreplace") + kept.encoded()


def recalled(store):
    """Return the results of a memory."""
    made = Memory(store, "user/42")
    session = made.session("s-1")
    told = [*made.facts(), *made.pinned(), *made.recall("key token failed with", limit=50), session.summary]
    with contextlib.suppress(CheckError):
        told += made.history("k")
    return repr([*told, session.messages(), session.window(tokens=10_000)]).encode()


def searched(store):
    """Return all that searches find, and the notes."""
    words = "key failed token authorization user hunter2 canary auth secret the a x o"
    found = [store.search(words, match="any", limit=10_000, history=history) for history in (False, True)]
    return repr([(list(hits), hits.notes) for hits in found]).encode()


EXITS = {
    "search": searched,
    "shell": shell,
    "page": page,
    "shown": shown,
    "compared": compared,
    "export": export,
    "webhook": webhook,
    "recalled": recalled,
    "traces": traces,
    "raw files": raw_files,
}


@pytest.fixture
def logged():
    """Return the log as a handler with LogFilter writes it."""
    stream = io.StringIO()
    handler = logging.StreamHandler(stream)
    handles = guard.Handles({"canary": lambda: VALUE})
    handles.resolve("$CRED{canary}", tool="test")
    handler.addFilter(guard.LogFilter(Guard(handles=handles)))
    logging.getLogger().addHandler(handler)
    yield stream
    logging.getLogger().removeHandler(handler)


@pytest.mark.slow
@pytest.mark.filterwarnings("default")
@pytest.mark.parametrize("durability", ["commit", "interval"])
@pytest.mark.parametrize("entrance", ENTRANCES)
def test_no_exit_shows_a_secret_from_any_entrance(tmp_path, entrance, durability, logged):
    folder = tmp_path / "store"
    folder.mkdir()
    with opened(folder / "agent.state", durability=durability) as store, traced(store):
        ENTRANCES[entrance](store)
        for name, leave in EXITS.items():
            told = leave(store)
            assert [form for form in forms() if form in told] == [], name
        assert store.verify().ok
        wal = raw_files(store)
    assert [form for form in forms() if form in wal + logged.getvalue().encode()] == []
    assert [form for form in forms() for path in folder.iterdir() if form in path.read_bytes()] == []


@pytest.mark.parametrize("entrance", sorted(ENTRANCES.keys() - {"names", "import", "asyncio"}))
def test_negative_control_without_a_guard_the_canary_is_in_the_file(tmp_path, entrance):
    """The data of each entrance would be found."""
    with statelog.open(tmp_path / "agent.state") as store:
        with contextlib.suppress(pytest.fail.Exception):
            ENTRANCES[entrance](store)
        assert RULE.encode() in raw_files(store)


def test_without_a_guard_the_page_shows_the_canary(tmp_path):
    pytest.importorskip("starlette")
    with statelog.open(tmp_path / "agent.state") as store:
        commit(store)
        assert RULE.encode() in page(store)


@pytest.mark.parametrize("entrance", ["durable", "langgraph"])
def test_without_a_guard_traces_have_the_canary(tmp_path, entrance):
    pytest.importorskip("opentelemetry.exporter")
    with statelog.open(tmp_path / "agent.state") as store, traced(store):
        with contextlib.suppress(pytest.fail.Exception):
            ENTRANCES[entrance](store)
        assert RULE.encode() in traces(store)


# --- checks -------------------------------------------------------------------------------------

MARKS = [b"the key is", b"failed with"]
"""Texts of the canaries that a check of the tests hides or refuses."""


def checking(kind):
    """Return a guard with a check that has a verdict of a kind on each value with a mark in it."""

    def check(value, _where):
        told = repr(value)
        return getattr(guard, kind)("a mark") if any(mark.decode() in told for mark in MARKS) else guard.allow()

    made = guard_of_test()
    return Guard(secrets=made.secrets, handles=made.handles, on_write=[check])


CHECKED = sorted(ENTRANCES.keys() - {"names", "import", "asyncio"})
"""Entrances of values. Names are not checked, an import moves records, and asyncio has another test."""


@pytest.mark.slow
@pytest.mark.filterwarnings("default")
@pytest.mark.parametrize("entrance", CHECKED)
def test_no_exit_shows_quarantined_values(tmp_path, entrance, caplog):
    with statelog.open(tmp_path / "agent.state", guard=checking("quarantine")) as store, traced(store):
        ENTRANCES[entrance](store)
        assert any(mark in raw_files(store) for mark in MARKS)
        for name in ("shell", "page", "shown", "compared", "webhook", "recalled", "traces"):
            told = EXITS[name](store)
            assert [mark for mark in MARKS if mark in told] == [], name
        assert store.verify().ok
    assert not any(mark.decode() in caplog.text for mark in MARKS)


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
@pytest.mark.parametrize("entrance", CHECKED)
def test_values_refused_by_a_check_are_in_no_file(tmp_path, entrance):
    with statelog.open(tmp_path / "agent.state", guard=checking("refuse")) as store:
        with contextlib.suppress(statelog.errors.CheckError, AssertionError, IndexError):
            ENTRANCES[entrance](store)
        assert [mark for mark in MARKS if mark in raw_files(store)] == []
        assert store.verify().ok


@pytest.mark.slow
def test_a_fleet_ships_no_canary(tmp_path):
    pytest.importorskip("zstandard")
    import zstandard

    from statelog import fleet

    handles = guard.Handles({"canary": lambda: VALUE})
    handles.resolve("$CRED{canary}", tool="test")
    bucket = tmp_path / "bucket"
    bucket.mkdir()
    stores = fleet.connect(f"file://{bucket}", tmp_path / "here")
    options = {"guard": Guard(secrets=guard.Secrets(fields=["**.password"]), handles=handles)}
    with stores.open("agent", **options) as store:
        commit(store)
        board(store)
        store.thread("t").commit({"z": canary()}, durable="remote")
    told = b""
    for path in (path for path in tmp_path.rglob("*") if path.is_file()):
        data = path.read_bytes()
        told += data
        at = data.find(b"\x28\xb5\x2f\xfd")
        if at >= 0:
            with contextlib.suppress(zstandard.ZstdError):
                told += zstandard.ZstdDecompressor().decompressobj().decompress(data[at:])
    assert [form for form in forms() if form in told] == []
    with stores.open("agent", **options) as store:
        assert store.verify().ok


# --- completeness of the tables ---------------------------------------------------------------------

STAGING = {
    # What stages a record, and by which entrances the table reaches it. `Batch.apply` has every body checked.
    "append": {"log/kinds/table.py", "log/operations.py", "log/care/thread_copies.py"},
    "staged.append": {"log/step.py", "log/batch.py", "board/entry_writer.py"},
    "put_log": {"log/care/replay.py", "log/care/vacuum.py", "log/care/purge.py", "portable/overlay.py"},
    "put_meta": {"store/guarded.py"},
    "put": {"log/batch.py"},
}
"""Calls that put records into a batch or a transaction, by name, with their files. Other calls of `append` and `put`
are
for lists and tables."""

REDACTED = {
    "log/operations.py": "commit, and rollback's metadata",
    "board/entry_writer.py": "stage",
    "store/board_policies.py": "patterns of policies",
    "store/search.py": "patterns of what is indexed",
    "log/batch.py": "bodies, with every name",
    "store/claims.py": "subjects of waiters, in the wake-up file",
    "portable/overlay.py": "records of imports",
    "adapters/langgraph/values/codec.py": "what LangGraph's serialiser has made",
    "durable/values.py": "what runs record, and their names",
    "otel/telemetry.py": "texts and values of spans, which leave the process",
}
"""Where the hook is called. `Thread` and `Board` call it by these, before the commit takes its lock."""

HOOKS = {
    *("writes", "entry", "item", "metadata", "recorded", "error", "text", "serialised"),
    *("check_body", "check_bytes", "check_name"),
}
"""The functions of the hook for written values."""

WRITES = {
    "Prepared",
    "_MadeInPython",
    "Removal",
    "_PutOnce",
    "_Edit",
    "_SetChannel",
    "_RemoveChannel",
    "_Put",
    "_UpgradingWrite",
}
"""Classes of writes. Each defines what is redacted."""


@cache
def files():
    """Return the classes and calls in each file of the package."""
    return {
        str(path.relative_to(PACKAGE)): [
            node for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.ClassDef | ast.Call)
        ]
        for path in PACKAGE.rglob("*.py")
    }


@pytest.mark.slow
def test_every_file_that_stages_records_is_known():
    inner = (
        "storage",
        "testing",
        "cli",
        "fleet",
        "adapters",
        "durable",
        "format",
        "kernels",
        "tree",
        "schema",
    )
    found = {}
    for name, nodes in files().items():
        if name.startswith(inner):
            continue
        for node in nodes:
            if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)):
                continue
            text = ast.unparse(node.func)
            if text in ("batch.append", "self._batch.append") and "log_import" not in name:
                found.setdefault("append", set()).add(name)
            elif text.endswith("staged.append"):
                found.setdefault("staged.append", set()).add(name)
            elif text.endswith((".put_log", ".put_meta")):
                found.setdefault(text.rpartition(".")[2], set()).add(name)
            elif text == "transaction.put":
                found.setdefault("put", set()).add(name)
    assert found == STAGING


@pytest.mark.slow
def test_the_hook_is_called_where_the_table_says():
    found = {
        name
        for name, nodes in files().items()
        for node in nodes
        if not name.startswith("guard/")
        and isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and ast.unparse(node.func).rpartition(".")[0].endswith("guard")
        and node.func.attr in HOOKS
    }
    assert found == REDACTED.keys()


@pytest.mark.slow
def test_every_class_of_writes_defines_its_redaction():
    found = set()
    for nodes in files().values():
        for node in nodes:
            if isinstance(node, ast.ClassDef):
                has = {each.name for each in node.body if isinstance(each, ast.FunctionDef)}
                arguments = [
                    argument.arg
                    for each in node.body
                    if isinstance(each, ast.FunctionDef) and each.name == "merge"
                    for argument in each.args.args
                ]
                if "merge" in has and "workspace" in arguments and node.name not in ("PreparedWrite", "Reducer"):
                    found.add(node.name)
    assert found == WRITES
    inherits = {"_RemoveChannel"}
    for name, nodes in files().items():
        for node in nodes:
            if isinstance(node, ast.ClassDef) and node.name in WRITES - inherits:
                assert any(isinstance(each, ast.FunctionDef) and each.name == "redacted" for each in node.body), name


# --- the mark ------------------------------------------------------------------------------------


def test_a_store_that_had_a_guard_is_not_written_without_one(tmp_path):
    path = tmp_path / "agent.state"
    opened(path).close()
    with pytest.raises(GuardError, match="was previously opened with a guard"):
        statelog.open(path)
    with statelog.open(path, read_only=True) as store:
        assert list(store.threads()) == []


def test_a_writer_that_has_the_store_open_is_stopped_by_the_first_guard(tmp_path):
    with statelog.open(tmp_path / "agent.state") as before:
        before.thread("t").commit({"a": 1})
        with opened(tmp_path / "agent.state") as store:
            store.thread("t").commit({"a": 2})
            with pytest.raises(GuardError):
                before.thread("t").commit({"a": RULE})
            with pytest.raises(GuardError), before.transaction() as tx:
                tx.thread("t").commit({"a": RULE})
            assert store.thread("t").state["a"] == 2


@pytest.mark.parametrize("threads", [None, ["t"]])
def test_an_import_of_a_writer_that_has_the_store_open_is_stopped_by_the_first_guard(tmp_path, threads):
    stream = io.BytesIO()
    with statelog.open(tmp_path / "source.state") as source:
        source.thread("t").commit({"a": RULE})
        source.export(stream, threads=threads)
    with statelog.open(tmp_path / "agent.state") as before:
        opened(tmp_path / "agent.state").close()
        with pytest.raises(GuardError, match="was previously opened with a guard"):
            before.import_(io.BytesIO(stream.getvalue()))
        assert list(before.threads()) == []


def test_the_mark_is_kept_when_the_store_is_compacted_and_rebuilt(tmp_path):
    with opened(tmp_path / "agent.state") as store:
        store.thread("t").commit({"a": RULE})
        mark = store.thread("t").state["a"]
        store.compact()
        store.rebuild_index()
        store.thread("t").commit({"b": RULE})
        assert store.thread("t").state["b"] == mark
    with pytest.raises(GuardError):
        statelog.open(tmp_path / "agent.state")


@pytest.mark.parametrize(("options", "error"), [({"guard": 1}, statelog.UsageError), ({"read_only": True}, GuardError)])
def test_an_invalid_or_empty_guard_is_refused(tmp_path, options, error):
    statelog.open(tmp_path / "agent.state").close()
    with pytest.raises(error):
        statelog.open(tmp_path / "agent.state", **{"guard": Guard(), **options})
