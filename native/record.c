/* The node table of a record (FORMAT.md 3).
 *
 * Trust: none; the envelope's checksum and versions are the caller's to check.
 * Invariants: table and nodes together fill the record exactly, so a place handed out lies inside it.
 */
#include "internal.h"

enum { BODY_SIZE_AT = 12, NODE_COUNT_AT = 52, ENVELOPE_SIZE = 56, NODE_TYPE_MAX = 4, TABLE_ENTRY_SIZE_MIN = 23 };

/* Read the sizes, and put the reader at the table. */
static bool table_open(sl_reader *in, uint64_t *count)
{
    if (!sl_has(in, ENVELOPE_SIZE)) {
        return false;
    }
    *count = sl_load_be(in->bytes + NODE_COUNT_AT, 4);
    in->at = ENVELOPE_SIZE;
    if (!sl_skip(in, sl_load_be(in->bytes + BODY_SIZE_AT, 4))) {
        return false;
    }
    return *count <= (in->len - in->at) / TABLE_ENTRY_SIZE_MIN;
}

/* Read a table entry; content_at is relative to the first node, and `nodes_size` grows by the node. */
static bool table_entry_read(sl_reader *in, uint64_t *nodes_size, sl_node_place *place)
{
    uint64_t locators_size;
    if (!sl_has(in, 1 + SL_DIGEST_SIZE)) {
        return false;
    }
    place->type = in->bytes[in->at];
    place->digest_at = in->at + 1;
    in->at += 1 + SL_DIGEST_SIZE;
    if (place->type < 1 || place->type > NODE_TYPE_MAX || !sl_read_varint(in, &place->content_size) ||
        !sl_read_varint(in, &locators_size)) {
        return false;
    }
    bool is_vacuumed = place->content_size == 0;
    if ((is_vacuumed && locators_size > 0) || place->content_size > in->len || locators_size > in->len) {
        return false;
    }
    place->total_size = place->content_size + locators_size;
    place->content_at = *nodes_size;
    *nodes_size += place->total_size; /* each below 2 * len, and fewer than 2^32 of them */
    return *nodes_size <= in->len;
}

int sl_record_node(const uint8_t *record, size_t size, uint64_t number, sl_node_place *place)
{
    sl_reader in = sl_reader_of(record, size);
    sl_node_place found = {0, 0, 0, 0, 0};
    uint64_t count;
    uint64_t nodes_size = 0;
    SL_REQUIRE(table_open(&in, &count) && number < count);
    for (uint64_t i = 0; i < count; i++) {
        sl_node_place each;
        SL_REQUIRE(table_entry_read(&in, &nodes_size, &each));
        if (i == number) {
            found = each;
        }
    }
    SL_REQUIRE(nodes_size == size - in.at);
    found.content_at += in.at;
    *place = found;
    return SL_OK;
}

int sl_record_nodes(const uint8_t *record, size_t size, sl_node_place *places, size_t places_capacity,
                    uint64_t *count)
{
    sl_reader in = sl_reader_of(record, size);
    uint64_t expected;
    uint64_t nodes_size = 0;
    SL_REQUIRE(table_open(&in, &expected));
    if (expected > places_capacity) {
        return SL_SPACE;
    }
    for (uint64_t i = 0; i < expected; i++) {
        SL_REQUIRE(table_entry_read(&in, &nodes_size, &places[i]));
    }
    SL_REQUIRE(nodes_size == size - in.at);
    for (uint64_t i = 0; i < expected; i++) {
        places[i].content_at += in.at;
    }
    *count = expected;
    return SL_OK;
}
