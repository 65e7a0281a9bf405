/* A step of two changes: sizes of the state and its content, of a list's root and its content, of the items; how many
 * items, which operation, which kind; then these one after another. The key items are fixed. */
#include "fuzz_input.h"

enum { HOME_LSN = 1000000 };

static void check_rows(const sl_step *step)
{
    uint64_t end = 0;
    FUZZ_REQUIRE(step->row_count <= SL_STEP_ROWS_MAX && step->nodes_size <= SL_STEP_NODES_SIZE);
    for (uint64_t row = 0; row < step->row_count; row++) {
        const uint8_t *bytes = step->rows + row * SL_ROW_SIZE;
        uint64_t ends[2] = {0, 0};
        uint8_t digest[20];
        for (size_t i = 0; i < 8; i++) {
            ends[i / 4] = ends[i / 4] << 8 | bytes[21 + i];
        }
        FUZZ_REQUIRE(end < ends[0] && ends[0] <= ends[1] && ends[1] <= step->nodes_size);
        FUZZ_REQUIRE(sl_node_digest(bytes[0], step->nodes + end, (size_t)(ends[0] - end), digest) == SL_OK);
        FUZZ_REQUIRE(memcmp(digest, bytes + 1, sizeof digest) == 0);
        end = ends[1];
    }
    FUZZ_REQUIRE(end == step->nodes_size);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const uint8_t first[] = {0x61, 'a'};
    static const uint8_t second[] = {0x61, 'b'};
    fuzz_input in = {data, size};
    size_t state_size = fuzz_size(&in);
    size_t state_content_size = fuzz_size(&in);
    size_t root_size = fuzz_size(&in);
    size_t root_content_size = fuzz_size(&in);
    size_t items_size = fuzz_size(&in);
    uint64_t count = fuzz_byte(&in);
    unsigned operation = fuzz_byte(&in);
    int kind = (int)fuzz_byte(&in) - 1;
    fuzz_block state = fuzz_take(&in, state_size);
    fuzz_block root = fuzz_take(&in, root_size);
    fuzz_block items = fuzz_take(&in, items_size);
    sl_step *step = fuzz_allocate(sizeof *step);
    static const uint8_t no_digest[20] = {0};

    sl_step_begin(step);
    int status = SL_OK;
    if (operation & 1) {
        status = sl_step_put(step, first, sizeof first, items.bytes, items.size);
    } else if (operation & 2) {
        status = sl_step_add(step, first, sizeof first, items.bytes, items.size, state.bytes, state.size,
                             state_content_size);
    }
    if (status == SL_OK && (operation & 4)) {
        status = sl_step_append(step, second, sizeof second, items.bytes, items.size, count, kind, root.bytes,
                                root.size, root_content_size, HOME_LSN);
    }
    if (status == SL_OK) {
        status = sl_step_finish(step, state.bytes, state.size, state_content_size, HOME_LSN, no_digest);
    }
    FUZZ_REQUIRE(status != SL_SPACE);
    sl_output prints = fuzz_output(2 * items.size);
    if (sl_step_prints(items.bytes, items.size, second, sizeof second, root.bytes, root.size, &prints) == SL_OK) {
        FUZZ_REQUIRE(prints.size % 2 == 0);
        FUZZ_REQUIRE(prints.size == 0 || sl_step_prints(items.bytes, items.size, second, sizeof second, prints.bytes,
                                                        prints.size, &prints) == SL_FALLBACK);
    }
    free(prints.bytes);
    if (status == SL_OK) {
        sl_root_head head;
        check_rows(step);
        FUZZ_REQUIRE(step->end <= step->nodes_size && step->at < step->content_end);
        FUZZ_REQUIRE(sl_root_read(step->nodes + step->at, (size_t)(step->end - step->at),
                                  (size_t)(step->content_end - step->at), HOME_LSN, &head) == SL_OK);
    }
    free(step);
    free(state.bytes);
    free(root.bytes);
    free(items.bytes);
    return 0;
}
