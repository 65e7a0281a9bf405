/* What one commit changes in a state, where no chunk closes but at the end of a list: the common commit, in a few calls.
 *
 * Trust: none. A step gathers the nodes of a record in the making; a locator with LSN 0 names one of its rows.
 * Invariants: what a step makes is what the general path makes of the same writes, node for node; where that
 * path would do more (cut a string, build a large tree, close a chunk of a map or of a level above the first) it answers
 * SL_FALLBACK; and the caller looks for a large leaf in the whole store. tests/native compares the two.
 */
#include "internal.h"

enum {
    ITEMS_MAX = SL_CHUNK_ENTRIES_MAX,
    ENTRY_SIZE_MAX = 2 + SL_INLINE_SIZE_MAX, /* with the fingerprint of a keyed list */
    OWN_LOCATOR_SIZE_MAX = SL_STEP_LOCATOR_SIZE_MAX,
    LOCATOR_SIZE_MAX = 10 + 5,
};

enum { /* of a tail that closes chunks */
    CLOSED_MAX = 2 * ITEMS_MAX / SL_CHUNK_ENTRIES_MIN,
    SUMMARY_SIZE_MAX = 10 + SL_DIGEST_SIZE + 2 * SL_CHUNK_ENTRIES_MAX, /* with the fingerprints of a keyed list */
    TAIL_SIZE_MAX = SL_CHUNK_SIZE_CLOSE + ITEMS_MAX * ENTRY_SIZE_MAX,
    TAIL_LOCATORS_SIZE_MAX = ITEMS_MAX * (LOCATOR_SIZE_MAX + OWN_LOCATOR_SIZE_MAX),
    ABOVE_SIZE_MAX = CLOSED_MAX * SUMMARY_SIZE_MAX,
    ABOVE_LOCATORS_SIZE_MAX = CLOSED_MAX * OWN_LOCATOR_SIZE_MAX
};
_Static_assert(TAIL_SIZE_MAX + TAIL_LOCATORS_SIZE_MAX + ABOVE_SIZE_MAX + ABOVE_LOCATORS_SIZE_MAX <= SL_STEP_SCRATCH_SIZE,
               "the scratch is too small");

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

/* --- chunks that close ------------------------------------------------------------------------------ */

/* A node that was read. */
typedef struct {
    const uint8_t *bytes;
    size_t size;
    size_t content_size;
    uint64_t lsn;
} node_view;

/* Entries of one level and their locators, gathered. */
typedef struct {
    sl_writer entries;
    sl_writer locators;
    uint64_t count;
} entry_row;

static entry_row row_in(uint8_t *space, size_t entries_size, size_t locators_size, uint64_t count)
{
    return (entry_row){{space, entries_size, 0, false}, {space + entries_size, locators_size, 0, false}, count};
}

static bool is_full(const entry_row *row) { return row->entries.full || row->locators.full; }

/* Begin a chunk of `count` entries in the room. */
static sl_writer chunk_begin(sl_step *step, int kind, unsigned level, uint64_t count)
{
    sl_output space = sl_step_room(step);
    sl_writer chunk = sl_writer_of(&space);
    sl_put_byte(&chunk, (unsigned)kind);
    sl_put_byte(&chunk, level);
    sl_put_varint(&chunk, count);
    return chunk;
}

static int chunk_end(sl_step *step, const sl_writer *chunk, size_t content_size)
{
    return chunk->full ? SL_FALLBACK : sl_step_take_node(step, SL_NODE_CHUNK, chunk->at, content_size);
}

/* Make a node of each chunk that closes in `tail`, put what stands for it into `above`, and tell where the rest begins. */
static int close_chunks(sl_step *step, int kind, const entry_row *tail, entry_row *above, sl_boundary *rest)
{
    sl_boundary closes[CLOSED_MAX];
    uint64_t closed = 0;
    int status = sl_boundaries(kind, 0, tail->entries.bytes, tail->entries.at, tail->locators.bytes, tail->locators.at,
                               tail->count, closes, CLOSED_MAX, &closed);
    *rest = (sl_boundary){0, 0, 0};
    for (uint64_t i = 0; i < closed && status == SL_OK; i++) {
        sl_writer chunk = chunk_begin(step, kind, 0, closes[i].entries_end - rest->entries_end);
        sl_put(&chunk, tail->entries.bytes + rest->byte_end, (size_t)(closes[i].byte_end - rest->byte_end));
        size_t content_size = chunk.at;
        sl_put(&chunk, tail->locators.bytes + rest->locator_byte_end,
               (size_t)(closes[i].locator_byte_end - rest->locator_byte_end));
        status = chunk_end(step, &chunk, content_size);
        if (status == SL_OK) {
            uint8_t summary[SUMMARY_SIZE_MAX];
            sl_output out = {summary, sizeof summary, 0, 0};
            status = sl_chunk_summary(step->nodes + step->at, (size_t)(step->end - step->at),
                                      (size_t)(step->content_end - step->at), kind, sl_step_row_digest(step, step->row), &out);
            sl_put(&above->entries, summary, out.size);
            sl_put_locator(&above->locators, 0, step->row);
            above->count++;
        }
        *rest = closes[i];
    }
    return status;
}

/* Make the node of the open first level: what it was, if it was any, and what has closed below; SL_FALLBACK where it
 * would close, too. */
static int extend_level(sl_step *step, int kind, const sl_level *level, const node_view *open, const entry_row *above,
                        uint64_t *covered)
{
    sl_entries it = {0};
    size_t begin = 0;
    uint64_t held = 0;
    *covered = 0;
    if (level->covered > 0) {
        int status = open->size == 0 ? SL_FALLBACK
                                     : sl_entries_open(&it, open->bytes, open->size, open->content_size, open->lsn,
                                                           false, kind);
        if (status != SL_OK) {
            return status;
        }
        begin = it.in.at;
        held = it.left;
    }
    sl_writer chunk = chunk_begin(step, kind, 1, held + above->count);
    size_t entries_at = chunk.at;
    if (held > 0) {
        sl_put(&chunk, open->bytes + begin, open->content_size - begin);
    }
    sl_put(&chunk, above->entries.bytes, above->entries.at);
    size_t content_size = chunk.at;
    if (held > 0) {
        sl_reader locators = {open->bytes, open->size, open->content_size};
        SL_REQUIRE(it.level == 1 && sl_copy_locators(&chunk, locators, open->size, open->lsn) == SL_OK);
    }
    sl_put(&chunk, above->locators.bytes, above->locators.at);
    if (chunk.full || held + above->count > SL_CHUNK_ENTRIES_MAX) {
        return SL_FALLBACK;
    }
    int status = sl_entries_open(&it, chunk.bytes, chunk.at, content_size, 0, false, kind);
    while (status == SL_OK && (status = sl_entries_next(&it)) == SL_OK) {
        *covered += it.covered;
        SL_REQUIRE(it.index_next != held || *covered == level->covered);
        if (it.index_next > held && sl_chunk_closes(&it, it.index_next, it.in.at - entries_at)) {
            return SL_FALLBACK;
        }
    }
    return status == SL_END ? chunk_end(step, &chunk, content_size) : status;
}

/* Append to a list where a chunk closes; `added` are the new entries. */
static int append_closing(sl_step *step, const node_view *root, const sl_root *parsed, const node_view *open,
                          const entry_row *added)
{
    const sl_root_head *head = &parsed->head;
    int kind = (int)head->kind;
    size_t tail_at = (size_t)head->tail_at;
    entry_row tail = row_in(step->scratch, TAIL_SIZE_MAX, TAIL_LOCATORS_SIZE_MAX, head->tail_count + added->count);
    entry_row above = row_in(tail.locators.bytes + TAIL_LOCATORS_SIZE_MAX, ABOVE_SIZE_MAX, ABOVE_LOCATORS_SIZE_MAX, 0);
    sl_reader locators = {root->bytes, root->size, (size_t)head->tail_locators_at};
    sl_put(&tail.entries, root->bytes + tail_at, root->content_size - tail_at);
    sl_put(&tail.entries, added->entries.bytes, added->entries.at);
    SL_REQUIRE(sl_copy_locators(&tail.locators, locators, root->size, root->lsn) == SL_OK);
    sl_put(&tail.locators, added->locators.bytes, added->locators.at);
    if (is_full(&tail)) {
        return SL_FALLBACK;
    }
    static const sl_level no_level = {0};
    uint64_t levels = head->level_count;
    const sl_level *lowest = levels > 0 ? &head->levels[levels - 1] : &no_level;
    uint64_t covered;
    sl_boundary rest;
    int status = close_chunks(step, kind, &tail, &above, &rest);
    if (status == SL_OK) {
        status = is_full(&above) ? SL_FALLBACK : extend_level(step, kind, lowest, open, &above, &covered);
    }
    if (status != SL_OK) {
        return status;
    }
    step->open_at = step->at;
    step->open_content_end = step->content_end;
    step->open_end = step->end;

    sl_output space = sl_step_room(step);
    sl_writer made = sl_writer_of(&space);
    sl_put(&made, root->bytes, (size_t)(head->key_at + head->key_size));
    sl_put_varint(&made, head->count + added->count);
    sl_put_varint(&made, levels > 0 ? levels : 1);
    for (uint64_t i = 0; i + 1 < levels; i++) {
        sl_put_varint(&made, head->levels[i].covered);
        sl_put(&made, root->bytes + head->levels[i].digest_at, head->levels[i].covered > 0 ? SL_DIGEST_SIZE : 0);
    }
    sl_put_varint(&made, covered);
    sl_put(&made, sl_step_row_digest(step, step->row), SL_DIGEST_SIZE);
    sl_put_varint(&made, tail.count - rest.entries_end);
    sl_put(&made, tail.entries.bytes + rest.byte_end, tail.entries.at - (size_t)rest.byte_end);
    size_t content_size = made.at;
    for (uint64_t i = 0; i + 1 < levels; i++) {
        if (head->levels[i].covered > 0) {
            sl_put_locator(&made, head->levels[i].lsn, head->levels[i].node);
        }
    }
    sl_put_locator(&made, 0, step->row);
    sl_put(&made, tail.locators.bytes + rest.locator_byte_end, tail.locators.at - (size_t)rest.locator_byte_end);
    return made.full ? SL_FALLBACK : sl_step_take_node(step, SL_NODE_ROOT, made.at, content_size);
}

int sl_step_append(sl_step *step, const uint8_t *key, size_t key_size, const uint8_t *items, size_t items_size,
                   uint64_t count, int kind, const uint8_t *root, size_t root_size, size_t root_content_size,
                   uint64_t root_lsn, const uint8_t *open, size_t open_size, size_t open_content_size,
                   uint64_t open_lsn)
{
    uint8_t entry_bytes[ITEMS_MAX * ENTRY_SIZE_MAX];
    uint8_t locator_bytes[ITEMS_MAX * OWN_LOCATOR_SIZE_MAX];
    uint8_t name[3 + 255]; /* the key of a keyed list as an item */
    entry_row added = {
        {entry_bytes, sizeof entry_bytes, 0, false}, {locator_bytes, sizeof locator_bytes, 0, false}, count};
    sl_writer name_writer = {name, sizeof name, 0, false};
    sl_root parsed;
    node_view root_view = {root, root_size, root_content_size, root_lsn};
    node_view open_view = {open, open_size, open_content_size, open_lsn};
    step->open_at = step->open_content_end = step->open_end = 0;
    int status = sl_root_parse(root, root_size, root_content_size, root_lsn, &parsed);
    if (status != SL_OK || parsed.head.kind != (uint64_t)kind || count > ITEMS_MAX) {
        return status != SL_OK ? status : SL_FALLBACK;
    }
    if (kind == SL_KIND_KEYED) {
        sl_put_head(&name_writer, 3, parsed.head.key_size);
        sl_put(&name_writer, root + parsed.head.key_at, (size_t)parsed.head.key_size);
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
    assert(!is_full(&added));

    sl_output space = sl_step_room(step);
    status = sl_tail_append(root, root_size, root_content_size, root_lsn, entry_bytes, added.entries.at, locator_bytes,
                            added.locators.at, count, &space);
    if (status == SL_OK) {
        status = sl_step_take_node(step, SL_NODE_ROOT, space.size, space.content_size);
    } else if (status == SL_FALLBACK) {
        status = append_closing(step, &root_view, &parsed, &open_view, &added);
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

int sl_step_finish(sl_step *step, const uint8_t *state, size_t state_size, size_t state_content_size,
                   uint64_t state_lsn, const uint8_t *state_digest)
{
    sl_output space = sl_step_room(step);
    int status = sl_tail_merge(state, state_size, state_content_size, state_lsn, step->batch, (size_t)step->batch_size,
                               step->locators, (size_t)step->locators_size, step->change_count, &space);
    if (status == SL_OK && space.bytes[0] != SL_KIND_DICT) {
        return SL_MALFORMED;
    }
    if (status == SL_OK) {
        status = sl_step_take_node(step, SL_NODE_ROOT, space.size, space.content_size);
    }
    if (status != SL_OK) {
        return status == SL_SPACE ? SL_FALLBACK : status;
    }
    return memcmp(sl_step_row_digest(step, step->row), state_digest, SL_DIGEST_SIZE) == 0 ? SL_ABSENT : SL_OK;
}
