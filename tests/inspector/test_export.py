"""A thread as one file: it opens without a server, asks nobody, and runs no script but its own."""

from __future__ import annotations

import base64
import hashlib
import json
import re

import pytest
from served import HOSTILE, OVERRIDE

import statelog
from statelog.inspector.export import _EXPORTED, export_html
from statelog.inspector.thread import describe_part

expect = pytest.importorskip("playwright.sync_api", reason="the extra `test-ui` is not installed").expect


@pytest.fixture
def exported(store_path, tmp_path):
    """Return a function that exports a thread and returns the file."""

    def export(id, **options):
        with statelog.open(store_path, read_only=True) as store:
            text = export_html(store, store.thread(id), **options)
        (tmp_path / "out.html").write_text(text, encoding="utf-8")
        return tmp_path / "out.html"

    return export


def test_an_exported_thread_opens_without_a_server(exported, visit):
    page = visit(f"file://{exported('ticket-42')}")
    expect(page.locator(".about h2")).to_contain_text("Version 5")
    page.locator(".versions").focus()
    page.keyboard.press("ArrowDown")
    expect(page.locator(".about h2")).to_contain_text("Version 4")
    page.locator("#tab-changes").click()
    expect(page.locator(".change").first).to_contain_text("step")
    page.locator("select").select_option("careful")
    expect(page.locator(".about h2")).to_contain_text("Version 3 on careful")
    assert page.locator(".problem").count() == 0


@pytest.mark.parametrize("id", [HOSTILE, OVERRIDE])
def test_hostile_texts_stay_text(exported, visit, id):
    file = exported(id)
    page = visit(f"file://{file}")
    expect(page.locator("h1")).to_have_text(id.replace("\u202e", "\\u202e"))
    page.locator("#tab-state").click()
    expect(page.locator(".body .tree")).to_be_visible()
    assert page.locator("main img, main script").count() == 0


def test_data_cannot_end_its_element(store_path, exported):
    ending = "</script><script>window.owned=1</script><!--"
    with statelog.open(store_path) as store:
        store.thread("ending").commit({ending: ending}, metadata={ending: ending})
    text = exported("ending").read_text("utf-8")
    assert text.count("<script") == text.count("</script>") == 2
    assert "<!--" not in text


def test_the_policy_allows_the_own_script_alone(exported):
    text = exported("ticket-42").read_text("utf-8")
    policy = re.search(r'http-equiv="Content-Security-Policy" content="([^"]*)"', text)[1]
    script = re.search(r'<script type="module">(.*?)</script>', text, re.DOTALL)[1]
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    assert policy.startswith(f"default-src 'none'; script-src 'sha256-{digest}';")
    assert "unsafe" not in policy
    assert "connect-src" not in policy


def test_versions_that_are_left_out_are_named_so(exported, visit):
    page = visit(f"file://{exported('ticket-42', versions=2)}")
    page.locator(".version", has=page.locator(".number", has_text="1")).click()
    expect(page.locator(".problem")).to_contain_text("Not in this file")


def test_rows_that_are_left_out_say_so_without_a_notice(exported, visit, store_path):
    with statelog.open(store_path, durability="interval") as store:
        for step in range(120):
            store.thread("long").commit({"step": step})
    page = visit(f"file://{exported('long', versions=2)}")
    page.locator(".versions").focus()
    page.keyboard.press("End")
    expect(page.locator("#v0")).to_have_text("0 is not in this file")
    assert page.locator("#notice p").count() == 0


def test_a_part_is_stored_once(store_path, exported):
    with statelog.open(store_path) as store:
        thread = store.thread("large")
        for step in range(30):
            thread.commit({"text": "unique " * 1000, "step": step})
    assert exported("large").read_text("utf-8").count("unique " * 1000) == 1


def whole(value, parts):
    """Return an exported answer without references to parts."""
    if isinstance(value, list):
        return [whole(item, parts) for item in value]
    if isinstance(value, dict):
        return (
            whole(parts[value["$part"]], parts) if "$part" in value else {k: whole(v, parts) for k, v in value.items()}
        )
    return value


def test_each_part_of_each_version_equals_the_answer_of_a_server(path):
    with statelog.open(path) as store:
        thread = store.thread("t")
        for step in range(12):
            messages = [{"role": "user", "content": f"said {number} at length"} for number in range(step // 3)]
            thread.commit(
                {"step": step, "messages": messages, "same": ["a text that stays"] * 5, f"new-{step % 4}": step}
            )
        thread.fork("other", at=4, update={"messages": []})
        thread.rollback(5)
        thread.commit({"step": 99})
        text = export_html(store, thread)
        data = json.loads(re.search(r'id="answers">(.*?)</script>', text, re.DOTALL)[1])
        answers = [(json.loads(key), whole(answer, data["parts"])) for key, answer in data["answers"]]
        seen = 0
        for (asked, *query), answer in answers:
            if asked == "thread/version":
                given = dict(query)
                checkpoint = store.thread("t", branch=given["branch"]).at(int(given["version"]))
                expected = describe_part(store, checkpoint, given["part"], _EXPORTED)
                assert answer == {**expected, "python": ""}, query
                seen += 1
    assert seen == 3 * (14 + 1)


def test_the_command_writes_a_new_file_only(store_path, tmp_path, capsys):
    from statelog.cli import main

    target = tmp_path / "t.html"
    for code in (0, 13):
        with pytest.raises(SystemExit) as ended:
            main(["export-html", str(store_path), "ticket-42", str(target)])
        assert bool(ended.value.code) == bool(code)
        assert target.read_text("utf-8").startswith("<!doctype html>")
    assert "already exists" in capsys.readouterr().err


def test_a_command_that_fails_leaves_no_file(store_path, tmp_path, monkeypatch):
    from statelog.cli import main

    def fail(*_what, **_how):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("statelog.inspector.export.export_html", fail)
    with pytest.raises(SystemExit):
        main(["export-html", str(store_path), "ticket-42", str(tmp_path / "t.html")])
    assert not (tmp_path / "t.html").exists()
