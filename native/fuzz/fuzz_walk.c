/* Fuzzes walks to an item of a list. Input: position, number of the first node, key size, key, then a record. */
#include "fuzz_input.h"

enum { LSN = 9, NODES = 4 };

/* Walk from a node if it has the type that `stage` requires. Compute its digest, so that the walk accepts a mutated
 * node. */
static void walk_from(const fuzz_block *record, uint64_t number, uint64_t stage, uint64_t position,
                      const fuzz_block *key)
{
    static const uint64_t types[] = {2, 2, 3, 1};
    sl_node_place place;
    if (sl_record_node(record->bytes, record->size, number, &place) != SL_OK || place.type != types[stage]) {
        return;
    }
    sl_walk walk = {0, 0, 0, 0, stage, number, position, {0}};
    FUZZ_REQUIRE(sl_node_digest((int)place.type, record->bytes + place.content_at, (size_t)place.content_size,
                                walk.digest) == SL_OK);
    sl_walk before = walk;
    int status = sl_item_find(record->bytes, record->size, LSN, key->bytes, key->size, key->bytes, key->size, &walk);
    if (status != SL_OK) {
        FUZZ_REQUIRE(status == SL_MALFORMED || status == SL_FALLBACK || status == SL_ABSENT);
        FUZZ_REQUIRE(memcmp(&walk, &before, sizeof walk) == 0);
        return;
    }
    FUZZ_REQUIRE(stage != SL_WALK_STATE || walk.is_marked == 1);
    if (walk.item_size > 0) {
        FUZZ_REQUIRE(walk.item_at < record->size && walk.item_size <= record->size - walk.item_at);
    } else {
        FUZZ_REQUIRE(walk.lsn != LSN && walk.stage >= stage && walk.stage <= SL_WALK_ITEM);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    fuzz_input in = {data, size};
    uint64_t position = fuzz_size(&in);
    uint64_t number = fuzz_byte(&in);
    fuzz_block key = fuzz_take(&in, fuzz_byte(&in));
    fuzz_block record = fuzz_take(&in, in.left);
    for (uint64_t stage = SL_WALK_STATE; stage <= SL_WALK_ITEM; stage++) {
        walk_from(&record, number, stage, position, &key);
        for (uint64_t each = 0; each < NODES; each++) {
            walk_from(&record, each, stage, position, &key);
        }
    }
    sl_walk walk = {0, 0, 0, 0, SL_WALK_ITEM + 1, number, position, {0}};
    FUZZ_REQUIRE(sl_item_find(record.bytes, record.size, LSN, key.bytes, key.size, key.bytes, key.size, &walk) ==
                 SL_USAGE);
    free(record.bytes);
    free(key.bytes);
    return 0;
}
