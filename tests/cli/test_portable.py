"""`compact`, `export`, `import` and `salvage` as commands."""

import os
import subprocess
import sys

import forks
import lmdb
import pytest

import statelog


def flip(path, needle):
    """Damage all occurrences of some bytes in the file."""
    data = path.read_bytes()
    assert needle in data
    path.write_bytes(data.replace(needle, bytes(byte ^ 1 for byte in needle)))


def history(run, path, thread):
    return [
        {key: value for key, value in document.items() if key not in ("lsn", "digest")}
        for document in run("history", path, thread, "--json").documents
    ]


# --- compact -----------------------------------------------------------------------


@pytest.mark.slow
def test_compact_reports_the_freed_bytes(run, state):
    answer = run("compact", state)
    assert (answer.code, answer.err) == (0, "")
    assert answer.out.startswith("compacted: ")
    assert run("verify", state).code == 0


def test_compact_as_json_has_the_sizes(run, state):
    before = state.stat().st_size
    document = run("compact", state, "--json").document
    assert (document["size_before_bytes"], document["size_after_bytes"]) == (before, state.stat().st_size)
    assert document["records"] == run("stat", state, "--json").document["last_lsn"]


def test_compact_acts_only_if_enough_pages_are_free(run, state):
    """As in a crontab: nothing is done until enough pages are free."""
    size = state.stat().st_size
    answer = run("compact", state, "--when-free", "0.9")
    assert answer.code == 0
    assert answer.out.startswith("left as it is: ")
    assert state.stat().st_size == size
    document = run("compact", state, "--when-free", "0.9", "--json").document
    assert (document["compacted"], 0 <= document["free"] < 0.9) == (False, True)
    assert run("compact", state, "--when-free", "0", "--json").document["compacted"] is True
    assert run("compact", state, "--when-free", "1.5").code == 2
    assert run("compact", state, "--when-free", "half").code == 2


def test_a_store_in_use_is_compacted(run, state):
    script = "import statelog, sys; store = statelog.open(sys.argv[1]); print('open', flush=True); sys.stdin.read()"
    child = forks.Popen(
        [sys.executable, "-c", script, str(state)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    try:
        assert child.stdout.readline() == "open\n"
        inode = state.stat().st_ino
        assert run("compact", state).code == 0
        assert state.stat().st_ino != inode
    finally:
        child.kill()
        child.communicate()


def test_deleted_text_is_gone_after_compaction(run, state):
    """The text is not only unreachable, but not in the file."""
    with statelog.open(state) as store:
        store.thread("secret").commit({"text": "a secret of some length " * 30, "name": "short secret"})
        store.thread("secret").commit({"text": "another secret " * 3000})
        store.delete_thread("secret")
    assert run("compact", state).code == 0
    data = state.read_bytes()
    assert b"secret" not in data
    with statelog.open(state) as store:
        assert store.verify().problems == []


def test_a_missing_store_is_not_compacted(run, path):
    answer = run("compact", path)
    assert (answer.code, answer.out) == (statelog.errors.StoreNotFoundError.exit_code, "")
    assert not path.exists()


# --- export and import -----------------------------------------------------------------


@pytest.mark.slow
def test_an_export_to_a_file_restores_the_same_store(run, state, tmp_path):
    answer = run("export", state, "-o", tmp_path / "a.export")
    assert (answer.code, answer.err) == (0, "")
    assert answer.out.startswith("exported ")
    answer = run("import", tmp_path / "b.state", tmp_path / "a.export")
    assert (answer.code, answer.err) == (0, "")
    assert run("log", tmp_path / "b.state", "--json").out == run("log", state, "--json").out
    assert run("verify", tmp_path / "b.state").code == 0


def test_an_export_through_a_pipe_restores_the_same_store(run, state, tmp_path):
    command = [sys.executable, "-m", "statelog"]
    export = forks.Popen([*command, "export", str(state)], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    import_ = forks.run(
        [*command, "import", str(tmp_path / "b.state")], stdin=export.stdout, capture_output=True, check=False
    )
    _out, errors = export.communicate()
    assert (export.returncode, import_.returncode) == (0, 0), (errors, import_.stderr)
    assert run("log", tmp_path / "b.state", "--json").out == run("log", state, "--json").out


def test_a_thread_can_be_imported_into_another_store(run, state, tmp_path):
    with statelog.open(tmp_path / "b.state") as store:
        store.thread("mine").commit({"x": 1})
    assert run("export", state, "--thread", "ticket-42", "-o", tmp_path / "a.export").code == 0
    document = run("import", tmp_path / "b.state", tmp_path / "a.export", "--json").document
    assert (document["kind"], document["threads"]) == ("threads", ["ticket-42"])
    ids = [each["id"] for each in run("threads", tmp_path / "b.state", "--json").documents]
    assert ids == ["mine", "ticket-42"]
    shown = [each["state_digest"] for each in history(run, tmp_path / "b.state", "ticket-42")]
    assert shown == [each["state_digest"] for each in history(run, state, "ticket-42")]


def test_an_export_since_an_lsn_continues_a_copy(run, state, tmp_path):
    run("export", state, "-o", tmp_path / "a.export")
    since = run("import", tmp_path / "b.state", tmp_path / "a.export", "--json").document["last_lsn"]
    with statelog.open(state) as store:
        store.thread("other").commit({"more": True})
    document = run("export", state, "--since", since, "-o", tmp_path / "more.export", "--json").document
    assert document["records"] == 1
    assert run("import", tmp_path / "b.state", tmp_path / "more.export", "--json").document["records_added"] == 1


def test_a_truncated_import_is_one_line_and_continues_when_repeated(run, state, tmp_path):
    run("export", state, "-o", tmp_path / "a.export")
    data = (tmp_path / "a.export").read_bytes()
    (tmp_path / "cut.export").write_bytes(data[: len(data) * 2 // 3])
    answer = run("import", tmp_path / "b.state", tmp_path / "cut.export")
    assert (answer.code, answer.out, answer.err.count("\n")) == (7, "", 1)
    assert answer.err.startswith(f"statelog: {tmp_path / 'cut.export'}: the export is damaged at byte ")
    assert "statelog verify" not in answer.err
    assert run("import", tmp_path / "b.state", tmp_path / "a.export").code == 0
    assert run("log", tmp_path / "b.state", "--json").out == run("log", state, "--json").out


def test_an_invalid_export_creates_no_store(run, tmp_path):
    (tmp_path / "text").write_text("hello")
    answer = run("import", tmp_path / "b.state", tmp_path / "text")
    assert (answer.code, answer.out, answer.err.count("\n")) == (6, "", 1)
    assert not (tmp_path / "b.state").exists()


@pytest.mark.parametrize(
    ("options", "spoil", "code"),
    [
        ([], lambda data: data[:60], 7),
        ([], lambda data: data[:400], 7),
        (["--thread", "ticket-42"], lambda data: data[:-1], 7),
        (["--since", "3"], lambda data: data, 4),
    ],
    ids=["a header cut off", "the first record cut off", "threads cut off", "an export that begins later"],
)
def test_a_refused_import_creates_no_store(run, state, tmp_path, options, spoil, code):
    assert run("export", state, *options, "-o", tmp_path / "a.export").code == 0
    (tmp_path / "a.export").write_bytes(spoil((tmp_path / "a.export").read_bytes()))
    before = sorted(entry.name for entry in tmp_path.iterdir())
    answer = run("import", tmp_path / "b.state", tmp_path / "a.export")
    assert (answer.code, answer.out, answer.err.count("\n")) == (code, "", 1)
    assert "statelog verify" not in answer.err
    assert sorted(entry.name for entry in tmp_path.iterdir()) == before


def test_a_refused_import_keeps_an_existing_empty_store(run, state, tmp_path):
    statelog.open(tmp_path / "b.state").close()
    assert run("export", state, "--since", "3", "-o", tmp_path / "a.export").code == 0
    assert run("import", tmp_path / "b.state", tmp_path / "a.export").code == 4
    assert run("stat", tmp_path / "b.state").code == 0


def test_a_missing_export_creates_no_store(run, tmp_path):
    answer = run("import", tmp_path / "b.state", tmp_path / "missing.export")
    assert (answer.code, answer.out) == (statelog.errors.StoreNotFoundError.exit_code, "")
    assert answer.err == f"statelog: {tmp_path / 'missing.export'}: No such file or directory\n"
    assert not (tmp_path / "b.state").exists()


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (["--thread", "nobody"], 3),
        (["--since", "9999"], 2),
        (["--since", "x"], 2),
        (["--thread", "other", "--since", "1"], 2),
        (["--json"], 2),
    ],
    ids=str,
)
def test_an_invalid_export_command_is_one_line(run, state, arguments, code):
    answer = run("export", state, *arguments)
    assert (answer.code, answer.err.count("\n")) == (code, 1)


def test_an_import_into_an_unrelated_store_is_refused(run, state, tmp_path):
    with statelog.open(tmp_path / "b.state") as store:
        store.thread("mine").commit({"x": 1})
    run("export", state, "-o", tmp_path / "a.export")
    answer = run("import", tmp_path / "b.state", tmp_path / "a.export")
    assert (answer.code, answer.out, answer.err.count("\n")) == (4, "", 1)


# --- salvage ------------------------------------------------------------------------


@pytest.mark.slow
def test_a_sound_store_is_salvaged_completely(run, state, tmp_path):
    answer = run("salvage", state, tmp_path / "new.state")
    assert (answer.code, answer.err) == (0, "")
    assert run("log", tmp_path / "new.state", "--json").out == run("log", state, "--json").out


@pytest.mark.slow
def test_losses_are_listed_and_the_exit_code_is_7(run, state, tmp_path):
    with statelog.open(state) as store:
        store.thread("other").commit({"needle": "in a haystack"})
        store.thread("other").commit({"x": 1})
        lost = store.thread("other").at(1).lsn
    flip(state, b"in a haystack")
    answer = run("salvage", state, tmp_path / "new.state")
    assert answer.code == 7
    assert "lost LSNs: " in answer.out
    assert "its record is lost" in answer.out
    assert answer.err.startswith(f"statelog: {tmp_path / 'new.state'} was created, but ")
    assert run("verify", tmp_path / "new.state").code == 0
    answer = run("salvage", state, tmp_path / "newer.state", "--json")
    document = answer.document
    assert (answer.code, document["complete"]) == (7, False)
    assert any(first <= lost <= last for first, last in document["lost"])
    assert {(each["thread"], each["version"]) for each in document["versions_lost"]} >= {("other", 1)}


@pytest.mark.slow
def test_a_file_that_kills_lmdb_is_salvaged(run, path, tmp_path):
    with statelog.open(path) as store:
        store.thread("t").commit({"x": 1})
        store.thread("t").commit({"large": os.urandom(100_000)})
    with lmdb.open(str(path), subdir=False, readonly=True, lock=False) as raw:
        used = raw.info()["last_pgno"] * 4096
    path.write_bytes(path.read_bytes()[: used - 40_000])
    assert run("verify", path).code == 7
    answer = run("salvage", path, tmp_path / "new.state", "--json")
    assert answer.code == 7
    assert answer.document["recovered"] == 2
    assert run("show", tmp_path / "new.state", "t", "--json").code == 0


@pytest.mark.slow
def test_salvage_refuses_an_existing_target_and_a_missing_source(run, state, tmp_path):
    (tmp_path / "new.state").write_text("precious")
    assert run("salvage", state, tmp_path / "new.state").code == 4
    assert (tmp_path / "new.state").read_text() == "precious"
    answer = run("salvage", tmp_path / "nothing", tmp_path / "newer.state")
    assert (answer.code, answer.err.count("\n")) == (statelog.errors.StoreNotFoundError.exit_code, 1)
    (tmp_path / "text").write_text("hello")
    assert run("salvage", tmp_path / "text", tmp_path / "newer.state").code == 6
    assert not (tmp_path / "newer.state").exists()


def test_a_killed_child_process_is_reported_in_one_line(run, state, tmp_path, monkeypatch):
    monkeypatch.setattr("statelog.cli.processes._BOOT", "import os; os.kill(os.getpid(), 9)")
    answer = run("salvage", state, tmp_path / "new.state")
    assert (answer.code, answer.out) == (7, "")
    assert "SIGKILL ended the salvaging process" in answer.err
