"""The house: a file imports only from floors below its own, and two doors have one key each (DESIGN.md)."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parent.parent / "statelog"
FILES = sorted(PACKAGE.rglob("*.py"))
FLOORS = [
    {"errors", "limits"},
    {"kernels"},
    {"format"},
    {"storage"},
    {"tree"},
    {"log"},
    {"reducers"},
    {"schema"},
    {"portable"},
    {"store"},
    {"aio", "durable", "testing"},
    {"adapters"},
    {"bench", "examples"},
    {"cli"},
]
FLOOR_OF = {room: floor for floor, rooms in enumerate(FLOORS) for room in rooms}


def room_of(module):
    """Return the room of a module by its path or dotted name; "" for the public face and its names, and for others."""
    parts = module.split(".")
    is_ours = parts[0] == "statelog" and len(parts) > 1 and parts[1] not in ("__init__", "_kernels")
    return parts[1] if is_ours and parts[1] in FLOOR_OF else ""


def modules_imported(path):
    """Yield every module a file imports, wherever in it."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: imports are absolute"
            is_face = node.module == "statelog"
            yield from (f"statelog.{alias.name}" for alias in node.names) if is_face else (node.module,)


def name_of(path):
    return ".".join(path.relative_to(PACKAGE.parent).with_suffix("").parts)


@pytest.mark.parametrize("path", FILES, ids=name_of)
def test_a_file_imports_from_floors_below_alone(path):
    mine = room_of(name_of(path))
    for module in modules_imported(path):
        theirs = room_of(module)
        if mine and theirs and mine != theirs:
            assert FLOOR_OF[theirs] < FLOOR_OF[mine], f"{name_of(path)} imports {module}"


@pytest.mark.parametrize(
    ("module", "importers"),
    [("statelog._kernels", {"kernels"}), ("lmdb", {"storage"}), ("cffi", set()), ("rich", {"cli", "bench"})],
)
def test_a_door_has_one_key(module, importers):
    found = {
        room_of(name_of(path))
        for path in FILES
        if any(each == module or each.startswith(f"{module}.") for each in modules_imported(path))
    }
    assert found <= importers


def test_the_pure_core_opens_no_file():
    for path in FILES:
        if room_of(name_of(path)) in {"errors", "limits", "kernels", "format", "tree", "reducers"}:
            assert not {"os", "io", "pathlib", "mmap", "lmdb", "tempfile"} & set(modules_imported(path)), path
