"""`statelog fleet`: stores in a folder, for people and scripts at the shell."""

from __future__ import annotations

import json
import signal

import pytest

import statelog
from statelog.errors import FencedError
from statelog.fleet import connect


@pytest.fixture
def url(tmp_path):
    """A folder with the store `t`, which has two commits."""
    (tmp_path / "bucket").mkdir()
    found = f"file://{tmp_path}/bucket"
    with connect(found, tmp_path / "a") as fleet, fleet.open("t") as store:
        store.thread("chat").commit({"n": 1})
        store.thread("chat").commit({"n": 2})
    return found


@pytest.fixture
def ask(run, url, tmp_path):
    """Run `statelog fleet COMMAND URL ...` on the machine `a`."""
    return lambda command, *words: run("fleet", command, url, *words, "--cache", tmp_path / "a")


def test_stores_are_listed_with_their_owners(ask):
    lines = ask("ls").out.splitlines()
    assert lines[0].split() == ["name", "state", "epoch", "lsn", "owner"]
    assert lines[1].split()[:4] == ["t", "free", "1", "3"]
    [document] = ask("ls", "--json").documents
    assert (document["name"], document["state"], document["lsn"]) == ("t", "free", 3)
    assert ask("status", "t", "--json").document == document
    assert ask("status", "t").out.startswith("t: free, up to LSN 3, epoch 1")


@pytest.mark.slow
def test_restore_writes_an_earlier_state_of_a_store_to_a_file(ask, tmp_path):
    path = tmp_path / "r.state"
    assert ask("restore", "t", path, "--at", 2).out == f"t -> {path}\n"
    with statelog.open(path) as store:
        assert store.thread("chat").state["n"] == 1
    answer = ask("restore", "t", path, "--json")
    assert (answer.code, json.loads(answer.err)["kind"]) == (4, "AlreadyExistsError")
    assert ask("restore", "t", tmp_path / "n.state", "--at", "2101-01-01", "--json").document["name"] == "t"
    for wrong in ("soon", "-1", "99"):
        answer = ask("restore", "t", tmp_path / "w.state", "--at", wrong)
        assert (answer.code, answer.err.count("\n")) == (2, 1)


@pytest.mark.slow
def test_commands_on_a_store_report_their_effects(ask):
    assert ask("gc", "t").out == "t: 0 objects removed\n"
    assert ask("gc", "t", "--json").document == {"name": "t", "removed": 0}
    assert ask("purge", "t").out == "t: purged\n"
    assert ask("purge", "t", "--json").document == {"name": "t", "purged": True}
    assert ask("check").out == "1 store restored and verified, 0 problems\n"
    assert ask("check", "t", "--json").document == {"checked": 1, "problems": []}
    assert "--yes" in ask("delete", "t").err
    assert ask("delete", "t", "--yes", "--json").document == {"name": "t", "deleted": True}
    assert ask("ls", "--json").out == ""


def test_verify_reports_a_damaged_store_with_its_exit_code(ask, tmp_path):
    [segment] = (tmp_path / "bucket" / "t" / "log" / "000000000001").glob("*1")
    segment.unlink()
    answer = ask("check", "--json")
    assert answer.code == 7
    [problem] = answer.document["problems"]
    assert problem["name"] == "t"
    assert "missing" in problem["error"]
    for command in (["check"], ["restore", "t", tmp_path / "x"]):
        answer = ask(*command)
        assert answer.code == 7
        assert "missing" in answer.err
        assert "salvage" not in answer.err  # The list of files.


@pytest.mark.slow
def test_a_missing_store_is_one_line_and_an_exit_code_for_each_command(ask, tmp_path):
    for command, *rest in (
        ["status"], ["restore", tmp_path / "x"], ["follow"], ["gc"], ["purge"], ["check"], ["delete", "--yes"],
    ):  # fmt: skip
        answer = ask(command, "none", *rest)
        assert (answer.code, answer.out) == (11, "")
        assert answer.err == "statelog: this fleet has no store 'none'\n"
        answer = ask(command, "../x", *rest, "--json")
        assert (answer.code, json.loads(answer.err)["kind"]) == (2, "UsageError")


def test_an_invalid_storage_url_is_one_line(run, tmp_path):
    for url, code, words in (
        ("ftp://x", 2, "not 'ftp://x'"),
        ("t.state", 2, "not 't.state'"),
        (f"file://{tmp_path}/none", 3, "create it first"),
    ):
        for command in (["ls", url], ["follow", url, "t"], ["stranded", url]):
            answer = run("fleet", *command, "--cache", tmp_path / "c")
            assert (answer.code, answer.err.count("\n")) == (code, 1)
            assert words in answer.err
    for url in (f"file://{tmp_path}", "s3://bucket"):
        answer = run("fleet", "setup", url)
        assert (answer.code, "a postgresql:// URL" in answer.err) == (2, True)


def test_a_cache_that_is_a_file_is_one_line(run, url, tmp_path):
    (tmp_path / "file").touch()
    for cache in (tmp_path / "file", tmp_path / "file" / "below"):
        answer = run("fleet", "ls", url, "--cache", cache)
        assert (answer.code, answer.err.count("\n")) == (2, 1)


@pytest.mark.slow
def test_following_prints_the_log_and_stops_at_its_limits(ask, run, tmp_path):
    assert ask("follow", "t", "--timeout", 0).out == run("log", tmp_path / "a" / "t.state").out
    assert [each["lsn"] for each in ask("follow", "t", "--after", 1, "--limit", 1, "--json").documents] == [2]
    assert ask("follow", "t", "--after", 99, "--timeout", 0.1).out == ""
    assert ask("follow", "t", "--thread", "other", "--timeout", 0.1, "--poll", 0.01).out == ""
    assert ask("follow", "t", "--poll", 0).code == 2
    assert not list((tmp_path / "a").glob(".scratch-*"))


@pytest.mark.slow
@pytest.mark.parametrize(("signal_", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_following_sees_shipped_commits_and_ends_with_a_signal(start, url, tmp_path, signal_, code):
    handler = signal.signal(signal.SIGINT, signal.default_int_handler)  # A background job ignores the signal, and then
    try:  # its children ignore it as well.
        words = ("fleet", "follow", url, "t", "--after", 3, "--poll", 0.05, "--cache", tmp_path / "b", "--json")
        process = start(*words)
    finally:
        signal.signal(signal.SIGINT, handler)
    with connect(url, tmp_path / "a") as fleet, fleet.open("t", ship_ms=1) as store:
        for lsn in (4, 5):
            store.thread("chat").commit({"n": lsn})
            assert json.loads(process.stdout.readline())["lsn"] == lsn
        process.send_signal(signal_)
        out, err = process.communicate(timeout=300)
    assert (process.returncode, out, err) == (code, "", "")
    assert not list((tmp_path / "b").glob(".scratch-*"))


@pytest.mark.slow
def test_following_ends_when_the_store_is_deleted(start, ask, url, tmp_path):
    process = start("fleet", "follow", url, "t", "--poll", 0.05, "--cache", tmp_path / "b")
    assert process.stdout.readline()
    assert ask("delete", "t", "--yes").code == 0
    _out, err = process.communicate(timeout=300)
    assert process.returncode == 11
    assert err == "statelog: the store 't' was deleted from this fleet\n"


@pytest.mark.slow
def test_stranded_commits_are_listed_exported_and_imported(ask, run, url, tmp_path):
    a, b = connect(url, tmp_path / "a"), connect(url, tmp_path / "b")
    late = a.open("t")
    late.thread("steps").commit({"n": 1}, durable="remote")
    with b.open("t", takeover="now") as store:
        for id in ("chat", "steps", "new"):
            late.thread(id).commit({"n": "lost"})
        with pytest.raises(FencedError):
            late.close()
        store.thread("chat").commit({"n": 3})
    a.open("t").close()
    [listed] = ask("stranded", "--json").documents
    assert listed == {"name": "t", "path": str(tmp_path / "a" / "t.state-stranded-3")}
    assert listed["path"] in ask("stranded").out  # The path can be copied from the output, whatever the width.
    assert "new" in run("threads", listed["path"]).out

    target = tmp_path / "lost.export"
    answer = ask("stranded", "--export", listed["path"], target)
    assert answer.out.splitlines()[:3] == ["chat, as chat-stranded-3", "steps", "new"]
    assert ask("stranded", "--export", listed["path"], target, "--json").document["threads"] == {
        "chat": "chat-stranded-3", "new": "new", "steps": "steps"
    }  # fmt: skip
    with b.open("t") as store:
        assert run("import", b.path("t"), target).code == 0
        assert store.thread("chat").state["n"] == 3
        for id in ("chat-stranded-3", "steps", "new"):
            assert store.thread(id).state["n"] == "lost"
        assert store.thread("steps").version == 1
        assert store.verify().problems == []

    refused = ask("stranded", "--export", a.path("t"), target)
    assert (refused.code, "not a stranded file" in refused.err) == (3, True)
    assert ask("stranded", "--export", listed["path"], listed["path"]).code == 2
    assert ask("stranded", "--export", listed["path"]).code == 2


@pytest.mark.slow
def test_all_threads_of_a_stranded_file_of_a_deleted_store_are_exported(ask, url, tmp_path):
    a, b = connect(url, tmp_path / "a"), connect(url, tmp_path / "b")
    b.delete("t")
    a.open("t").close()
    [listed] = ask("stranded", "--json").documents
    assert ask("stranded", "--export", listed["path"], tmp_path / "x", "--json").document["threads"] == {"chat": "chat"}


@pytest.mark.slow
def test_a_stranded_file_without_new_commits_is_not_exported(ask, url, tmp_path):
    a, b = connect(url, tmp_path / "a"), connect(url, tmp_path / "b")
    late = a.open("t")
    with b.open("t", takeover="now") as store:
        late.board().set("key", 1)
        with pytest.raises(FencedError):
            late.close()
        store.thread("chat").commit({"n": 3})
    a.open("t").close()
    [listed] = ask("stranded", "--json").documents
    answer = ask("stranded", "--export", listed["path"], tmp_path / "x")
    assert (answer.code, "nothing to export" in answer.err.replace("\n", " ")) == (3, True)
    assert not (tmp_path / "x").exists()
