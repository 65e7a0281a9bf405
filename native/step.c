/* Applies the changes of a step to a state, if chunks close only at the end of a list or dict.
 *
 * Trust: none. A step gathers the nodes of the record being made. A locator with LSN 0 refers to a row of the
 * step.
 * Invariants: a step makes the same nodes as the general path does from the same writes. If that path would do
 * more (cut a string, build a large tree, close an inner chunk of a map), the step returns SL_FALLBACK. The
 * caller looks up large leaves in the whole store. tests/native compares the two paths. */
#include "internal.h"

enum { ITEMS_MAX = SL_CHUNK_ENTRIES_MAX, LARGE_SIZE_MIN = 4096 };

/* One change, as the caller encodes it: see sl_step_make. */
typedef struct {
    unsigned operation;
    uint64_t count;
    const uint8_t *key;
    size_t key_size;
    const uint8_t *name;
    size_t name_size;
    const uint8_t *payload;
    size_t payload_size;
} change;

/* --- changes -------------------------------------------------------------------------------------- */

/* Return a writer that continues the batch. Its output joins the batch with change_end. */
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

static int find_in(const sl_node_view *state, const uint8_t *key, size_t key_size, sl_key_hit *hit)
{
    return sl_find_key(state->bytes, state->size, state->content_size, state->lsn, 1, SL_KIND_DICT, key, key_size, hit);
}

static int put(sl_step *step, const change *of, const uint8_t *item, size_t size)
{
    sl_writer batch = batch_writer(step);
    sl_writer locators = locators_writer(step);
    sl_put(&batch, of->key, of->key_size);
    int status = sl_step_put_slot(step, item, size, true, 0, &batch, &locators);
    return status == SL_OK ? change_end(step, &batch, &locators) : status;
}

/* Replace a channel's value with an item. A large list takes the general path, which reuses the nodes that the old
 * and the new tree share, unless the root itself shows that the old value is not a tree. */
static int replace(sl_step *step, const change *of, const sl_node_view *state)
{
    sl_item head;
    sl_key_hit hit;
    sl_reader in = sl_reader_of(of->payload, of->payload_size);
    SL_REQUIRE(sl_item_open(&in, &head));
    if (of->payload_size > LARGE_SIZE_MIN && head.shape == SL_ITEM_LIST) {
        int status = find_in(state, of->key, of->key_size, &hit);
        if (status != SL_OK || hit.found == 0 || state->bytes[hit.slot_at] == SL_REF_ROOT) {
            return status != SL_OK ? status : SL_FALLBACK;
        }
    }
    return put(step, of, of->payload, of->payload_size);
}

static int add(sl_step *step, const change *of, const sl_node_view *state)
{
    sl_key_hit hit;
    uint8_t sum[2 * SL_INLINE_SIZE_MAX];
    sl_output out = {sum, sizeof sum, 0, 0};
    if (of->payload_size > SL_INLINE_SIZE_MAX) {
        return SL_FALLBACK;
    }
    int status = find_in(state, of->key, of->key_size, &hit);
    if (status != SL_OK) {
        return status;
    }
    /* The key is new, or in a chunk below the root. In the second case, the merge returns SL_FALLBACK later. */
    if (hit.found == 0) {
        return put(step, of, of->payload, of->payload_size);
    }
    const uint8_t *held = state->bytes + hit.slot_at;
    if (held[0] >= SL_REF_LEAF) {
        return SL_FALLBACK;
    }
    status = sl_add(held, (size_t)(hit.end - hit.slot_at), of->payload, of->payload_size, &out);
    return status == SL_OK ? put(step, of, sum, out.size) : SL_FALLBACK;
}

/* Put a value. Return SL_FALLBACK if the channel already has a value, which the general path keeps or merges. */
static int put_once(sl_step *step, const change *of, const sl_node_view *state)
{
    sl_key_hit hit;
    int status = find_in(state, of->key, of->key_size, &hit);
    return status != SL_OK ? status : hit.found ? SL_FALLBACK : put(step, of, of->payload, of->payload_size);
}

static int take_out(sl_step *step, const change *of)
{
    sl_writer batch = batch_writer(step);
    sl_writer locators = locators_writer(step);
    sl_put(&batch, of->key, of->key_size);
    sl_put_byte(&batch, SL_BATCH_DELETE);
    return change_end(step, &batch, &locators);
}

int sl_step_find_list(const sl_node_view *state, const uint8_t *key, size_t key_size, sl_key_hit *hit)
{
    int status = find_in(state, key, key_size, hit);
    return status != SL_OK                                                  ? status
           : hit->found == 0 || state->bytes[hit->slot_at] != SL_REF_ROOT ? SL_ABSENT
                                                                            : SL_OK;
}

/* Write an item's fingerprint in a keyed list, big-endian. */
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

/* Write the slots of the appended items, and in a keyed list their fingerprints, into `added`. */
static int put_items(sl_step *step, const change *of, sl_entry_row *added)
{
    int status = SL_OK;
    sl_reader in = sl_reader_of(of->payload, of->payload_size);
    for (uint64_t i = 0; i < of->count && status == SL_OK; i++) {
        size_t at = in.at;
        SL_REQUIRE(sl_item_skip(&in));
        if (of->name_size > 0) {
            status = put_fingerprint(in.bytes + at, in.at - at, of->name, of->name_size, &added->entries);
        }
        if (status == SL_OK) {
            status = sl_step_put_slot(step, in.bytes + at, in.at - at, false, 0, &added->entries, &added->locators);
        }
    }
    SL_REQUIRE(status != SL_OK || in.at == of->payload_size);
    assert(!added->entries.full && !added->locators.full);
    return status;
}

static bool is_list_of(const sl_node_view *root, const sl_root_head *head, const change *of)
{
    uint8_t name[3 + 255]; /* The key of a keyed list as an item. */
    sl_writer writer = {name, sizeof name, 0, false};
    if (of->name_size == 0) {
        return head->kind == SL_KIND_LIST;
    }
    sl_put_head(&writer, 3, head->key_size);
    sl_put(&writer, root->bytes + head->key_at, (size_t)head->key_size);
    return head->kind == SL_KIND_KEYED && sl_bytes_compare(name, writer.at, of->name, of->name_size) == 0;
}

static int append(sl_step *step, const change *of, const sl_node_view *state)
{
    uint8_t entry_bytes[ITEMS_MAX * SL_STEP_ENTRY_SIZE_MAX];
    uint8_t locator_bytes[ITEMS_MAX * SL_STEP_LOCATOR_SIZE_MAX];
    sl_entry_row added = {
        {entry_bytes, sizeof entry_bytes, 0, false}, {locator_bytes, sizeof locator_bytes, 0, false}, of->count};
    sl_key_hit hit;
    sl_node_view root;
    sl_root parsed;
    if (of->count > ITEMS_MAX) {
        return SL_FALLBACK;
    }
    int status = sl_step_find_list(state, of->key, of->key_size, &hit);
    if (status != SL_OK) {
        return status == SL_ABSENT ? SL_FALLBACK : status;
    }
    const uint8_t *digest = state->bytes + hit.slot_at + 1;
    status = sl_step_node(step, SL_NODE_ROOT, digest, hit.lsn, hit.node, &root);
    if (status == SL_OK) {
        status = sl_root_parse(root.bytes, root.size, root.content_size, root.lsn, &parsed);
    }
    if (status != SL_OK || !is_list_of(&root, &parsed.head, of)) {
        return status != SL_OK ? status : SL_FALLBACK;
    }
    status = put_items(step, of, &added);
    if (status != SL_OK) {
        return status;
    }

    sl_output space = sl_step_room(step);
    status = sl_tail_append(root.bytes, root.size, root.content_size, root.lsn, entry_bytes, added.entries.at,
                            locator_bytes, added.locators.at, of->count, &space);
    if (status == SL_OK) {
        status = sl_step_take_node(step, SL_NODE_ROOT, space.size, space.content_size);
    } else if (status == SL_FALLBACK) {
        status = sl_step_append_closing(step, &root, &parsed.head, &added);
    }
    if (status != SL_OK) {
        return status == SL_SPACE ? SL_FALLBACK : status;
    }
    if (step->list_count < SL_STEP_LISTS_MAX) {
        step->lists_before[step->list_count] = digest;
        step->list_rows[step->list_count++] = step->row;
    }
    sl_writer batch = batch_writer(step);
    sl_writer batch_locators = locators_writer(step);
    sl_put(&batch, of->key, of->key_size);
    sl_step_put_ref(&batch, &batch_locators, SL_REF_ROOT, step);
    return change_end(step, &batch, &batch_locators);
}

/* --- all of them ---------------------------------------------------------------------------------- */

static bool read_change(sl_reader *in, change *next)
{
    enum { SIZE = 1 + 4 + 2 + 2 + 4 };
    if (!sl_has(in, SIZE)) {
        return false;
    }
    const uint8_t *sizes = in->bytes + in->at;
    next->operation = sizes[0];
    next->count = sl_load_be(sizes + 1, 4);
    next->key_size = (size_t)sl_load_be(sizes + 5, 2);
    next->name_size = (size_t)sl_load_be(sizes + 7, 2);
    next->payload_size = (size_t)sl_load_be(sizes + 9, 4);
    next->key = sizes + SIZE;
    next->name = next->key + next->key_size;
    next->payload = next->name + next->name_size;
    return sl_skip(in, (uint64_t)SIZE + next->key_size + next->name_size + next->payload_size);
}

static int make_change(sl_step *step, const change *next, const sl_node_view *state)
{
    switch (next->operation) {
    case SL_STEP_PUT:
        return replace(step, next, state);
    case SL_STEP_ADD:
        return add(step, next, state);
    case SL_STEP_APPEND:
        return append(step, next, state);
    case SL_STEP_PUT_ONCE:
        return put_once(step, next, state);
    case SL_STEP_REMOVE:
        return take_out(step, next);
    default:
        return SL_USAGE;
    }
}

int sl_step_change(sl_step *step, const sl_node_view *state, const uint8_t *state_digest, const uint8_t *changes,
                   size_t changes_size)
{
    sl_reader in = sl_reader_of(changes, changes_size);
    while (in.at < in.len) {
        change next;
        SL_REQUIRE(read_change(&in, &next));
        int status = make_change(step, &next, state);
        if (status != SL_OK) {
            return status;
        }
    }
    sl_output space = sl_step_room(step);
    int status = sl_tail_merge(state->bytes, state->size, state->content_size, state->lsn, step->batch,
                               (size_t)step->batch_size, step->locators, (size_t)step->locators_size,
                               step->change_count, &space);
    if (status == SL_OK) {
        status = space.bytes[0] == SL_KIND_DICT ? sl_step_take_node(step, SL_NODE_ROOT, space.size, space.content_size)
                                                : SL_MALFORMED;
    } else if (status == SL_FALLBACK && state->bytes[0] == SL_KIND_DICT) {
        status = sl_step_merge_closing(step, state);
    }
    if (status != SL_OK) {
        return status == SL_SPACE ? SL_FALLBACK : status;
    }
    return memcmp(step->digest, state_digest, SL_DIGEST_SIZE) == 0 ? SL_ABSENT : SL_OK;
}
