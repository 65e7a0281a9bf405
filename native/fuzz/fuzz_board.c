/* Fuzzes sl_entries_read. Input: options, the size of the output, then the record. The target corrects the LSN
 * and the checksum of the record, and with option 1 also the digests of its nodes. Otherwise nearly all mutations
 * would fail early. */
#include "fuzz_input.h"

enum { LSN = 7, LSN_AT = 16, BODY_SIZE_AT = 12, ENVELOPE_SIZE = 56, DIGEST_SIZE = 20, DIGEST_HEAD = 0x54 };

static void put_be(uint8_t *at, uint64_t number)
{
    for (size_t i = 0; i < 8; i++) {
        at[i] = (uint8_t)(number >> (56 - 8 * i));
    }
}

/* Write the digest of each node into the node table, and the digest of the last node over the body's first
 * digest. */
static void put_digests(fuzz_block record)
{
    sl_record_parts parts;
    if (sl_record_open(record.bytes, record.size, &parts) != SL_OK || parts.body_at != ENVELOPE_SIZE) {
        return;
    }
    uint8_t *rows = record.bytes + parts.body_at + parts.body_size;
    for (uint64_t row = 0; row < parts.row_count; row++) {
        sl_node_place place;
        uint8_t digest[DIGEST_SIZE];
        if (sl_record_node(record.bytes, record.size, row, &place) != SL_OK ||
            sl_node_digest((int)place.type, record.bytes + place.content_at, (size_t)place.content_size, digest) != SL_OK) {
            return;
        }
        memcpy(rows + SL_ROW_SIZE * row + 1, digest, sizeof digest);
        uint8_t *head = memchr(record.bytes + ENVELOPE_SIZE, DIGEST_HEAD, (size_t)parts.body_size);
        if (row + 1 == parts.row_count && head != NULL && rows - head > DIGEST_SIZE) {
            memcpy(head + 1, digest, sizeof digest);
        }
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    fuzz_input in = {data, size};
    unsigned options = fuzz_byte(&in);
    size_t capacity = fuzz_size(&in);
    fuzz_block record = fuzz_take(&in, in.left);
    uint8_t numbers[2][8];
    sl_entry_facts facts;
    uint64_t done;
    uint64_t plain;
    sl_output out = fuzz_output(capacity);
    if (record.size >= ENVELOPE_SIZE) {
        put_be(record.bytes + LSN_AT, LSN);
        if (options & 1) {
            put_digests(record);
        }
        put_be(record.bytes, sl_checksum(record.bytes + 8, record.size - 8));
    }
    put_be(numbers[0], record.size);
    put_be(numbers[1], LSN);
    int status = sl_entries_read(record.bytes, numbers[0], numbers[1], 1, (options & 2) == 0, &out, &facts, &done, &plain);
    FUZZ_REQUIRE(status == SL_OK && done == 1 && plain == facts.is_plain && plain <= 1 && facts.lsn == LSN);
    if (facts.is_plain) {
        FUZZ_REQUIRE(facts.value_at <= facts.value_end && facts.value_end == out.size && out.size <= capacity);
        FUZZ_REQUIRE(facts.root_lsn == 0 || facts.value_end - facts.value_at == DIGEST_SIZE);
        FUZZ_REQUIRE(facts.agent_at == UINT64_MAX ? facts.value_at == 0 : facts.agent_at == 0);
    }
    free(out.bytes);
    free(record.bytes);
    return 0;
}
