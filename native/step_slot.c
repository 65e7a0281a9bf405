/* Makes the nodes of a step and the slots of its values, with the same bytes as statelog/tree/value.py (FORMAT.md
 * 4.1).
 *
 * Trust: none.
 * Invariant: the rows of a node's children precede its own row, in the order of its entries, so the rows equal those
 * of the general path. */
#include "internal.h"

enum {
    CONTAINER_SIZE_MAX = 4096, /* Inside another value, a container up to this size is one leaf. */
    LARGE_SIZE_MIN = 4096,     /* The caller looks up a leaf of this size or more in the whole store. */
    STRING_SIZE_MAX = 16384    /* A longer string is cut into pieces. */
};

const uint8_t *sl_step_row_digest(const sl_step *step, uint64_t row) { return step->rows + row * SL_ROW_SIZE + 1; }

sl_output sl_step_room(sl_step *step)
{
    return (sl_output){step->nodes + step->nodes_size, SL_STEP_NODES_SIZE - step->nodes_size, 0, 0};
}

int sl_step_held_next(sl_reader *held, size_t *at, sl_node_view *view)
{
    if (held->at == held->len) {
        return SL_END;
    }
    SL_REQUIRE(sl_has(held, SL_STEP_HELD_HEAD_SIZE));
    *at = held->at;
    const uint8_t *numbers = held->bytes + held->at + 1 + SL_DIGEST_SIZE;
    held->at += SL_STEP_HELD_HEAD_SIZE;
    view->bytes = held->bytes + held->at;
    view->lsn = sl_load_be(numbers, 8);
    view->size = (size_t)sl_load_be(numbers + 8, 4);
    view->content_size = (size_t)sl_load_be(numbers + 12, 4);
    SL_REQUIRE(view->content_size > 0 && view->content_size <= view->size && sl_skip(held, view->size));
    return SL_OK;
}

int sl_step_node(sl_step *step, uint8_t type, const uint8_t *digest, uint64_t lsn, uint64_t node, sl_node_view *view)
{
    sl_reader held = sl_reader_of(step->held, step->held_size);
    size_t at = 0;
    int status;
    while ((status = sl_step_held_next(&held, &at, view)) == SL_OK) {
        if (held.bytes[at] == type && memcmp(held.bytes + at + 1, digest, SL_DIGEST_SIZE) == 0) {
            return SL_OK;
        }
    }
    step->wanted = (sl_step_wanted){type, lsn, node, {0}};
    memcpy(step->wanted.digest, digest, SL_DIGEST_SIZE);
    return status == SL_END ? SL_WANTED : status;
}

void sl_step_place_row(sl_step *step, uint64_t row)
{
    const uint8_t *ends = sl_step_row_digest(step, row) + SL_DIGEST_SIZE;
    step->row = row;
    step->home_lsn = 0;
    memcpy(step->digest, sl_step_row_digest(step, row), SL_DIGEST_SIZE);
    step->at = row > 0 ? sl_load_be(ends - SL_ROW_SIZE + 4, 4) : 0;
    step->content_end = sl_load_be(ends, 4);
    step->end = sl_load_be(ends + 4, 4);
}

/* Find a leaf by its digest among the known leaves, and select it as the last node. */
static bool find_known(sl_step *step, const uint8_t *digest)
{
    enum { SIZE = SL_DIGEST_SIZE + 8 + 4 };
    for (size_t at = 0; step->known_size - at >= SIZE; at += SIZE) {
        const uint8_t *known = step->known + at;
        if (memcmp(known, digest, SL_DIGEST_SIZE) == 0) {
            memcpy(step->digest, digest, SL_DIGEST_SIZE);
            step->home_lsn = sl_load_be(known + SL_DIGEST_SIZE, 8);
            step->row = sl_load_be(known + SL_DIGEST_SIZE + 8, 4);
            return true;
        }
    }
    return false;
}

int sl_step_take_node(sl_step *step, uint8_t type, size_t size, size_t content_size)
{
    uint8_t digest[SL_DIGEST_SIZE];
    (void)sl_node_digest(type, step->nodes + step->nodes_size, content_size, digest);
    for (uint64_t i = 0; i < step->made.row_count; i++) {
        if (memcmp(sl_step_row_digest(step, i), digest, sizeof digest) == 0) {
            sl_step_place_row(step, i);
            return SL_OK;
        }
    }
    if (type == SL_NODE_LEAF && find_known(step, digest)) {
        return SL_OK;
    }
    if (step->made.row_count == SL_STEP_ROWS_MAX) {
        return SL_FALLBACK;
    }
    sl_writer writer = {step->rows + step->made.row_count * SL_ROW_SIZE, SL_ROW_SIZE, 0, false};
    sl_put_byte(&writer, type);
    sl_put(&writer, digest, sizeof digest);
    sl_put_be(&writer, step->nodes_size + content_size, 4);
    sl_put_be(&writer, step->nodes_size + size, 4);
    step->nodes_size += size;
    step->made.large_count += type == SL_NODE_LEAF && content_size >= LARGE_SIZE_MIN;
    sl_step_place_row(step, step->made.row_count++);
    return SL_OK;
}

void sl_step_put_ref(sl_writer *entries, sl_writer *locators, unsigned ref, const sl_step *step)
{
    sl_put_byte(entries, ref);
    sl_put(entries, step->digest, SL_DIGEST_SIZE);
    sl_put_locator(locators, step->home_lsn, step->row);
}

/* Make the root of a tree. Return SL_FALLBACK if a chunk would close. */
static int take_tree(sl_step *step, int kind, uint64_t count, const sl_writer *entries, const sl_writer *locators)
{
    sl_boundary closes[1];
    uint64_t closed;
    int status = sl_boundaries(kind, 0, entries->bytes, entries->at, locators->bytes, locators->at, count, closes, 1,
                               &closed);
    if (status != SL_OK || closed > 0) {
        return status == SL_OK || status == SL_SPACE ? SL_FALLBACK : status;
    }
    sl_output space = sl_step_room(step);
    sl_writer root = sl_writer_of(&space);
    sl_put_byte(&root, (unsigned)kind);
    sl_put_varint(&root, count);
    sl_put_varint(&root, 0); /* This is the number of levels. */
    sl_put_varint(&root, count);
    sl_put(&root, entries->bytes, entries->at);
    size_t content_size = root.at;
    sl_put(&root, locators->bytes, locators->at);
    return root.full ? SL_FALLBACK : sl_step_take_node(step, SL_NODE_ROOT, root.at, content_size);
}

/* Make the tree of a container, and write a ref to it. The entries are gathered in the scratch from `scratch_at` on.
 * They take no more space than the items, so the offset for an inner container is known in advance. */
static int put_tree(sl_step *step, const uint8_t *item, size_t size, const sl_item *head, size_t scratch_at,
                    sl_writer *entries, sl_writer *locators)
{
    uint64_t count = head->argument;
    bool is_map = head->shape == SL_ITEM_MAP;
    int kind = is_map ? SL_KIND_DICT : head->shape == SL_ITEM_TUPLE ? SL_KIND_TUPLE : SL_KIND_LIST;
    if ((!is_map && head->shape != SL_ITEM_TUPLE && head->shape != SL_ITEM_LIST) || count > SL_CHUNK_ENTRIES_MAX) {
        return SL_FALLBACK;
    }
    size_t locators_size = (size_t)count * SL_STEP_LOCATOR_SIZE_MAX;
    if (SL_STEP_SCRATCH_SIZE - scratch_at < size + locators_size) {
        return SL_FALLBACK;
    }
    uint8_t *space = step->scratch + scratch_at;
    sl_writer own = {space, size, 0, false};
    sl_writer own_locators = {space + size, locators_size, 0, false};
    sl_reader in = {item, size, head->payload_at};
    for (uint64_t i = 0; i < count; i++) {
        size_t at = in.at;
        SL_REQUIRE(!is_map || sl_item_skip(&in));
        sl_put(&own, item + at, in.at - at);
        at = in.at;
        SL_REQUIRE(sl_item_skip(&in));
        int status = sl_step_put_slot(step, item + at, in.at - at, false, scratch_at + size + locators_size, &own,
                                      &own_locators);
        if (status != SL_OK) {
            return status;
        }
    }
    SL_REQUIRE(in.at == size);
    if (own.full || own_locators.full) {
        return SL_FALLBACK;
    }
    int status = take_tree(step, kind, count, &own, &own_locators);
    if (status == SL_OK) {
        sl_step_put_ref(entries, locators, SL_REF_ROOT, step);
    }
    return status;
}

int sl_step_put_slot(sl_step *step, const uint8_t *item, size_t size, bool is_top, size_t scratch_at,
                     sl_writer *entries, sl_writer *locators)
{
    sl_item head;
    sl_reader in = sl_reader_of(item, size);
    if (size <= SL_INLINE_SIZE_MAX) {
        sl_put(entries, item, size);
        return SL_OK;
    }
    SL_REQUIRE(sl_item_open(&in, &head));
    bool is_tree = head.shape == SL_ITEM_LIST || head.shape == SL_ITEM_TUPLE || head.shape == SL_ITEM_MAP ||
                   head.shape == SL_ITEM_SET || head.shape == SL_ITEM_FROZENSET;
    if (is_tree && (is_top || size > CONTAINER_SIZE_MAX)) {
        return put_tree(step, item, size, &head, scratch_at, entries, locators);
    }
    sl_output space = sl_step_room(step);
    if (size > STRING_SIZE_MAX || size > space.capacity) {
        return SL_FALLBACK;
    }
    memcpy(space.bytes, item, size);
    int status = sl_step_take_node(step, SL_NODE_LEAF, size, size);
    if (status == SL_OK) {
        sl_step_put_ref(entries, locators, SL_REF_LEAF, step);
    }
    return status;
}
