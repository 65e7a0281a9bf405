/* Fuzzes sl_entry_make. Input: sizes of the key, of the current root, of its content and of the item;
 * operation; count; the fixed fields; the key, the root and the item. The rest of the input is the node that
 * the kernel requests, if any. */
#include "fuzz_input.h"

enum { FIXED_SIZE = 224, DIGESTS_SIZE = 40, CHECKSUM_SIZE = 8, HEAD_SIZE = 37, HOME_LSN = 1000000 };

static size_t put_number(uint8_t *to, uint64_t number, size_t size)
{
    for (size_t i = 0; i < size; i++) {
        to[i] = (uint8_t)(number >> (8 * (size - 1 - i)));
    }
    return size;
}

/* Append a node to the held nodes. */
static void hold(fuzz_block *held, uint64_t type, const uint8_t *digest, const fuzz_block *node, size_t content_size)
{
    uint8_t *bytes = fuzz_allocate(held->size + HEAD_SIZE + node->size);
    memcpy(bytes, held->bytes, held->size);
    uint8_t *at = bytes + held->size;
    *at++ = (uint8_t)type;
    memcpy(at, digest, 20);
    at += 20;
    at += put_number(at, HOME_LSN, 8);
    at += put_number(at, node->size, 4);
    at += put_number(at, content_size, 4);
    memcpy(at, node->bytes, node->size);
    free(held->bytes);
    *held = (fuzz_block){bytes, held->size + HEAD_SIZE + node->size};
}

/* Check that the output is a record with the nodes of the step, followed by nothing but well-formed index changes. */
static void check_output(const sl_step *step, const sl_output *out)
{
    sl_record_parts parts;
    FUZZ_REQUIRE(DIGESTS_SIZE < step->made.nodes_at && step->made.nodes_at <= step->made.record_end);
    FUZZ_REQUIRE(step->made.record_end < step->made.page_end && step->made.page_end == out->size);
    size_t size = CHECKSUM_SIZE + (size_t)step->made.record_end - DIGESTS_SIZE;
    uint8_t *record = fuzz_allocate(size);
    memset(record, 0, CHECKSUM_SIZE);
    memcpy(record + CHECKSUM_SIZE, out->bytes + DIGESTS_SIZE, size - CHECKSUM_SIZE);
    FUZZ_REQUIRE(sl_record_open(record, size, &parts) == SL_OK && parts.size == size);
    FUZZ_REQUIRE(parts.node_count == step->made.row_count);
    FUZZ_REQUIRE(memcmp(out->bytes + step->made.nodes_at, step->nodes, (size_t)step->nodes_size) == 0);
    free(record);
    size_t at = (size_t)step->made.record_end;
    while (at < out->size) {
        FUZZ_REQUIRE(out->size - at >= 4);
        size_t key_size = (size_t)out->bytes[at] << 8 | out->bytes[at + 1];
        size_t payload_size = (size_t)out->bytes[at + 2] << 8 | out->bytes[at + 3];
        at += 4;
        FUZZ_REQUIRE(key_size > 8 && out->size - at >= key_size);
        at += key_size;
        if (payload_size != SL_ENTRY_DELETED) {
            FUZZ_REQUIRE(out->size - at >= payload_size);
            at += payload_size;
        }
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const uint8_t null_item[] = {0xF6};
    static const uint8_t value_key[] = {0x65, 'v', 'a', 'l', 'u', 'e'};
    fuzz_input in = {data, size};
    size_t key_size = fuzz_size(&in);
    size_t root_size = fuzz_size(&in);
    size_t content_size = fuzz_size(&in);
    size_t item_size = fuzz_size(&in);
    unsigned operation = fuzz_byte(&in);
    uint64_t count = fuzz_byte(&in);
    fuzz_block fixed = fuzz_take(&in, FIXED_SIZE);
    fuzz_block key = fuzz_take(&in, key_size);
    fuzz_block root = fuzz_take(&in, root_size);
    fuzz_block item = fuzz_take(&in, item_size);
    fuzz_block list = fuzz_take(&in, in.left);
    fuzz_block held = {fuzz_allocate(0), 0};
    uint8_t *changes = fuzz_allocate(19 + item.size);
    size_t changes_size = 0;
    if (fixed.size == FIXED_SIZE) {
        if (operation & 3) {
            uint8_t *at = changes;
            *at++ = (uint8_t)(operation & 3);
            at += put_number(at, count, 4);
            at += put_number(at, sizeof value_key, 2);
            at += put_number(at, 0, 2);
            at += put_number(at, item.size, 4);
            memcpy(at, value_key, sizeof value_key);
            memcpy(at + sizeof value_key, item.bytes, item.size);
            changes_size = 19 + item.size;
        }
        if (operation & 4) {
            hold(&held, 2, fixed.bytes + 184, &root, content_size);
        }
        sl_step *step = fuzz_allocate(sizeof *step);
        sl_output out = fuzz_output(operation & 8 ? item.size + 300 : 192 * 1024);
        int status = SL_WANTED;
        for (size_t tries = 0; status == SL_WANTED && tries < 8; tries++) {
            status = sl_entry_make(step, fixed.bytes, held.bytes, held.size, changes, changes_size, key.bytes, key.size,
                                   null_item, sizeof null_item, null_item, sizeof null_item, &out);
            if (status == SL_WANTED) {
                hold(&held, step->wanted.type, step->wanted.digest, &list, list.size);
            }
        }
        FUZZ_REQUIRE(status != SL_SPACE && status != SL_WANTED && status != SL_ABSENT);
        if (status == SL_OK) {
            check_output(step, &out);
        }
        free(out.bytes);
        free(step);
    }
    free(changes);
    free(held.bytes);
    free(list.bytes);
    free(item.bytes);
    free(root.bytes);
    free(key.bytes);
    free(fixed.bytes);
    return 0;
}
