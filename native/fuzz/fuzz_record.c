/* Fuzzes node tables. The whole input is a record. */
#include "fuzz_input.h"

enum { LOOKED_FOR = 8 };

/* Look up nodes by the numbers and digests in the record itself. The places that sl_record_find returns must equal
 * `places`. */
static void check_found(const fuzz_block *record, const sl_node_place *places, uint64_t count)
{
    uint8_t numbers[8 * LOOKED_FOR] = {0};
    uint8_t digests[20 * LOOKED_FOR];
    uint64_t spans[3 * LOOKED_FOR];
    uint64_t found = 0;
    size_t wanted = 0;
    for (; wanted < LOOKED_FOR && wanted < count && places[wanted].type == places[0].type; wanted++) {
        for (size_t i = 0; i < 8; i++) {
            numbers[8 * wanted + i] = (uint8_t)(places[wanted].number >> (56 - 8 * i));
        }
        memcpy(digests + 20 * wanted, places[wanted].digest, 20);
    }
    if (wanted > 0) {
        int status = sl_record_find(record->bytes, record->size, (int)places[0].type, numbers, digests, wanted, spans,
                                    &found);
        FUZZ_REQUIRE(found <= wanted && (status != SL_OK || found == wanted));
    }
    for (uint64_t i = 0; i < found; i++) {
        FUZZ_REQUIRE(spans[3 * i] == places[i].content_at && spans[3 * i + 1] == places[i].content_size);
        FUZZ_REQUIRE(spans[3 * i + 2] == places[i].total_size);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    fuzz_input in = {data, size};
    fuzz_block record = fuzz_take(&in, size);
    size_t capacity = 1024;
    sl_node_place *places = fuzz_allocate(capacity * sizeof *places);
    sl_node_place place;
    uint64_t count = 0;
    uint64_t row_count = 0;

    int status = sl_record_nodes(record.bytes, record.size, places, capacity, &count, &row_count);
    FUZZ_REQUIRE(status == SL_OK || status == SL_MALFORMED || status == SL_SPACE);
    FUZZ_REQUIRE(row_count <= count);
    for (uint64_t i = 0; i < row_count; i++) {
        FUZZ_REQUIRE(places[i].number < count);
        FUZZ_REQUIRE(sl_record_node(record.bytes, record.size, places[i].number, &place) == SL_OK);
        FUZZ_REQUIRE(memcmp(&place, &places[i], sizeof place) == 0);
    }
    for (uint64_t i = 0; i < 16; i++) { /* Also look up nodes if the table as a whole is invalid. */
        if (sl_record_node(record.bytes, record.size, i, &place) == SL_OK) {
            FUZZ_REQUIRE(place.content_at <= size && place.total_size <= size - place.content_at);
            FUZZ_REQUIRE(place.content_size <= place.total_size);
        }
    }
    if (status == SL_OK) { /* A short record may have lost more nodes than its table shows. */
        int is_short = (record.bytes[11] & 2) != 0;
        FUZZ_REQUIRE(sl_record_node(record.bytes, record.size, count, &place) == (is_short ? SL_OK : SL_MALFORMED));
        FUZZ_REQUIRE(!is_short || place.type == 0);
    }
    check_found(&record, places, row_count);
    sl_record_parts parts;
    if (sl_record_open(record.bytes, record.size, &parts) == SL_OK) {
        FUZZ_REQUIRE(parts.size <= size && parts.body_at <= parts.size && parts.body_size <= parts.size - parts.body_at);
        FUZZ_REQUIRE(parts.row_count <= parts.node_count);
        FUZZ_REQUIRE(status != SL_OK || (parts.size == size && parts.row_count == row_count));
    } else {
        FUZZ_REQUIRE(status != SL_OK);
    }
    free(places);
    free(record.bytes);
    return 0;
}
