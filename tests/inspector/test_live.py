"""What a stream of changes reports."""

from __future__ import annotations

import json
import urllib.request
from http.cookiejar import CookieJar

from served import serving

import statelog
from statelog.inspector.live import changes


def test_changes_name_threads_and_keys_once(path):
    with statelog.open(path) as store:
        start = store.last_lsn
        for step in range(5):
            store.thread("a").commit({"n": step})
        store.board(agent="x").set("key", 1)
        last, event = changes(store, start)
        assert last == store.last_lsn
        assert event["threads"] == ["a"]
        assert event["keys"] == ["key"]
        assert "all" not in event
        assert changes(store, last)[1]["threads"] == []


def test_a_long_gap_is_reported_as_a_whole(path):
    with statelog.open(path, durability="interval") as store:
        for step in range(300):
            store.thread(f"t{step}").commit({"n": step})
        _last, event = changes(store, 0)
        assert event["all"] is True
        assert len(event["threads"]) <= 200


def test_a_commit_of_another_process_reaches_an_open_stream(store_path):
    with serving(store_path) as address:
        opener = urllib.request.build_opener(urllib.request.HTTPCookieProcessor(CookieJar()))
        opener.open(address).read()
        with opener.open(address.partition("?")[0] + "api/live", timeout=20) as stream:
            assert stream.headers["content-type"].startswith("text/event-stream")
            first = [stream.readline() for _ in range(4)]
            assert first[2] == b"data: {}\n"
            with statelog.open(store_path) as store:
                store.thread("fresh").commit({"a": 1})
            event = {}
            while not event:
                line = stream.readline()
                if line.startswith(b"data: "):
                    event = json.loads(line[6:])
            assert event["threads"] == ["fresh"]


def test_a_stream_ends_without_a_traceback_when_the_file_is_replaced(store_path, capfd):
    with serving(store_path) as address:
        opener = urllib.request.build_opener(urllib.request.HTTPCookieProcessor(CookieJar()))
        opener.open(address).read()
        with opener.open(address.partition("?")[0] + "api/live", timeout=20) as stream:
            stream.readline()
            store_path.rename(store_path.with_suffix(".old"))
            store_path.write_bytes(b"another file")
            stream.read()
    assert "Traceback" not in capfd.readouterr().err
