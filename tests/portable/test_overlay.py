"""Index changes that are staged for one transaction."""

import statelog
from statelog.format import keys
from statelog.portable.overlay import Overlay


def test_a_page_deleted_in_the_overlay_is_not_the_last_page(tmp_path):
    with statelog.open(tmp_path / "agent.state") as store:
        for step in range(2 * keys.VERSIONS_PER_PAGE):
            store.thread("t").commit({"step": step})
        with store._engine.read() as view:
            prefix = keys.encode_page_prefix(view.thread_lsn("t") or 0, 0)
            overlay = Overlay(view.transaction)
            earlier, last = (key for key, _payload in view.transaction.scan_index(prefix))
            overlay.delete_index(last)
            assert overlay.last_index(prefix) == (earlier, view.transaction.get_index(earlier))
            overlay.delete_index(earlier)
            assert overlay.last_index(prefix) is None
            overlay.put_index(earlier, b"staged")
            assert overlay.last_index(prefix) == (earlier, b"staged")
