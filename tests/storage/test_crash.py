"""A process killed at any point of a commit leaves exactly the acknowledged commits."""

import pytest

from statelog.storage import faults

COMMIT_POINTS = [point for point in faults.POINTS if point.startswith("commit.")]
POINTS_AFTER_COMMIT = {"commit.after_lmdb_commit", "commit.before_delivery", "commit.after_delivery"}

COMMIT_ONE_BY_ONE = """
store_file = StoreFile.open(sys.argv[1], max_size_bytes=2**26, durability=sys.argv[2])
for _ in range(8):
    say(store_file.committer.submit(append))
"""

COMMIT_IN_GROUPS = """
store_file = StoreFile.open(sys.argv[1], max_size_bytes=2**26)
def commit():
    for _ in range(50):
        say(store_file.committer.submit(append))
threads = [threading.Thread(target=commit) for _ in range(6)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
"""


@pytest.mark.parametrize("durability", ["commit", "interval"])
@pytest.mark.parametrize("point", COMMIT_POINTS)
def test_a_kill_at_any_point_leaves_exactly_the_acknowledged_commits(
    run_child, open_store_file, append, check_whole, point, durability
):
    status, said = run_child(COMMIT_ONE_BY_ONE, durability, fault=f"{point}:5:kill")
    assert status == -9
    assert said == ["1", "2", "3", "4"]
    store_file = open_store_file()
    expected = 5 if point in POINTS_AFTER_COMMIT else 4
    assert check_whole(store_file) == expected
    assert store_file.committer.submit(append) == expected + 1
    assert check_whole(store_file) == expected + 1


@pytest.mark.parametrize("point", COMMIT_POINTS)
def test_a_kill_in_a_group_leaves_every_acknowledged_commit_and_whole_groups(
    run_child, open_store_file, append, check_whole, point
):
    status, said = run_child(COMMIT_IN_GROUPS, fault=f"{point}:40:kill")
    assert status == -9
    store_file = open_store_file()
    last = check_whole(store_file)
    acknowledged = {int(lsn) for line in said for lsn in line.split()}
    assert acknowledged <= set(range(1, last + 1))
    assert store_file.committer.submit(append) == last + 1


def test_a_commit_acknowledged_too_early_is_detected(run_child, open_store_file, check_whole):
    """Negative control: a child that acknowledges a commit too early."""
    script = COMMIT_ONE_BY_ONE.replace("say(store_file", "say('early'); (store_file")
    status, said = run_child(script, "commit", fault="commit.before_lmdb_commit:5:kill")
    assert status == -9
    assert check_whole(open_store_file()) < len(said)


def test_half_a_commit_is_detected(run_child, open_store_file, check_whole):
    """Negative control: record and index entry in two transactions, killed between them."""
    script = """
    store_file = StoreFile.open(sys.argv[1], max_size_bytes=2**26)
    store_file.committer.submit(lambda transaction: transaction.put_index(b"n00000001", b"index 1"))
    store_file.committer.submit(lambda transaction: transaction.put_log(1, b"record 1 " * 50))
    """
    assert run_child(script, fault="commit.before_lmdb_commit:2:kill") == (-9, [])
    with pytest.raises(AssertionError):
        check_whole(open_store_file())


def test_a_killed_writer_leaves_no_lock(start_child, store_file, append):
    """LMDB's writer lock and ours end with their holder."""
    child = start_child(
        """
        store_file = StoreFile.open(sys.argv[1], max_size_bytes=2**26)
        def work(transaction):
            append(transaction)
            say("writing")
            time.sleep(60)
        store_file.committer.submit(work)
        """
    )
    assert child.stdout.readline() == "writing\n"
    child.kill()
    child.wait()
    assert store_file.committer.submit(append) == 1


def reading(start_child):
    """Return a child that reads."""
    child = start_child(
        """
        store_file = StoreFile.open(sys.argv[1], max_size_bytes=2**26)
        with store_file.read():
            say("reading")
            time.sleep(60)
        """
    )
    assert child.stdout.readline() == "reading\n"
    return child


def kill(child):
    child.kill()
    child.wait()


def test_readers_that_died_are_cleared_when_the_store_is_opened(start_child, open_store_file):
    child = reading(start_child)
    store_file = open_store_file()
    assert store_file.statistics().readers == 1
    kill(child)
    assert store_file.statistics().readers == 1
    store_file.close()
    assert open_store_file().statistics().readers == 0


def test_readers_that_died_are_cleared_with_each_checkpoint(start_child, store_file, append):
    store_file.committer.submit(append)
    kill(reading(start_child))
    assert store_file.statistics().readers == 1
    store_file.committer.submit(append)
    store_file.writer.checkpoint()
    assert store_file.statistics().readers == 0
