"""An image of a store in use is consistent, and has the right content."""

import io
import os
import threading

import pytest

import statelog
from statelog.errors import AlreadyExistsError, StoreNotFoundError, UsageError
from statelog.storage.wal.dirty_flag import read_dirty_flag

MIB = 1024 * 1024


@pytest.fixture
def open_image(tmp_path):
    """Open an image's bytes as a store. At the end, the store must verify and accept commits."""
    opened = []

    def open_one(data):
        path = tmp_path / f"image-{len(opened)}.state"
        path.write_bytes(data)
        with path.open("rb") as file:
            assert read_dirty_flag(file.fileno()) is None
        opened.append(statelog.open(path))
        return opened[-1]

    yield open_one
    for store in opened:
        store.thread("more").commit({"n": 1})
        assert store.verify().problems == []
        store.close()


def image_of(store):
    target = io.BytesIO()
    report = store.image(target)
    assert report.size_bytes == len(target.getvalue())
    return report, target.getvalue()


def test_an_image_of_a_store_in_use_opens_as_a_closed_store(rich, open_image):
    report, data = image_of(rich)
    held = list(rich.log())
    rich.thread("later").commit({"n": 1})
    image = open_image(data)
    assert list(image.log()) == held
    assert report.last_lsn == len(held)
    assert {info.id: image.thread(info.id).state for info in image.threads()} == {
        info.id: rich.thread(info.id).state for info in rich.threads() if info.id != "later"
    }


@pytest.mark.slow
def test_an_image_is_consistent_while_others_commit(tmp_path, open_image):
    with statelog.open(tmp_path / "a.state", durability="interval") as store:
        for number in range(300):
            store.thread("t").commit({"n": number, "text": os.urandom(6000)})
        store.prune(keep_last=10)
        is_done = threading.Event()

        def go_on():
            other = statelog.open(tmp_path / "a.state", durability="interval")
            while not is_done.is_set():
                other.thread("t").commit({"text": os.urandom(6000)})
            other.close()

        thread = threading.Thread(target=go_on)
        thread.start()
        try:
            images = [image_of(store) for _ in range(5)]
        finally:
            is_done.set()
            thread.join()
        moments = [report.last_lsn for report, _data in images]
        assert moments == sorted(moments)
        for report, data in images:
            assert open_image(data).last_lsn == report.last_lsn


def test_pages_have_the_same_offsets_as_in_the_file_and_free_ones_are_zeros(tmp_path):
    with statelog.open(tmp_path / "a.state", durability="interval") as store:
        store.thread("kept").commit({"text": "kept for ever " * 20_000})
        store.thread("gone").commit({"text": "not for ever " * 20_000})
        _report, before = image_of(store)
        store.delete_thread("gone")
        for number in range(5):
            store.thread("t").commit({"n": number})
        _report, after = image_of(store)
    at = before.index(b"kept for ever")
    assert after[at : at + 100_000] == before[at : at + 100_000]
    assert b"not for ever" in before
    assert b"not for ever" not in after


def test_an_image_at_a_path_is_complete_or_absent(rich, tmp_path, monkeypatch):
    target = tmp_path / "image.state"
    pieces = []

    def fail(*_arguments):
        pieces.append(1)
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr("statelog.portable.images.write_all", fail)
        with pytest.raises(statelog.StatelogError, match="space"):
            rich.image(target)
    assert pieces
    assert [each.name for each in tmp_path.iterdir() if "image" in each.name] == []
    rich.image(target)
    with statelog.open(target) as image:
        assert image.last_lsn == rich.last_lsn
    with pytest.raises(AlreadyExistsError, match=r"image\.state"):
        rich.image(target)


def test_invalid_targets_are_refused(rich, tmp_path):
    with pytest.raises(UsageError, match="binary"):
        rich.image(io.StringIO())
    with pytest.raises(StoreNotFoundError):
        rich.image(tmp_path / "nowhere" / "a.state")
