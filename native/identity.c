/* Computes the digests of nodes, records and checkpoints. Encodes and decodes checkpoint bodies (FORMAT.md 3 to 5).
 *
 * Trust: items are written unchecked, because the caller has encoded or checked them. */
#include "internal.h"

enum { FORMAT_VERSION = 1, FLAG_CONTINUES = 1, IDENTITY_SIZE = 1 + SL_DIGEST_SIZE };
enum { MAJOR_POSITIVE = 0, MAJOR_BYTES = 2, MAJOR_ARRAY = 4, NULL_ITEM = 0xF6 };
enum { BODY_FIELDS = 17, DIGEST_FIELDS = 5 };
enum { VERSION_AT = 8, TYPE_AT = 9, FLAGS_AT = 10, BODY_SIZE_AT = 12, LSN_AT = 16, TIME_AT = 24 };
enum { PREVIOUS_CHAIN_AT = 32, NODE_COUNT_AT = 52, ENVELOPE_SIZE = 56 };

static const char *const NODE_PERSONS[SL_NODE_PIECE + 1] = {
    NULL, "stlg-leaf-1\0\0\0\0", "stlg-root-1\0\0\0\0", "stlg-chunk-1\0\0\0", "stlg-piece-1\0\0\0"};
static const char PART_PERSON[16] = "stlg-part-1";
static const char CHAIN_PERSON[16] = "stlg-chain-1";
static const char CHECKPOINT_PERSON[16] = "stlg-checkpt-1";

int sl_node_digest(int type, const uint8_t *content, size_t content_size, uint8_t *digest)
{
    sl_hash hash;
    if (type < SL_NODE_LEAF || type > SL_NODE_PIECE) {
        return SL_USAGE;
    }
    sl_hash_begin(&hash, NODE_PERSONS[type]);
    sl_hash_add(&hash, content, content_size);
    sl_hash_end(&hash, digest);
    return SL_OK;
}

int sl_chain_digest(int type, int flags, uint64_t lsn, uint64_t time_us, const uint8_t *previous, const uint8_t *body,
                    size_t body_size, const uint8_t *rows, size_t rows_size, uint8_t *digest)
{
    sl_hash hash;
    uint8_t chained[1 + 1 + 2 + 8 + 8 + 2 * SL_DIGEST_SIZE];
    uint8_t part[SL_DIGEST_SIZE];
    sl_writer writer = {chained, sizeof chained, 0, false};
    if (rows_size % SL_ROW_SIZE != 0) {
        return SL_USAGE;
    }
    sl_put_byte(&writer, FORMAT_VERSION);
    sl_put_byte(&writer, (unsigned)type);
    sl_put_be(&writer, (unsigned)flags & FLAG_CONTINUES, 2);
    sl_put_be(&writer, lsn, 8);
    sl_put_be(&writer, time_us, 8);
    sl_put(&writer, previous, SL_DIGEST_SIZE);
    sl_hash_begin(&hash, PART_PERSON);
    sl_hash_add(&hash, body, body_size);
    sl_hash_end(&hash, part);
    sl_hash_begin(&hash, PART_PERSON);
    sl_hash_add(&hash, part, sizeof part);
    for (size_t at = 0; at < rows_size; at += SL_ROW_SIZE) {
        sl_hash_add(&hash, rows + at, IDENTITY_SIZE);
    }
    sl_hash_end(&hash, part);
    sl_put(&writer, part, sizeof part);
    assert(writer.at == sizeof chained && !writer.full);
    sl_hash_begin(&hash, CHAIN_PERSON);
    sl_hash_add(&hash, chained, sizeof chained);
    sl_hash_end(&hash, digest);
    return SL_OK;
}

/* --- checkpoints ---------------------------------------------------------------------------------- */

static bool take_number(sl_reader *in, uint64_t *number)
{
    sl_item item;
    if (!sl_item_open(in, &item)) {
        return false;
    }
    *number = item.argument;
    return item.shape == SL_ITEM_POSITIVE && item.argument != UINT64_MAX;
}

static bool take_optional(sl_reader *in, uint64_t *number)
{
    if (sl_has(in, 1) && in->bytes[in->at] == NULL_ITEM) {
        in->at++;
        *number = UINT64_MAX;
        return true;
    }
    return take_number(in, number);
}

static bool take_digest(sl_reader *in, bool is_optional, uint64_t *at)
{
    sl_item item;
    if (!sl_item_open(in, &item)) {
        return false;
    }
    if (is_optional && item.shape == SL_ITEM_NULL) {
        *at = 0;
        return true;
    }
    *at = item.payload_at;
    return item.shape == SL_ITEM_BYTES && item.argument == SL_DIGEST_SIZE;
}

int sl_checkpoint_decode(const uint8_t *body, size_t size, int is_rollback, sl_checkpoint_fields *fields)
{
    sl_reader in = sl_reader_of(body, size);
    sl_item head;
    sl_checkpoint_fields found;
    uint64_t *numbers = found.numbers;
    SL_REQUIRE(sl_item_open(&in, &head) && head.shape == SL_ITEM_LIST);
    SL_REQUIRE(head.argument == BODY_FIELDS + (is_rollback != 0 ? 1 : 0));
    for (unsigned index = SL_NUMBER_THREAD; index <= SL_NUMBER_VERSION; index++) {
        SL_REQUIRE(take_number(&in, &numbers[index]));
    }
    SL_REQUIRE(take_optional(&in, &numbers[SL_NUMBER_PARENT_BRANCH]) &&
               take_optional(&in, &numbers[SL_NUMBER_PARENT_VERSION]));
    SL_REQUIRE(take_digest(&in, true, &found.parent_digest_at));
    SL_REQUIRE(take_optional(&in, &numbers[SL_NUMBER_JUMP_BRANCH]) &&
               take_optional(&in, &numbers[SL_NUMBER_JUMP_VERSION]));
    SL_REQUIRE(take_number(&in, &numbers[SL_NUMBER_DEPTH]) && take_number(&in, &numbers[SL_NUMBER_JUMP_DEPTH]));
    SL_REQUIRE(take_digest(&in, false, &found.root_digest_at));
    SL_REQUIRE(take_number(&in, &numbers[SL_NUMBER_ROOT_LSN]) && take_number(&in, &numbers[SL_NUMBER_ROOT_NODE]));
    uint64_t *ends[] = {&found.metadata_at, &found.written_at, &found.borrowed_at, &found.borrowed_end};
    found.id_at = in.at;
    for (size_t i = 0; i < sizeof ends / sizeof *ends; i++) {
        SL_REQUIRE(sl_item_skip(&in));
        *ends[i] = in.at;
    }
    numbers[SL_NUMBER_TARGET] = 0;
    SL_REQUIRE(is_rollback == 0 || take_number(&in, &numbers[SL_NUMBER_TARGET]));
    SL_REQUIRE(in.at == size);
    *fields = found;
    return SL_OK;
}

static void put_number(sl_writer *out, const uint8_t *numbers, unsigned index)
{
    uint64_t number = sl_load_be(numbers + (size_t)8 * index, 8);
    if (number == UINT64_MAX) {
        sl_put_byte(out, NULL_ITEM);
    } else {
        sl_put_head(out, MAJOR_POSITIVE, number);
    }
}

static void put_digest(sl_writer *out, const uint8_t *digest)
{
    if (digest == NULL) {
        sl_put_byte(out, NULL_ITEM);
        return;
    }
    sl_put_head(out, MAJOR_BYTES, SL_DIGEST_SIZE);
    sl_put(out, digest, SL_DIGEST_SIZE);
}

/* Begin a checkpoint's digest with all fields except the id and metadata. */
static void hash_begin(sl_hash *hash, const uint8_t *parent_digest, const uint8_t *root_digest, uint64_t time_us)
{
    uint8_t head[1 + 2 * (1 + SL_DIGEST_SIZE) + 9];
    sl_writer writer = {head, sizeof head, 0, false};
    sl_put_head(&writer, MAJOR_ARRAY, DIGEST_FIELDS);
    put_digest(&writer, parent_digest);
    put_digest(&writer, root_digest);
    sl_put_head(&writer, MAJOR_POSITIVE, time_us);
    sl_hash_begin(hash, CHECKPOINT_PERSON);
    sl_hash_add(hash, head, writer.at);
}

int sl_checkpoint_read(const uint8_t *record, size_t size, uint64_t lsn, sl_checkpoint_record *found)
{
    sl_reader in = sl_reader_of(record, size);
    sl_hash hash;
    sl_checkpoint_fields at;
    SL_REQUIRE(sl_skip(&in, ENVELOPE_SIZE));
    uint8_t type = record[TYPE_AT];
    uint64_t flags = sl_load_be(record + FLAGS_AT, 2);
    if (record[VERSION_AT] != FORMAT_VERSION || (type != SL_TYPE_CHECKPOINT && type != SL_TYPE_ROLLBACK) ||
        (flags & ~(uint64_t)FLAG_CONTINUES) != 0 || sl_load_be(record + LSN_AT, 8) != lsn) {
        return SL_FALLBACK;
    }
    uint64_t body_size = sl_load_be(record + BODY_SIZE_AT, 4);
    SL_REQUIRE(sl_has(&in, body_size));
    SL_REQUIRE(sl_checkpoint_decode(record + in.at, (size_t)body_size, type == SL_TYPE_ROLLBACK, &at) == SL_OK);
    uint64_t *offsets[] = {&at.root_digest_at, &at.id_at,       &at.metadata_at,
                           &at.written_at,     &at.borrowed_at, &at.borrowed_end};
    for (size_t i = 0; i < sizeof offsets / sizeof *offsets; i++) {
        *offsets[i] += ENVELOPE_SIZE;
    }
    at.parent_digest_at += at.parent_digest_at > 0 ? ENVELOPE_SIZE : 0;
    found->fields = at;
    found->time_us = sl_load_be(record + TIME_AT, 8);
    hash_begin(&hash, at.parent_digest_at > 0 ? record + at.parent_digest_at : NULL, record + at.root_digest_at,
               found->time_us);
    sl_hash_add(&hash, record + at.id_at, (size_t)(at.written_at - at.id_at));
    sl_hash_end(&hash, found->digest);
    return SL_OK;
}

int sl_record_next(const uint8_t *record, size_t size, uint64_t lsn, const uint8_t *chain, sl_next_record *found)
{
    sl_reader in = sl_reader_of(record, size);
    sl_item head;
    SL_REQUIRE(sl_skip(&in, ENVELOPE_SIZE));
    uint64_t flags = sl_load_be(record + FLAGS_AT, 2);
    if (record[VERSION_AT] != FORMAT_VERSION || (flags & ~(uint64_t)FLAG_CONTINUES) != 0 ||
        sl_load_be(record + LSN_AT, 8) != lsn || memcmp(record + PREVIOUS_CHAIN_AT, chain, SL_DIGEST_SIZE) != 0) {
        return SL_FALLBACK;
    }
    sl_next_record next = {record[TYPE_AT], 0, 0, sl_load_be(record + TIME_AT, 8), {0}};
    size_t body_size = (size_t)sl_load_be(record + BODY_SIZE_AT, 4);
    SL_REQUIRE(sl_skip(&in, body_size));
    uint64_t rows_size = sl_load_be(record + NODE_COUNT_AT, 4) * SL_ROW_SIZE;
    SL_REQUIRE(sl_has(&in, rows_size));
    int status = sl_chain_digest((int)next.type, (int)flags, lsn, next.time_us, chain, record + ENVELOPE_SIZE, body_size,
                                 record + in.at, (size_t)rows_size, next.chain);
    in = sl_reader_of(record + ENVELOPE_SIZE, body_size);
    if (!sl_item_open(&in, &head) || head.shape != SL_ITEM_LIST || !take_number(&in, &next.thread)) {
        next.thread = 0;
    } else if (!take_number(&in, &next.branch)) {
        next.branch = 0;
    }
    if (status == SL_OK) {
        *found = next;
    }
    return status;
}

int sl_checkpoint_encode(const uint8_t *numbers, const uint8_t *parent_digest, const uint8_t *root_digest,
                         const uint8_t *id, size_t id_size, const uint8_t *metadata, size_t metadata_size,
                         const uint8_t *written, size_t written_size, const uint8_t *borrowed, size_t borrowed_size,
                         sl_output *out)
{
    sl_writer body = sl_writer_of(out);
    bool is_rollback = sl_load_be(numbers + (size_t)8 * SL_NUMBER_TARGET, 8) != 0;
    sl_put_head(&body, MAJOR_ARRAY, BODY_FIELDS + (is_rollback ? 1 : 0));
    for (unsigned index = SL_NUMBER_THREAD; index <= SL_NUMBER_PARENT_VERSION; index++) {
        put_number(&body, numbers, index);
    }
    put_digest(&body, parent_digest);
    for (unsigned index = SL_NUMBER_JUMP_BRANCH; index <= SL_NUMBER_JUMP_DEPTH; index++) {
        put_number(&body, numbers, index);
    }
    put_digest(&body, root_digest);
    put_number(&body, numbers, SL_NUMBER_ROOT_LSN);
    put_number(&body, numbers, SL_NUMBER_ROOT_NODE);
    sl_put(&body, id, id_size);
    sl_put(&body, metadata, metadata_size);
    sl_put(&body, written, written_size);
    sl_put(&body, borrowed, borrowed_size);
    if (is_rollback) {
        put_number(&body, numbers, SL_NUMBER_TARGET);
    }

    uint8_t digest[SL_DIGEST_SIZE];
    sl_hash hash;
    hash_begin(&hash, parent_digest, root_digest, sl_load_be(numbers + (size_t)8 * SL_NUMBER_TIME, 8));
    sl_hash_add(&hash, id, id_size);
    sl_hash_add(&hash, metadata, metadata_size);
    sl_hash_end(&hash, digest);

    size_t body_size = body.at;
    sl_put(&body, digest, sizeof digest);
    return sl_finish(&body, body_size, out);
}
