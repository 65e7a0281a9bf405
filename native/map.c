/* Finds keys in dicts and sets, and merges sorted batches into a root's tail (FORMAT.md 4.2, 4.3).
 *
 * Trust: none.
 * Invariants: entries are compared and written in ascending order of their encoded keys. A merge succeeds only if it
 * changes nothing but an open tail, so the result equals a tree built from scratch. */
#include "internal.h"

int sl_find_key(const uint8_t *data, size_t size, size_t content_size, uint64_t home_lsn, int is_root, int kind,
                const uint8_t *key, size_t key_size, sl_key_hit *hit)
{
    sl_entries it;
    uint64_t covered_before = 0;
    if (!sl_is_sorted(kind)) {
        return SL_USAGE;
    }
    int status = sl_entries_open(&it, data, size, content_size, home_lsn, is_root != 0, kind);
    if (status != SL_OK) {
        return status;
    }
    while ((status = sl_entries_next(&it)) == SL_OK) {
        int order = sl_bytes_compare(sl_key(&it), sl_key_size(&it), key, key_size);
        if (order >= 0) {
            bool is_found = order == 0 || it.level > 0;
            *hit = is_found ? (sl_key_hit){it.index_next - 1, 1, it.slot_at, it.in.at, it.lsn, it.node, covered_before}
                            : (sl_key_hit){it.index_next - 1, 0, it.at, it.at, 0, 0, covered_before};
            return SL_OK;
        }
        SL_REQUIRE(it.covered <= UINT64_MAX - covered_before);
        covered_before += it.covered;
    }
    if (status != SL_END) {
        return status;
    }
    *hit = (sl_key_hit){it.index_next, 0, content_size, content_size, 0, 0, covered_before};
    return SL_OK;
}

/* The two inputs of a merge, and the output. Entries and locators are gathered separately. */
typedef struct {
    sl_entries old;
    sl_entries batch;
    int old_status;
    int batch_status;
    sl_writer entries;
    sl_writer locators;
    size_t entries_at; /* The offset of the first entry. Space for a head precedes it. */
    uint64_t count;
    bool is_open; /* True to skip the check that no chunk closes. */
} merge;

enum { VARINT_SIZE_MAX = 10 };

/* Write one entry. Return false if a chunk closes after it. */
static bool merge_put(merge *m, const sl_entries *from, bool is_new)
{
    bool is_set = from->kind != SL_KIND_DICT;
    size_t end = is_set ? from->key_end : from->slot_end;
    sl_put(&m->entries, sl_key(from), end - from->at);
    if (from->is_ref) {
        sl_put_locator(&m->locators, from->lsn, from->node);
    }
    m->count++;
    if (m->is_open) {
        return true;
    }
    size_t size = m->entries.at - m->entries_at;
    /* This old entry, at this index, did not close a chunk before, so only the size can close a chunk now. */
    if (!is_new && m->count == from->index_next) {
        return size < SL_CHUNK_SIZE_CLOSE;
    }
    return !sl_chunk_closes(from, m->count, size);
}

/* Write the entry with the smaller key. If the keys are equal, the batch's entry replaces the old entry. Return
 * SL_END when both sides are done, or SL_FALLBACK if a chunk closes. */
static int merge_step(merge *m)
{
    bool has_old = m->old_status == SL_OK;
    bool has_new = m->batch_status == SL_OK;
    SL_REQUIRE(m->old_status != SL_MALFORMED && m->batch_status != SL_MALFORMED);
    if (!has_old && !has_new) {
        return SL_END;
    }
    int order = !has_new   ? -1
                : !has_old ? 1
                           : sl_bytes_compare(sl_key(&m->old), sl_key_size(&m->old), sl_key(&m->batch),
                                              sl_key_size(&m->batch));
    bool is_open = true;
    if (order < 0) {
        is_open = merge_put(m, &m->old, false);
    } else if (!m->batch.deletes) {
        is_open = merge_put(m, &m->batch, true);
    }
    if (order <= 0) {
        m->old_status = sl_entries_next(&m->old);
    }
    if (order >= 0) {
        m->batch_status = sl_entries_next(&m->batch);
    }
    return is_open ? SL_OK : SL_FALLBACK;
}

/* Insert the head before the entries, and move the locators after them. */
static int merge_finish(const merge *m, const uint8_t *data, const sl_root *root, sl_output *out)
{
    if (m->entries.full || m->locators.full) {
        return SL_SPACE;
    }
    size_t entries_size = m->entries.at - m->entries_at;
    sl_writer head = {out->bytes, m->entries_at, 0, false};
    sl_put_byte(&head, (unsigned)root->head.kind);
    sl_put_varint(&head, root->head.count - root->head.tail_count + m->count);
    sl_put(&head, data + root->spine_at, root->spine_end - root->spine_at);
    sl_put_varint(&head, m->count);
    assert(!head.full);
    memmove(out->bytes + head.at, out->bytes + m->entries_at, entries_size);
    out->content_size = head.at + entries_size;
    memmove(out->bytes + out->content_size, m->locators.bytes, m->locators.at);
    out->size = out->content_size + m->locators.at;
    return SL_OK;
}

/* Return true if all keys of the batch belong in the tail. Keys ascend, so it is enough to check the first one. */
static bool merge_is_in_tail(const merge *m, const sl_root *root)
{
    if (root->head.level_count == 0 || m->batch_status != SL_OK) {
        return true;
    }
    return m->old_status == SL_OK && sl_bytes_compare(sl_key(&m->batch), sl_key_size(&m->batch), sl_key(&m->old),
                                                      sl_key_size(&m->old)) >= 0;
}

/* Read the first entry of each side. */
static void merge_begin(merge *m)
{
    m->batch.is_batch = true;
    m->old_status = sl_entries_next(&m->old);
    m->batch_status = sl_entries_next(&m->batch);
    m->count = 0;
}

int sl_tail_merge(const uint8_t *data, size_t size, size_t content_size, uint64_t home_lsn, const uint8_t *batch,
                  size_t batch_size, const uint8_t *locators, size_t locators_size, uint64_t count, sl_output *out)
{
    sl_root root;
    merge m;
    int status = sl_root_parse(data, size, content_size, home_lsn, &root);
    if (status != SL_OK) {
        return status;
    }
    int kind = (int)root.head.kind;
    if (!sl_is_sorted(kind)) {
        return SL_USAGE;
    }
    m.entries_at = 1 + VARINT_SIZE_MAX + (root.spine_end - root.spine_at) + VARINT_SIZE_MAX;
    size_t locators_at = m.entries_at + (content_size - (size_t)root.head.tail_at) + batch_size;
    if (locators_at > out->capacity) {
        return SL_SPACE;
    }
    sl_entries_open_tail(&m.old, data, size, content_size, home_lsn, &root);
    status = sl_entries_open_loose(&m.batch, kind, 0, batch, batch_size, locators, locators_size, count);
    assert(status == SL_OK);
    merge_begin(&m);
    if (!merge_is_in_tail(&m, &root)) {
        return SL_FALLBACK;
    }
    m.is_open = false;
    m.entries = (sl_writer){out->bytes, locators_at, m.entries_at, false};
    m.locators = (sl_writer){out->bytes + locators_at, out->capacity - locators_at, 0, false};
    /* The locators of the levels precede the tail's locators. */
    status = sl_copy_locators(&m.locators, (sl_reader){data, size, content_size}, (size_t)root.head.tail_locators_at,
                              home_lsn);
    while (status == SL_OK) {
        status = merge_step(&m);
    }
    return status == SL_END ? merge_finish(&m, data, &root, out) : status;
}

/* Return true if the tail is empty and all keys of the batch follow the last key of `below`, so that they belong in
 * the tail. */
static bool merge_is_behind(const merge *m, int kind, const sl_node_view *below)
{
    sl_entries it;
    if (m->old_status != SL_END || m->batch_status != SL_OK || below == NULL || below->size == 0) {
        return false;
    }
    int status = sl_entries_open(&it, below->bytes, below->size, below->content_size, below->lsn, false, kind);
    while (status == SL_OK) {
        status = sl_entries_next(&it);
    }
    return status == SL_END && it.index_next > 0 &&
           sl_bytes_compare(sl_key(&m->batch), sl_key_size(&m->batch), sl_key(&it), sl_key_size(&it)) > 0;
}

int sl_tail_merge_open(const sl_node_view *node, const sl_root *root, const sl_node_view *below, const uint8_t *batch,
                       size_t batch_size, const uint8_t *locators, size_t locators_size, uint64_t count,
                       sl_entry_row *row)
{
    merge m;
    if (!sl_is_sorted((int)root->head.kind)) {
        return SL_USAGE;
    }
    sl_entries_open_tail(&m.old, node->bytes, node->size, node->content_size, node->lsn, root);
    int status = sl_entries_open_loose(&m.batch, (int)root->head.kind, 0, batch, batch_size, locators, locators_size, count);
    assert(status == SL_OK);
    merge_begin(&m);
    if (!merge_is_in_tail(&m, root) && !merge_is_behind(&m, (int)root->head.kind, below)) {
        return SL_FALLBACK;
    }
    m.is_open = true;
    m.entries_at = 0;
    m.entries = row->entries;
    m.locators = row->locators;
    while (status == SL_OK) {
        status = merge_step(&m);
    }
    *row = (sl_entry_row){m.entries, m.locators, m.count};
    return status == SL_END ? SL_OK : status;
}
