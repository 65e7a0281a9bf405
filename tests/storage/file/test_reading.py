import pytest

from statelog.errors import CorruptionError, StorageError

KEYS = [b"", b"a", b"ab", b"b", b"b\x00", b"ba", b"b\xff", b"b\xff\xff", b"c", b"\xff", b"\xff\xff"][1:]


@pytest.fixture
def scanned(environment):
    def fill(transaction):
        for key in KEYS:
            transaction.put_index(key, b"payload of " + key)

    environment.committer.submit(fill)
    return environment


def keys_of(environment, prefix, **options):
    with environment.read() as transaction:
        return [key for key, _ in transaction.scan_index(prefix, **options)]


def test_an_empty_log_ends_at_0(environment):
    with environment.read() as transaction:
        assert transaction.last_lsn() == 0
        assert transaction.get_log(1) is None


def test_records_are_read_back(environment):
    environment.committer.submit(lambda transaction: transaction.put_log(1, b"one"))
    with environment.read() as transaction:
        assert bytes(transaction.get_log(1)) == b"one"
        assert transaction.last_lsn() == 1


@pytest.mark.parametrize("lsn", [1, 2])
def test_a_record_out_of_order_raises_and_is_not_stored(environment, lsn):
    """LMDB answers False to such an append, and no exception."""

    def put_two(transaction):
        transaction.put_log(1, b"one")
        transaction.put_log(2, b"two")

    environment.committer.submit(put_two)
    with pytest.raises(StorageError, match="ends at 2") as caught:
        environment.committer.submit(lambda transaction: transaction.put_log(lsn, b"late"))
    assert caught.value.lsn == lsn
    with environment.read() as transaction:
        assert transaction.last_lsn() == 2
        assert [bytes(transaction.get_log(number)) for number in (1, 2)] == [b"one", b"two"]


def test_a_log_with_a_gap_is_not_believed(environment):
    """A damaged key would send the next record behind it."""
    environment.committer.submit(lambda transaction: transaction.put_log(5, b"five"))
    with pytest.raises(CorruptionError), environment.read() as transaction:
        transaction.last_lsn()
    with environment.read() as transaction:
        assert [[lsn for lsn, _record in batch] for batch in transaction.log_batches(1)] == [[5], []]


def test_replace_log_replaces(environment):
    environment.committer.submit(lambda transaction: transaction.put_log(1, b"one" * 1000))
    environment.committer.submit(lambda transaction: transaction.replace_logs({1: b"less"}))
    with environment.read() as transaction:
        assert bytes(transaction.get_log(1)) == b"less"


def leaf_pages(environment):
    with environment.read() as transaction:
        return transaction.table_stat(environment.handles.log)["leaf_pages"]


def test_neighbours_replaced_by_smaller_ones_are_joined(environment):
    """LMDB leaves a page as empty as values replaced one by one have made it: 110 bytes on each, say."""
    for lsn in range(1, 201):
        environment.committer.submit(lambda transaction, lsn=lsn: transaction.put_log(lsn, bytes(1800)))
    assert leaf_pages(environment) == 100
    small = {lsn: bytes(100) for lsn in range(1, 129)}
    environment.committer.submit(lambda transaction: transaction.replace_logs(small))
    assert leaf_pages(environment) < 36 + 16  # full pages would be 4; one by one they stay 64
    with environment.read() as transaction:
        assert [len(transaction.get_log(lsn)) for lsn in range(1, 201)] == [100] * 128 + [1800] * 72


def test_replace_logs_takes_nothing_out_where_one_is_not_there(environment):
    environment.committer.submit(lambda transaction: transaction.put_log(1, b"one"))
    with pytest.raises(StorageError):
        environment.committer.submit(lambda transaction: transaction.replace_logs({1: b"other", 2: b"two"}))
    with environment.read() as transaction:
        assert bytes(transaction.get_log(1)) == b"one"


def test_replace_log_of_no_record_raises(environment):
    with pytest.raises(StorageError) as caught:
        environment.committer.submit(lambda transaction: transaction.replace_logs({1: b"one"}))
    assert caught.value.lsn == 1


def test_index_payloads_are_read_back(environment):
    environment.committer.submit(lambda transaction: transaction.put_index(b"k", b"payload"))
    with environment.read() as transaction:
        assert transaction.get_index(b"k") == b"payload"
        assert transaction.get_index(b"other") is None


def test_a_deleted_index_key_is_gone_and_may_be_deleted_again(environment):
    environment.committer.submit(lambda transaction: transaction.put_index(b"k", b"payload"))
    environment.committer.submit(lambda transaction: transaction.delete_index(b"k"))
    environment.committer.submit(lambda transaction: transaction.delete_index(b"k"))
    with environment.read() as transaction:
        assert transaction.get_index(b"k") is None


def test_a_write_transaction_reads_its_own_writes(environment):
    def work(transaction):
        transaction.put_log(1, b"one")
        transaction.put_index(b"k", b"payload")
        return transaction.last_lsn(), bytes(transaction.get_log(1)), transaction.get_index(b"k")

    assert environment.committer.submit(work) == (1, b"one", b"payload")


def test_a_snapshot_does_not_see_later_commits(environment, append):
    with environment.read() as transaction:
        environment.committer.submit(append)
        assert transaction.last_lsn() == 0
    with environment.read() as transaction:
        assert transaction.last_lsn() == 1


def test_ids_count_commits(environment, append):
    with environment.read() as transaction:
        before = transaction.id
    ids = [environment.committer.submit(lambda transaction: (append(transaction), transaction.id)[1]) for _ in range(3)]
    assert ids == [before + 1, before + 2, before + 3]
    assert environment.last_transaction_id() == before + 3


def forge(environment, key, value):
    """Write an index value past its seal."""

    def work(transaction):
        transaction._raw.put(key, value, db=transaction._index)

    environment.committer.submit(work)


def test_a_damaged_index_value_raises_and_is_not_returned(environment):
    forge(environment, b"k", b"not sealed by anyone")
    with environment.read() as transaction:
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
def test_reverse_scan_begins_at_start_and_goes_down(scanned, start):
    keys = [key for key in sorted(KEYS) if key.startswith(b"b") and key <= start]
    assert keys_of(scanned, b"b", start=start, reverse=True) == keys[::-1]


@pytest.mark.parametrize("prefix", PREFIXES)
def test_last_index_is_the_greatest_of_the_prefix(scanned, prefix):
    expected = [(key, b"payload of " + key) for key in sorted(KEYS) if key.startswith(prefix)]
    with scanned.read() as transaction:
        assert transaction.last_index(prefix) == (expected[-1] if expected else None)


def test_scan_of_an_empty_index_yields_nothing(environment):
    assert keys_of(environment, b"") == keys_of(environment, b"", reverse=True) == []


def test_a_borrowed_record_cannot_be_read_after_its_transaction(environment, append):
    environment.committer.submit(append)
    with environment.read() as transaction:
        borrowed = transaction.get_log(1)
        assert bytes(borrowed[:6]) == b"record"
    with pytest.raises(ValueError, match="released"):
        bytes(borrowed)


def test_a_borrowed_record_cannot_be_read_after_a_failed_transaction(environment, append):
    environment.committer.submit(append)
    borrowed = []

    def fail():
        with environment.read() as transaction:
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
def test_a_borrowed_record_cannot_be_read_after_the_next_write(environment, append, write):
    """Its page may be reused by that write."""
    environment.committer.submit(append)

    def work(transaction):
        borrowed = transaction.get_log(1)
        write(transaction)
        with pytest.raises(ValueError, match="released"):
            bytes(borrowed)

    environment.committer.submit(work)


def test_a_raw_buffer_of_lmdb_does_outlive_its_transaction(environment, append):
    """The trap the three tests above guard against: were it gone, taking back could go too."""
    environment.committer.submit(append)
    handles = environment.handles
    with handles.begin(buffers=True) as transaction:
        borrowed = transaction.get((1).to_bytes(8), db=handles.log)
    assert bytes(borrowed[:6]) == b"record"
