/* Closes chunks at the end of a list or dict during a step, and produces the same bytes as
 * statelog/tree/builder.py (FORMAT.md 4.2 to 4.5).
 *
 * Trust: none.
 * Invariant: a step closes chunks of entries and of SL_STEP_LEVELS - 1 levels above them. When these chunks close,
 * the next level receives an entry for each of them. If this makes a chunk of the next level close, the result is
 * SL_FALLBACK. If an open node is not held, the result is SL_WANTED. */
#include "internal.h"

enum {
    LEVELS = SL_STEP_LEVELS,
    /* The maximum number of chunks of a level that close in one step. */
    CLOSED_MAX = 2 * SL_CHUNK_ENTRIES_MAX / SL_CHUNK_ENTRIES_MIN,
    LOCATOR_SIZE_MAX = SL_STEP_LOCATOR_SIZE_MAX,
    /* The summary includes the fingerprints of a keyed list. */
    SUMMARY_SIZE_MAX = 10 + SL_DIGEST_SIZE + 2 * SL_CHUNK_ENTRIES_MAX,
    ITEMS_SIZE_MAX = SL_CHUNK_SIZE_CLOSE + SL_CHUNK_ENTRIES_MAX * SL_STEP_ENTRY_SIZE_MAX,
    ITEM_LOCATORS_SIZE_MAX = SL_CHUNK_ENTRIES_MAX * (LOCATOR_SIZE_MAX + SL_STEP_LOCATOR_SIZE_MAX),
    LEVEL_SIZE_MAX = SL_CHUNK_SIZE_CLOSE + CLOSED_MAX * SUMMARY_SIZE_MAX,
    LEVEL_LOCATORS_SIZE_MAX = SL_CHUNK_ENTRIES_MAX * LOCATOR_SIZE_MAX + CLOSED_MAX * SL_STEP_LOCATOR_SIZE_MAX
};
_Static_assert(ITEMS_SIZE_MAX + ITEM_LOCATORS_SIZE_MAX + LEVELS * (LEVEL_SIZE_MAX + LEVEL_LOCATORS_SIZE_MAX) <=
                   SL_STEP_SCRATCH_SIZE,
               "the scratch is too small");

/* A level in progress: its open entries, including the new ones, and the chunks that close among them. */
typedef struct {
    sl_entry_row row;
    sl_boundary closes[CLOSED_MAX];
    uint64_t closed;
    sl_boundary rest; /* The beginning of the entries that stay open. */
    uint64_t covered; /* The number of level-0 entries below the open part. */
    uint64_t node;    /* The row of the open part's node, if it has entries. */
} level_made;

static bool is_full(const sl_entry_row *row) { return row->entries.full || row->locators.full; }

static sl_entry_row row_in(uint8_t *space, size_t entries_size, size_t locators_size)
{
    return (sl_entry_row){{space, entries_size, 0, false}, {space + entries_size, locators_size, 0, false}, 0};
}

/* Return what the root stores about level `number`, or NULL if it has fewer levels. */
static const sl_level *level_of(const sl_root_head *head, unsigned number)
{
    return number <= head->level_count ? &head->levels[head->level_count - number] : NULL;
}

/* Read the open node of one level of a root. */
static int open_of(sl_step *step, const sl_node_view *root, const sl_level *level, sl_node_view *open)
{
    return sl_step_node(step, SL_NODE_CHUNK, root->bytes + level->digest_at, level->lsn, level->node, open);
}

/* Copy the entries of a level's open node into the level's row. Check the number of entries that they cover. */
static int put_open(sl_entry_row *row, int kind, unsigned number, const sl_level *level, const sl_node_view *open)
{
    sl_entries it;
    uint64_t covered = 0;
    int status = sl_entries_open(&it, open->bytes, open->size, open->content_size, open->lsn, false, kind);
    if (status != SL_OK) {
        return status;
    }
    size_t begin = it.in.at;
    row->count = it.left;
    SL_REQUIRE(it.level == number);
    while ((status = sl_entries_next(&it)) == SL_OK) {
        covered += it.covered;
    }
    SL_REQUIRE(status == SL_END && covered == level->covered);
    sl_put(&row->entries, open->bytes + begin, open->content_size - begin);
    sl_reader locators = {open->bytes, open->size, open->content_size};
    SL_REQUIRE(sl_copy_locators(&row->locators, locators, open->size, open->lsn) == SL_OK);
    return is_full(row) ? SL_FALLBACK : SL_OK;
}

/* Make a chunk from the entries between two boundaries. */
static int take_chunk(sl_step *step, int kind, unsigned number, const sl_entry_row *row, const sl_boundary *begin,
                      const sl_boundary *end)
{
    sl_output space = sl_step_room(step);
    sl_writer chunk = sl_writer_of(&space);
    sl_put_byte(&chunk, (unsigned)kind);
    sl_put_byte(&chunk, number);
    sl_put_varint(&chunk, end->entries_end - begin->entries_end);
    sl_put(&chunk, row->entries.bytes + begin->byte_end, (size_t)(end->byte_end - begin->byte_end));
    size_t content_size = chunk.at;
    sl_put(&chunk, row->locators.bytes + begin->locator_byte_end,
           (size_t)(end->locator_byte_end - begin->locator_byte_end));
    return chunk.full ? SL_FALLBACK : sl_step_take_node(step, SL_NODE_CHUNK, chunk.at, content_size);
}

/* Make a node from each closed chunk of a level, and append its entry to the row of the level above. */
static int close_chunks(sl_step *step, int kind, unsigned number, level_made *level, sl_entry_row *above)
{
    int status = SL_OK;
    for (uint64_t i = 0; i < level->closed && status == SL_OK; i++) {
        status = take_chunk(step, kind, number, &level->row, &level->rest, &level->closes[i]);
        level->rest = level->closes[i];
        if (status == SL_OK) {
            uint8_t summary[SUMMARY_SIZE_MAX];
            sl_output out = {summary, sizeof summary, 0, 0};
            status = sl_chunk_summary(step->nodes + step->at, (size_t)(step->end - step->at),
                                      (size_t)(step->content_end - step->at), kind, sl_step_row_digest(step, step->row), &out);
            sl_put(&above->entries, summary, out.size);
            sl_put_locator(&above->locators, 0, step->row);
            above->count++;
        }
    }
    return status == SL_OK && is_full(above) ? SL_FALLBACK : status;
}

/* Make the node of a level's open part, if it has entries. */
static int take_rest(sl_step *step, int kind, unsigned number, level_made *level)
{
    sl_entries it;
    const sl_entry_row *row = &level->row;
    const sl_boundary end = {row->count, row->entries.at, row->locators.at};
    level->covered = 0;
    if (level->rest.entries_end == row->count) {
        return SL_OK;
    }
    int status = take_chunk(step, kind, number, row, &level->rest, &end);
    if (status == SL_OK) {
        level->node = step->row;
        status = sl_entries_open(&it, step->nodes + step->at, (size_t)(step->end - step->at),
                                 (size_t)(step->content_end - step->at), 0, false, kind);
    }
    while (status == SL_OK && (status = sl_entries_next(&it)) == SL_OK) {
        level->covered += it.covered;
    }
    return status == SL_END ? SL_OK : status;
}

/* Make the root. Its levels up to `top` are new, and the levels above do not change. */
static int take_root(sl_step *step, const sl_node_view *root, const sl_root_head *head, const level_made *levels,
                     unsigned top)
{
    const level_made *tail = &levels[0];
    uint64_t kept = head->level_count > top ? head->level_count - top : 0;
    sl_output space = sl_step_room(step);
    sl_writer made = sl_writer_of(&space);
    sl_put(&made, root->bytes, (size_t)(head->key_at + head->key_size));
    sl_put_varint(&made, head->count - head->tail_count + tail->row.count);
    sl_put_varint(&made, kept + top);
    for (uint64_t i = 0; i < kept; i++) {
        sl_put_varint(&made, head->levels[i].covered);
        sl_put(&made, root->bytes + head->levels[i].digest_at, head->levels[i].covered > 0 ? SL_DIGEST_SIZE : 0);
    }
    for (unsigned number = top; number > 0; number--) {
        sl_put_varint(&made, levels[number].covered);
        if (levels[number].covered > 0) {
            sl_put(&made, sl_step_row_digest(step, levels[number].node), SL_DIGEST_SIZE);
        }
    }
    sl_put_varint(&made, tail->row.count - tail->rest.entries_end);
    sl_put(&made, tail->row.entries.bytes + tail->rest.byte_end, tail->row.entries.at - (size_t)tail->rest.byte_end);
    size_t content_size = made.at;
    for (uint64_t i = 0; i < kept; i++) {
        if (head->levels[i].covered > 0) {
            sl_put_locator(&made, head->levels[i].lsn, head->levels[i].node);
        }
    }
    for (unsigned number = top; number > 0; number--) {
        if (levels[number].covered > 0) {
            sl_put_locator(&made, 0, levels[number].node);
        }
    }
    sl_put(&made, tail->row.locators.bytes + tail->rest.locator_byte_end,
           tail->row.locators.at - (size_t)tail->rest.locator_byte_end);
    return made.full ? SL_FALLBACK : sl_step_take_node(step, SL_NODE_ROOT, made.at, content_size);
}

/* Copy the root's tail, and then the added entries, into `row`. */
static int put_items(sl_entry_row *row, const sl_node_view *root, const sl_root_head *head, const sl_entry_row *added)
{
    size_t tail_at = (size_t)head->tail_at;
    sl_reader locators = {root->bytes, root->size, (size_t)head->tail_locators_at};
    sl_put(&row->entries, root->bytes + tail_at, root->content_size - tail_at);
    sl_put(&row->entries, added->entries.bytes, added->entries.at);
    SL_REQUIRE(sl_copy_locators(&row->locators, locators, root->size, root->lsn) == SL_OK);
    sl_put(&row->locators, added->locators.bytes, added->locators.at);
    row->count = head->tail_count + added->count;
    return is_full(row) ? SL_FALLBACK : SL_OK;
}

static sl_entry_row tail_row(sl_step *step) { return row_in(step->scratch, ITEMS_SIZE_MAX, ITEM_LOCATORS_SIZE_MAX); }

/* Close the chunks of `tail`. Then make the open nodes of the levels above, and the root. */
static int close_levels(sl_step *step, const sl_node_view *root, const sl_root_head *head, const sl_entry_row *tail)
{
    level_made levels[1 + LEVELS] = {0}; /* Level 0 contains the entries. */
    int kind = (int)head->kind;
    uint8_t *space = step->scratch + ITEMS_SIZE_MAX + ITEM_LOCATORS_SIZE_MAX;
    unsigned top = 0;
    int status = SL_OK;
    levels[0].row = *tail;
    while (status == SL_OK) {
        level_made *level = &levels[top];
        const sl_entry_row *row = &level->row;
        status = sl_boundaries(kind, (int)top, row->entries.bytes, row->entries.at, row->locators.bytes, row->locators.at,
                               row->count, level->closes, CLOSED_MAX, &level->closed);
        if (status != SL_OK || level->closed == 0) {
            break;
        }
        if (top == LEVELS) {
            return SL_FALLBACK;
        }
        level_made *above = &levels[top + 1];
        above->row = row_in(space, LEVEL_SIZE_MAX, LEVEL_LOCATORS_SIZE_MAX);
        space += LEVEL_SIZE_MAX + LEVEL_LOCATORS_SIZE_MAX;
        const sl_level *held = level_of(head, top + 1);
        if (held != NULL && held->covered > 0) {
            sl_node_view open;
            status = open_of(step, root, held, &open);
            if (status == SL_OK) {
                status = put_open(&above->row, kind, top + 1, held, &open);
            }
        }
        if (status == SL_OK) {
            status = close_chunks(step, kind, top, level, &above->row);
        }
        top++;
    }
    for (unsigned number = top; number > 0 && status == SL_OK; number--) {
        status = take_rest(step, kind, number, &levels[number]);
    }
    return status == SL_OK ? take_root(step, root, head, levels, top) : status;
}

int sl_step_append_closing(sl_step *step, const sl_node_view *root, const sl_root_head *head,
                           const sl_entry_row *added)
{
    sl_entry_row tail = tail_row(step);
    int status = put_items(&tail, root, head, added);
    return status == SL_OK ? close_levels(step, root, head, &tail) : status;
}

/* Find the node whose entries precede the tail, on one of the lowest LEVELS levels. Return SL_ABSENT if there is
 * none. */
static int node_below(sl_step *step, const sl_node_view *root, const sl_root_head *head, sl_node_view *below)
{
    for (unsigned number = 1; number <= LEVELS; number++) {
        const sl_level *level = level_of(head, number);
        if (level != NULL && level->covered > 0) {
            return open_of(step, root, level, below);
        }
    }
    return SL_ABSENT;
}

int sl_step_merge_closing(sl_step *step, const sl_node_view *root)
{
    sl_root parsed;
    sl_node_view below;
    sl_entry_row tail = tail_row(step);
    int status = sl_root_parse(root->bytes, root->size, root->content_size, root->lsn, &parsed);
    int found = status == SL_OK ? node_below(step, root, &parsed.head, &below) : status;
    if (found != SL_OK && found != SL_ABSENT) {
        return found;
    }
    status = sl_tail_merge_open(root, &parsed, found == SL_OK ? &below : NULL, step->batch, (size_t)step->batch_size,
                                step->locators, (size_t)step->locators_size, step->change_count, &tail);
    if (status == SL_OK && is_full(&tail)) {
        return SL_FALLBACK;
    }
    return status == SL_OK ? close_levels(step, root, &parsed.head, &tail) : status;
}
