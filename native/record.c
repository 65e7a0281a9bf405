/* The node table of a record (FORMAT.md 3).
 *
 * Trust: none; the envelope's checksum and versions are the caller's to check.
 * Invariants: table and nodes together fill the record exactly, so a place handed out lies inside it.
 */
#include "internal.h"

enum { BODY_SIZE_AT = 12, NODE_COUNT_AT = 52, ENVELOPE_SIZE = 56, NODE_TYPE_MAX = 4, NODES_MAX = 1 << 22 };

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
    return *count <= NODES_MAX;
}

/* Read a table row; content_at is relative to the first node, and `nodes_size` grows by the node.
 * `run` is how many nodes it stands for: 1, or for vacuumed ones (type 0) as many as it says. */
static bool table_row_read(sl_reader *in, uint64_t *nodes_size, sl_node_place *place, uint64_t *run)
{
    uint64_t locators_size;
    *run = 1;
    if (!sl_has(in, 1)) {
        return false;
    }
    place->type = in->bytes[in->at++];
    if (place->type == 0) {
        *place = (sl_node_place){0, 0, 0, 0, 0};
        return sl_read_varint(in, run) && *run >= 1;
    }
    place->digest_at = in->at;
    if (place->type > NODE_TYPE_MAX || !sl_skip(in, SL_DIGEST_SIZE) || !sl_read_varint(in, &place->content_size) ||
        !sl_read_varint(in, &locators_size)) {
        return false;
    }
    if (place->content_size == 0 || place->content_size > in->len || locators_size > in->len) {
        return false;
    }
    place->total_size = place->content_size + locators_size;
    place->content_at = *nodes_size;
    *nodes_size += place->total_size; /* each below 2 * len, and fewer than 2^32 of them */
    return *nodes_size <= in->len;
}

int sl_record_select(const uint8_t *record, size_t size, const uint64_t *numbers, size_t numbers_count,
                     sl_node_place *places)
{
    sl_reader in = sl_reader_of(record, size);
    uint64_t count;
    uint64_t nodes_size = 0;
    uint64_t run;
    size_t found = 0;
    SL_REQUIRE(table_open(&in, &count));
    for (uint64_t i = 0; i < count; i += run) {
        sl_node_place each;
        SL_REQUIRE(table_row_read(&in, &nodes_size, &each, &run) && run <= count - i);
        while (found < numbers_count && numbers[found] >= i && numbers[found] - i < run) {
            places[found++] = each;
        }
    }
    SL_REQUIRE(nodes_size == size - in.at && found == numbers_count);
    for (size_t i = 0; i < numbers_count; i++) {
        places[i].content_at += places[i].type != 0 ? in.at : 0;
    }
    return SL_OK;
}

int sl_record_node(const uint8_t *record, size_t size, uint64_t number, sl_node_place *place)
{
    sl_node_place found;
    int status = sl_record_select(record, size, &number, 1, &found);
    if (status == SL_OK) {
        *place = found;
    }
    return status;
}

int sl_record_nodes(const uint8_t *record, size_t size, sl_node_place *places, size_t places_capacity,
                    uint64_t *count)
{
    sl_reader in = sl_reader_of(record, size);
    uint64_t expected;
    uint64_t nodes_size = 0;
    uint64_t run;
    SL_REQUIRE(table_open(&in, &expected));
    if (expected > places_capacity) {
        return SL_SPACE;
    }
    for (uint64_t i = 0; i < expected; i += run) {
        sl_node_place each;
        SL_REQUIRE(table_row_read(&in, &nodes_size, &each, &run) && run <= expected - i);
        for (uint64_t j = 0; j < run; j++) {
            places[i + j] = each;
        }
    }
    SL_REQUIRE(nodes_size == size - in.at);
    for (uint64_t i = 0; i < expected; i++) {
        places[i].content_at += places[i].type != 0 ? in.at : 0;
    }
    *count = expected;
    return SL_OK;
}
