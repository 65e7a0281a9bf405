"""A thread with a damaged version: what is readable is shown, and the rest is named."""

from __future__ import annotations

import re

import pytest

import statelog
from statelog.inspector.export import export_html

DAMAGED = b"to be damaged"


@pytest.fixture
def damage(tmp_path):
    """Return a function that makes a thread of 6 versions, of which one is damaged."""

    def make(damaged):
        path = tmp_path / "agent.state"
        with statelog.open(path) as store:
            thread = store.thread("t")
            for version in range(6):
                thread.commit({"step": version, "note": DAMAGED.decode() if version == damaged else "sound"})
        path.write_bytes(path.read_bytes().replace(DAMAGED, DAMAGED.replace(b"b", b"\0")))
        return path

    return make


def ask(client, path, **query):
    answer = client.get(f"/api/{path}", params={"id": "t", **query})
    assert answer.status_code == 200, answer.text
    return answer.json()


def test_a_damaged_version_does_not_hide_the_others(inspect, damage):
    client = inspect(damage(3))
    opened = ask(client, "thread/open")
    rows = opened["versions"]
    assert [row["version"] for row in rows] == [5, 4, 3, 2, 1, 0]
    assert [row["version"] for row in rows if "problem" in row] == [3]
    assert opened["version"]["state"]["size"] == 2
    assert [row["version"] for row in ask(client, "thread/versions", before=5, limit=3)["versions"]] == [4, 3, 2]


def test_a_damaged_version_can_be_selected_and_names_its_record(inspect, damage):
    found = ask(inspect(damage(3)), "thread/open", version=3, part="state")["version"]
    assert found["version"] == 3
    assert found["problem"]["error"] == "CorruptionError"


@pytest.mark.parametrize("part", ["state", "messages"])
def test_the_child_of_a_damaged_version_is_readable(inspect, damage, part):
    found = ask(inspect(damage(3)), "thread/version", version=4, part=part)
    assert part in found
    assert found["parent"] is None


def test_changes_to_a_damaged_parent_are_a_problem_of_that_part_alone(inspect, damage):
    found = ask(inspect(damage(3)), "thread/version", version=4, part="changes")
    assert found["problem"]["error"] == "CorruptionError"
    assert found["metadata"]["size"] == 0


def test_a_thread_with_a_damaged_head_opens(inspect, damage):
    opened = ask(inspect(damage(5)), "thread/open")
    assert opened["version"]["version"] == 5
    assert opened["version"]["problem"]["error"] == "CorruptionError"
    assert [row["version"] for row in opened["versions"] if "problem" not in row] == [4, 3, 2, 1, 0]


@pytest.mark.parametrize("damaged", [3, 5])
def test_a_damaged_version_is_named_in_an_exported_file(damage, damaged):
    with statelog.open(damage(damaged), read_only=True) as store:
        text = export_html(store, store.thread("t"))
    assert "checksum mismatch" in text
    assert re.search(r'"sound"', text)


def test_the_page_shows_a_thread_with_a_damaged_version(browser_page, damage):
    page = browser_page(damage(3), "#/thread/t?version=4&tab=changes")
    page.wait_for_selector(".problem")
    page.get_by_role("tab", name="State").click()
    page.wait_for_selector(".tree")
    page.locator("#v3").click()
    page.locator(".about h2", has_text="Version 3").wait_for()
    assert "CorruptionError" in page.locator(".problem").inner_text()
    page.locator("#v2").click()
    page.wait_for_selector(".tree")


def test_a_kept_address_of_a_version_that_retention_has_removed_opens_the_thread(inspect, tmp_path):
    with statelog.open(tmp_path / "agent.state") as store:
        for step in range(9):
            store.thread("t").commit({"step": step})
        store.prune(keep_last=2)
    opened = ask(inspect(tmp_path / "agent.state"), "thread/open", version=3)
    assert opened["version"]["problem"]["error"] == "CheckpointNotFoundError"
    assert [row["version"] for row in opened["versions"]] == [8, 7]
