/* What one commit changes in a state, where no chunk closes but at an end: the common commit, in a few calls.
 *
 * Trust: none. A step gathers the nodes of a record in the making; a locator with LSN 0 names one of its rows.
 * Invariants: what a step makes is what the general path makes of the same writes, node for node; where that
 * path would do more (cut a string, build a large tree, close a chunk of a map inside) it answers
 * SL_FALLBACK; and the caller looks for a large leaf in the whole store. tests/native compares the two.
 */
#include "internal.h"

enum { ITEMS_MAX = SL_CHUNK_ENTRIES_MAX };

/* --- changes -------------------------------------------------------------------------------------- */

void sl_step_begin(sl_step *step)
{
    step->row_count = 0;
    step->row = 0;
    step->nodes_size = 0;
    step->large_count = 0;
    step->change_count = 0;
    step->batch_size = 0;
    step->locators_size = 0;
}

/* Two writers behind the batch gathered so far; change_end takes over what they wrote. */
static sl_writer batch_writer(sl_step *step)
{
    return (sl_writer){step->batch, SL_STEP_BATCH_SIZE, (size_t)step->batch_size, false};
}

static sl_writer locators_writer(sl_step *step)
{
    return (sl_writer){step->locators, SL_STEP_BATCH_SIZE, (size_t)step->locators_size, false};
}

static int change_end(sl_step *step, const sl_writer *batch, const sl_writer *locators)
{
    if (batch->full || locators->full) {
        return SL_FALLBACK;
    }
    step->batch_size = batch->at;
    step->locators_size = locators->at;
    step->change_count++;
    return SL_OK;
}

int sl_step_put(sl_step *step, const uint8_t *key, size_t key_size, const uint8_t *item, size_t item_size)
{
    sl_item head;
    sl_reader in = sl_reader_of(item, item_size);
    SL_REQUIRE(sl_item_open(&in, &head));
    if (item_size > SL_INLINE_SIZE_MAX && head.shape == SL_ITEM_LIST) {
        return SL_FALLBACK; /* a tree, perhaps one that keeps keys */
    }
    sl_writer batch = batch_writer(step);
    sl_writer locators = locators_writer(step);
    sl_put(&batch, key, key_size);
    int status = sl_step_put_slot(step, item, item_size, true, 0, &batch, &locators);
    return status == SL_OK ? change_end(step, &batch, &locators) : status;
}

int sl_step_add(sl_step *step, const uint8_t *key, size_t key_size, const uint8_t *item, size_t item_size,
                const uint8_t *state, size_t state_size, size_t state_content_size)
{
    sl_key_hit hit;
    uint8_t sum[2 * SL_INLINE_SIZE_MAX];
    sl_output out = {sum, sizeof sum, 0, 0};
    if (item_size > SL_INLINE_SIZE_MAX) {
        return SL_FALLBACK;
    }
    int status = sl_find_key(state, state_size, state_content_size, 0, 1, SL_KIND_DICT, key, key_size, &hit);
    if (status != SL_OK) {
        return status;
    }
    if (hit.found == 0) { /* new, or below the root's own entries: then it is no step for sl_tail_merge either */
        return sl_step_put(step, key, key_size, item, item_size);
    }
    const uint8_t *held = state + hit.slot_at;
    if (held[0] >= SL_REF_LEAF) {
        return SL_FALLBACK;
    }
    status = sl_add(held, (size_t)(hit.end - hit.slot_at), item, item_size, &out);
    return status == SL_OK ? sl_step_put(step, key, key_size, sum, out.size) : SL_FALLBACK;
}

int sl_step_put_once(sl_step *step, const uint8_t *key, size_t key_size, const uint8_t *item, size_t item_size,
                     const uint8_t *state, size_t state_size, size_t state_content_size)
{
    sl_key_hit hit;
    int status = sl_find_key(state, state_size, state_content_size, 0, 1, SL_KIND_DICT, key, key_size, &hit);
    return status != SL_OK ? status : hit.found ? SL_FALLBACK : sl_step_put(step, key, key_size, item, item_size);
}

int sl_step_remove(sl_step *step, const uint8_t *key, size_t key_size)
{
    sl_writer batch = batch_writer(step);
    sl_writer locators = locators_writer(step);
    sl_put(&batch, key, key_size);
    sl_put_byte(&batch, SL_BATCH_DELETE);
    return change_end(step, &batch, &locators);
}

/* The fingerprint of an item of a keyed list, big-endian. */
static int put_fingerprint(const uint8_t *item, size_t size, const uint8_t *key, size_t key_size, sl_writer *entries)
{
    uint64_t span[2];
    int status = sl_cbor_map_get(item, size, key, key_size, span);
    if (status != SL_OK) {
        return SL_FALLBACK;
    }
    sl_put_be(entries, sl_content_hash(item + span[0], (size_t)(span[1] - span[0])) & UINT16_MAX, 2);
    return SL_OK;
}

int sl_step_prints(const uint8_t *items, size_t items_size, const uint8_t *key, size_t key_size,
                   const uint8_t *prints, size_t prints_size, sl_output *out)
{
    sl_writer added = sl_writer_of(out);
    sl_reader in = sl_reader_of(items, items_size);
    while (in.at < items_size && !added.full) {
        size_t at = in.at;
        size_t before = added.at;
        SL_REQUIRE(sl_item_skip(&in));
        int status = put_fingerprint(items + at, in.at - at, key, key_size, &added);
        if (status != SL_OK) {
            return status;
        }
        if (!added.full) {
            uint32_t fingerprint = (uint32_t)sl_load_be(added.bytes + before, 2);
            if (sl_prints_find(prints, prints_size, fingerprint, 0) >= 0 ||
                sl_prints_find(added.bytes, before, fingerprint, 0) >= 0) {
                return SL_FALLBACK;
            }
        }
    }
    return sl_finish(&added, added.at, out);
}

int sl_step_append(sl_step *step, const uint8_t *key, size_t key_size, const uint8_t *items, size_t items_size,
                   uint64_t count, int kind, const sl_node_view *root, const sl_node_view *opens)
{
    uint8_t entry_bytes[ITEMS_MAX * SL_STEP_ENTRY_SIZE_MAX];
    uint8_t locator_bytes[ITEMS_MAX * SL_STEP_LOCATOR_SIZE_MAX];
    uint8_t name[3 + 255]; /* the key of a keyed list as an item */
    sl_entry_row added = {
        {entry_bytes, sizeof entry_bytes, 0, false}, {locator_bytes, sizeof locator_bytes, 0, false}, count};
    sl_writer name_writer = {name, sizeof name, 0, false};
    sl_root parsed;
    memset(step->opens, 0, sizeof step->opens);
    int status = sl_root_parse(root->bytes, root->size, root->content_size, root->lsn, &parsed);
    if (status != SL_OK || parsed.head.kind != (uint64_t)kind || count > ITEMS_MAX) {
        return status != SL_OK ? status : SL_FALLBACK;
    }
    if (kind == SL_KIND_KEYED) {
        sl_put_head(&name_writer, 3, parsed.head.key_size);
        sl_put(&name_writer, root->bytes + parsed.head.key_at, (size_t)parsed.head.key_size);
    }
    sl_reader in = sl_reader_of(items, items_size);
    for (uint64_t i = 0; i < count && status == SL_OK; i++) {
        size_t at = in.at;
        SL_REQUIRE(sl_item_skip(&in));
        if (kind == SL_KIND_KEYED) {
            status = put_fingerprint(items + at, in.at - at, name, name_writer.at, &added.entries);
        }
        if (status == SL_OK) {
            status = sl_step_put_slot(step, items + at, in.at - at, false, 0, &added.entries, &added.locators);
        }
    }
    if (status != SL_OK) {
        return status;
    }
    SL_REQUIRE(in.at == items_size);
    assert(!added.entries.full && !added.locators.full);

    sl_output space = sl_step_room(step);
    status = sl_tail_append(root->bytes, root->size, root->content_size, root->lsn, entry_bytes, added.entries.at,
                            locator_bytes, added.locators.at, count, &space);
    if (status == SL_OK) {
        status = sl_step_take_node(step, SL_NODE_ROOT, space.size, space.content_size);
    } else if (status == SL_FALLBACK) {
        status = sl_step_append_closing(step, root, &parsed.head, opens, &added);
    }
    if (status != SL_OK) {
        return status == SL_SPACE ? SL_FALLBACK : status;
    }
    sl_writer batch = batch_writer(step);
    sl_writer batch_locators = locators_writer(step);
    sl_put(&batch, key, key_size);
    sl_step_put_ref(&batch, &batch_locators, SL_REF_ROOT, step);
    return change_end(step, &batch, &batch_locators);
}

int sl_step_finish(sl_step *step, const sl_node_view *state, const sl_node_view *opens, const uint8_t *state_digest)
{
    sl_output space = sl_step_room(step);
    memset(step->opens, 0, sizeof step->opens);
    int status = sl_tail_merge(state->bytes, state->size, state->content_size, state->lsn, step->batch,
                               (size_t)step->batch_size, step->locators, (size_t)step->locators_size,
                               step->change_count, &space);
    if (status == SL_OK) {
        status = space.bytes[0] == SL_KIND_DICT ? sl_step_take_node(step, SL_NODE_ROOT, space.size, space.content_size)
                                                : SL_MALFORMED;
    } else if (status == SL_FALLBACK && state->bytes[0] == SL_KIND_DICT) {
        status = sl_step_merge_closing(step, state, opens);
    }
    if (status != SL_OK) {
        return status == SL_SPACE ? SL_FALLBACK : status;
    }
    return memcmp(sl_step_row_digest(step, step->row), state_digest, SL_DIGEST_SIZE) == 0 ? SL_ABSENT : SL_OK;
}
