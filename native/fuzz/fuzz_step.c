/* A step of two changes, and its record: sizes of the state and its content, of a list's root and its content, of the
 * items, of the list's open first and second level and their contents; how many items, which operation, which kind; then
 * these one after another, and a version page. The key items are fixed. */
#include "fuzz_input.h"

enum { HOME_LSN = 1000000, NEXT_LSN = 1000007, VERSION = 35, TARGET = 5, TIME_US = 99 };
enum { DIGESTS_SIZE = 60, CHECKSUM_SIZE = 8 };

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

/* The record holds the nodes that were gathered, and is read as what it was made from; then comes the page. */
static void check_record(const sl_step *step, const sl_output *out, const uint8_t *items, size_t items_size)
{
    sl_record_parts parts;
    sl_checkpoint_record found;
    uint32_t first = 0;
    uint32_t last = 0;
    FUZZ_REQUIRE(DIGESTS_SIZE < step->nodes_at && step->nodes_at <= step->record_end && step->record_end < out->size);
    size_t size = CHECKSUM_SIZE + (size_t)step->record_end - DIGESTS_SIZE;
    uint8_t *record = fuzz_allocate(size);
    memset(record, 0, CHECKSUM_SIZE);
    memcpy(record + CHECKSUM_SIZE, out->bytes + DIGESTS_SIZE, size - CHECKSUM_SIZE);
    FUZZ_REQUIRE(sl_record_open(record, size, &parts) == SL_OK && parts.size == size);
    FUZZ_REQUIRE(parts.node_count == step->row_count);
    FUZZ_REQUIRE(step->record_end - step->nodes_at == step->nodes_size);
    FUZZ_REQUIRE(memcmp(out->bytes + step->nodes_at, step->nodes, (size_t)step->nodes_size) == 0);
    int status = sl_checkpoint_read(record, size, NEXT_LSN, &found);
    size_t error_at = 0;
    if (sl_cbor_check(items, items_size, &error_at) == SL_OK) { /* others make a body that is none, or another one */
        FUZZ_REQUIRE(status == SL_OK && memcmp(found.digest, out->bytes, 20) == 0);
    }
    FUZZ_REQUIRE(sl_page_range(out->bytes + step->record_end, out->size - (size_t)step->record_end, &first, &last) ==
                 SL_OK);
    FUZZ_REQUIRE(last == VERSION);
    free(record);
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
    size_t open_sizes[SL_STEP_LEVELS];
    size_t open_content_sizes[SL_STEP_LEVELS];
    for (size_t i = 0; i < SL_STEP_LEVELS; i++) {
        open_sizes[i] = fuzz_size(&in);
        open_content_sizes[i] = fuzz_size(&in);
    }
    uint64_t count = fuzz_byte(&in);
    unsigned operation = fuzz_byte(&in);
    int kind = (int)fuzz_byte(&in) - 1;
    fuzz_block state = fuzz_take(&in, state_size);
    fuzz_block root = fuzz_take(&in, root_size);
    fuzz_block items = fuzz_take(&in, items_size);
    fuzz_block opens[SL_STEP_LEVELS];
    sl_node_view state_view = {state.bytes, state.size, state_content_size, HOME_LSN};
    sl_node_view root_view = {root.bytes, root.size, root_content_size, HOME_LSN};
    sl_node_view views[SL_STEP_LEVELS];
    for (size_t i = 0; i < SL_STEP_LEVELS; i++) {
        opens[i] = fuzz_take(&in, open_sizes[i]);
        views[i] = (sl_node_view){opens[i].bytes, opens[i].size, open_content_sizes[i], HOME_LSN};
    }
    fuzz_block page = fuzz_take(&in, in.left);
    sl_step *step = fuzz_allocate(sizeof *step);
    static const uint8_t no_digest[20] = {0};
    static const uint8_t null_item[] = {0xF6};
    static const uint8_t no_names[] = {0x80};
    uint8_t numbers[8 * SL_CHECKPOINT_NUMBERS] = {0};
    numbers[8 * 2 + 7] = VERSION;
    numbers[8 * 11 + 7] = operation & 16 ? TARGET : 0;
    numbers[8 * 12 + 7] = TIME_US;
    sl_output record = fuzz_output(operation & 8 ? items.size + 200 : 128 * 1024);

    sl_step_begin(step);
    int status = SL_OK;
    if (operation & 1) {
        status = sl_step_put(step, first, sizeof first, items.bytes, items.size);
    } else if (operation & 2) {
        status = sl_step_add(step, first, sizeof first, items.bytes, items.size, state.bytes, state.size,
                             state_content_size);
    }
    if (status == SL_OK && (operation & 4)) {
        status = sl_step_append(step, second, sizeof second, items.bytes, items.size, count, kind, &root_view, views);
    }
    if (status == SL_OK) {
        status = sl_step_record(step, &state_view, views, no_digest, numbers,
                                no_digest, null_item, sizeof null_item, items.bytes, items.size, no_names,
                                sizeof no_names, NEXT_LSN, no_digest, page.bytes, page.size, &record);
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
        check_record(step, &record, items.bytes, items.size);
        if (operation & 16) { /* a rollback: its root is an old one */
            FUZZ_REQUIRE(step->row_count == 0);
        } else {
            FUZZ_REQUIRE(step->end <= step->nodes_size && step->at < step->content_end);
            FUZZ_REQUIRE(sl_root_read(step->nodes + step->at, (size_t)(step->end - step->at),
                                      (size_t)(step->content_end - step->at), HOME_LSN, &head) == SL_OK);
        }
    }
    free(step);
    free(record.bytes);
    free(page.bytes);
    for (size_t i = 0; i < SL_STEP_LEVELS; i++) {
        free(opens[i].bytes);
    }
    free(state.bytes);
    free(root.bytes);
    free(items.bytes);
    return 0;
}
