/* Fuzzes the check of a whole record. Input: the capacity for refs, the LSN, and the record. */
#include "fuzz_input.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    fuzz_input in = {data, size};
    size_t refs_capacity = fuzz_byte(&in);
    uint64_t lsn = fuzz_byte(&in);
    fuzz_block record = fuzz_take(&in, in.left);
    uint64_t slots[7] = {0};
    sl_seen_nodes seen = {slots, sizeof slots / sizeof *slots, 42};
    size_t places_capacity = 1024;
    sl_node_place *places = fuzz_allocate(places_capacity * sizeof *places);
    sl_node_ref *refs = fuzz_allocate(refs_capacity * sizeof *refs);
    sl_record_facts facts;

    int status = sl_record_verify(record.bytes, record.size, lsn, &seen, places, places_capacity, refs, refs_capacity, &facts);
    FUZZ_REQUIRE(status == SL_OK || status == SL_MALFORMED || status == SL_SPACE || status == SL_USAGE);
    if (status == SL_OK) {
        FUZZ_REQUIRE(facts.ref_count <= refs_capacity && facts.shared_count <= facts.node_count);
        for (uint64_t i = 0; i < facts.ref_count; i++) {
            FUZZ_REQUIRE(refs[i].digest_at <= record.size && record.size - refs[i].digest_at >= 20);
            FUZZ_REQUIRE(refs[i].lsn > 0);
        }
    }
    free(refs);
    free(places);
    free(record.bytes);
    return 0;
}
