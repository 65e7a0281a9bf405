/* Fuzzes roots and chunks. Input: kind and is_root, content size, position, fingerprint, then the node. */
#include "fuzz_input.h"

enum { HOME_LSN = 1000000 };

static void read_whole(const fuzz_block *node, size_t content_size, int is_root, int kind)
{
    static const uint8_t digest[20] = {1, 2, 3};
    sl_entry table[SL_CHUNK_ENTRIES_MAX];
    uint64_t count = 0;
    int status = sl_entries_table(node->bytes, node->size, content_size, HOME_LSN, is_root, kind, table,
                                  SL_CHUNK_ENTRIES_MAX, &count);
    FUZZ_REQUIRE(status != SL_SPACE && count <= SL_CHUNK_ENTRIES_MAX);
    for (uint64_t i = 0; i < count; i++) {
        FUZZ_REQUIRE(table[i].at < table[i].end && table[i].slot_at <= table[i].end && table[i].end <= content_size);
    }
    sl_output out = fuzz_output(content_size + 6 * (node->size - content_size) + 64);
    for (uint64_t start = 0; status == SL_OK && start <= count; start += 3) {
        FUZZ_REQUIRE(sl_entries_copy(node->bytes, node->size, content_size, HOME_LSN, is_root, kind, start, count,
                                     &out) == SL_OK);
    }
    free(out.bytes);
    out = fuzz_output(content_size + 64);
    FUZZ_REQUIRE(sl_chunk_summary(node->bytes, node->size, content_size, kind, digest, &out) != SL_SPACE);
    free(out.bytes);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    fuzz_input in = {data, size};
    unsigned options = fuzz_byte(&in);
    size_t content_size = fuzz_size(&in);
    uint64_t position = fuzz_size(&in);
    unsigned fingerprint = (unsigned)fuzz_size(&in);
    fuzz_block node = fuzz_take(&in, in.left);
    int is_root = options >= 0x80;
    int kind = (int)(options & 7);
    sl_root_head head;
    sl_position_hit hit;
    uint64_t found;

    if (sl_root_read(node.bytes, node.size, content_size, HOME_LSN, &head) == SL_OK) {
        FUZZ_REQUIRE(head.tail_at <= content_size && head.tail_locators_at <= node.size);
    }
    if (sl_find_position(node.bytes, node.size, content_size, HOME_LSN, is_root, kind, position, &hit) == SL_OK) {
        FUZZ_REQUIRE(hit.slot_at <= hit.end && hit.end <= content_size);
    }
    (void)sl_fingerprint_find(node.bytes, node.size, content_size, is_root, fingerprint, position, &found);
    if (content_size <= node.size) {
        read_whole(&node, content_size, is_root, kind);
    }
    free(node.bytes);
    return 0;
}
