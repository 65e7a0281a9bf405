import pytest

from statelog.errors import CorruptionError, StorageError

KEYS = [b"", b"a", b"ab", b"b", b"b\x00", b"ba", b"b\xff", b"b\xff\xff", b"c", b"\xff", b"\xff\xff"][1:]


@pytest.fixture
def scanned(store_file):
    def fill(transaction):
        for key in KEYS:
            transaction.put_index(key, b"payload of " + key)

    store_file.committer.submit(fill)
    return store_file


def keys_of(store_file, prefix, **options):
    with store_file.read() as transaction:
        return [key for key, _ in transaction.scan_index(prefix, **options)]


def test_an_empty_log_ends_at_0(store_file):
    with store_file.read() as transaction:
        assert transaction.last_lsn() == 0
        assert transaction.get_log(1) is None


def test_records_are_read_back(store_file):
    store_file.committer.submit(lambda transaction: transaction.put_log(1, b"one"))
    with store_file.read() as transaction:
        assert bytes(transaction.get_log(1)) == b"one"
        assert transaction.last_lsn() == 1


@pytest.mark.parametrize("lsn", [1, 2])
def test_a_record_out_of_order_raises_and_is_not_stored(store_file, lsn):
    """LMDB returns False for such an append, without an exception."""

    def put_two(transaction):
        transaction.put_log(1, b"one")
        transaction.put_log(2, b"two")

    store_file.committer.submit(put_two)
    with pytest.raises(StorageError, match="ends at 2") as caught:
        store_file.committer.submit(lambda transaction: transaction.put_log(lsn, b"late"))
    assert caught.value.lsn == lsn
    with store_file.read() as transaction:
        assert transaction.last_lsn() == 2
        assert [bytes(transaction.get_log(number)) for number in (1, 2)] == [b"one", b"two"]


def test_a_log_with_a_gap_is_refused(store_file):
    """The next record would follow the damaged key."""
    store_file.committer.submit(lambda transaction: transaction.put_log(5, b"five"))
    with pytest.raises(CorruptionError), store_file.read() as transaction:
        transaction.last_lsn()
    with store_file.read() as transaction:
        assert [[lsn for lsn, _record in batch] for batch in transaction.log_batches(1)] == [[5], []]


def test_replace_log_replaces(store_file):
    store_file.committer.submit(lambda transaction: transaction.put_log(1, b"one" * 1000))
    store_file.committer.submit(lambda transaction: transaction.replace_logs({1: b"less"}))
    with store_file.read() as transaction:
        assert bytes(transaction.get_log(1)) == b"less"


def leaf_pages(store_file):
    with store_file.read() as transaction:
        return transaction.table_stat(store_file.lmdb_file.handles.log)["leaf_pages"]


def test_pages_of_records_replaced_by_smaller_ones_are_merged(store_file):
    """Otherwise, LMDB leaves pages almost empty after single replacements, for example with 110 bytes each."""
    for lsn in range(1, 201):
        store_file.committer.submit(lambda transaction, lsn=lsn: transaction.put_log(lsn, bytes(1800)))
    assert leaf_pages(store_file) == 100
    small = {lsn: bytes(100) for lsn in range(1, 129)}
    store_file.committer.submit(lambda transaction: transaction.replace_logs(small))
    assert leaf_pages(store_file) < 36 + 16  # Full pages would be 4. With single replacements, there are still 64.
    with store_file.read() as transaction:
        assert [len(transaction.get_log(lsn)) for lsn in range(1, 201)] == [100] * 128 + [1800] * 72


def test_replace_logs_changes_nothing_if_a_record_does_not_exist(store_file):
    store_file.committer.submit(lambda transaction: transaction.put_log(1, b"one"))
    with pytest.raises(StorageError):
        store_file.committer.submit(lambda transaction: transaction.replace_logs({1: b"other", 2: b"two"}))
    with store_file.read() as transaction:
        assert bytes(transaction.get_log(1)) == b"one"


def test_replace_log_of_no_record_raises(store_file):
    with pytest.raises(StorageError) as caught:
        store_file.committer.submit(lambda transaction: transaction.replace_logs({1: b"one"}))
    assert caught.value.lsn == 1


def test_index_payloads_are_read_back(store_file):
    store_file.committer.submit(lambda transaction: transaction.put_index(b"k", b"payload"))
    with store_file.read() as transaction:
        assert transaction.get_index(b"k") == b"payload"
        assert transaction.get_index(b"other") is None


def test_a_deleted_index_key_does_not_exist_and_can_be_deleted_again(store_file):
    store_file.committer.submit(lambda transaction: transaction.put_index(b"k", b"payload"))
    store_file.committer.submit(lambda transaction: transaction.delete_index(b"k"))
    store_file.committer.submit(lambda transaction: transaction.delete_index(b"k"))
    with store_file.read() as transaction:
        assert transaction.get_index(b"k") is None


def test_a_write_transaction_reads_its_own_writes(store_file):
    def work(transaction):
        transaction.put_log(1, b"one")
        transaction.put_index(b"k", b"payload")
        return transaction.last_lsn(), bytes(transaction.get_log(1)), transaction.get_index(b"k")

    assert store_file.committer.submit(work) == (1, b"one", b"payload")


def test_a_snapshot_does_not_see_later_commits(store_file, append):
    with store_file.read() as transaction:
        store_file.committer.submit(append)
        assert transaction.last_lsn() == 0
    with store_file.read() as transaction:
        assert transaction.last_lsn() == 1


def test_ids_count_commits(store_file, append):
    with store_file.read() as transaction:
        before = transaction.id
    ids = [store_file.committer.submit(lambda transaction: (append(transaction), transaction.id)[1]) for _ in range(3)]
    assert ids == [before + 1, before + 2, before + 3]
    assert store_file.last_transaction_id() == before + 3


def forge(store_file, key, value):
    """Write an index value past its seal."""

    def work(transaction):
        transaction._raw.put(key, value, db=transaction._index)

    store_file.committer.submit(work)


def test_a_damaged_index_value_raises_and_is_not_returned(store_file):
    forge(store_file, b"k", b"not sealed by anyone")
    with store_file.read() as transaction:
        with pytest.raises(CorruptionError) as caught:
            transaction.get_index(b"k")
        with pytest.raises(CorruptionError):
            list(transaction.scan_index(b""))
        with pytest.raises(CorruptionError):
            transaction.last_index(b"k")
    assert caught.value.key == b"k"


PREFIXES = [b"", b"a", b"b", b"b\xff", b"\xff", b"\xff\xff", b"bb", b"z"]


@pytest.mark.parametrize("prefix", PREFIXES)
def test_scan_yields_keys_of_the_prefix_in_order(scanned, prefix):
    expected = [key for key in sorted(KEYS) if key.startswith(prefix)]
    assert keys_of(scanned, prefix) == expected
    assert keys_of(scanned, prefix, reverse=True) == expected[::-1]


@pytest.mark.parametrize("prefix", PREFIXES)
@pytest.mark.parametrize("start", [b"a", b"aa", b"b", b"b\x00", b"b\x01", b"b\xff", b"bz", b"\xff", b"\xff\xff\xff"])
def test_scan_begins_at_start_and_includes_it(scanned, prefix, start):
    keys = [key for key in sorted(KEYS) if key.startswith(prefix)]
    assert keys_of(scanned, prefix, start=start) == [key for key in keys if key >= start]


@pytest.mark.parametrize("start", [b"b", b"b\x00", b"b\x01", b"b\xff", b"bz", b"b\xff\xff\xff"])
def test_reverse_scan_begins_at_start_and_descends(scanned, start):
    keys = [key for key in sorted(KEYS) if key.startswith(b"b") and key <= start]
    assert keys_of(scanned, b"b", start=start, reverse=True) == keys[::-1]


@pytest.mark.parametrize("prefix", PREFIXES)
def test_last_index_is_the_greatest_of_the_prefix(scanned, prefix):
    expected = [(key, b"payload of " + key) for key in sorted(KEYS) if key.startswith(prefix)]
    with scanned.read() as transaction:
        assert transaction.last_index(prefix) == (expected[-1] if expected else None)


def test_scan_of_an_empty_index_yields_nothing(store_file):
    assert keys_of(store_file, b"") == keys_of(store_file, b"", reverse=True) == []


def test_a_borrowed_record_cannot_be_read_after_its_transaction(store_file, append):
    store_file.committer.submit(append)
    with store_file.read() as transaction:
        borrowed = transaction.get_log(1)
        assert bytes(borrowed[:6]) == b"record"
    with pytest.raises(ValueError, match="released"):
        bytes(borrowed)


def test_a_borrowed_record_cannot_be_read_after_a_failed_transaction(store_file, append):
    store_file.committer.submit(append)
    borrowed = []

    def fail():
        with store_file.read() as transaction:
            borrowed.append(transaction.get_log(1))
            raise KeyError

    with pytest.raises(KeyError):
        fail()
    with pytest.raises(ValueError, match="released"):
        bytes(borrowed[0])


@pytest.mark.parametrize(
    "write",
    [
        lambda transaction: transaction.put_log(2, b"two"),
        lambda transaction: transaction.put_index(b"k", b"v"),
        lambda transaction: transaction.delete_index(b"k"),
        lambda transaction: transaction.replace_logs({1: b"other"}),
    ],
    ids=["put_log", "put_index", "delete_index", "replace_logs"],
)
def test_a_borrowed_record_cannot_be_read_after_the_next_write(store_file, append, write):
    """Its page may be reused by that write."""
    store_file.committer.submit(append)

    def work(transaction):
        borrowed = transaction.get_log(1)
        write(transaction)
        with pytest.raises(ValueError, match="released"):
            bytes(borrowed)

    store_file.committer.submit(work)


def test_negative_control_a_raw_buffer_of_lmdb_outlives_its_transaction(store_file, append):
    """The three previous tests guard against this. If it were false, buffers would not have to be revoked."""
    store_file.committer.submit(append)
    handles = store_file.lmdb_file.handles
    with handles.begin(buffers=True) as transaction:
        borrowed = transaction.get((1).to_bytes(8), db=handles.log)
    assert bytes(borrowed[:6]) == b"record"
