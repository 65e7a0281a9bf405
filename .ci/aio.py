"""Write the generated part of `statelog.aio` from the synchronous API: `python .ci/aio.py`.

A synchronous class has a twin on the event loop, whose public methods take the same parameters. The methods that differ
are written by hand in the twin: they wait, are context managers, or return an object that has a twin itself. This
program generates all others, which only make the synchronous call on the pool. The same holds for the functions of
`statelog.durable`. The program reads the sources, and does not import them.

After you add a method to a synchronous class, run this program. Two kinds of methods need more:

- A method that does not read or write the file needs its name in `ON_LOOP`.
- A method that this program refuses to generate needs a method by hand in the twin.

A new function of `statelog.durable` also needs an import in `statelog/aio/durable/__init__.py`.

`tests/aio/test_generated.py` fails if the committed files are not those of the sources.
"""

from __future__ import annotations

import ast
import builtins
import copy
import re
import subprocess
import sys
import textwrap
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    Origin = tuple[str, str]
    """A module, and a name in it, or "" for the module itself."""

ROOT = Path(__file__).parent.parent
WIDTH = 120
BRIDGE = "statelog.aio.bridge"
DURABLE = "statelog.aio.durable"
AIO_STORE = ("statelog.aio.store", "Store")


class Twin(NamedTuple):
    """A synchronous class, and the class on the event loop with the same methods."""

    sync: Origin
    loop: Origin
    public: str
    """The name of the synchronous class in docstrings."""
    held: str
    """The attribute of the twin with the synchronous object, or the method that returns this object on the pool."""
    base: str = ""
    """A generic base class, as the synchronous module names it."""
    run: str = "self._runner.run"
    """The function that makes a call on the pool."""


TWINS = [
    Twin(("statelog.store.store", "Store"), AIO_STORE, "statelog.Store", "_store"),
    Twin(
        ("statelog.store.transaction", "Transaction"),
        ("statelog.aio.transaction", "Transaction"),
        "statelog.Transaction",
        "_transaction",
    ),
    Twin(
        ("statelog.store.thread", "Thread"),
        ("statelog.aio.thread", "Thread"),
        "statelog.Thread",
        "_thread()",
        "Written[S, W]",
    ),
    Twin(("statelog.store.board", "Board"), ("statelog.aio.board", "Board"), "statelog.Board", "_board"),
    Twin(("statelog.store.claims", "Claim"), ("statelog.aio.board", "Claim"), "statelog.Claim", "fence"),
    Twin(("statelog.memory.memory", "Memory"), ("statelog.aio.memory", "Memory"), "statelog.Memory", "sync"),
    Twin(
        ("statelog.memory.sessions", "Session"),
        ("statelog.aio.memory", "Session"),
        "statelog.memory.Session",
        "_session",
    ),
    Twin(
        ("statelog.fleet.fleet", "Fleet"), ("statelog.aio.fleet", "Fleet"), "statelog.fleet.Fleet", "_fleet", run="run"
    ),
]

HAVE_TWINS = {twin.sync for twin in TWINS} | {
    ("statelog.durable.blocks", "EnteredRun"),
    ("statelog.durable.run", "Run"),
    ("statelog.durable.starts", "Handle"),
    ("statelog.durable.steps", "StepContext"),
    ("statelog.memory.sessions", "Turn"),
    ("statelog.store.watches", "Watch"),
}
"""Synchronous classes whose objects a method of the event loop must not return."""

ON_LOOP = {
    *("Store.path", "Store.closed", "Store.read_only", "Store.durability", "Store.fenced", "Store.limit"),
    *("Memory.scope", "Session.id", "Session.thread_id", "Fleet.path"),
}
"""Methods and properties that do not read or write the file. They are called on the event loop, without `await`."""

NOTES = {
    "Store.export": "The target is also written there.",
    "Store.import_": "The source is also read there.",
    "Store.image": "The target is written to on a thread of the pool.",
    "Thread.commit": "A commit that has begun is not undone if the task is cancelled.",
    "Thread.edit": "`change` is called on a thread of the pool.",
    "Session.window": "`count` is called on a thread of the pool.",
    "durable.cancel": "An async step that is being called is interrupted.",
}
"""Sentences for docstrings. They follow the note about `progress`, which each method with this parameter has."""

BEGINS = {"start", "start_with", "branch", "continue_as_new"}
"""Methods of `durable.Run` that return at once, also in an async workflow."""

CALLS_SYNC = {"transact"}
"""Methods of `durable.Run` whose function must not be async."""

CALLED: dict[tuple[str, str], str] = {}
"""Other names for what the synchronous modules import, where two of them give one name to two things."""


class RefusedError(Exception):
    """Raised for a method that must be written by hand."""


# --- reading the sources --------------------------------------------------------------------------------------


@lru_cache(maxsize=256)
def parsed(text: str) -> ast.Module:
    return ast.parse(text)


class Sources:
    """The modules of a checkout.

    Args:
        root: the folder of the checkout.
        changed: texts that replace those of some files, by their paths in the folder.
    """

    def __init__(self, root: Path = ROOT, changed: Mapping[str, str] | None = None) -> None:
        self._root = root
        self._changed = changed or {}
        self._origins: dict[str, dict[str, Origin]] = {}

    def text(self, path: str) -> str:
        return self._changed[path] if path in self._changed else (self._root / path).read_text(encoding="utf-8")

    def source(self, name: str) -> str:
        path = name.replace(".", "/")
        return self.text(f"{path}/__init__.py" if (self._root / path).is_dir() else f"{path}.py")

    def statements(self, module: str) -> Iterator[ast.stmt]:
        """Yield the statements of a module, with those below `if TYPE_CHECKING`."""
        for node in parsed(self.source(module)).body:
            yield from node.body if isinstance(node, ast.If) else [node]

    def origins(self, module: str) -> dict[str, Origin]:
        """Return where each name of a module comes from."""
        if module in self._origins:
            return self._origins[module]
        found: dict[str, Origin] = {}
        for node in self.statements(module):
            if isinstance(node, ast.ImportFrom):
                found |= {each.asname or each.name: (node.module or "", each.name) for each in node.names}
            elif isinstance(node, ast.Import):
                found |= {each.asname or each.name: (each.name, "") for each in node.names}
            elif isinstance(node, ast.Assign | ast.AnnAssign):
                targets = node.targets if isinstance(node, ast.Assign) else [node.target]
                found |= {each.id: (module, each.id) for each in targets if isinstance(each, ast.Name)}
            elif name := getattr(node, "name", None):
                found[name] = (module, name)
        self._origins[module] = found
        return found

    def definition(self, origin: Origin) -> ast.stmt | None:
        """Return the class or the function of this name, or None."""
        named = [each for each in self.statements(origin[0]) if getattr(each, "name", None) == origin[1]]
        return named[-1] if named else None

    def lineage(self, origin: Origin) -> Iterator[tuple[str, ast.ClassDef]]:
        """Yield a class and its base classes in this package, each with its module, except generated ones."""
        node = self.definition(origin)
        if not isinstance(node, ast.ClassDef) or origin[0].endswith(".generated"):
            return
        yield origin[0], node
        origins = self.origins(origin[0])
        for base in node.bases:
            name = ast.unparse(base).partition("[")[0]
            if name in origins and origins[name][0].startswith("statelog."):
                yield from self.lineage(origins[name])

    def methods(self, origin: Origin) -> dict[str, tuple[str, list[ast.FunctionDef]]]:
        """Return the public methods of a class by name: the module, the overloads, and the method itself."""
        found: dict[str, tuple[str, list[ast.FunctionDef]]] = {}
        for module, node in self.lineage(origin):
            own: dict[str, tuple[str, list[ast.FunctionDef]]] = {}
            for each in node.body:
                if isinstance(each, ast.FunctionDef) and not each.name.startswith("_"):
                    own.setdefault(each.name, (module, []))[1].append(each)
            found |= {name: own[name] for name in own if name not in found}
        return found

    def names_by_hand(self, origin: Origin) -> set[str]:
        """Return the names of the methods of a class, and of the attributes that these set."""
        found = set()
        for _module, node in self.lineage(origin):
            found |= {each.name for each in node.body if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef)}
            attributes = [each for each in ast.walk(node) if isinstance(each, ast.Attribute)]
            found |= {each.attr for each in attributes if isinstance(each.ctx, ast.Store)}
        return found


# --- writing a module -----------------------------------------------------------------------------------------


class Module:
    """A module to be written. It imports what its text needs.

    Args:
        sources: the modules that the text comes from.
        about: the docstring.
        lint: a comment for ruff.
        loop: classes of the event loop, by the synchronous ones that they replace.
    """

    def __init__(
        self, sources: Sources, about: str, *, lint: str = "", loop: Mapping[Origin, Origin] | None = None
    ) -> None:
        self.sources, self._about, self._lint, self._loop = sources, about, lint, loop or {}
        self._names: dict[Origin, str] = {}
        self._at_run_time: set[Origin] = set()
        self.use("typing", "TYPE_CHECKING")

    def use(self, module: str, name: str = "", *, at_run_time: bool = False) -> str:
        """Import a name. Return what it is called here."""
        module, name = origin = self._loop.get((module, name), (module, name))
        if origin not in self._names:
            called = CALLED.get(origin, name or module)
            if called in self._names.values():
                raise RefusedError(f"{called} would have two meanings: give {module}.{name} a name in CALLED")
            self._names[origin] = called
        if at_run_time or module == "typing":
            self._at_run_time.add(origin)
        return self._names[origin]

    def expression(self, node: ast.AST, module: str, *, at_run_time: bool = False) -> ast.AST:
        """Return an expression of another module, with its names as they are called here."""
        node, origins = copy.deepcopy(node), self.sources.origins(module)
        for each in ast.walk(node):
            if isinstance(each, ast.Name) and (each.id in origins or not hasattr(builtins, each.id)):
                each.id = self.use(*origins[each.id], at_run_time=at_run_time)
        return node

    def parameters(self, node: ast.FunctionDef, module: str) -> str:
        given = copy.deepcopy(node.args)
        for each in ast.walk(given):
            if isinstance(each, ast.arg) and each.annotation is not None:
                each.annotation = self.expression(each.annotation, module)
        for values in (given.defaults, given.kw_defaults):
            values[:] = [each and self.expression(each, module, at_run_time=True) for each in values]
        return ast.unparse(given)

    def returns(self, node: ast.FunctionDef, module: str) -> str:
        return ast.unparse(self.expression(node.returns, module))

    def function(self, node: ast.FunctionDef, module: str, body: str, returns: str = "", before: str = "") -> str:
        """Return a function with the decorators and parameters of another one."""
        source = self.sources.source(module).splitlines()[node.lineno - 1]
        comment = re.search("  # type: ignore.*", source)
        decorators = [ast.unparse(self.expression(each, module, at_run_time=True)) for each in node.decorator_list]
        first = f"{before}def {node.name}({comment[0] if comment else ''}\n{self.parameters(node, module)}\n)"
        made = f"{first} -> {returns or self.returns(node, module)}:\n{textwrap.indent(body, '    ')}\n"
        return "".join(f"@{each}\n" for each in decorators) + made

    def text(self, *parts: str) -> str:
        """Return the module with these parts."""
        checked = {origin: name for origin, name in self._names.items() if origin not in self._at_run_time}
        generated = "`python .ci/aio.py` generates this file from the synchronous API. Do not edit it."
        lines = [f'"""{self._about}\n\n{generated}\n"""\n', self._lint, "from __future__ import annotations\n"]
        lines += _imports({origin: self._names[origin] for origin in self._at_run_time})
        lines += ["if TYPE_CHECKING:", *(f"    {each}" for each in _imports(checked))]
        return "\n".join([*lines, *parts])


def _imports(names: Mapping[Origin, str]) -> list[str]:
    """Return import statements, sorted as ruff sorts them."""
    lines: list[str] = []
    for is_ours in (False, True):
        modules = sorted({module for module, _name in names if module.startswith("statelog") == is_ours})
        lines += [f"import {module}" for module in modules if (module, "") in names]
        for module in modules:
            own = [name for each, name in names if each == module and name]
            own.sort(key=lambda name: (not (name.isupper() and len(name) > 1), not name[0].isupper(), name))
            called = {name: names[module, name] for name in own}
            if plain := [name for name in own if called[name] == name]:
                lines.append(f"from {module} import {', '.join(plain)}")
            lines += [f"from {module} import {name} as {called[name]}" for name in own if called[name] != name]
        lines += [""] if modules else []
    return lines


def docstring(node: ast.FunctionDef, public: str, note: str = "", *, indent: int = 8, is_awaited: bool = False) -> str:
    """Return a docstring: what the synchronous one says first, a pointer to it, and a note."""
    said = re.sub(r" See `[^`]+`( and `[^`]+`)?\.$", "", (ast.get_docstring(node) or "").partition("\n")[0])
    if is_awaited:  # It was a property.
        said = f"Return {said[0].lower()}{said[1:]}"
    pointer = f"See `{public}.{node.name}`. {note}".rstrip()
    if indent + len(f'"""{said} {pointer}"""') <= WIDTH:
        return f'"""{said} {pointer}"""'
    return f'"""{said}\n\n{textwrap.fill(pointer, WIDTH - indent, break_on_hyphens=False)}\n"""'


def passed_on(given: ast.arguments) -> str:
    """Return the arguments with which a function passes its parameters on, without the first parameter."""
    passed = [each.arg for each in [*given.posonlyargs, *given.args][1:]]
    passed += [f"*{given.vararg.arg}"] if given.vararg else []
    passed += [f"{each.arg}={each.arg}" for each in given.kwonlyargs]
    return ", ".join([*passed, *([f"**{given.kwarg.arg}"] if given.kwarg else [])])


def check_forwarded(sources: Sources, node: ast.FunctionDef, module: str, by_hand: str) -> None:
    """Raise RefusedError if a function cannot be one call on the pool."""
    origins = sources.origins(module)
    decorators = {ast.unparse(each) for each in node.decorator_list} - {"property"}
    returned = {each.id for each in ast.walk(node.returns or node.args) if isinstance(each, ast.Name)}
    refused = {each for each in returned if each.endswith("ContextManager") or origins.get(each) in HAVE_TWINS}
    if decorators or refused:
        raise RefusedError(f"write {node.name} by hand in {by_hand}, because of {min(decorators | refused)}")


# --- the files ------------------------------------------------------------------------------------------------


def class_of(module: Module, twin: Twin) -> str:
    """Return a class with the methods of a twin that are not written by hand."""
    held, sync_type = twin.held.removesuffix("()"), module.use(*twin.sync)
    body = [f'"""Methods of `{".".join(twin.loop)}` that call the methods of `{twin.public}`."""\n']
    if twin.base:
        base = ast.unparse(module.expression(ast.parse(twin.base, mode="eval"), twin.sync[0], at_run_time=True))
        sync_type += base[base.index("[") :]
    if twin.run == "run":
        module.use(BRIDGE, "run", at_run_time=True)
    else:
        body.append(f"_runner: {module.use(BRIDGE, 'Runner')}")
    declared = f"{held}: {sync_type}"
    body.append(declared if held == twin.held else f"if TYPE_CHECKING:\n    def {held}(self) -> {sync_type}: ...")
    by_hand = module.sources.names_by_hand(twin.loop)
    for name, (owner, nodes) in module.sources.methods(twin.sync).items():
        if name not in by_hand:
            check_forwarded(module.sources, nodes[0], owner, ".".join(twin.loop))
            body.append(_method(module, twin, owner, nodes[0]))
    bases = f"({twin.base})" if twin.base else ""
    return f"class {twin.sync[1]}Calls{bases}:\n" + textwrap.indent("\n".join(body), "    ")


def _method(module: Module, twin: Twin, owner: str, node: ast.FunctionDef) -> str:
    node, name = copy.copy(node), f"{twin.sync[1]}.{node.name}"
    is_property, passed = bool(node.decorator_list), passed_on(node.args)
    called, returns = f"self.{twin.held}.{node.name}", module.returns(node, owner)
    made = called if is_property else f"{called}({passed})"
    if name not in ON_LOOP:
        node.decorator_list = []
        is_stream = returns.startswith("AsyncIterator[")
        if is_property or twin.held.endswith("()") or (is_stream and passed):
            call = f"lambda: {made}"
        else:
            call = f"{called}, {passed}" if passed else called
        made = f"await {twin.run}({call})"
        if is_stream:
            made = f"{module.use(BRIDGE, 'stream', at_run_time=True)}(self._runner, {call})"
    note = "`progress` is called on a thread of the pool. " if "progress=" in passed else ""
    text = docstring(node, twin.public, note + NOTES.get(name, ""), is_awaited=is_property and name not in ON_LOOP)
    body = f"{text}\n{'' if returns == 'None' else 'return '}{made}"
    return module.function(node, owner, body, returns, "async " if made.startswith("await") else "")


def threads_of(module: Module) -> str:
    """Return the base class of stores and transactions. It differs from the synchronous one in the class of threads."""
    source = "statelog.store.threads"
    ((_module, node),) = module.sources.lineage((source, "Threads"))
    body = ['"""Returns threads, typed by their schemas; see `statelog.store.threads.Threads`."""\n']
    for each in node.body:
        if isinstance(each, ast.FunctionDef):
            lines = [ast.unparse(line) for line in each.body]
            if ast.get_docstring(each):
                lines[0] = docstring(each, "statelog.Store")
            body.append(module.function(each, source, "\n".join(lines)))
    bases = [ast.unparse(module.expression(each, source, at_run_time=True)) for each in node.bases]
    return f"class Threads({', '.join(bases)}):\n" + textwrap.indent("\n".join(body), "    ")


def functions_of(module: Module) -> str:
    """Return the functions of `statelog.durable` that take a store and are not written by hand."""
    sources, made = module.sources, []
    by_hand = {
        name
        for name, (where, _name) in sources.origins(DURABLE).items()
        if where.startswith(DURABLE) and not where.endswith(".generated")
    }
    on_pool = module.use(f"{DURABLE}.starts", "on_pool", at_run_time=True)
    durable = module.use("statelog", "durable", at_run_time=True)
    for name, (owner, _name) in sorted(sources.origins("statelog.durable").items()):
        node = None if name in by_hand else sources.definition((owner, name))
        if isinstance(node, ast.FunctionDef) and [each.arg for each in node.args.posonlyargs + node.args.args][:1] == [
            "store"
        ]:
            check_forwarded(sources, node, owner, DURABLE)
            returns = module.returns(node, owner)
            given = ", ".join(filter(None, ["store", f"{durable}.{name}", passed_on(node.args)]))
            call = f"{'' if returns == 'None' else 'return '}await {on_pool}({given})"
            text = docstring(node, "statelog.durable", NOTES.get(f"durable.{name}", ""), indent=4)
            made.append(module.function(node, owner, f"{text}\n{call}", returns, "async "))
    return "\n".join(made)


def run_of(module: Module) -> str:
    """Return the type of the run of an async workflow. Its methods return coroutines, and take async functions."""
    methods = []
    for name, (owner, nodes) in module.sources.methods(("statelog.durable.run", "Run")).items():
        *overloads, node = nodes
        if not overloads and "function" in {each.arg for each in node.args.args} and name not in CALLS_SYNC:
            overloads = [_for_async_function(node), node]
        made = [(each, "...", "") for each in overloads] + [(node, docstring(node, "statelog.durable.Run"), "Any")]
        for each, body, returns in made:
            each = copy.copy(each)
            each.decorator_list = [ast.Name(module.use("typing", "overload"))] if body == "..." else []
            if not returns or not overloads:
                returns = module.returns(each, owner)
                if name not in BEGINS:
                    returns = f"{module.use('collections.abc', 'Coroutine')}[Any, Any, {returns}]"
            methods.append(module.function(each, owner, body, returns))
    about = (
        '"""A run, with the operations of its async workflow. See `statelog.durable.Run`.\n\n'
        'Attributes:\n    id: the id of the run.\n    thread_id: the id of the thread that the run writes to.\n"""\n'
    )
    body = "\n".join([about, "id: str", "thread_id: str\n", *methods])
    return f"class Run({module.use('typing', 'Protocol')}):\n" + textwrap.indent(body, "    ")


def _for_async_function(node: ast.FunctionDef) -> ast.FunctionDef:
    """Return a method that takes `function: Callable[..., R]` as it is for a coroutine function."""
    node = copy.deepcopy(node)
    for each in node.args.args:
        if each.arg == "function":
            each.annotation.slice.elts[1] = ast.parse(
                f"Coroutine[Any, Any, {ast.unparse(each.annotation.slice.elts[1])}]", mode="eval"
            ).body
    return node


def generate(sources: Sources) -> dict[str, str]:
    """Return the generated files by their paths, before ruff has formatted them.

    Raises:
        RefusedError: a method must be written by hand.
    """
    iterator, sync_thread = ("collections.abc", "Iterator"), ("statelog.store.thread", "Thread")
    calls = Module(
        sources,
        "Methods of the classes of `statelog.aio` that only make a synchronous call on the pool.",
        loop={iterator: ("collections.abc", "AsyncIterator")},
    )
    threads = Module(
        sources,
        "The base class of stores and transactions on the event loop, which return threads.",
        lint="# ruff: noqa: SLF001 - a thread that is returned is new",
        loop={sync_thread: ("statelog.aio.thread", "Thread")},
    )
    functions = Module(
        sources,
        "Functions of `statelog.aio.durable` that only make a synchronous call on the pool.",
        loop={("statelog.store.store", "Store"): AIO_STORE},
    )
    run = Module(
        sources,
        "The type of the run of an async workflow for type checkers.\n\nNothing imports this file at run time. There, "
        "the run is a `statelog.durable.Run`, whose operations return coroutines.",
    )
    return {
        "statelog/aio/generated.py": calls.text(*[class_of(calls, twin) for twin in TWINS]),
        "statelog/aio/threads.py": threads.text(threads_of(threads)),
        "statelog/aio/durable/generated.py": functions.text(functions_of(functions)),
        "statelog/aio/durable/operations.py": run.text(run_of(run)),
    }


def stale(sources: Sources) -> list[str]:
    """Return the paths of the generated files that differ from what the sources give, not only in their layout."""
    made = generate(sources)
    return [path for path, text in made.items() if ast.dump(parsed(text)) != ast.dump(parsed(sources.text(path)))]


def main() -> None:
    made = generate(Sources())
    for path, text in made.items():
        (ROOT / path).write_text(text, encoding="utf-8")
    subprocess.run([sys.executable, "-m", "ruff", "format", "-q", *made], cwd=ROOT, check=True)


if __name__ == "__main__":
    main()
