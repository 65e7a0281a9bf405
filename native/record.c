/* Locates the parts of a record, and its nodes (FORMAT.md 3).
 *
 * Trust: none. The caller checks the checksum and versions.
 * Invariants: a returned location is inside the record. sl_record_nodes also checks that the table and the
 * nodes fill the record. */
#include "internal.h"

enum {
    FLAGS_AT = 11,
    FLAG_VACUUMED = 2,
    FLAG_CHAINED = 8,
    BODY_SIZE_AT = 12,
    NODE_COUNT_AT = 52,
    ENVELOPE_SIZE = 56,
    SHORT_ENVELOPE_SIZE = 20,
    NODE_TYPE_MAX = 4,
    NODES_MAX = 1 << 22,
};

typedef struct {
    const uint8_t *rows;
    uint64_t count; /* The number of nodes, including vacuumed nodes. */
    uint64_t row_count;
    size_t row_size;
    size_t width;   /* The size in bytes of each number in a row. */
    /* The offset of the type in a row. The last two numbers of a row are the end of the content and the end of
     * the node. */
    size_t type_at;
    bool is_short;  /* In a short record, a row begins with the number of its node and has no digest. */
    size_t body_at;
    size_t body_size;
    size_t nodes_at;
    size_t nodes_size;
} node_table;

static uint64_t row_number(const node_table *table, uint64_t row)
{
    return table->is_short ? sl_load_be(table->rows + row * table->row_size, table->width) : row;
}

static uint64_t row_end(const node_table *table, uint64_t row)
{
    return sl_load_be(table->rows + (row + 1) * table->row_size - table->width, table->width);
}

static uint64_t nodes_end(const node_table *table)
{
    return table->row_count > 0 ? row_end(table, table->row_count - 1) : 0;
}

/* Skip the body of a short record. Read the head of its table: the number of rows, and the width of their numbers. */
static bool short_rows_open(sl_reader *in, node_table *table)
{
    uint64_t head;
    if (!sl_item_skip(in)) {
        return false;
    }
    table->body_size = in->at - table->body_at;
    if (!sl_read_varint(in, &head)) {
        return false;
    }
    table->row_count = head >> 2;
    table->width = (size_t)(head & 3) + 1;
    table->type_at = table->width;
    table->row_size = 3 * table->width + 1;
    return true;
}

static bool full_rows_open(sl_reader *in, node_table *table)
{
    table->body_size = (size_t)sl_load_be(in->bytes + BODY_SIZE_AT, 4);
    table->count = table->row_count = sl_load_be(in->bytes + NODE_COUNT_AT, 4);
    table->width = 4;
    table->type_at = 0;
    table->row_size = SL_ROW_SIZE;
    return sl_skip(in, table->body_size);
}

/* Return true if the rows of a short record have the smallest possible width and valid node numbers. Set `count`. */
static bool short_rows_check(node_table *table)
{
    uint64_t greatest = nodes_end(table);
    table->count = 0;
    if (table->row_count > 0) {
        uint64_t last = row_number(table, table->row_count - 1);
        table->count = last + 1;
        greatest = last > greatest ? last : greatest;
    }
    return table->row_count <= table->count && (table->width == 1 || greatest >> 8 * (table->width - 1) != 0);
}

static bool table_open(const uint8_t *record, size_t size, node_table *table)
{
    sl_reader in = sl_reader_of(record, size);
    if (!sl_has(&in, SHORT_ENVELOPE_SIZE)) {
        return false;
    }
    unsigned flags = record[FLAGS_AT];
    table->is_short = (flags & FLAG_VACUUMED) != 0;
    table->body_at = !table->is_short       ? ENVELOPE_SIZE
                     : flags & FLAG_CHAINED ? SHORT_ENVELOPE_SIZE + SL_DIGEST_SIZE
                                            : SHORT_ENVELOPE_SIZE;
    if (!sl_skip(&in, table->body_at) ||
        !(table->is_short ? short_rows_open(&in, table) : full_rows_open(&in, table))) {
        return false;
    }
    table->rows = record + in.at;
    if (table->row_count > NODES_MAX || !sl_skip(&in, table->row_count * table->row_size)) {
        return false;
    }
    table->nodes_at = in.at;
    table->nodes_size = size - in.at;
    return (!table->is_short || short_rows_check(table)) && table->count <= NODES_MAX;
}

/* Read the type and location of the node in a row, but not its digest. */
static int row_read(const node_table *table, uint64_t row, sl_node_place *place)
{
    const uint8_t *at = table->rows + row * table->row_size;
    uint64_t start = row > 0 ? row_end(table, row - 1) : 0;
    uint64_t content_end = sl_load_be(at + table->row_size - 2 * table->width, table->width);
    uint64_t end = row_end(table, row);
    uint8_t type = at[table->type_at];
    SL_REQUIRE(type >= 1 && type <= NODE_TYPE_MAX);
    SL_REQUIRE(start < content_end && content_end <= end && end <= table->nodes_size);
    *place = (sl_node_place){type, table->nodes_at + start, content_end - start, end - start, row_number(table, row), {0}};
    return SL_OK;
}

static int digest_read(const node_table *table, const uint8_t *record, uint64_t row, sl_node_place *place)
{
    if (table->is_short) {
        return sl_node_digest((int)place->type, record + place->content_at, (size_t)place->content_size, place->digest);
    }
    memcpy(place->digest, table->rows + row * table->row_size + 1, SL_DIGEST_SIZE);
    return SL_OK;
}

/* Return the row of a node, or row_count if the node was vacuumed. */
static uint64_t row_find(const node_table *table, uint64_t number)
{
    if (!table->is_short) {
        return number;
    }
    uint64_t low = 0;
    uint64_t high = table->row_count;
    while (low < high) {
        uint64_t middle = low + (high - low) / 2;
        if (row_number(table, middle) < number) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low < table->row_count && row_number(table, low) == number ? low : table->row_count;
}

int sl_record_open(const uint8_t *record, size_t size, sl_record_parts *parts)
{
    node_table table;
    SL_REQUIRE(table_open(record, size, &table) && nodes_end(&table) <= table.nodes_size);
    *parts = (sl_record_parts){table.body_at, table.body_size, table.count, table.row_count,
                               table.nodes_at + nodes_end(&table)};
    return SL_OK;
}

int sl_record_node(const uint8_t *record, size_t size, uint64_t number, sl_node_place *place)
{
    node_table table;
    sl_node_place found = {0, 0, 0, 0, number, {0}};
    SL_REQUIRE(table_open(record, size, &table) && (table.is_short || number < table.count));
    uint64_t row = row_find(&table, number);
    if (row < table.row_count) {
        SL_REQUIRE(row_read(&table, row, &found) == SL_OK && digest_read(&table, record, row, &found) == SL_OK);
    }
    *place = found;
    return SL_OK;
}

static int node_find(const node_table *table, const uint8_t *record, uint64_t number, int type, const uint8_t *digest,
                     sl_node_place *place)
{
    SL_REQUIRE(table->is_short || number < table->count);
    uint64_t row = row_find(table, number);
    if (row == table->row_count) {
        return SL_ABSENT;
    }
    SL_REQUIRE(row_read(table, row, place) == SL_OK && digest_read(table, record, row, place) == SL_OK);
    if (place->type != (uint64_t)type || memcmp(place->digest, digest, SL_DIGEST_SIZE) != 0) {
        return SL_ABSENT;
    }
    if (!table->is_short) { /* Only the digest in the row was compared so far, not the content. */
        SL_REQUIRE(sl_node_digest(type, record + place->content_at, (size_t)place->content_size, place->digest) ==
                   SL_OK);
        if (memcmp(place->digest, digest, SL_DIGEST_SIZE) != 0) {
            return SL_ABSENT;
        }
    }
    return SL_OK;
}

int sl_record_find(const uint8_t *record, size_t size, int type, const uint8_t *numbers, const uint8_t *digests,
                   size_t count, uint64_t *places, uint64_t *found)
{
    node_table table;
    sl_node_place place;
    *found = 0;
    SL_REQUIRE(table_open(record, size, &table));
    for (size_t i = 0; i < count; i++) {
        int status =
            node_find(&table, record, sl_load_be(numbers + 8 * i, 8), type, digests + SL_DIGEST_SIZE * i, &place);
        if (status != SL_OK) {
            return status;
        }
        places[3 * i] = place.content_at;
        places[3 * i + 1] = place.content_size;
        places[3 * i + 2] = place.total_size;
        *found = i + 1;
    }
    return SL_OK;
}

int sl_record_nodes(const uint8_t *record, size_t size, sl_node_place *places, size_t places_capacity,
                    uint64_t *count, uint64_t *row_count)
{
    node_table table;
    SL_REQUIRE(table_open(record, size, &table));
    if (table.row_count > places_capacity) {
        return SL_SPACE;
    }
    uint64_t next = 0;
    for (uint64_t row = 0; row < table.row_count; row++) {
        SL_REQUIRE(row_read(&table, row, &places[row]) == SL_OK);
        SL_REQUIRE(places[row].number >= next && places[row].number < table.count);
        SL_REQUIRE(digest_read(&table, record, row, &places[row]) == SL_OK);
        next = places[row].number + 1;
    }
    SL_REQUIRE(nodes_end(&table) == table.nodes_size);
    *count = table.count;
    *row_count = table.row_count;
    return SL_OK;
}
