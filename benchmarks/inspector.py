"""Measures the inspector in a browser: its first screen and datasette's, a long thread, and a concurrent writer."""

from __future__ import annotations

import json
import shutil
import socket
import sqlite3
import subprocess
import sys
import time
from contextlib import ExitStack, contextmanager
from importlib.resources import files
from statistics import median
from typing import TYPE_CHECKING, Any
from urllib.request import urlopen

import statelog
from benchmarks.result import Result, at_least, at_most
from benchmarks.workload import Bench, BenchWorkload, SkipError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

_THREADS = 20_000
_VERSIONS = 10_000
_STEPS = 40
_WRITING_S = 2.0
_START_TIMEOUT_S = 30.0
_PER_TRANSACTION = 500


def _measure(bench: Bench) -> Result:
    from playwright.sync_api import sync_playwright

    chromium = shutil.which("chromium")
    if chromium is None:
        message = "there is no chromium on the PATH"
        raise SkipError(message)
    rows = [_row(number) for number in range(bench.size(_THREADS, at_least=200))]
    ours, theirs = bench.directory / "threads.state", bench.directory / "threads.db"
    _fill(ours, theirs, rows)
    long = bench.directory / "long.state"
    _fill_long(long, bench.size(_VERSIONS, at_least=200))
    with ExitStack() as stack:
        running = stack.enter_context(sync_playwright())
        browser = running.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        stack.callback(browser.close)
        page = browser.new_context(viewport={"width": 1280, "height": 800}).new_page()
        inspected, peer = stack.enter_context(_inspector(ours)), stack.enter_context(_datasette(theirs))
        page.goto(inspected)
        sides = {
            "statelog": (inspected.partition("?")[0], "#threads tbody tr:nth-child(50)"),
            "datasette": (f"{peer}/threads/threads?_size=50", "table.rows-and-columns tbody tr:nth-child(50)"),
        }
        times_ms: dict[str, list[float]] = {name: [] for name in sides}
        for turn in range(bench.repeats + 1):
            for name, (address, content) in sides.items():
                took_ms = _time_to_content(page, address, content)
                times_ms[name] += [took_ms] * (turn > 0)  # The first turn fills the caches of both.
        paint_ms, step_ms = _measure_long(page, stack.enter_context(_inspector(long)), bench.repeats)
        rate = _writing_beside(page, bench)
    first = {name: median(each) for name, each in times_ms.items()}
    return Result(
        checks=(
            at_most(
                "first screen, relative to datasette with the same rows", first["statelog"] / first["datasette"], 0.5
            ),
            at_most(f"thread of {bench.size(_VERSIONS, at_least=200):,} versions: first paint", paint_ms, 500, "ms"),
            at_most("a step of the slider", step_ms, 50, "ms"),
            at_least("a writer with an open inspector, relative to one without", rate, 0.95),
            at_most("size of the page's files", _assets_size_bytes() / 1024, 200, "KB"),
        ),
        sides=(),
        notes=tuple(f"first screen of {name}: {each:.0f} ms" for name, each in first.items()),
    )


# --- stores --------------------------------------------------------------------------


def _row(number: int) -> dict[str, Any]:
    said = f"question {number} " + "about an order " * (number % 20)
    return {"step": number, "messages": [{"role": "user", "content": said}, {"role": "assistant", "content": "yes"}]}


def _fill(ours: Path, theirs: Path, rows: list[dict[str, Any]]) -> None:
    with statelog.open(ours, durability="interval") as store:
        for start in range(0, len(rows), _PER_TRANSACTION):
            with store.transaction() as transaction:
                for number in range(start, min(start + _PER_TRANSACTION, len(rows))):
                    transaction.thread(f"ticket-{number:06}").commit(rows[number])
    with sqlite3.connect(theirs) as connection:
        connection.execute("CREATE TABLE threads (id PRIMARY KEY, changed, versions, branches, state)")
        connection.executemany(
            "INSERT INTO threads VALUES (?, datetime(), 1, 1, ?)",
            [(f"ticket-{number:06}", json.dumps(row)) for number, row in enumerate(rows)],
        )
    connection.close()


def _fill_long(path: Path, versions: int) -> None:
    with statelog.open(path, durability="interval") as store:
        thread = store.thread("long")
        thread.commit({"messages": [], "step": -1})

        def change(state: Any) -> None:
            state["step"] += 1
            if state["step"] % 5 == 0:
                state["messages"].append({"role": "user", "content": f"message {state['step']} " + "lorem ipsum " * 10})

        for _ in range(versions - 1):
            thread.edit(change, metadata={"node": "agent"}, lazy=True)


# --- servers -------------------------------------------------------------------------


@contextmanager
def _inspector(path: Path) -> Iterator[str]:
    with _process(["statelog", "ui", str(path)]) as process:
        assert process.stdout is not None
        yield process.stdout.readline().strip()


@contextmanager
def _datasette(path: Path) -> Iterator[str]:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    with _process(["datasette", "serve", str(path), "--port", str(port)]):
        address = f"http://127.0.0.1:{port}"
        deadline_s = time.monotonic() + _START_TIMEOUT_S
        while True:
            try:
                urlopen(address).close()
            except OSError:
                if time.monotonic() > deadline_s:
                    raise
                time.sleep(0.1)
            else:
                break
        yield address


@contextmanager
def _process(module: list[str]) -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, "-m", *module]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as process:
        try:
            yield process
        finally:
            process.terminate()


# --- measurements --------------------------------------------------------------------


def _time_to_content(page: Any, address: str, content: str) -> float:
    page.goto("about:blank")
    page.goto(address, wait_until="commit")
    page.wait_for_selector(content)
    return float(page.evaluate("performance.now()"))


_SLIDE = """async (steps) => {
  const slider = document.querySelector("input[type=range]");
  const times = [];
  for (let step = 0; step < steps; step += 1) {
    const began = performance.now();
    slider.value -= 1;
    slider.dispatchEvent(new Event("input"));
    const turn = (resume) => {
      const { port1, port2 } = new MessageChannel();
      port1.onmessage = resume;
      port2.postMessage(0);
    };
    const shown = () => document.querySelector(".about h2").textContent.startsWith(`Version ${slider.value} `);
    while (!shown()) await new Promise(turn);
    await new Promise(requestAnimationFrame);
    times.push(performance.now() - began);
  }
  return times;
}"""


def _measure_long(page: Any, address: str, repeats: int) -> tuple[float, float]:
    """Return the median times of the first paint of a long thread, and of one step of its slider."""
    page.goto(address)
    thread = f"{address.partition('?')[0]}#/thread/long"
    paints_ms = [_time_to_content(page, thread, ".about h2") for _ in range(repeats)]
    return median(paints_ms), median(page.evaluate(_SLIDE, _STEPS))


def _writing_beside(page: Any, bench: Bench) -> float:
    """Return a writer's rate while the page shows its thread, relative to its rate while no page is open."""
    path = bench.directory / "written.state"
    with statelog.open(path) as store:
        thread = store.thread("t")
        thread.commit({"step": 0})
        with _inspector(path) as address:
            page.goto(address)
            rates: dict[str, list[float]] = {"about:blank": [], f"{address.partition('?')[0]}#/thread/t": []}
            for _ in range(bench.repeats):
                for place, found in rates.items():
                    page.goto(place)
                    page.wait_for_timeout(1000)  # Let the streams of the previous page end.
                    found.append(_commits_per_s(thread))
    alone, beside = (median(each) for each in rates.values())
    return beside / alone


def _commits_per_s(thread: statelog.Thread) -> float:
    began, commits = time.perf_counter(), 0
    while time.perf_counter() - began < _WRITING_S:
        thread.commit({"step": commits})
        commits += 1
    return commits / (time.perf_counter() - began)


def _assets_size_bytes() -> int:
    return sum(len(file.read_bytes()) for file in files("statelog.inspector").joinpath("page").iterdir())


INSPECTOR = BenchWorkload(
    name="inspector",
    title="the inspector in a browser",
    durability="commit",
    measure=_measure,
    needs=("starlette", "uvicorn", "playwright", "datasette"),
    extra="bench-ui",
)
