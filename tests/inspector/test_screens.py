"""The screens of the board, of runs, of the log and of health in a real browser."""

from __future__ import annotations

from contextlib import ExitStack

import pytest
from served import HOSTILE, OVERRIDE, serving
from test_browser import shoot
from worked import WORKFLOWS, make_damaged_store

import statelog
from statelog import durable

expect = pytest.importorskip("playwright.sync_api", reason="the extra `test-ui` is not installed").expect

SHOWN_OVERRIDE = OVERRIDE.replace("\u202e", "\\u202e")


@pytest.fixture
def serve():
    """Return a function that serves a store until the test ends. Servers end after pages, which would miss them."""
    with ExitStack() as stack:
        yield lambda *options: stack.enter_context(serving(*options))


@pytest.fixture
def go(serve, visit):
    """Return a function that opens a screen of an inspector, and checks that it is not wider than the window."""

    def open_screen(path, screen, selector, *options, width=1280, **how):
        page = visit(serve(path, *options), width, **how)
        page.wait_for_selector("#bar nav")
        page.evaluate("hash => { location.hash = hash }", screen)
        page.wait_for_selector(selector)
        return page

    return open_screen


def fits(page):
    return page.evaluate("document.documentElement.scrollWidth <= innerWidth")


SCREENS = [
    ("board", "#/board", "#entries tbody tr"),
    ("claims", "#/board?tab=claims", "#claims tbody tr"),
    ("leases", "#/board?tab=leases", "#leases tbody tr"),
    ("entry", "#/board/notes%2Fplan", "#history tbody tr"),
    ("runs", "#/runs", "#runs tbody tr"),
    ("run", "#/run/shop-1", ".call-row"),
    ("saga", "#/run/saga-1", ".call-row"),
    ("compare", "#/compare/shop-1?with=shop-2", "#first-difference"),
    ("search", "#/search?query=look", "#hits tbody tr"),
    ("log", "#/log", "#log tbody tr"),
    ("health", "#/health", "#screen .facts"),
]


@pytest.mark.parametrize("width", [1280, 420])
def test_every_screen_fits_its_window_and_shows_hostile_text_as_text(worked_path, go, width):
    page = go(worked_path, *SCREENS[0][1:], width=width, color_scheme="dark" if width == 420 else "light")
    for name, screen, selector in SCREENS:
        page.evaluate("hash => { location.hash = hash }", screen)
        page.wait_for_selector(selector)
        shoot(page, f"{name}-{width}")
        assert fits(page), name
        assert "\u202e" not in page.locator("body").inner_text()
        assert page.locator("#screen img, #screen script").count() == 0


def test_entries_are_filtered_by_prefix_from_the_keyboard(worked_path, go):
    page = go(worked_path, "#/board", "#entries tbody tr")
    page.keyboard.press("/")
    page.keyboard.type("notes/")
    expect(page.locator("#entries tbody tr")).to_have_count(3)
    names = page.locator("#entries td.name a").all_inner_texts()
    assert names == ["notes/brief", f"notes/{SHOWN_OVERRIDE}", "notes/plan"]
    assert page.url.endswith("#/board?prefix=notes%2F")
    page.keyboard.press("Tab")
    page.locator("#entries a").last.press("Enter")
    expect(page.locator("#history tbody tr")).to_have_count(4)


def test_the_tabs_of_the_board_move_by_arrow_keys_and_deadlines_count_down(worked_path, go):
    page = go(worked_path, "#/board", "#entries tbody tr")
    page.get_by_role("tab", name="Entries").press("ArrowRight")
    expect(page.locator("#claims tbody tr")).to_have_count(2)
    deadlines = page.locator("#claims time").all_inner_texts()
    assert deadlines[0].startswith("overdue by ")
    assert deadlines[1].endswith(" left")
    assert HOSTILE in page.locator("#claims td.agent").first.inner_text()


def test_a_countdown_goes_by_the_clock_of_the_server(worked_path, serve, visit):
    page = visit(serve(worked_path))
    page.wait_for_selector("#bar nav")
    page.evaluate("Date.now = () => 4102444800000")  # a browser that is in the year 2100
    page.evaluate("location.hash = '#/board?tab=claims'")
    page.wait_for_selector("#claims tbody tr")
    assert page.locator("#claims time").last.inner_text().endswith(" left")


def test_an_entry_that_another_process_sets_appears(worked_path, go):
    page = go(worked_path, "#/board?prefix=fresh", ".empty")
    assert "No key begins with this." in page.locator("#screen").inner_text()
    page.wait_for_selector(".is-live")
    with statelog.open(worked_path) as store:
        store.board(agent="other").set("fresh/1", 1)
    expect(page.locator("#entries tbody tr")).to_have_count(1)


def test_a_waterfall_is_walked_by_arrow_keys(worked_path, go):
    page = go(worked_path, "#/run/shop-1", ".call-row")
    assert page.locator(".call-row").count() == 6
    expect(page.locator("#detail")).to_contain_text("Arguments")
    page.locator(".call-row").first.focus()
    page.keyboard.press("ArrowDown")
    page.keyboard.press("ArrowDown")
    expect(page.locator("#detail")).to_contain_text("Failed attempts")
    expect(page.locator("#detail")).to_contain_text(f"no answer {HOSTILE}{SHOWN_OVERRIDE}")
    assert page.locator(".call-row[aria-pressed=true] .what").inner_text() == "flaky"
    assert page.locator(".call-row").nth(2).locator(".point.is-failed").count() == 2


def test_a_failed_saga_shows_compensated_and_uncompensated_steps(worked_path, go):
    page = go(worked_path, "#/run/saga-1", ".call-row.is-undo")
    assert page.locator(".call-row.is-undo .what").all_inner_texts() == ["undo_badly", "undo"]
    assert HOSTILE in page.locator(".waterfall-note.damaged").inner_text()
    page.locator("summary", has_text="Traceback").click()
    expect(page.locator(".traceback")).to_contain_text("ValueError")


def test_a_reader_of_a_read_only_store_is_told_what_to_write(worked_path, go):
    page = go(worked_path, "#/run/pay-1", ".call-row")
    page.locator(".call-row").nth(2).click()
    expect(page.locator("#detail")).to_contain_text('durable.answer(store, "pay-1/1", approved=True, by="ann")')
    assert page.locator("#detail form").count() == 0
    assert page.get_by_role("button", name="Cancel").is_disabled()


def test_a_gate_is_answered_and_the_page_says_that_a_worker_is_needed(worked_path, go):
    page = go(worked_path, "#/run/pay-1", ".call-row", "--allow-writes")
    page.locator(".call-row").nth(2).click()
    page.get_by_label("Your name").fill("ann")
    shoot(page, "gate-1280")
    page.get_by_role("button", name="Approve", exact=True).click()
    expect(page.locator("#notice")).to_contain_text("durable.run_worker(store, [approval])")
    expect(page.locator("#detail .facts").last).to_contain_text("ann")
    with statelog.open(worked_path, read_only=True) as store:
        assert [(each.approved, each.by) for each in durable.gates(store, run="pay-1")] == [(True, "ann")]
        assert not durable.get_run(store, "pay-1").has_ended


def test_a_run_that_a_worker_completes_shows_its_result_while_it_is_looked_at(worked_path, go):
    page = go(worked_path, "#/run/leaf-queued", ".call-row")
    expect(page.locator("#detail")).to_contain_text("durable.run_worker(store, [leaf])")
    page.wait_for_selector(".is-live")
    with statelog.open(worked_path) as store:
        durable.resume_all(store, WORKFLOWS)
    expect(page.locator(".status.is-completed")).to_be_visible()
    expect(page.locator("#detail .card").first).to_contain_text("Result")
    assert page.locator(".call-row").count() == 2


def test_a_run_begins_again_with_another_result_and_the_difference_is_marked(worked_path, go):
    page = go(worked_path, "#/run/shop-1", ".call-row", "--allow-writes")
    page.locator(".call-row", has_text="price_of").click()
    page.get_by_role("button", name="Run again from here").click()
    page.get_by_text("with another result").click()
    expect(page.locator("textarea")).to_have_value("900")
    page.locator("textarea").fill("{not json")
    page.get_by_role("button", name="Begin the run").click()
    expect(page.locator("#detail .problem")).to_contain_text("Not JSON")
    page.locator("textarea").fill("300")
    page.get_by_label("Id of the new run").fill("shop-3")
    shoot(page, "fork-1280")
    page.get_by_role("button", name="Begin the run").click()
    expect(page.locator("#detail pre")).to_contain_text("durable.run_worker(store, [shopping])")
    with statelog.open(worked_path) as store:
        durable.resume_all(store, WORKFLOWS)
    page.get_by_text("Compare the two runs").click()
    expect(page.locator("#first-difference")).to_have_text("First difference: another outcome")
    assert page.locator(".side-cell.is-first .preview").all_inner_texts() == ["900", "300"]


def test_a_damaged_store_shows_readable_parts_and_names_unreadable_ones(path, go):
    make_damaged_store(path)
    page = go(path, "#/board", "#entries tbody tr")
    assert page.locator("#entries tbody tr").count() == 6
    assert page.locator("#entries td.damaged").all_inner_texts() == ["Not readable: record 5: checksum mismatch"]
    page.evaluate("location.hash = '#/log'")
    page.wait_for_selector("#log .is-damaged")
    shoot(page, "damaged-log-1280")
    page.evaluate("location.hash = '#/health'")
    page.get_by_role("button", name="Verify").click()
    expect(page.locator("#problems tbody tr")).to_have_count(4)
    shoot(page, "damaged-health-1280")
    expect(page.locator(".verdict.is-bad")).to_contain_text("Damaged: 4 problems")


def test_an_empty_store_explains_what_would_appear_and_how(path, go):
    statelog.open(path).close()
    page = go(path, "#/board", ".empty")
    for screen, python in [
        ("#/board", "store.board("),
        ("#/board?tab=claims", ".claim("),
        ("#/board?tab=leases", ".lease("),
        ("#/runs", "durable.run(store"),
        ("#/log", ".commit("),
    ]:
        page.evaluate("hash => { location.hash = hash }", screen)
        expect(page.locator(".empty pre")).to_contain_text(python)
        shoot(page, f"empty-{screen.split('/')[1].partition('?')[0]}-1280")


def test_the_log_grows_while_it_is_looked_at(worked_path, go):
    page = go(worked_path, "#/log?thread=fresh", ".empty")
    page.wait_for_selector(".is-live")
    with statelog.open(worked_path) as store:
        store.thread("fresh").commit({"a": 1})
        store.thread("other").commit({"a": 1})
    expect(page.locator("#log tbody tr")).to_have_count(2)
    page.locator("button.unfold").first.press("Enter")
    expect(page.locator(".detail-row")).to_contain_text("chain digest")
