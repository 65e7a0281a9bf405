"""The public face: what `__all__` says, no more and no less, importable and documented."""

from __future__ import annotations

import ast
import importlib
import inspect
import subprocess
import sys
import typing
from pathlib import Path

import pytest

import statelog
from statelog import errors

PACKAGE = Path(statelog.__file__).parent
PUBLIC = [
    "statelog",
    "statelog.adapters.langgraph",
    "statelog.aio",
    "statelog.aio.durable",
    "statelog.aio.fleet",
    "statelog.durable",
    "statelog.errors",
    "statelog.fleet",
    "statelog.guard",
    "statelog.limits",
    "statelog.memory",
    "statelog.otel",
    "statelog.reducers",
    "statelog.testing",
    "statelog.testing.durable",
]
FACE = {
    "Change",
    "Checkpoint",
    "Diff",
    "Store",
    "Thread",
    "aio",
    "diff",
    "errors",
    "open",
    "reducers",
    "register_codec",
}


NEEDED = {"statelog.otel": "opentelemetry", "statelog.adapters.langgraph": "langgraph"}
"""What the names of a module need to be looked up."""


def module_named(name):
    if name in NEEDED:
        pytest.importorskip(NEEDED[name])
    return importlib.import_module(name)


def test_the_face_is_pinned():
    assert FACE - {"aio"} <= set(statelog.__all__)
    assert all(hasattr(statelog, name) for name in statelog.__all__)
    assert list(statelog.__all__) == sorted(statelog.__all__)


@pytest.mark.parametrize("name", PUBLIC)
def test_all_lists_the_public_names(name):
    module = module_named(name)
    names = getattr(module, "__all__", None)
    if names is None:
        return
    assert len(names) == len(set(names))
    assert all(hasattr(module, each) for each in names)
    assert not [each for each in names if each.startswith("_")]


@pytest.mark.parametrize("name", PUBLIC)
def test_dir_of_a_public_module_lists_the_public_names(name):
    module = module_named(name)
    shown = {each for each in dir(module) if not each.startswith("__")}
    assert shown == set(getattr(module, "__all__", {each for each in shown if hasattr(module, each)}))
    assert {each for each in shown if inspect.ismodule(getattr(module, each, None))} <= {"errors", "guard", "reducers"}
    assert not shown & {"Any", "TYPE_CHECKING", "annotations"}


def test_every_error_is_in_the_face():
    assert set(dir(errors)) <= set(statelog.__all__)


def namespace_of(module):
    """Return the names that annotations of a module use, also those that it imports for type checkers only."""
    names = dict(vars(module))
    for node in ast.walk(ast.parse(Path(module.__file__).read_text())):
        if isinstance(node, ast.ImportFrom):
            imported = importlib.import_module(node.module)
            names |= {each.asname or each.name: getattr(imported, each.name, None) for each in node.names}
        elif isinstance(node, ast.Import):
            names |= {each.name: importlib.import_module(each.name) for each in node.names}
    return names


def classes_in(hint):
    """Yield our classes in a type."""
    if inspect.isclass(hint) and hint.__module__.startswith("statelog."):
        yield hint
    for each in typing.get_args(hint):
        yield from classes_in(each)


def returned_by(kind):
    """Yield the classes that the public methods and attributes of a class have."""
    hints = []
    for base in kind.__mro__:
        if not base.__module__.startswith("statelog."):
            continue
        names = namespace_of(sys.modules[base.__module__])
        hints += [(hint, names) for name, hint in vars(base).get("__annotations__", {}).items() if name[0] != "_"]
        for name, value in vars(base).items():
            function = inspect.unwrap(value.fget if isinstance(value, property) else value)
            if name[0] != "_" and inspect.isfunction(function):
                hints.append((function.__annotations__.get("return"), names))
    for hint, names in hints:
        yield from classes_in(eval(hint, names) if isinstance(hint, str) else hint)


@pytest.mark.slow
def test_every_type_that_a_call_returns_is_in_the_face():
    found, todo = set(), [statelog.Store]
    while todo:
        kind = todo.pop()
        if kind not in found:
            found.add(kind)
            todo += returned_by(kind)
    assert {each.__name__ for each in found if getattr(statelog, each.__name__, None) is not each} == {
        "Quarantined",  # of statelog.guard
        *("Condition", "EntryRun", "Node", "Tree", "ValueSlot"),  # of attributes that only other rooms use
    }


@pytest.mark.parametrize("name", ["statelog", "statelog.testing", "statelog.testing.durable"])
def test_a_face_imports_and_does_nothing_else(name):
    module = importlib.import_module(name)
    allowed = (ast.Import, ast.ImportFrom, ast.Assign, ast.Expr, ast.If)
    tree = ast.parse(Path(module.__file__).read_text())
    assert all(isinstance(node, allowed) for node in tree.body)


@pytest.mark.parametrize("name", statelog.__all__)
def test_public_names_are_documented(name):
    thing = getattr(statelog, name)
    assert inspect.getdoc(thing)
    if inspect.isclass(thing):
        members = [(each, value) for each, value in vars(thing).items() if not each.startswith("_") and callable(value)]
        assert [each for each, value in members if not inspect.getdoc(value)] == []


NAMES = {
    "store": "anchor board close closed compact configure_search copy_thread delete_thread durability expire export "
    "fenced find_secrets flush image import_ last_lsn limit log migrate path prune purge quarantined read_only "
    "rebuild_index rekey release remote search set_retention shut_off snapshot statistics thread thread_ids threads "
    "transaction verify wait",
    "thread": "at branch branches checkout commit edit fork head history id mount rollback size state tag tags untag "
    "version",
    "transaction": "board copy_thread delete_thread thread",
    "snapshot": "board last_lsn thread",
    "board": "cas children claim claim_of claims create delete erase get history lease leases list migrate prune "
    "rollback schema set set_retention sweep update watch",
}
"""What users see of what they hold, and no name that only the rooms use: those go by `session_of` and `mountable`."""

OLD = {"store": {"retain", "fence"}, "board": {"retain"}}
"""Old names, which warn: tests/test_deprecated.py."""


def test_dir_of_users_objects_shows_public_names(tmp_path):
    with statelog.open(tmp_path / "a.state") as store, store.snapshot() as snapshot, store.transaction() as transaction:
        held = {
            "store": store,
            "thread": store.thread("t"),
            "transaction": transaction,
            "snapshot": snapshot,
            "board": store.board(),
        }
        shown = {
            name: [each for each in dir(thing) if not each.startswith("_") and each not in OLD.get(name, ())]
            for name, thing in held.items()
        }
    assert shown == {name: names.split() for name, names in NAMES.items()}


@pytest.mark.parametrize(("name", "kind"), [("store", statelog.Store), ("thread", statelog.Thread)])
def test_everything_that_users_see_is_documented(name, kind):
    documents = {each: inspect.getdoc(getattr(kind, each)) for each in NAMES[name].split()}
    assert [each for each, document in documents.items() if not document or "(internal)" in document] == []


def test_flags_are_keyword_only():
    for function in (
        statelog.open,
        statelog.Store.log,
        statelog.Store.thread,
        statelog.Thread.commit,
        statelog.Thread.fork,
    ):
        parameters = list(inspect.signature(function).parameters.values())
        optional = [each for each in parameters if each.default is not each.empty and each.name != "after"]
        assert all(each.kind is each.KEYWORD_ONLY for each in optional), function


def test_the_package_is_typed():
    assert (PACKAGE / "py.typed").exists()


def run(code):
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)


@pytest.mark.slow
def test_importing_statelog_loads_no_optional_package_and_no_command_line():
    unwanted = {"hypothesis", "pydantic", "pytest", "click", "rich", "asyncio", "sqlite3"}
    done = run(f"import sys, statelog; print(sorted({unwanted!r} & set(sys.modules)))")
    assert (done.stdout.strip(), done.stderr) == ("[]", "")


@pytest.mark.slow
def test_names_that_need_hypothesis_report_the_package_to_install():
    done = run("import sys; sys.modules['hypothesis'] = None; from statelog.testing import histories")
    assert done.returncode != 0
    assert "statelog.testing.histories needs Hypothesis: pip install 'statelog[test]'" in done.stderr


@pytest.mark.slow
def test_the_crash_harness_needs_no_hypothesis():
    done = run(
        "import sys; sys.modules['hypothesis'] = None\n"
        "import statelog.testing, statelog.testing.powerloss, statelog.testing.crashtest, statelog.testing.kills\n"
        "from statelog.cli import main\n"
        "main(['crashtest', '--help'])"
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert "Try to lose a commit" in done.stdout


@pytest.mark.slow
def test_a_schema_of_plain_types_needs_no_pydantic():
    done = run("import sys; sys.modules['pydantic'] = None; import statelog; print('works')")
    assert done.stdout.strip() == "works"
