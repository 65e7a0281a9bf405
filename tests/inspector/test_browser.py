"""The page in a real browser."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from served import HOSTILE, serving

expect = pytest.importorskip("playwright.sync_api", reason="the extra `test-ui` is not installed").expect

SHOTS = os.environ.get("STATELOG_SHOTS")


def shoot(page, name):
    if SHOTS:
        page.screenshot(path=Path(SHOTS) / f"{name}.png", full_page=True)


@pytest.fixture
def address(store_path):
    with serving(store_path) as printed:
        yield printed


@pytest.mark.parametrize("width", [1280, 420])
def test_threads_are_listed_and_searched(address, visit, width):
    page = visit(address, width)
    page.wait_for_selector("#threads tbody tr")
    names = page.locator("#threads td.name").all_inner_texts()
    assert names == ["invoice\\u202efdp.exe", HOSTILE, "ticket-42"]
    assert "token" not in page.url
    shoot(page, f"threads-{width}")
    page.keyboard.press("/")
    page.keyboard.type("ticket")
    expect(page.locator("#threads tbody tr")).to_have_count(1)
    assert page.locator("#threads td.name").inner_text() == "ticket-42"
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
