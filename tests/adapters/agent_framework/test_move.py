"""`statelog import-sessions agent-framework:...`: checkpoints are copied without unpickling."""

from __future__ import annotations

import asyncio
import base64
import json
import pickle
from dataclasses import dataclass

import pytest

pytest.importorskip("agent_framework")

from agent_framework import FileCheckpointStorage, WorkflowCheckpoint
from agent_framework.exceptions import WorkflowCheckpointException

import statelog
from statelog.adapters.agent_framework import StatelogCheckpointStorage
from statelog.adapters.agent_framework.move import opened
from statelog.adapters.kit.migration import move
from statelog.cli import main
from statelog.errors import ConflictError, FormatError

pytestmark = pytest.mark.filterwarnings("ignore")


@dataclass
class Order:
    number: int


ALLOWED = [f"{__name__}:Order"]


def checkpoint(number, name):
    return WorkflowCheckpoint(
        workflow_name=name,
        graph_signature_hash="h",
        checkpoint_id=f"é{name}-{9 - number}",
        state={"z": number, "list": [{"n": each} for each in range(number)], "a": {"t": (1, 2), "order": Order(7)}},
        timestamp=f"2026-01-01T00:00:{number:02d}+00:00",
    )


CHECKPOINTS = [checkpoint(number, name) for name in ("u", "w") for number in range(4)]


@pytest.fixture
def folder(tmp_path):
    storage = FileCheckpointStorage(tmp_path / "checkpoints", allowed_checkpoint_types=ALLOWED)

    async def fill():
        for each in CHECKPOINTS:
            await storage.save(each)

    asyncio.run(fill())
    return tmp_path / "checkpoints"


@pytest.fixture
def store(tmp_path):
    with statelog.open(tmp_path / "s") as opened_store:
        yield opened_store
        assert opened_store.verify().ok


def moved(folder, store):
    with opened(folder) as source:
        return move(source, store)


def bytes_of(folder):
    return {file.name: file.read_bytes() for file in folder.iterdir()}


def test_checkpoints_are_copied_and_a_second_move_copies_none(folder, store):
    before = bytes_of(folder)
    for copied in (8, 0):
        report = moved(folder, store)
        assert (report.found, report.copied, report.left_out) == (8, copied, ())
    assert bytes_of(folder) == before
    storage = StatelogCheckpointStorage(store, ALLOWED)

    async def read():
        assert [await storage.load(each.checkpoint_id) for each in CHECKPOINTS] == CHECKPOINTS
        assert await storage.list_checkpoints(workflow_name="u") == CHECKPOINTS[:4]
        return await storage.get_latest(workflow_name="w")

    assert asyncio.run(read()) == CHECKPOINTS[-1]


def test_checkpoints_are_versions_of_their_workflow_in_order(folder, store):
    moved(folder, store)
    thread = store.thread("agent-framework:workflow/w")
    assert [made.state["/state/z"].value for made in thread.history()] == [3, 2, 1, 0]


def test_types_are_checked_when_a_checkpoint_is_loaded(folder, store):
    moved(folder, store)
    with pytest.raises(WorkflowCheckpointException, match="Order"):
        asyncio.run(StatelogCheckpointStorage(store).load(CHECKPOINTS[0].checkpoint_id))


class Trap:
    """Raises when it is unpickled."""

    def __reduce__(self):
        return _spring, ()


def _spring():
    raise AssertionError


def test_nothing_is_unpickled(folder, store):
    trap = base64.b64encode(pickle.dumps(Trap())).decode()
    with pytest.raises(AssertionError):
        pickle.loads(base64.b64decode(trap))
    file = folder / f"{CHECKPOINTS[0].checkpoint_id}.json"
    encoded = json.loads(file.read_text())
    encoded["state"]["a"]["order"] = {"__pickled__": trap, "__type__": ALLOWED[0]}
    file.write_text(json.dumps(encoded))
    assert moved(folder, store).copied == 8


def test_a_different_checkpoint_with_the_same_id_is_kept_and_all_others_are_copied(folder, store):
    mine = WorkflowCheckpoint("mine", "h", checkpoint_id=CHECKPOINTS[0].checkpoint_id)
    asyncio.run(StatelogCheckpointStorage(store).save(mine))
    report = moved(folder, store)
    assert report.copied == 7
    assert [(left.name, type(left.error)) for left in report.left_out] == [(mine.checkpoint_id, ConflictError)]
    assert asyncio.run(StatelogCheckpointStorage(store).load(mine.checkpoint_id)) == mine


def test_an_interrupted_move_continues(folder, store):
    with opened(folder) as source:
        for name in source.names()[:3]:
            assert source.copy(name, store)
    report = moved(folder, store)
    assert (report.found, report.copied, report.left_out) == (8, 5, ())


@pytest.mark.parametrize(
    "damage", [b"", b"{", b"[]", b"{}", b"\xff", b'{"workflow_name": 1, "graph_signature_hash": 2}']
)
def test_a_damaged_checkpoint_is_left_out_and_named(folder, store, damage):
    (folder / "damaged.json").write_bytes(damage)
    report = moved(folder, store)
    assert report.copied == 8
    [left] = report.left_out
    assert (left.name, type(left.error)) == ("damaged", FormatError)
    assert "damaged.json" in left.error.message


def test_a_file_whose_name_is_not_its_checkpoints_is_left_out(folder, store):
    (folder / "other.json").write_text(json.dumps(WorkflowCheckpoint("w", "h", checkpoint_id="mine").to_dict()))
    assert [left.name for left in moved(folder, store).left_out] == ["other"]


@pytest.mark.parametrize("content", [None, b"{}"])
def test_a_foreign_folder_is_refused(tmp_path, content):
    folder = tmp_path / "foreign"
    folder.mkdir()
    if content is not None:
        (folder / "package.json").write_bytes(content)
    for path in (folder, folder / "package.json"):
        with pytest.raises(FormatError, match="is not a folder of Agent Framework checkpoints"), opened(path):
            pass


def test_the_command_reports_the_number_of_copies(tmp_path, folder, capsys):
    with pytest.raises(SystemExit) as ended:
        main(["import-sessions", f"agent-framework:{folder}", str(tmp_path / "s")])
    assert ended.value.code == 0
    assert "8 checkpoints, read back and equal" in " ".join(capsys.readouterr().out.split())
