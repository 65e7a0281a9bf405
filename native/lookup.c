/* The look-up of a checkpoint by its version, where LMDB has mapped the file (FORMAT.md 3, 5 and 6).
 *
 * Trust: none in the bytes. What is handed out has passed every check that the look-up by way of LMDB makes: the leaf of the
 * index is not free, the seal and the checksum hold, the record is that of the version.
 * Invariant: anything else is SL_FALLBACK, and found out about on that way.
 */
#include "internal.h"

enum { CHECKSUM_SIZE = 8, VERSIONS_PER_PAGE = 32, PAGE_KEY_SIZE = 1 + 8 + 4 + 4, LSN_SIZE = 8 };
enum { SEALED_SIZE_MAX = 1024, RECORD_SIZE_MAX = 16384 }; /* the larger are rare, and others check them sooner */

#define REQUIRE(condition)       \
    do {                         \
        if (!(condition)) {      \
            return SL_FALLBACK;  \
        }                        \
    } while (0)

/* The payload of a sealed value; `sealed` gets key and value. */
static bool unseal(const uint8_t *key, size_t key_size, const sl_lmdb_value *value, uint8_t *sealed)
{
    if (value->flags != 0 || value->size < CHECKSUM_SIZE || value->size > SEALED_SIZE_MAX - key_size) {
        return false;
    }
    memcpy(sealed, key, key_size);
    memcpy(sealed + key_size, value->bytes, value->size);
    size_t end = key_size + value->size - CHECKSUM_SIZE;
    return sl_load_be(sealed + end, CHECKSUM_SIZE) == sl_checksum(sealed, end);
}

static int entry_find(const sl_lmdb_tables *tables, uint64_t transaction, uint64_t thread, uint32_t branch,
                      uint32_t version, sl_version_entry *entry)
{
    uint8_t key[PAGE_KEY_SIZE];
    uint8_t sealed[SEALED_SIZE_MAX];
    sl_lmdb_value page;
    sl_writer writer = {key, sizeof key, 0, false};
    sl_put_byte(&writer, 'v');
    sl_put_be(&writer, thread, 8);
    sl_put_be(&writer, branch, 4);
    sl_put_be(&writer, version / VERSIONS_PER_PAGE, 4);
    REQUIRE(sl_lmdb_get(&tables->map, tables->index, key, sizeof key, &page) == SL_OK);
    REQUIRE(!sl_lmdb_is_free_at((uint64_t)(uintptr_t)tables->map.bytes, tables->map.page_size, transaction, page.page));
    REQUIRE(unseal(key, sizeof key, &page, sealed));
    REQUIRE(sl_page_read(sealed + sizeof key, page.size - CHECKSUM_SIZE, version, entry) == SL_OK);
    REQUIRE(entry->lsn != 0);
    return SL_OK;
}

static int found_write(const uint8_t *record, uint64_t lsn, const sl_checkpoint_record *read, sl_output *out)
{
    static const uint8_t no_digest[SL_DIGEST_SIZE] = {0};
    const sl_checkpoint_fields *at = &read->fields;
    sl_found_numbers found;
    sl_writer writer = sl_writer_of(out);
    size_t items_at = sizeof found + (size_t)3 * SL_DIGEST_SIZE;
    memcpy(found.numbers, at->numbers, sizeof at->numbers);
    found.numbers[SL_NUMBER_TIME] = read->time_us;
    found.lsn = lsn;
    found.has_parent = at->parent_digest_at > 0;
    found.metadata_at = items_at + at->metadata_at - at->id_at;
    found.written_at = items_at + at->written_at - at->id_at;
    found.borrowed_at = items_at + at->borrowed_at - at->id_at;
    sl_put(&writer, (const uint8_t *)&found, sizeof found);
    sl_put(&writer, found.has_parent ? record + at->parent_digest_at : no_digest, SL_DIGEST_SIZE);
    sl_put(&writer, record + at->root_digest_at, SL_DIGEST_SIZE);
    sl_put(&writer, read->digest, SL_DIGEST_SIZE);
    sl_put(&writer, record + at->id_at, (size_t)(at->borrowed_end - at->id_at));
    return sl_finish(&writer, items_at, out) == SL_OK ? SL_OK : SL_FALLBACK;
}

static int record_find(const sl_lmdb_tables *tables, uint64_t lsn, const uint8_t **record, sl_checkpoint_record *read)
{
    sl_lmdb_value value;
    uint8_t key[LSN_SIZE];
    sl_writer writer = {key, sizeof key, 0, false};
    sl_put_be(&writer, lsn, sizeof key);
    REQUIRE(sl_lmdb_get(&tables->map, tables->log, key, sizeof key, &value) == SL_OK);
    REQUIRE(value.flags != SL_LMDB_TABLE && value.size > CHECKSUM_SIZE && value.size <= RECORD_SIZE_MAX);
    REQUIRE(sl_load_be(value.bytes, CHECKSUM_SIZE) ==
            sl_checksum(value.bytes + CHECKSUM_SIZE, value.size - CHECKSUM_SIZE));
    REQUIRE(sl_checkpoint_read(value.bytes, value.size, lsn, read) == SL_OK);
    *record = value.bytes;
    return SL_OK;
}

int sl_version_find(uint64_t address, size_t size, uint64_t transaction, uint64_t thread, uint32_t branch,
                    uint32_t version, sl_output *found)
{
    sl_lmdb_tables tables;
    sl_version_entry entry;
    sl_checkpoint_record read;
    const uint8_t *record;
    const uint64_t *numbers = read.fields.numbers;
    REQUIRE(address != 0 && transaction != 0 && sl_lmdb_open(address, size, transaction, &tables));
    REQUIRE(entry_find(&tables, transaction, thread, branch, version, &entry) == SL_OK);
    REQUIRE(record_find(&tables, entry.lsn, &record, &read) == SL_OK);
    REQUIRE(numbers[SL_NUMBER_THREAD] == thread && numbers[SL_NUMBER_VERSION] == version);
    REQUIRE(read.time_us == entry.time_us);
    return found_write(record, entry.lsn, &read, found);
}

int sl_checkpoint_find(uint64_t address, size_t size, uint64_t transaction, uint64_t lsn, sl_output *found)
{
    sl_lmdb_tables tables;
    sl_version_entry entry;
    sl_checkpoint_record read;
    const uint8_t *record;
    const uint64_t *numbers = read.fields.numbers;
    REQUIRE(address != 0 && transaction != 0 && sl_lmdb_open(address, size, transaction, &tables));
    REQUIRE(record_find(&tables, lsn, &record, &read) == SL_OK);
    REQUIRE(numbers[SL_NUMBER_BRANCH] <= UINT32_MAX && numbers[SL_NUMBER_VERSION] <= UINT32_MAX);
    REQUIRE(entry_find(&tables, transaction, numbers[SL_NUMBER_THREAD], (uint32_t)numbers[SL_NUMBER_BRANCH],
                       (uint32_t)numbers[SL_NUMBER_VERSION], &entry) == SL_OK);
    REQUIRE(entry.lsn == lsn && entry.time_us == read.time_us);
    return found_write(record, lsn, &read, found);
}
