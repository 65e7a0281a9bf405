"""Secrets in log lines, in names that are shown, in plural names, and in the errors of claims and steps."""

from __future__ import annotations

import io
from random import Random

import pytest

pytest.importorskip("re2")

import statelog
from benchmarks.guard_texts import SECRETS
from statelog import Guard, SecretError, durable, fleet, guard
from statelog.portable.salvage import salvage
from statelog.redaction import redacting_logger

TOKEN = SECRETS["github-token"](Random(3))
NAMED = SECRETS["named-secret"](Random(3))


def opened(tmp_path, **options):
    return statelog.open(tmp_path / "agent.state", guard=Guard(**options))


def test_the_lines_of_the_library_have_no_secret(tmp_path, caplog):
    @durable.workflow(name="fails")
    def fails(_run):
        raise RuntimeError(f"refused {TOKEN} at https://me:hunter2@db.internal")

    with opened(tmp_path) as store:
        durable.run(store, fails, id="r")
    assert "run r of workflow fails has failed" in caplog.text
    assert TOKEN not in caplog.text
    assert "hunter2" not in caplog.text


def test_a_line_with_an_exception_has_no_secret(caplog):
    made = Guard()
    logger = redacting_logger("statelog.test")
    assert redacting_logger("statelog.test").filters == logger.filters
    assert len(logger.filters) == 1
    try:
        int(TOKEN)
    except ValueError:
        logger.exception("it failed: %s", f"password={TOKEN}")
    assert made.on_read == ()
    assert "ValueError" in caplog.text
    assert TOKEN not in caplog.text


def test_a_thread_whose_id_has_a_secret_shows_none(tmp_path):
    with statelog.open(tmp_path / "agent.state") as store:
        store.thread(TOKEN).commit({"a": 1})
    made = Guard()
    with statelog.open(tmp_path / "agent.state", read_only=True) as store:
        thread = store.thread(TOKEN)
        for shown in (thread, thread.head):
            assert TOKEN not in repr(shown)
            assert TOKEN not in shown._repr_html_()
            assert TOKEN not in repr([*shown.__rich_repr__()])
        assert thread.id == TOKEN
    assert made.on_write == ()


def test_the_facts_of_an_error_have_no_secret(tmp_path):
    with opened(tmp_path) as store:
        with pytest.raises(statelog.NotFoundError) as caught:
            store.thread("t").checkout(TOKEN)
        assert TOKEN not in repr(caught.value.facts)
        with pytest.raises(statelog.NotFoundError) as caught:
            store.copy_thread(TOKEN, "u")
        assert TOKEN not in caught.value.thread
        with pytest.raises(statelog.NotFoundError) as caught:
            store.copy_thread("ordinary", "u")
        assert caught.value.thread == "ordinary"


@pytest.mark.parametrize("name", ["api_keys", "secrets", "accessTokens", "passwords"])
def test_a_plural_name_tells(tmp_path, name):
    with opened(tmp_path) as store:
        store.thread("t").commit({name: [NAMED], "a": {name: [NAMED, NAMED], "b": f'{name}="{NAMED}"'}})
        assert NAMED not in repr(store.thread("t").state.to_python())


def test_a_claim_that_fails_with_a_secret_ends_also_where_secrets_are_refused(tmp_path):
    with opened(tmp_path, secrets=guard.Secrets(on_found="refuse")) as store:
        board = store.board(agent="me")
        board.set("k", 1)
        board.claim("k").fail(f"refused {TOKEN}")
        entry = board.get("k")
        assert entry.claim is None
        assert entry.error.startswith("refused [REDACTED github-token ")


def test_a_step_that_raises_a_secret_is_recorded_also_where_secrets_are_refused(tmp_path):
    def raises():
        raise ValueError(f"refused {TOKEN}")

    @durable.workflow(name="steps")
    def flow(run):
        try:
            run.step(raises)
        except ValueError as error:
            return str(error)

    with opened(tmp_path, secrets=guard.Secrets(on_found="refuse")) as store:
        info = durable.run(store, flow, id="r")
        assert info.status == "completed"
        assert info.value.startswith("refused [REDACTED github-token ")


@pytest.mark.parametrize("verdict", ["refuse", "quarantine", "redact"])
def test_an_error_that_a_check_does_not_allow_is_replaced(tmp_path, verdict):
    def check(value, _where):
        return getattr(guard, verdict)("a mark") if "the mark" in repr(value) else guard.allow()

    def raises():
        raise ValueError("the mark")

    @durable.workflow(name="steps")
    def flow(run):
        run.step(raises)

    with opened(tmp_path, on_write=[check]) as store:
        board = store.board(agent="me")
        board.set("k", 1)
        board.claim("k").fail("it has the mark")
        told = {"refuse": "REFUSED", "quarantine": "QUARANTINED", "redact": "REDACTED"}[verdict]
        assert board.get("k").error == f"[{told} by check: a mark]"
        info = durable.run(store, flow, id="r")
        assert info.status == "failed"
        assert "the mark" not in repr(info)
        data = b"".join(path.read_bytes() for path in tmp_path.iterdir())
        assert b"the mark" not in data


@pytest.mark.parametrize("on_found", ["redact", "refuse"])
def test_a_secret_in_a_pattern_of_a_policy_is_refused(tmp_path, on_found):
    with opened(tmp_path, secrets=guard.Secrets(on_found=on_found)) as store:
        board = store.board()
        board.set("k", 1)
        before = store.last_lsn
        with pytest.raises(SecretError, match=r"a name.*Nothing was written"):
            board.set_retention(f"{TOKEN}/*", keep_last=1)
        with pytest.raises(SecretError):
            store.set_retention(keep_last=1, threads=f"{TOKEN}*")
        assert store.last_lsn == before
        board.prune(f"{TOKEN}/*", keep_last=1)  # It is not stored.
        board.set_retention("ordinary/*", keep_last=1)
        assert store.last_lsn == before + 1


@pytest.mark.parametrize("name", ["thread", "partition", "dedup_key"])
def test_a_secret_in_a_name_of_a_start_is_refused(tmp_path, name):
    @durable.workflow(name="names")
    def names(_run):
        return 1

    with opened(tmp_path) as store, pytest.raises(SecretError):
        durable.start(store, names, id="r", **{name: TOKEN})
    with opened(tmp_path) as store:
        assert list(durable.runs(store)) == []


def test_embedded_texts_have_no_secrets(tmp_path):
    pytest.importorskip("langgraph")
    pytest.importorskip("numpy")
    from statelog.adapters.langgraph import StatelogStore

    embedded = []

    def embed(texts):
        embedded.extend(texts)
        return [[float(len(text)), 1.0] for text in texts]

    with opened(tmp_path, secrets=guard.Secrets(fields=["**.pin"])) as store:
        memory = StatelogStore(store, index={"dims": 2, "embed": embed, "fields": ["text", "pin", "$"]})
        memory.put(("a",), "k", {"text": f"the key is {TOKEN}", "pin": "12345", "plain": "words"})
        assert memory.get(("a",), "k").value["text"].startswith("the key is [REDACTED github-token")
    assert len(embedded) == 3
    assert not any(TOKEN in text or "12345" in text for text in embedded)
    assert any("words" in text for text in embedded)


def test_the_name_of_a_store_in_a_fleet_is_refused_if_it_has_a_secret(tmp_path):
    (tmp_path / "bucket").mkdir()
    with fleet.connect(f"file://{tmp_path / 'bucket'}", cache=tmp_path / "cache") as connected:
        with pytest.raises(SecretError):
            connected.open(TOKEN, guard=Guard())
        assert connected.open("plain", guard=Guard()).closed is False
    assert not [each for each in tmp_path.rglob("*") if TOKEN in str(each)]


@pytest.mark.parametrize("way", ["export", "fleet", "salvage"])
def test_a_copy_has_no_mark_until_it_is_opened_with_a_guard(tmp_path, way):
    made, copy = Guard(), tmp_path / "copy.state"
    if way == "fleet":
        (tmp_path / "bucket").mkdir()
        with fleet.connect(f"file://{tmp_path / 'bucket'}", cache=tmp_path / "cache") as connected:
            with connected.open("shipped", guard=made) as store:
                store.thread("t").commit({"a": TOKEN})
            connected.restore("shipped", copy)
    else:
        with opened(tmp_path) as store:
            store.thread("t").commit({"a": TOKEN})
            with io.BytesIO() as stream:
                store.export(stream)
                stream.seek(0)
                if way == "export":
                    with statelog.open(copy) as other:
                        other.import_(stream)
        if way == "salvage":
            salvage(tmp_path / "agent.state", copy)
    with statelog.open(copy) as store:
        store.thread("t").commit({"b": 1})
    with statelog.open(copy, guard=made) as store:
        store.thread("t").commit({"b": TOKEN})
        assert store.thread("t").state["a"].startswith("[REDACTED github-token ")
        assert store.thread("t").state["a"] != store.thread("t").state["b"]
    with pytest.raises(statelog.GuardError):
        statelog.open(copy)


def test_a_schedule_with_a_secret_in_its_queue_is_refused(tmp_path):
    @durable.workflow
    def nightly(_run):
        return None

    with opened(tmp_path) as store:
        with pytest.raises(SecretError):
            durable.schedule(store, "nightly", nightly, cron="0 3 * * *", queue=TOKEN)
        assert list(durable.schedules(store)) == []
