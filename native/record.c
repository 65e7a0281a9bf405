/* The node table of a record (FORMAT.md 3).
 *
 * Trust: none; the envelope's checksum and versions are the caller's to check.
 * Invariants: a place handed out lies inside the record; sl_record_nodes also sees that table and nodes fill it.
 */
#include "internal.h"

enum {
    FLAGS_AT = 11,
    FLAG_VACUUMED = 2,
    BODY_SIZE_AT = 12,
    NODE_COUNT_AT = 52,
    ENVELOPE_SIZE = 56,
    NODE_TYPE_MAX = 4,
    NODES_MAX = 1 << 22,
    ROW_SIZE = 29,
    NUMBER_SIZE = 4,
};

typedef struct {
    const uint8_t *rows;
    uint64_t count; /* nodes, vacuumed ones included */
    uint64_t row_count;
    size_t row_size;
    size_t number_size; /* of the number before each row, where some nodes were vacuumed */
    size_t nodes_at;
    size_t nodes_size;
    size_t rows_at;
} node_table;

static bool table_open(const uint8_t *record, size_t size, node_table *table)
{
    sl_reader in = sl_reader_of(record, size);
    if (!sl_has(&in, ENVELOPE_SIZE)) {
        return false;
    }
    bool is_vacuumed = (record[FLAGS_AT] & FLAG_VACUUMED) != 0;
    table->count = sl_load_be(record + NODE_COUNT_AT, 4);
    table->row_count = table->count;
    table->number_size = is_vacuumed ? NUMBER_SIZE : 0;
    table->row_size = ROW_SIZE + table->number_size;
    in.at = ENVELOPE_SIZE;
    if (table->count > NODES_MAX || !sl_skip(&in, sl_load_be(record + BODY_SIZE_AT, 4))) {
        return false;
    }
    if (is_vacuumed && table->count > 0) {
        if (!sl_has(&in, 4)) {
            return false;
        }
        table->row_count = sl_load_be(record + in.at, 4);
        in.at += 4;
    }
    table->rows_at = in.at;
    table->rows = record + in.at;
    if (table->row_count > table->count || !sl_skip(&in, table->row_count * table->row_size)) {
        return false;
    }
    table->nodes_at = in.at;
    table->nodes_size = size - in.at;
    return true;
}

static uint64_t row_number(const node_table *table, uint64_t row)
{
    return table->number_size ? sl_load_be(table->rows + row * table->row_size, 4) : row;
}

static uint64_t row_end(const node_table *table, uint64_t row)
{
    return sl_load_be(table->rows + row * table->row_size + table->number_size + 25, 4);
}

static int row_read(const node_table *table, uint64_t row, sl_node_place *place)
{
    size_t at = row * table->row_size + table->number_size;
    uint64_t start = row > 0 ? row_end(table, row - 1) : 0;
    uint64_t content_end = sl_load_be(table->rows + at + 21, 4);
    uint64_t end = row_end(table, row);
    uint8_t type = table->rows[at];
    SL_REQUIRE(type >= 1 && type <= NODE_TYPE_MAX);
    SL_REQUIRE(start < content_end && content_end <= end && end <= table->nodes_size);
    *place = (sl_node_place){type,
                             table->rows_at + at + 1,
                             table->nodes_at + start,
                             content_end - start,
                             end - start,
                             row_number(table, row)};
    return SL_OK;
}

/* The row of a node, or row_count if it was vacuumed. */
static uint64_t row_find(const node_table *table, uint64_t number)
{
    if (!table->number_size) {
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

int sl_record_node(const uint8_t *record, size_t size, uint64_t number, sl_node_place *place)
{
    node_table table;
    SL_REQUIRE(table_open(record, size, &table) && number < table.count);
    uint64_t row = row_find(&table, number);
    if (row == table.row_count) {
        *place = (sl_node_place){0, 0, 0, 0, 0, number};
        return SL_OK;
    }
    return row_read(&table, row, place);
}

int sl_record_find(const uint8_t *record, size_t size, uint64_t number, int type, const uint8_t *digest,
                   sl_node_place *place)
{
    uint8_t found[SL_DIGEST_SIZE];
    sl_node_place candidate;
    int status = sl_record_node(record, size, number, &candidate);
    if (status != SL_OK) {
        return status;
    }
    if (candidate.type != (uint64_t)type || memcmp(record + candidate.digest_at, digest, sizeof found) != 0) {
        return SL_ABSENT;
    }
    status = sl_node_digest(type, record + candidate.content_at, (size_t)candidate.content_size, found);
    if (status != SL_OK || memcmp(found, digest, sizeof found) != 0) {
        return SL_ABSENT;
    }
    *place = candidate;
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
        next = places[row].number + 1;
    }
    SL_REQUIRE((table.row_count > 0 ? row_end(&table, table.row_count - 1) : 0) == table.nodes_size);
    *count = table.count;
    *row_count = table.row_count;
    return SL_OK;
}
