"""Storages behind a proxy that loses, delays, repeats and fails requests. No acknowledged commit is lost."""

from __future__ import annotations

import secrets
from itertools import count

import proxies
import pytest
from chaos import Hosts, Ledger, persist, said
from proxies import OF_HTTP, OF_MESSAGES, Fault, HttpProxy, MessageProxy, at_number, at_random
from waiting import until

from statelog.errors import CorruptionError, FencedError, RemoteError
from statelog.fleet.archive import Outcome
from statelog.fleet.fleet import Fleet
from statelog.fleet.storage_urls import open_archive, probe

pytestmark = pytest.mark.usefixtures("few_tries")


@pytest.fixture(autouse=True)
def soon_again(monkeypatch):
    """Shorten the delays before repeated requests to Postgres, too."""
    monkeypatch.setattr("statelog.fleet.postgres._PAUSE_S", 0.01)


@pytest.fixture
def bucket(buckets):
    """A proxy of buckets, and a function that opens an empty bucket behind it."""
    url = f"s3://tests/{secrets.token_hex(8)}"
    with HttpProxy(buckets["endpoint"]) as proxy:
        yield proxy, lambda: open_archive(url, **{**buckets, "endpoint": proxy.url})


@pytest.fixture
def database(postgres_url):
    """A proxy of Postgres, and a function that opens an empty storage behind it."""
    import psycopg

    with psycopg.connect(postgres_url) as connection:
        connection.execute("TRUNCATE statelog_fleet_heads, statelog_fleet_objects")
    parts = psycopg.conninfo.conninfo_to_dict(postgres_url)
    with MessageProxy(parts["host"], int(parts["port"])) as proxy:
        yield proxy, lambda: open_archive(postgres_url.replace(f":{parts['port']}/", f":{proxy.port}/"))


@pytest.fixture(params=["bucket", pytest.param("database", marks=pytest.mark.soak)])
def behind(request):
    """A proxy, a function that opens the storage behind it, and its faults."""
    return *request.getfixturevalue(request.param), OF_HTTP if request.param == "bucket" else OF_MESSAGES


def run(proxy, open_storage, plan, folder, *, turns, seed):
    """Let three hosts own a store in turn. Return the faults at the end."""
    ledger = Ledger()
    archives = [open_storage() for _host in range(4)]
    fleets = []
    for number, archive in enumerate(archives):
        (folder / f"{number}").mkdir(parents=True)
        fleets.append(Fleet(archive, folder / f"{number}"))
    *fleets, last = fleets
    hosts = Hosts(fleets, folder.name, ledger, seed)
    proxy.restart(plan)
    for _turn in range(turns):
        hosts.turn()
    hosts.end()
    proxy.restart()
    with last.open(folder.name, takeover="now") as store:
        final = said(store)
        assert store.verify().problems == []
    assert last.check(folder.name) == []
    for archive in archives:
        archive.close()
    assert len(ledger.acknowledged) >= turns
    return ledger.faults(final)


@pytest.mark.soak
def test_no_acknowledged_commit_is_lost_whatever_happens_to_requests(behind, tmp_path):
    proxy, open_storage, kinds = behind
    assert run(proxy, open_storage, at_random(0, 0.1, kinds), tmp_path, turns=6, seed=0) == ""
    assert len(proxy.done) >= len(kinds) / 2


@pytest.mark.soak
@pytest.mark.parametrize("share", [0.03, 0.1, 0.3])
def test_no_acknowledged_commit_is_lost_in_a_long_run(behind, tmp_path, soak_scale, share):
    proxy, open_storage, kinds = behind
    for seed in range(int(40 * soak_scale) or 1):
        plan = at_random(seed, share if kinds is OF_HTTP else share / 5, kinds)  # A request has five messages.
        assert run(proxy, open_storage, plan, tmp_path / f"{seed}", turns=25, seed=seed) == "", seed


# --- one request at a time ----------------------------------------------------------------


def relay(open_storage, folder):
    """Pass a store through three hosts, with a base, a hand-over, and an owner that seems dead. Return the faults.

    The requests are the same each time, so that a plan can name one.
    """
    name, ledger, archive = folder.name, Ledger(), open_storage()
    (folder / "a").mkdir(parents=True)
    a, b, c = (Fleet(archive, folder / host) for host in "abc")
    for host in "bc":
        (folder / host).mkdir()

    def say(store, token, **how):
        ledger.tried.append(token)
        store.thread("chat").commit({"token": token}, **how)

    first = persist(lambda: a.open(name, ttl_s=1000, ship_ms=1))
    say(first, "1", durable="remote")
    say(first, "2")
    first.remote.base()
    say(first, "3", durable="remote")
    ledger.acknowledged += ["1", "2", "3"]
    takeover = "wait" if is_given_up(first) else "now"
    second = persist(lambda: b.open(name, takeover=takeover, ttl_s=1000, ship_ms=1))
    ledger.served.append(said(second))
    say(second, "4", durable="remote")
    ledger.acknowledged.append("4")
    third = persist(lambda: c.open(name, takeover="now", ttl_s=1000, ship_ms=1))
    ledger.served.append(said(third))
    say(third, "5", durable="remote")
    ledger.acknowledged.append("5")
    say(second, "6")
    for go_on in (second.remote.wait, second.close):
        with pytest.raises(FencedError):
            go_on()
    is_given_up(third)
    with persist(lambda: b.open(name, takeover="now")) as last:
        final = said(last)
        assert last.verify().problems == []
    archive.close()
    assert "6" not in final
    return ledger.faults(final)


def is_given_up(store):
    """Close a store. Return True if the storage was unavailable, so that the head has not changed."""
    try:
        store.close()
    except RemoteError:
        return False
    return True


def every(behind, folder, *, step):
    """Relay a store with one fault at one request, for each fault and each or some of the requests."""
    proxy, open_storage, kinds = behind
    assert relay(open_storage, folder / "whole") == ""
    requests = proxy.count
    assert requests > 20
    kinds = [kind for kind in kinds if kind is not Fault.SLOW]
    turn = count()
    for number in range(1, requests + 1, step):
        for kind in kinds if step == 1 else [kinds[next(turn) % len(kinds)]]:
            proxy.restart(at_number(number, kind))
            assert relay(open_storage, folder / f"{number}-{kind.name}") == "", (number, kind)


@pytest.mark.slow
def test_a_fault_of_one_request_loses_nothing(behind, tmp_path):
    every(behind, tmp_path, step=11 if OF_HTTP in behind else 43)


@pytest.mark.soak
def test_no_fault_of_any_request_loses_anything(behind, tmp_path):
    every(behind, tmp_path, step=1)


@pytest.mark.slow
def test_a_storage_is_not_called_unsafe_because_of_lost_answers(behind):
    proxy, open_storage, kinds = behind
    archive = open_storage()
    tries = 2 if kinds is OF_HTTP else 1  # obstore repeats the request once.
    for number in range(1, 12, 2):
        lost = range(number, number + tries)
        proxy.restart(lambda asked, _what, lost=lost: Fault.LOST if asked in lost else None)
        persist(lambda: probe(archive))
    proxy.restart(at_random(1, 0.05, (Fault.LOST, Fault.UNHEARD)))
    persist(lambda: probe(archive))
    archive.close()


# --- negative controls -------------------------------------------------------------------


def losing_the_first_segment(epoch):
    wanted = f"/log/{epoch:012}/{1:012}"
    return lambda _number, what: Fault.UNDONE_200 if what.startswith("PUT") and wanted in what else None


@pytest.mark.slow
def test_a_storage_that_loses_acknowledged_objects_is_detected(bucket, tmp_path):
    proxy, open_storage = bucket
    proxy.restart(losing_the_first_segment(2))
    assert relay(open_storage, tmp_path / "the last one") == "acknowledged, and lost: ['4']"
    proxy.restart(losing_the_first_segment(3))
    with pytest.raises(CorruptionError, match="missing"):
        relay(open_storage, tmp_path / "one before others")


@pytest.mark.parametrize(
    ("final", "fault"),
    [
        (["1", "2", "3"], ""),
        (["1", "2"], ""),
        (["1", "3"], "acknowledged, and lost"),
        (["1", "2", "2"], "twice"),
        (["2", "1"], "another order"),
        (["1", "2", "7"], "never committed"),
        (["1", "3", "2"], "served"),
    ],
)
def test_a_log_that_breaks_a_guarantee_is_detected(final, fault):
    ledger = Ledger(["1", "2", "3"], ["1", "2"], [["1"], ["1", "2"]])
    assert fault in ledger.faults(final)
    assert bool(fault) == bool(ledger.faults(final))


@pytest.mark.slow
def test_a_proxy_follows_its_plan(bucket, monkeypatch):
    monkeypatch.setattr(proxies, "_LATE_S", 1)
    proxy, open_storage = bucket
    archive = open_storage()
    proxy.restart(at_number(1, Fault.DONE_500))
    assert archive.create("s/unheard", b"1") is Outcome.REFUSED  # obstore has repeated the request.
    assert archive.read("s/unheard").data == b"1"
    proxy.restart(lambda _number, what: Fault.LOST if what.startswith("PUT") else None)
    assert archive.create("s/lost", b"1") is Outcome.UNKNOWN
    proxy.restart(lambda _number, what: Fault.LATE if what.startswith("PUT") else None)
    assert archive.create("s/late", b"1") is Outcome.UNKNOWN
    proxy.restart()
    assert archive.read("s/lost") is archive.read("s/late") is None
    until(lambda: archive.read("s/late"))
    assert archive.read("s/late").data == b"1"
    archive.close()
