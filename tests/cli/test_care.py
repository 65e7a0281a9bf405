from __future__ import annotations

import re
import struct

import pytest

import statelog
from statelog.cli import care
from statelog.storage.statistics import ReaderStatistics


def flip(path, needle):
    """Damage all occurrences of some bytes in the file."""
    data = path.read_bytes()
    assert needle in data
    path.write_bytes(data.replace(needle, bytes(byte ^ 1 for byte in needle)))


def overlong(path, lsn):
    """Make LMDB believe that a record on overflow pages extends far beyond the end of the file."""
    data = bytearray(path.read_bytes())
    node = struct.pack("=HH", 1, 8) + struct.pack(">Q", lsn)  # The flag of such a record, the key size, the key.
    at = data.find(node)
    while at >= 0:
        struct.pack_into("=HH", data, at - 4, 0, 0x1000)  # The size: low half, high half.
        at = data.find(node, at + 1)
    path.write_bytes(data)


def forget(path, prefix):
    """Delete the index entries with a prefix."""
    with statelog.open(path) as store:

        def work(transaction):
            for key, _payload in list(transaction.scan_index(prefix)):
                transaction.delete_index(key)

        store._engine.care(work)


def test_statistics_are_shown(run, state):
    answer = run("stat", state)
    assert (answer.code, answer.err) == (0, "")
    assert "2 threads, 3 branches, 5 checkpoints" in answer.out
    assert "ticket-42" in answer.out
    assert re.search(r"^compact +would free .+ of .+$", answer.out, re.MULTILINE)
    assert re.search(r"^readers +none$", answer.out, re.MULTILINE)


def test_statistics_name_reading_processes_up_to_a_limit():
    readers = [ReaderStatistics(number, 2, number) for number in range(1, 6)]
    told = "process 1, 1 commit behind; process 2, 2 commits behind; process 3, 3 commits behind"
    assert care._describe_readers(readers) == f"10: {told}; 2 more"


def test_statistics_as_json_have_tables_and_threads(run, state):
    document = run("stat", state, "--json").document
    assert document["path"] == str(state)
    assert document["file_size_bytes"] == state.stat().st_size
    assert document["checkpoint_count"] == 5
    assert set(document["tables"]) == {"meta", "log", "index"}
    assert {thread["id"]: thread["checkpoints"] for thread in document["threads"]} == {"ticket-42": 4, "other": 1}
    assert document["dedup_ratio"] > 0


def test_statistics_of_an_empty_store_are_shown(run, path):
    statelog.open(path).close()
    assert "0 threads" in run("stat", path).out
    assert run("stat", path, "--json").document["dedup_ratio"] == 0


@pytest.mark.slow
def test_a_sound_store_is_reported_as_sound(run, state):
    answer = run("verify", state)
    assert (answer.code, answer.err) == (0, "")
    assert answer.out.startswith("sound: ")
    document = run("verify", state, "--json").document
    assert (document["ok"], document["deep"], document["problems"]) == (True, True, [])
    assert document["records"] == run("stat", state, "--json").document["last_lsn"]
    assert run("verify", state, "--shallow", "--json").document["deep"] is False


@pytest.mark.slow
def test_verify_reports_a_damaged_record_with_exit_code_7(run, state):
    with statelog.open(state) as store:
        store.thread("other").commit({"needle": "in a haystack"})
    flip(state, b"in a haystack")
    answer = run("verify", state)
    assert answer.code == 7
    assert "checksum mismatch" in answer.out
    assert answer.err.startswith(f"statelog: {state} is damaged: ")
    assert answer.err.count("\n") == 1
    answer = run("verify", state, "--json")
    assert (answer.code, answer.document["ok"]) == (7, False)
    assert answer.document["problems"][0]["lsn"] > 0


@pytest.mark.parametrize("command", [["show"], ["diff"], ["rollback", "0"]], ids=lambda command: command[0])
def test_a_damaged_record_ends_other_commands_with_exit_code_7(run, state, command):
    with statelog.open(state) as store:
        store.thread("other").commit({"needle": "in a haystack"})
    flip(state, b"in a haystack")
    answer = run(command[0], state, "other", *command[1:])
    assert (answer.code, answer.out, answer.err.count("\n")) == (7, "", 1)


@pytest.mark.slow
def test_a_file_that_kills_the_reading_process_is_reported_in_one_line(run, path):
    with statelog.open(path) as store:
        store.thread("t").commit({"large": b"x" * 100_000})
        last = store.last_lsn
    overlong(path, last)
    answer = run("verify", path, "--shallow")
    assert (answer.code, answer.out) == (7, "")
    assert answer.err.startswith(
        f"statelog: {path} is damaged: SIGBUS ended the verifying process while it read the file"
    )
    answer = run("verify", path, "--shallow", "--json")
    assert (answer.code, answer.document["ok"]) == (7, False)
    answer = run("verify", path, "--json")
    assert (answer.code, answer.document["problems"][0]["invariant"]) == (7, "E2")


@pytest.mark.slow
def test_a_rebuilt_index_is_sound_again(run, state):
    forget(state, b"v")
    assert run("verify", state).code == 7
    assert run("history", state, "ticket-42", "--json").out == ""
    answer = run("rebuild-index", state)
    assert (answer.code, answer.err) == (0, "")
    assert answer.out.startswith("the index is rebuilt from ")
    assert run("verify", state).code == 0
    assert len(run("history", state, "ticket-42", "--json").documents) == 3


def test_a_rebuild_as_json_has_the_number_of_records(run, state):
    document = run("rebuild-index", state, "--json").document
    assert document == {"path": str(state), "records": run("stat", state, "--json").document["last_lsn"]}


def test_a_damaged_record_stops_a_rebuild(run, state):
    with statelog.open(state) as store:
        store.thread("other").commit({"needle": "in a haystack"})
    flip(state, b"in a haystack")
    answer = run("rebuild-index", state)
    assert (answer.code, answer.out, answer.err.count("\n")) == (7, "", 1)


def test_sizes_are_shown_for_threads_and_for_the_channels_of_a_thread(run, path):
    with statelog.open(path) as store:
        store.thread("small").commit({"n": 1})
        store.thread("large").commit({"list": ["x" * 50] * 100, "n": 1})
    shown = run("stat", path, "--sizes")
    assert shown.out.splitlines()[1].split()[:2] == ["large", "2"]
    assert shown.out.splitlines()[1].split()[-1] == "list"
    channels = run("stat", path, "large", "--sizes")
    assert [line.split()[:2] for line in channels.out.splitlines()[1:]] == [["list", "100"], ["n", "1"], ["all", "2"]]
    (document,) = run("stat", path, "large", "--sizes", "--json").documents
    assert document["channels"]["list"] == {"items": 100, "size_bytes": 5202, "shared_size_bytes": 0}
    assert len(run("stat", path, "--sizes", "--json").documents) == 2


def test_a_thread_argument_needs_the_sizes_option(run, path):
    with statelog.open(path) as store:
        store.thread("t").commit({"n": 1})
    assert run("stat", path, "t").code == 2
    assert run("stat", path, "nothing", "--sizes").code == 3
