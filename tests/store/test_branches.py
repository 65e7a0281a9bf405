"""Common parts of the branches of a thread are stored once."""

import statelog


def test_a_fork_with_equal_commits_stores_texts_once(tmp_path):
    texts = [f"{number} ".ljust(3000, "x") for number in range(6)]
    with statelog.open(tmp_path / "s.state") as store:
        main = store.thread("t")
        main.commit({"n": 0})
        fork = main.fork("again")
        for text in texts:
            main.commit({"text": text})
        for text in texts:
            made = fork.commit({"text": text})
            with store._engine.read() as view:
                assert len(view.transaction.get_log(made.lsn)) < 1000
        main.commit({"text": ""})
        store.prune(keep_last=1)
        assert store.verify().ok
        assert fork.state["text"] == texts[-1]
        assert main.state["text"] == ""
