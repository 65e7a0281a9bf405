"""Stores to look at, a server on a free port, and Debian's Chromium."""

from __future__ import annotations

import os
import shutil
from contextlib import ExitStack
from pathlib import Path

import pytest
from served import HOSTILE, OVERRIDE, serving

import statelog

pytest.importorskip("starlette", reason="the extra `ui` is not installed")
from starlette.testclient import TestClient
from worked import make_worked_store

from statelog.inspector.server import make_app

CHROMIUM = os.environ.get("STATELOG_CHROMIUM") or shutil.which("chromium") or "chromium"


def fill(path):
    """Make a store with hostile ids, keys and values, a fork and a rollback."""
    with statelog.open(path) as store:
        thread = store.thread("ticket-42")
        for step in range(5):
            thread.commit({"step": step, "messages": [{"role": "user", "content": f"hello {step}"}]})
        thread.fork("careful", at=2, update={"step": 20})
        thread.rollback(3)
        store.thread(HOSTILE).commit({HOSTILE: HOSTILE}, metadata={HOSTILE: HOSTILE})
        store.thread(OVERRIDE).commit({"name": OVERRIDE})


@pytest.fixture
def store_path(tmp_path):
    """Return the path of a store of this test alone."""
    fill(tmp_path / "agent.state")
    return tmp_path / "agent.state"


@pytest.fixture(scope="session")
def address(tmp_path_factory):
    """Return the address of a server for reading, and of a store that no test changes."""
    path = tmp_path_factory.mktemp("served") / "agent.state"
    fill(path)
    with serving(path) as printed:
        yield printed


@pytest.fixture(scope="session")
def made_worked_store(tmp_path_factory):
    """Return the path of the store of `worked`, made once."""
    return make_worked_store(tmp_path_factory.mktemp("worked") / "agent.state")


@pytest.fixture
def worked_path(made_worked_store, tmp_path):
    """Return the path of a copy of the store of `worked`, for this test alone."""
    return shutil.copy(made_worked_store, tmp_path / "agent.state")


@pytest.fixture
def inspect():
    """Return a function that returns a client of an inspector of a store."""
    with ExitStack() as stack:

        def make(path, *, read_only=True):
            store = stack.enter_context(statelog.open(path, read_only=read_only))
            app = make_app(store, token="token", host="127.0.0.1:7777")
            client = TestClient(app, base_url="http://127.0.0.1:7777")
            client.cookies.set("statelog-7777", "token")
            client.headers.update({"x-statelog": "1", "origin": "http://127.0.0.1:7777"})
            client.store = store
            return client

        yield make


@pytest.fixture(scope="module")
def browser():
    """Return a browser, started once for a file of tests.

    Playwright runs an event loop in this thread until it ends, and the tests of other files call `asyncio.run`.
    """
    playwright = pytest.importorskip("playwright.sync_api", reason="the extra `test-ui` is not installed")
    if not Path(CHROMIUM).exists():
        pytest.skip("there is no chromium")
    with playwright.sync_playwright() as running:
        browser = running.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield browser
        browser.close()


def is_fault(message):
    """Return whether a message of the console is an error. A refusal by the API is shown by the page."""
    is_refusal = "/api/" in message.location["url"] and "the server responded with a status of 4" in message.text
    return message.type == "error" and not is_refusal


@pytest.fixture
def visit(browser):
    """Return a function that opens an address in a new page, and fails if the page misbehaves.

    A page misbehaves if it writes an error to the console, raises, or asks another host.
    """
    visits = []

    def open_page(address, width=1280, **options):
        context = browser.new_context(viewport={"width": width, "height": 800}, **options)
        page = context.new_page()
        faults = []
        here = address.partition("?")[0]
        page.on("console", lambda message: faults.extend([message.text] * is_fault(message)))
        page.on("pageerror", lambda error: faults.append(str(error)))
        page.on(
            "request", lambda request: None if request.url.startswith((here, "data:")) else faults.append(request.url)
        )
        visits.append((context, page, faults))
        page.goto(address)
        return page

    yield open_page
    for context, page, faults in visits:
        faults += ["a script of the store ran"] if page.evaluate("window.owned") else []
        context.close()
        assert faults == []


@pytest.fixture
def browser_page(visit, tmp_path):  # noqa: ARG001 - the server ends before its store is removed
    """Return a function that opens a screen of a store in the browser."""
    with ExitStack() as stack:

        def open_screen(path, screen, *options, width=1280):
            address = stack.enter_context(serving(path, *options))
            page = visit(address, width)
            page.goto(f"{address.partition('?')[0]}{screen}")
            return page

        yield open_screen
