"""A file imports only from layers below its own (the floors of DESIGN.md), and two modules have one importer each.

Files also do not import each other in a cycle, not even for their types: a reader of one file of a cycle has to read
all of them. The imports of a file are the modules that its statements name anywhere, without their packages.
"""

from __future__ import annotations

import ast
from functools import cache
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parent.parent / "statelog"
BENCHMARKS = PACKAGE.parent / "benchmarks"
FILES = sorted([*PACKAGE.rglob("*.py"), *BENCHMARKS.rglob("*.py")])
FLOORS = [
    {"redaction"},
    {"errors", "limits"},
    {"deprecated"},
    {"display"},
    {"kernels"},
    {"format"},
    {"guard"},
    {"storage"},
    {"tree"},
    {"log"},
    {"board"},
    {"reducers"},
    {"schema"},
    {"portable", "search"},
    {"store"},
    {"durable", "fleet"},
    {"documents"},
    {"memory"},
    {"aio"},
    {"testing"},
    {"adapters"},
    {"inspector", "otel"},
    {"benchmarks", "examples"},
    {"cli"},
]
FLOOR_OF = {room: floor for floor, rooms in enumerate(FLOORS) for room in rooms}
STAIRS = [
    [
        "storage.file",
        "storage.lmdb_file",
        "storage.read_transaction",
        "storage.notify",
        "storage.wal",
        "storage.write_transaction",
        "storage.recovery",
        "storage.store_file",
    ],
    ["log", "log.care"],
    [
        "adapters.kit",
        "adapters.langgraph.values",
        "adapters.langgraph.saver",
        "adapters.langgraph.memory.items",
        "adapters.langgraph.memory",
        "adapters.langgraph",
        "adapters.langgraph.move",
    ],
    ["adapters.kit.ordered", "adapters.kit.lives", "adapters.kit.directory"],
]
"""Files and packages within a layer, the lowest first. Those that are not listed have no restrictions here. A file
belongs to the innermost entry that has it."""

CLIMBING = {
    # Care by its subject, but part of the log: policies are rows of its index, loans are records.
    "log.care.policies": "log.kinds.policies log.kinds.threads log.operations log.view",
    "log.care.loans": "log.operations",
}
"""Remaining imports in the wrong direction: the imported file, and its importers."""


def room_of(module):
    """Return the room of a module by its path or dotted name; "" for the public face and its names, and for others.

    The package `benchmarks`, which is beside `statelog` and not in the wheel, counts as a room."""
    parts = module.split(".")
    if parts[0] == "benchmarks":
        return "benchmarks"
    is_ours = parts[0] == "statelog" and len(parts) > 1 and parts[1] not in ("__init__", "_kernels")
    return parts[1] if is_ours and parts[1] in FLOOR_OF else ""


@cache
def nodes_of(path):
    """Return the import statements of a file, wherever in it they are."""
    return [node for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Import | ast.ImportFrom)]


def modules_imported(path):
    """Yield every module a file imports, wherever in it."""
    for node in nodes_of(path):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        else:
            assert node.level == 0, f"{path}: imports are absolute"
            is_face = node.module == "statelog"
            yield from (f"statelog.{alias.name}" for alias in node.names) if is_face else (node.module,)


def name_of(path, package=PACKAGE):
    return ".".join(path.relative_to(package.parent).with_suffix("").parts)


def imports_in(package):
    """Return the imports between the files of a package, with names relative to the package."""
    paths = {name_of(path, package).removesuffix(".__init__"): path for path in package.rglob("*.py")}
    found = {}
    for name, path in paths.items():
        nodes = nodes_of(path)
        froms = [node for node in nodes if isinstance(node, ast.ImportFrom)]
        named = {alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names}
        named |= {node.module for node in froms if {f"{node.module}.{alias.name}" for alias in node.names} - {*paths}}
        named |= {f"{node.module}.{alias.name}" for node in froms for alias in node.names}
        found[name] = named & {*paths} - {name}
    outer = f"{package.name}."
    return {
        name.removeprefix(outer): {each.removeprefix(outer) for each in imported} for name, imported in found.items()
    }


def reached_from(name, imports):
    """Return the files that a file imports, and all that those import."""
    reached, pending = set(), [name]
    while pending:
        new = imports[pending.pop()] - reached
        reached |= new
        pending += new
    return reached


def circles_in(imports):
    """Return sets of files that all lead to each other."""
    reached = {name: reached_from(name, imports) for name in imports}
    return {
        frozenset(other for other in reached[name] if name in reached[other])
        for name in imports
        if name in reached[name]
    }


def step_of(name, stairs):
    """Return the position of a file in a list of STAIRS, or None."""
    around = [place for place in stairs if name == place or name.startswith(f"{place}.")]
    return stairs.index(max(around, key=len)) if around else None


def climbs_in(imports, all_stairs):
    """Return the imports that go up, as (importer, imported)."""
    return {
        (name, other)
        for stairs in all_stairs
        for name, imported in imports.items()
        for other in imported
        if (mine := step_of(name, stairs)) is not None
        and (theirs := step_of(other, stairs)) is not None
        and mine < theirs
    }


@cache
def imports_here():
    return imports_in(PACKAGE)


def forge(package, **texts):
    """Write a package of files that import each other, and return its imports."""
    package.mkdir()
    for name, text in texts.items():
        (package / f"{name}.py").write_text(text)
    return imports_in(package)


@pytest.mark.slow
def test_a_file_imports_from_floors_below_alone():
    for path in FILES:
        mine = room_of(name_of(path))
        for module in modules_imported(path):
            theirs = room_of(module)
            if mine and theirs and mine != theirs:
                assert FLOOR_OF[theirs] < FLOOR_OF[mine], f"{name_of(path)} imports {module}"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("module", "importers"),
    [
        ("statelog._kernels", {"kernels"}),
        ("lmdb", {"storage"}),
        ("cffi", set()),
        ("rich", {"cli", "benchmarks", "display"}),
        ("benchmarks", {"cli", "benchmarks"}),
    ],
)
def test_a_door_has_one_key(module, importers):
    found = {
        room_of(name_of(path))
        for path in FILES
        if any(each == module or each.startswith(f"{module}.") for each in modules_imported(path))
    }
    assert found <= importers


@pytest.mark.slow
def test_the_pure_core_opens_no_file():
    for path in FILES:
        if room_of(name_of(path)) in {"errors", "limits", "kernels", "format", "tree", "reducers"}:
            assert not {"os", "io", "pathlib", "mmap", "lmdb", "tempfile"} & set(modules_imported(path)), path


@pytest.mark.slow
def test_no_files_import_each_other_not_even_for_types():
    assert [sorted(circle) for circle in circles_in(imports_here())] == []
    assert [sorted(circle) for circle in circles_in(imports_in(BENCHMARKS))] == []


@pytest.mark.slow
def foreign_adapters_in(imports):
    """Return the imports between the packages of two adapters, or from the kit to an adapter."""
    return {
        (name, other)
        for name, imported in imports.items()
        for other in imported
        if (mine := adapter_of(name)) and (theirs := adapter_of(other)) and theirs not in (mine, "kit")
    }


def adapter_of(module):
    """Return the package of `statelog.adapters` that a module is in, or "" for another module."""
    parts = module.removeprefix("statelog.").split(".")
    return parts[1] if parts[0] == "adapters" and len(parts) > 1 else ""


@pytest.mark.slow
def test_no_adapter_imports_another_and_the_kit_imports_none():
    assert len({adapter_of(name) for name in imports_here()}) > 8
    assert foreign_adapters_in(imports_here()) == set()
    imports = {
        "adapters.kit.parts": {"adapters.strands.move"},
        "adapters.strands.move": {"adapters.kit", "adapters.crewai"},
    }
    assert foreign_adapters_in(imports) == {
        ("adapters.kit.parts", "adapters.strands.move"),
        ("adapters.strands.move", "adapters.crewai"),
    }


def test_a_room_imports_from_rooms_below_on_its_floor():
    still = {(name, other) for other, names in CLIMBING.items() for name in names.split()}
    found = climbs_in(imports_here(), STAIRS)
    assert found - still == set(), "imports up the stairs"
    assert still - found == set(), "imports that are gone: take them from CLIMBING"


@pytest.mark.slow
def test_every_step_of_the_stairs_is_there():
    for place in [place for stairs in STAIRS for place in stairs]:
        assert any(step_of(name, [place]) == 0 for name in imports_here()), place


@pytest.mark.parametrize(
    "back",
    [
        "from forged.low import name",
        "from forged import low",
        "import forged.low",
        "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from forged.low import Name",
        "def late():\n    from forged.low import name",
    ],
)
def test_a_forged_circle_is_found_however_it_is_closed(tmp_path, back):
    imports = forge(tmp_path / "forged", low="import forged.middle", middle="import forged.high", high=back, apart=back)
    assert circles_in(imports) == {frozenset(["low", "middle", "high"])}


def test_forged_files_without_a_circle_are_none(tmp_path):
    imports = forge(tmp_path / "forged", low="import os", middle="import forged.low", high="from forged import low")
    assert circles_in(imports) == set()


def test_a_forged_import_up_the_stairs_is_found(tmp_path):
    imports = forge(tmp_path / "forged", low="from forged import high", high="import forged.low", apart="")
    assert climbs_in(imports, [["low", "high"]]) == {("low", "high")}
    assert climbs_in(imports, [["high", "low"]]) == {("high", "low")}
    assert climbs_in(imports, [["apart", "high"]]) == set()
