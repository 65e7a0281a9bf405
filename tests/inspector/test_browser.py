"""The page in a real browser."""

from __future__ import annotations

import os
from pathlib import Path
from urllib.parse import quote

import pytest
from served import HOSTILE, OVERRIDE, serving

import statelog

expect = pytest.importorskip("playwright.sync_api", reason="the extra `test-ui` is not installed").expect

SHOTS = os.environ.get("STATELOG_SHOTS")


def shoot(page, name):
    if SHOTS:
        page.screenshot(path=Path(SHOTS) / f"{name}.png", full_page=True)


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


@pytest.fixture
def writable(store_path):
    with serving(store_path, "--allow-writes") as printed:
        yield printed


@pytest.fixture
def own_address(store_path):
    with serving(store_path) as printed:
        yield printed


def open_thread(visit, address, query="", id="ticket-42", width=1280):
    page = visit(address, width)
    page.goto(f"{address.partition('?')[0]}#/thread/{quote(id, safe='')}{query}")
    page.wait_for_selector(".about h2")
    return page


@pytest.mark.parametrize("width", [1280, 420])
@pytest.mark.parametrize("tab", ["messages", "state", "changes"])
def test_a_thread_is_drawn(address, visit, width, tab):
    page = open_thread(visit, address, f"?tab={tab}", width=width)
    assert page.locator(".version").count() == 6
    assert page.locator(".version .what").first.inner_text() == "back to version 3"
    assert page.locator("svg.lanes circle.dot").count() == 7
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    shoot(page, f"thread-{tab}-{width}")


def test_the_slider_and_the_list_move_by_keys(address, visit):
    page = open_thread(visit, address, "?tab=state")
    page.locator("input[type=range]").focus()
    page.keyboard.press("ArrowLeft")
    expect(page.locator(".about h2")).to_contain_text("Version 4")
    page.locator(".versions").focus()
    page.keyboard.press("ArrowDown")
    expect(page.locator(".about h2")).to_contain_text("Version 3")
    expect(page.locator(".version[aria-selected=true] .number")).to_have_text("3")
    page.wait_for_url("**version=3**")  # the address follows once the reader has paused


def test_a_lane_leads_to_its_branch(address, visit):
    page = open_thread(visit, address)
    page.locator("svg.lanes .hit", has=page.locator("title", has_text="careful, version 3")).click()
    expect(page.locator(".about h2")).to_contain_text("Version 3 on careful")


def test_a_tree_folds_by_keys(address, visit):
    page = open_thread(visit, address, "?tab=state")
    page.locator(".tree [role=treeitem]").first.focus()
    page.keyboard.press("End")
    focused = page.locator(".tree [role=treeitem]:focus")
    assert focused.get_attribute("aria-expanded") == "false"
    page.keyboard.press("ArrowRight")
    assert focused.get_attribute("aria-expanded") == "true"
    page.keyboard.press("ArrowRight")
    assert page.locator(".tree [role=treeitem]:focus .key").inner_text() == "role"
    page.keyboard.press("ArrowLeft")
    page.keyboard.press("ArrowLeft")
    assert focused.get_attribute("aria-expanded") == "false"


@pytest.mark.parametrize("id", [HOSTILE, OVERRIDE])
@pytest.mark.parametrize("tab", ["messages", "state", "changes"])
def test_hostile_texts_are_shown_as_text(address, visit, id, tab):
    page = open_thread(visit, address, f"?tab={tab}", id=id)
    assert page.locator("h1").inner_text() == id.replace("\u202e", "\\u202e")
    assert page.locator("main img, main script").count() == 0
    assert "\u202e" not in page.locator("main").inner_text()


def test_a_long_value_is_cut_and_shown_on_demand(own_address, visit, store_path):
    with statelog.open(store_path) as store:
        store.thread("long").commit({"text": "word " * 2000, "list": [*range(500)]})
    page = open_thread(visit, own_address, "?tab=state", id="long")
    page.get_by_role("button", name="show all 10,000 characters").click()
    expect(page.locator(".text.long")).to_have_text("word " * 2000)
    page.get_by_role("button", name="show more (50 of 500)").click()
    expect(page.get_by_role("button", name="show more (250 of 500)")).to_be_visible()


def test_a_text_of_emoji_and_bytes_are_shown_whole_on_demand(browser_page, store_path):
    with statelog.open(store_path) as store:
        store.thread("cut").commit({"emoji": "\U0001f44d" * 1100, "bytes": b"\xab" * 300})
    page = browser_page(store_path, "#/thread/cut?tab=state")
    page.get_by_role("button", name="show all 1,100 characters").click()
    expect(page.locator(".text.long")).to_have_text("\U0001f44d" * 1100)
    page.get_by_role("button", name="show all 300 bytes").click()
    expect(page.locator(".bytes.long")).to_have_text("ab" * 300)
    assert page.get_by_role("button", name="show").count() == 0


def test_a_text_longer_than_an_answer_is_read_in_pieces(browser_page, store_path):
    text = "abcdefghij" * 25_000
    with statelog.open(store_path) as store:
        store.thread("huge").commit({"text": text})
    page = browser_page(store_path, "#/thread/huge?tab=state")
    page.get_by_role("button", name="show all 250,000 characters").click()
    page.get_by_role("button", name="show more (200,600 of 250,000 characters)").click()
    expect(page.locator("button.more")).to_have_count(0)
    assert page.locator(".text.long").text_content() == text


def test_an_edit_offers_json_that_keeps_the_value(browser_page, store_path):
    with statelog.open(store_path) as store:
        store.thread("keys").commit({"mixed": {1: "int", "1": "text"}, "nan": float("nan")})
    page = browser_page(store_path, "#/thread/keys?tab=state", "--allow-writes")
    page.locator(".tree .row", has_text="mixed").hover()
    page.get_by_role("button", name="Edit mixed").click()
    expect(page.locator("#notice")).to_contain_text("keys that are not texts")
    page.locator(".tree .row", has_text="nan").hover()
    page.get_by_role("button", name="Edit nan").click()
    expect(page.get_by_label("New value in nan")).to_have_value("NaN")


def test_a_version_that_cannot_be_compared_can_be_replaced(address, visit):
    page = open_thread(visit, address, "?tab=changes&version=4")
    page.get_by_label("Version to compare with").fill("99")
    page.keyboard.press("Enter")
    expect(page.locator(".problem")).to_contain_text("no checkpoint 99")
    page.get_by_role("button", name="Parent").click()
    expect(page.locator(".change").first).to_be_visible()


def test_a_commit_appears_while_the_thread_is_open(own_address, visit, store_path):
    page = open_thread(visit, own_address, "?tab=state")
    expect(page.locator("body.is-live")).to_have_count(1)
    with statelog.open(store_path) as store:
        store.thread("ticket-42").commit({"step": 77})
    expect(page.locator(".about h2")).to_contain_text("Version 6")
    assert page.locator(".tree .int").first.inner_text() == "77"


def test_a_thread_that_is_deleted_leaves_the_list_and_its_own_page(own_address, visit, store_path):
    page = open_thread(visit, own_address, "?tab=state")
    threads = page.context.new_page()
    threads.goto(own_address.partition("?")[0])
    expect(threads.locator("#threads tbody tr")).to_have_count(3)
    for tab in (page, threads):
        expect(tab.locator("body.is-live")).to_have_count(1)
    with statelog.open(store_path) as store:
        store.delete_thread("ticket-42")
    expect(threads.locator("#threads tbody tr")).to_have_count(2)
    expect(page.locator(".problem")).to_contain_text("no thread 'ticket-42'")


def test_more_tabs_than_a_browser_has_connections_are_live(own_address, visit, store_path):
    first = visit(own_address)
    expect(first.locator("body.is-live")).to_have_count(1)
    screen = f"{own_address.partition('?')[0]}#/thread/ticket-42?tab=state"
    tabs = [first.context.new_page() for _ in range(7)]
    for tab in tabs:
        tab.goto(screen)
        expect(tab.locator("body.is-live")).to_have_count(1)
    with statelog.open(store_path) as store:
        store.thread("ticket-42").commit({"step": 77})
    expect(tabs[-1].locator(".about h2")).to_contain_text("Version 6")
    first.goto("about:blank")  # Another tab reads the stream now.
    with statelog.open(store_path) as store:
        store.thread("ticket-42").commit({"step": 78})
    for tab in (tabs[0], tabs[-1]):
        expect(tab.locator(".about h2")).to_contain_text("Version 7")


def test_without_leave_to_write_no_button_writes(address, visit):
    page = open_thread(visit, address, "?tab=state")
    assert page.locator(".actions button").all_inner_texts() == ["Copy Python"]
    assert page.locator("button.edit").count() == 0


def test_a_value_is_edited_into_a_fork(writable, visit, store_path):
    page = open_thread(visit, writable, "?tab=state&version=2")
    page.locator("[role=treeitem]", has=page.locator(".key", has_text="step")).first.hover()
    page.get_by_role("button", name="Edit step").click()
    page.get_by_label("Name of the branch").fill("edited")
    page.get_by_label("New value in step").fill("{")
    page.locator(".panel button.main").click()
    expect(page.locator(".panel .problem")).to_contain_text("not JSON")
    page.get_by_label("New value in step").fill("9007199254740993")
    page.locator(".panel button.main").click()
    expect(page.locator(".about h2")).to_contain_text("Version 3 on edited")
    shoot(page, "edited-1280")
    with statelog.open(store_path, read_only=True) as store:
        assert store.thread("ticket-42", branch="edited").state["step"] == 9007199254740993


def test_a_rollback_and_a_tag_are_made_by_buttons(writable, visit, store_path):
    page = open_thread(visit, writable, "?tab=state&version=1")
    page.get_by_role("button", name="Tag this").click()
    page.get_by_label("Name of the tag").fill("good")
    page.locator(".panel button.main").click()
    expect(page.locator(".about .tag")).to_contain_text("good")
    page.get_by_role("button", name="Roll back to this").click()
    page.locator(".panel button.main").click()
    expect(page.locator(".about h2")).to_contain_text("Version 6")
    with statelog.open(store_path, read_only=True) as store:
        assert store.thread("ticket-42").head.parent.version == 1
        assert store.thread("ticket-42").at("good").version == 1


def test_versions_are_requested_ahead_and_again_after_a_change(tmp_path, browser_page):
    path = tmp_path / "long.state"
    with statelog.open(path) as store:
        thread = store.thread("t")
        for number in range(8):
            thread.commit({"n": number})
        page = browser_page(path, "#/thread/t")
        page.wait_for_selector(".about h2")
        asked = []
        page.on("request", lambda request: "thread/version?" in request.url and asked.append(request.url))

        def step(version):
            page.keyboard.press("ArrowLeft")
            expect(page.locator(".about h2")).to_contain_text(f"Version {version} ")
            return [int(url.partition("&version=")[2].partition("&")[0]) for url in asked]

        page.locator("input[type=range]").focus()
        assert step(6) == [6, 5, 4]
        assert step(5) == [6, 5, 4, 3]
        thread.commit({"n": 8})
        expect(page.locator("section.timeline")).to_contain_text("of 8")
        assert step(4) == [6, 5, 4, 3, 4, 3, 2]
