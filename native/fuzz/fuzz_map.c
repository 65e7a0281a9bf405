/* Fuzzes the kernels that change a root. Input: sizes of node, content, entries and locators, and the count, then
 * these parts. */
#include "fuzz_input.h"

enum { HOME_LSN = 1000000 };

typedef int (*change)(const uint8_t *, size_t, size_t, uint64_t, const uint8_t *, size_t, const uint8_t *, size_t,
                      uint64_t, sl_output *);

static void check_change(change kernel, const fuzz_block *node, size_t content_size, const fuzz_block *entries,
                         const fuzz_block *locators, uint64_t count)
{
    size_t capacity = content_size + 6 * (node->size - content_size) + entries->size + locators->size + 64;
    sl_output out = fuzz_output(capacity);
    int status = kernel(node->bytes, node->size, content_size, HOME_LSN, entries->bytes, entries->size,
                        locators->bytes, locators->size, count, &out);
    FUZZ_REQUIRE(status != SL_SPACE);
    if (status == SL_OK) {
        sl_entry table[SL_CHUNK_ENTRIES_MAX];
        uint64_t entry_count;
        FUZZ_REQUIRE(sl_entries_table(out.bytes, out.size, out.content_size, HOME_LSN, 1, out.bytes[0], table,
                                      SL_CHUNK_ENTRIES_MAX, &entry_count) == SL_OK);
    }
    free(out.bytes);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    fuzz_input in = {data, size};
    size_t node_size = fuzz_size(&in);
    size_t content_size = fuzz_size(&in);
    size_t entries_size = fuzz_size(&in);
    size_t locators_size = fuzz_size(&in);
    uint64_t count = fuzz_byte(&in);
    fuzz_block node = fuzz_take(&in, node_size);
    fuzz_block entries = fuzz_take(&in, entries_size);
    fuzz_block locators = fuzz_take(&in, locators_size);
    sl_key_hit hit;

    for (int kind = SL_KIND_DICT; kind <= SL_KIND_FROZENSET; kind++) {
        for (int is_root = 0; is_root <= 1; is_root++) {
            if (sl_find_key(node.bytes, node.size, content_size, HOME_LSN, is_root, kind, entries.bytes, entries.size,
                            &hit) == SL_OK) {
                FUZZ_REQUIRE(hit.slot_at <= hit.end && hit.end <= content_size);
            }
        }
    }
    for (int level = 0; level <= 2; level++) {
        size_t capacity = entries.size / 8 + entries.size / 8192 + 1;
        sl_boundary *closes = fuzz_allocate(capacity * sizeof *closes);
        uint64_t found;
        FUZZ_REQUIRE(sl_boundaries(level == 2 ? SL_KIND_KEYED : SL_KIND_DICT, level, entries.bytes, entries.size,
                                   locators.bytes, locators.size, count, closes, capacity, &found) != SL_SPACE);
        free(closes);
    }
    if (content_size <= node.size) {
        check_change(sl_tail_merge, &node, content_size, &entries, &locators, count);
        check_change(sl_tail_append, &node, content_size, &entries, &locators, count);
    }
    free(node.bytes);
    free(entries.bytes);
    free(locators.bytes);
    return 0;
}
