/* Fuzzes checkpoint bodies. Input: a byte (rollback or not), then the body or a whole record. A record is also read
 * as the next record of a log. */
#include "fuzz_input.h"

static void require_encoded_alike(const fuzz_block *body, const sl_checkpoint_fields *fields)
{
    uint8_t numbers[8 * SL_CHECKPOINT_NUMBERS] = {0};
    sl_output out = fuzz_output(body->size + 64);
    for (size_t i = 0; i < SL_CHECKPOINT_NUMBERS - 1; i++) {
        for (size_t j = 0; j < 8; j++) {
            numbers[8 * i + j] = (uint8_t)(fields->numbers[i] >> (8 * (7 - j)));
        }
    }
    const uint8_t *bytes = body->bytes;
    FUZZ_REQUIRE(sl_checkpoint_encode(numbers, fields->parent_digest_at > 0 ? bytes + fields->parent_digest_at : NULL,
                                      bytes + fields->root_digest_at, bytes + fields->id_at,
                                      fields->metadata_at - fields->id_at, bytes + fields->metadata_at,
                                      fields->written_at - fields->metadata_at, bytes + fields->written_at,
                                      fields->borrowed_at - fields->written_at, bytes + fields->borrowed_at,
                                      fields->borrowed_end - fields->borrowed_at, &out) == SL_OK);
    FUZZ_REQUIRE(out.content_size == body->size && memcmp(out.bytes, bytes, body->size) == 0);
    free(out.bytes);
}

static void read_whole(const fuzz_block *record)
{
    sl_checkpoint_record found;
    uint64_t lsn = 0;
    for (size_t i = 16; i < 24 && i < record->size; i++) {
        lsn = lsn << 8 | record->bytes[i];
    }
    int status = sl_checkpoint_read(record->bytes, record->size, lsn, &found);
    FUZZ_REQUIRE(status == SL_OK || status == SL_MALFORMED || status == SL_FALLBACK);
    FUZZ_REQUIRE(status != SL_OK || found.fields.borrowed_end <= record->size);

    sl_next_record next;
    uint8_t chain[20] = {0};
    memcpy(chain, record->bytes + (record->size < 52 ? 0 : 32), record->size < 20 ? record->size : sizeof chain);
    int continues = sl_record_next(record->bytes, record->size, lsn, chain, &next);
    FUZZ_REQUIRE(continues == SL_OK || continues == SL_MALFORMED || continues == SL_FALLBACK);
    if (continues == SL_OK && status == SL_OK) {
        FUZZ_REQUIRE(next.thread == found.fields.numbers[0] && next.branch == found.fields.numbers[1]);
        FUZZ_REQUIRE(next.time_us == found.time_us && (next.type == 2 || next.type == 3));
    }
    chain[0] ^= 1;
    FUZZ_REQUIRE(sl_record_next(record->bytes, record->size, lsn, chain, &next) != SL_OK || record->size < 52);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    fuzz_input in = {data, size};
    int is_rollback = (int)(fuzz_byte(&in) & 1);
    fuzz_block body = fuzz_take(&in, in.left);
    sl_checkpoint_fields fields;

    int status = sl_checkpoint_decode(body.bytes, body.size, is_rollback, &fields);
    FUZZ_REQUIRE(status == SL_OK || status == SL_MALFORMED);
    /* sl_checkpoint_encode cannot write a rollback with target 0. */
    if (status == SL_OK && (is_rollback == 0 || fields.numbers[11] != 0)) {
        require_encoded_alike(&body, &fields);
    }
    read_whole(&body);
    free(body.bytes);
    return 0;
}
