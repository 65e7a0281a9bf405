/* Fuzzes pages of LMDB's file. Input: options, a bound of 8 bytes, then a page, or a map of small pages to
 * search. */
#include "fuzz_input.h"

enum { SMALL_PAGE = 512, LAST_PAGE_AT = 136, TRANSACTION_AT = 144 };

/* Look up a page in the free list of a file. First write both meta pages: the second one belongs to commit 1, which
 * is the last one, and their page count matches the file. */
static void look_around(uint8_t *map, size_t size, uint64_t number)
{
    uint64_t transactions[] = {0, 1};
    uint64_t last_page = size / SMALL_PAGE - 1;
    for (size_t slot = 0; slot < 2; slot++) {
        memcpy(map + slot * SMALL_PAGE + LAST_PAGE_AT, &last_page, sizeof last_page);
        memcpy(map + slot * SMALL_PAGE + TRANSACTION_AT, &transactions[slot], sizeof transactions[slot]);
    }
    int found = sl_lmdb_is_free_at((uint64_t)(uintptr_t)map, SMALL_PAGE, 1, number);
    FUZZ_REQUIRE(found == 0 || found == 1);
    FUZZ_REQUIRE(sl_lmdb_is_free_at((uint64_t)(uintptr_t)map, SMALL_PAGE, 3, number) == 0);
}

/* Read rows from any offset of a file in memory, which is aligned to the page size. */
static void read_rows(const fuzz_block *file, uint64_t at, int downwards)
{
    size_t size = file->size / SMALL_PAGE * SMALL_PAGE;
    uint8_t *map = aligned_alloc(SMALL_PAGE, size);
    uint64_t ends[2 * 4];
    sl_lmdb_rows rows;
    sl_lmdb_seen seen = {{0}};
    sl_output out = fuzz_output(SMALL_PAGE);
    FUZZ_REQUIRE(map != NULL);
    memcpy(map, file->bytes, size);
    look_around(map, size, 2);
    for (unsigned times = 0; times < 2; times++) { /* The second run uses a filled cache. */
        int status = sl_lmdb_rows_read(map + at % size, SMALL_PAGE, (uint64_t)(uintptr_t)map, 1, &seen,
                                       at % 2 != 0 ? map : NULL, map, at % 3, downwards, 4, &out, ends, &rows);
        FUZZ_REQUIRE(status == SL_OK || status == SL_FALLBACK);
        if (status == SL_OK) {
            FUZZ_REQUIRE(rows.count <= 4 && rows.count + rows.is_end > 0 && rows.is_end <= 1);
            FUZZ_REQUIRE(out.size == (rows.count > 0 ? ends[2 * rows.count - 1] : 0) && out.size <= SMALL_PAGE);
        }
    }
    free(out.bytes);
    free(map);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    fuzz_input in = {data, size};
    unsigned options = fuzz_byte(&in);
    fuzz_block bound = fuzz_take(&in, 8);
    fuzz_block page = fuzz_take(&in, in.left);
    const uint8_t *low = options & 1 ? bound.bytes : NULL;
    const uint8_t *high = options & 2 ? bound.bytes : NULL;
    size_t capacity = options & 4 ? 4096 : 1;
    sl_lmdb_node *nodes = fuzz_allocate(capacity * sizeof *nodes);
    sl_lmdb_page_facts facts;

    int status = sl_lmdb_page(page.bytes, page.size, (options & 8) != 0, low, bound.size, high, bound.size,
                              (options & 16) != 0, nodes, capacity, &facts);
    FUZZ_REQUIRE(status == SL_OK || status == SL_USAGE || status == SL_SPACE);
    if (status == SL_OK && facts.fault == SL_PAGE_SOUND) {
        FUZZ_REQUIRE(facts.count > 0 && facts.listed <= facts.count && facts.listed <= capacity);
        for (uint64_t i = 0; i < facts.listed; i++) {
            FUZZ_REQUIRE(nodes[i].key_at <= page.size && nodes[i].key_size <= page.size - nodes[i].key_at);
            FUZZ_REQUIRE(nodes[i].data_at == nodes[i].key_at + nodes[i].key_size);
            if (facts.kind == SL_PAGE_LEAF) {
                uint64_t stored = nodes[i].flags == SL_LMDB_LONG ? 8 : nodes[i].value;
                FUZZ_REQUIRE(stored <= page.size - nodes[i].data_at);
            }
        }
    }
    if (options & 32 && page.size >= (size_t)2 * SMALL_PAGE) {
        uint64_t number;
        memcpy(&number, bound.bytes, sizeof number);
        look_around(page.bytes, page.size, number % 64);
    }
    if (options & 64 && page.size >= (size_t)2 * SMALL_PAGE) {
        uint64_t at;
        memcpy(&at, bound.bytes, sizeof at);
        read_rows(&page, at, options & 1);
    }
    free(nodes);
    free(page.bytes);
    free(bound.bytes);
    return 0;
}
