/* Fuzzes a step of two changes, and its record. Input: the sizes of the state, of a list's root, of the items,
 * and of the list's two open levels, with the sizes of their contents; the number of items, operation and kind;
 * then these parts and a version page. The key items are fixed. Each node that the step requests is then added
 * with the requested type. One bit of the operation passes the page as the held nodes, and another bit passes the
 * page as the known leaves. */
#include "fuzz_input.h"

enum { HOME_LSN = 1000000, NEXT_LSN = 1000007, VERSION = 35, TARGET = 5, TIME_US = 99 };
enum { DIGESTS_SIZE = 60, CHECKSUM_SIZE = 8 };

typedef struct {
    fuzz_block block;
    size_t content_size;
} sl_node;

static void check_rows(const sl_step *step)
{
    uint64_t end = 0;
    FUZZ_REQUIRE(step->made.row_count <= SL_STEP_ROWS_MAX && step->nodes_size <= SL_STEP_NODES_SIZE);
    for (uint64_t row = 0; row < step->made.row_count; row++) {
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

/* Check that the record has the gathered nodes and decodes to its inputs, and that the page follows it. */
static void check_record(const sl_step *step, const sl_output *out, const uint8_t *items, size_t items_size)
{
    sl_record_parts parts;
    sl_checkpoint_record found;
    uint32_t first = 0;
    uint32_t last = 0;
    FUZZ_REQUIRE(DIGESTS_SIZE < step->made.nodes_at && step->made.nodes_at <= step->made.record_end && step->made.record_end < step->made.page_end && step->made.page_end <= out->size);
    size_t size = CHECKSUM_SIZE + (size_t)step->made.record_end - DIGESTS_SIZE;
    uint8_t *record = fuzz_allocate(size);
    memset(record, 0, CHECKSUM_SIZE);
    memcpy(record + CHECKSUM_SIZE, out->bytes + DIGESTS_SIZE, size - CHECKSUM_SIZE);
    FUZZ_REQUIRE(sl_record_open(record, size, &parts) == SL_OK && parts.size == size);
    FUZZ_REQUIRE(parts.node_count == step->made.row_count);
    FUZZ_REQUIRE(step->made.record_end - step->made.nodes_at == step->nodes_size);
    FUZZ_REQUIRE(memcmp(out->bytes + step->made.nodes_at, step->nodes, (size_t)step->nodes_size) == 0);
    int status = sl_checkpoint_read(record, size, NEXT_LSN, &found);
    size_t error_at = 0;
    /* If `items` is not one valid item, the body is invalid or different. */
    if (sl_cbor_check(items, items_size, &error_at) == SL_OK) {
        FUZZ_REQUIRE(status == SL_OK && memcmp(found.digest, out->bytes, 20) == 0);
    }
    FUZZ_REQUIRE(sl_page_range(out->bytes + step->made.record_end, (size_t)(step->made.page_end - step->made.record_end), &first, &last) ==
                 SL_OK);
    FUZZ_REQUIRE(last == VERSION);
    free(record);
}

/* Check that the held nodes in the output begin with the new root of the state. */
static void check_held(const sl_step *step, const sl_output *out)
{
    static const size_t head_size = 1 + 20 + 8 + 4 + 4;
    sl_root_head head;
    const uint8_t *held = out->bytes + step->made.page_end;
    const uint8_t *row = step->rows + step->made.root_row * SL_ROW_SIZE;
    FUZZ_REQUIRE(step->made.root_row < step->made.row_count && out->size - step->made.page_end > head_size);
    FUZZ_REQUIRE(memcmp(held, row, 21) == 0);
    size_t size = (size_t)held[29] << 24 | (size_t)held[30] << 16 | (size_t)held[31] << 8 | held[32];
    size_t content_size = (size_t)held[33] << 24 | (size_t)held[34] << 16 | (size_t)held[35] << 8 | held[36];
    FUZZ_REQUIRE(size <= out->size - step->made.page_end - head_size);
    FUZZ_REQUIRE(sl_root_read(held + head_size, size, content_size, HOME_LSN, &head) == SL_OK);
}

static size_t put_number(uint8_t *to, uint64_t number, size_t size)
{
    for (size_t i = 0; i < size; i++) {
        to[i] = (uint8_t)(number >> (8 * (size - 1 - i)));
    }
    return size;
}

/* Append the requested node to the held nodes. */
static void hold(const sl_step *step, const sl_node *node, fuzz_block *held)
{
    uint8_t *bytes = fuzz_allocate(held->size + 37 + node->block.size);
    memcpy(bytes, held->bytes, held->size);
    uint8_t *at = bytes + held->size;
    *at++ = (uint8_t)step->wanted.type;
    memcpy(at, step->wanted.digest, 20);
    at += 20;
    at += put_number(at, HOME_LSN, 8);
    at += put_number(at, node->block.size, 4);
    at += put_number(at, node->content_size, 4);
    memcpy(at, node->block.bytes, node->block.size);
    free(held->bytes);
    *held = (fuzz_block){bytes, held->size + 37 + node->block.size};
}

static void put_change(fuzz_block *changes, unsigned operation, uint64_t count, char key, const char *name,
                       const fuzz_block *items)
{
    uint8_t *at = changes->bytes + changes->size;
    size_t name_size = strlen(name);
    *at++ = (uint8_t)operation;
    at += put_number(at, count, 4);
    at += put_number(at, 2, 2);
    at += put_number(at, name_size, 2);
    at += put_number(at, items->size, 4);
    *at++ = 0x61;
    *at++ = (uint8_t)key;
    memcpy(at, name, name_size);
    memcpy(at + name_size, items->bytes, items->size);
    changes->size = (size_t)(at - changes->bytes) + name_size + items->size;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const uint8_t key[] = {0x61, 'b'};
    static const uint8_t null_item[] = {0xF6};
    static const uint8_t no_names[] = {0x80};
    fuzz_input in = {data, size};
    sl_node nodes[2 + SL_STEP_LEVELS]; /* The state, the list, and its open levels. */
    size_t sizes[2 + SL_STEP_LEVELS];
    size_t items_size = 0;
    for (size_t i = 0; i < 2 + SL_STEP_LEVELS; i++) {
        sizes[i] = fuzz_size(&in);
        nodes[i].content_size = fuzz_size(&in);
        items_size = i == 1 ? fuzz_size(&in) : items_size;
    }
    uint64_t count = fuzz_byte(&in);
    unsigned operation = fuzz_byte(&in);
    int kind = (int)fuzz_byte(&in) - 1;
    nodes[0].block = fuzz_take(&in, sizes[0]);
    nodes[1].block = fuzz_take(&in, sizes[1]);
    fuzz_block items = fuzz_take(&in, items_size);
    for (size_t i = 2; i < 2 + SL_STEP_LEVELS; i++) {
        nodes[i].block = fuzz_take(&in, sizes[i]);
    }
    fuzz_block page = fuzz_take(&in, in.left);
    sl_step *step = fuzz_allocate(sizeof *step);
    uint8_t fixed[8 * (SL_CHECKPOINT_NUMBERS + 1) + 60] = {0};
    const uint8_t *state_digest = fixed + 8 * (SL_CHECKPOINT_NUMBERS + 1) + 20;
    fixed[8 * 2 + 7] = VERSION;
    fixed[8 * 11 + 7] = operation & 16 ? TARGET : 0;
    fixed[8 * 12 + 7] = TIME_US;
    (void)put_number(fixed + (size_t)8 * SL_CHECKPOINT_NUMBERS, NEXT_LSN, 8);
    sl_output record = fuzz_output(operation & 8 ? items.size + 200 : 192 * 1024);
    fuzz_block changes = {fuzz_allocate(2 * (items.size + 32)), 0};
    if (operation & 3) {
        put_change(&changes, operation & 1 ? SL_STEP_PUT : SL_STEP_ADD, 0, 'a', "", &items);
    }
    if (operation & 4) {
        put_change(&changes, SL_STEP_APPEND, count, 'b', kind == SL_KIND_KEYED ? "\x62id" : "", &items);
    }

    fuzz_block held = {fuzz_allocate(page.size), operation & 32 ? page.size : 0};
    memcpy(held.bytes, page.bytes, held.size);
    int status = SL_WANTED;
    for (size_t chunk = 2, tries = 0; status == SL_WANTED && tries < 8; tries++) {
        status = sl_step_make(step, fixed, held.bytes, held.size, changes.bytes, changes.size, page.bytes,
                              operation & 64 ? page.size : 0, null_item, sizeof null_item, items.bytes, items.size,
                              no_names, sizeof no_names, no_names, sizeof no_names, page.bytes,
                              operation & 96 ? 0 : page.size, &record);
        if (status == SL_WANTED) {
            size_t root = memcmp(step->wanted.digest, state_digest, 20) != 0;
            size_t which = step->wanted.type == 3 ? chunk++ % 2 + 2 : root;
            hold(step, &nodes[which], &held);
        }
    }
    FUZZ_REQUIRE(status != SL_SPACE && status != SL_WANTED && status != SL_ABSENT);
    sl_output prints = fuzz_output(2 * items.size);
    if (sl_step_prints(items.bytes, items.size, key, sizeof key, nodes[1].block.bytes, nodes[1].block.size, &prints) ==
        SL_OK) {
        FUZZ_REQUIRE(prints.size % 2 == 0);
        FUZZ_REQUIRE(prints.size == 0 || sl_step_prints(items.bytes, items.size, key, sizeof key, prints.bytes,
                                                        prints.size, &prints) == SL_FALLBACK);
    }
    free(prints.bytes);
    if (status == SL_OK) {
        check_rows(step);
        check_record(step, &record, items.bytes, items.size);
        if (step->made.row_count > 0) {
            check_held(step, &record);
        }
        FUZZ_REQUIRE(!(operation & 16) || step->made.row_count == 0); /* A rollback makes no new root. */
    }
    (void)sl_step_list(step, state_digest, held.bytes, held.size, key, sizeof key);
    free(step);
    free(record.bytes);
    free(page.bytes);
    free(held.bytes);
    free(changes.bytes);
    for (size_t i = 0; i < 2 + SL_STEP_LEVELS; i++) {
        free(nodes[i].block.bytes);
    }
    free(items.bytes);
    return 0;
}
