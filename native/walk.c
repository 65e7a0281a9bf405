/* Walks from the root of a dict to an item of a list in the dict, through the nodes of one record at a time (FORMAT.md
 * 4).
 *
 * Trust: none, except in the digest of the first root, which the caller passes.
 * Invariants: each node on the path matches the digest in the ref to it. A returned item is inside the record. */
#include "internal.h"

enum { STEPS_MAX = SL_LEVELS_MAX + 4 }; /* A walk visits two roots, a chunk of each level, and a leaf. */

/* Open the node that a walk has reached in the record. */
static int node_open(const uint8_t *record, size_t size, uint64_t lsn, const sl_walk *walk, sl_node_view *node,
                     size_t *node_at)
{
    static const int types[] = {SL_NODE_ROOT, SL_NODE_ROOT, SL_NODE_CHUNK, SL_NODE_LEAF};
    uint8_t number[8];
    sl_writer writer = {number, sizeof number, 0, false};
    uint64_t place[3];
    uint64_t found;
    if (walk->stage > SL_WALK_ITEM) {
        return SL_USAGE;
    }
    sl_put_be(&writer, walk->node, sizeof number);
    int status = sl_record_find(record, size, types[walk->stage], number, walk->digest, 1, place, &found);
    if (status != SL_OK) {
        return status;
    }
    *node_at = (size_t)place[0];
    *node = (sl_node_view){record + place[0], (size_t)place[2], (size_t)place[1], lsn};
    return SL_OK;
}

/* Move the walk to the node that a ref names. */
static void walk_to(sl_walk *walk, uint64_t stage, const uint8_t *digest, uint64_t lsn, uint64_t number)
{
    walk->stage = stage;
    walk->lsn = lsn;
    walk->node = number;
    memcpy(walk->digest, digest, SL_DIGEST_SIZE);
}

/* Move from the root of the dict to the root of the list that it stores under `key`. */
static int state_pass(const sl_node_view *node, const uint8_t *key, size_t key_size, const uint8_t *mark,
                      size_t mark_size, sl_walk *walk)
{
    sl_root root;
    sl_entries it;
    bool is_found = false;
    int status = sl_root_parse(node->bytes, node->size, node->content_size, node->lsn, &root);
    if (status != SL_OK) {
        return status;
    }
    if (root.head.kind != SL_KIND_DICT || root.head.level_count > 0) {
        return SL_FALLBACK;
    }
    sl_entries_open_tail(&it, node->bytes, node->size, node->content_size, node->lsn, &root);
    while ((status = sl_entries_next(&it)) == SL_OK) {
        if (sl_bytes_compare(sl_key(&it), sl_key_size(&it), mark, mark_size) == 0) {
            walk->is_marked = 1;
        }
        if (sl_bytes_compare(sl_key(&it), sl_key_size(&it), key, key_size) == 0) {
            if (node->bytes[it.slot_at] != SL_REF_ROOT) {
                return SL_FALLBACK;
            }
            walk_to(walk, SL_WALK_LIST, node->bytes + it.slot_at + 1, it.lsn, it.node);
            is_found = true;
        }
    }
    SL_REQUIRE(status == SL_END);
    return is_found ? SL_OK : SL_ABSENT;
}

/* Move from an entry that covers the position to its child, or to the item in its slot. `node_at` is the node's
 * offset in the record. */
static int entry_pass(const sl_node_view *node, size_t node_at, bool is_root, sl_walk *walk)
{
    sl_position_hit hit;
    int kind = node->bytes[0];
    int status = sl_find_position(node->bytes, node->size, node->content_size, node->lsn, is_root, kind,
                                  walk->position, &hit);
    if (status != SL_OK) {
        return status;
    }
    const uint8_t *slot = node->bytes + hit.slot_at;
    if (!is_root && node->bytes[1] > 0) {
        walk->position = hit.offset_inside;
        walk_to(walk, SL_WALK_CHUNK, slot, hit.lsn, hit.node);
    } else if (slot[0] == SL_REF_ROOT) {
        return SL_FALLBACK;
    } else if (slot[0] == SL_REF_LEAF) {
        walk_to(walk, SL_WALK_ITEM, slot + 1, hit.lsn, hit.node);
    } else {
        walk->item_at = node_at + hit.slot_at;
        walk->item_size = hit.end - hit.slot_at;
    }
    return SL_OK;
}

/* Move from the root of the list to the chunk or the entry of the tail that covers the position. */
static int list_pass(const sl_node_view *node, size_t node_at, sl_walk *walk)
{
    sl_root root;
    int status = sl_root_parse(node->bytes, node->size, node->content_size, node->lsn, &root);
    if (status != SL_OK) {
        return status;
    }
    if (root.head.kind != SL_KIND_LIST && root.head.kind != SL_KIND_KEYED) {
        return SL_FALLBACK;
    }
    for (uint64_t i = 0; i < root.head.level_count; i++) {
        const sl_level *level = &root.head.levels[i];
        if (walk->position < level->covered) {
            walk_to(walk, SL_WALK_CHUNK, node->bytes + level->digest_at, level->lsn, level->node);
            return SL_OK;
        }
        walk->position -= level->covered;
    }
    return walk->position < root.head.tail_count ? entry_pass(node, node_at, true, walk) : SL_ABSENT;
}

int sl_item_find(const uint8_t *record, size_t size, uint64_t lsn, const uint8_t *key, size_t key_size,
                 const uint8_t *mark, size_t mark_size, sl_walk *walk)
{
    sl_walk at = *walk;
    at.lsn = lsn;
    at.item_at = 0;
    at.item_size = 0;
    for (unsigned steps = 0; steps < STEPS_MAX && at.lsn == lsn && at.item_size == 0; steps++) {
        sl_node_view node;
        size_t node_at;
        int status = node_open(record, size, lsn, &at, &node, &node_at);
        if (status != SL_OK) {
            return status;
        }
        switch (at.stage) {
        case SL_WALK_STATE:
            status = state_pass(&node, key, key_size, mark, mark_size, &at);
            break;
        case SL_WALK_LIST:
            status = list_pass(&node, node_at, &at);
            break;
        case SL_WALK_CHUNK:
            status = node.bytes[0] == SL_KIND_LIST || node.bytes[0] == SL_KIND_KEYED
                         ? entry_pass(&node, node_at, false, &at)
                         : SL_MALFORMED;
            break;
        default: /* The stage is SL_WALK_ITEM. */
            at.item_at = node_at;
            at.item_size = node.content_size;
        }
        if (status != SL_OK) {
            return status;
        }
    }
    SL_REQUIRE(at.lsn != lsn || at.item_size > 0);
    *walk = at;
    return SL_OK;
}
