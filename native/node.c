/* Parses, copies and summarises roots and chunks, and iterates over their entries (FORMAT.md 4.1 to 4.3).
 *
 * Trust: none. One iterator reads entries of every kind and level from a root's tail, a chunk, or a caller's
 * buffers.
 * Invariants: a returned entry is inside the content, and its locator is inside the locators. At SL_END, no
 * bytes are left over in either. */
#include "internal.h"

/* --- locators ------------------------------------------------------------------------------------- */

bool sl_read_locator(sl_reader *in, uint64_t home_lsn, uint64_t *lsn, uint64_t *node)
{
    if (!sl_read_varint(in, lsn) || !sl_read_varint(in, node) || *node > UINT32_MAX) {
        return false;
    }
    if (*lsn == 0) {
        *lsn = home_lsn;
    }
    return true;
}

void sl_put_locator(sl_writer *out, uint64_t lsn, uint64_t node)
{
    sl_put_varint(out, lsn);
    sl_put_varint(out, node);
}

int sl_copy_locators(sl_writer *out, sl_reader from, size_t end, uint64_t home_lsn)
{
    while (from.at < end) {
        uint64_t lsn;
        uint64_t node;
        SL_REQUIRE(sl_read_locator(&from, home_lsn, &lsn, &node));
        sl_put_locator(out, lsn, node);
    }
    return SL_OK;
}

/* --- roots ---------------------------------------------------------------------------------------- */

static bool root_key_read(sl_reader *in, sl_root_head *head)
{
    head->key_at = in->at;
    head->key_size = 0;
    if (head->kind != SL_KIND_KEYED) {
        return true;
    }
    if (!sl_read_varint(in, &head->key_size) || head->key_size < 1 || head->key_size > 255) {
        return false;
    }
    head->key_at = in->at;
    return sl_skip(in, head->key_size);
}

/* Read the open levels, and add the number of entries that they cover to `covered`. */
static bool root_levels_read(sl_reader *in, sl_reader *locators, uint64_t home_lsn, sl_root_head *head,
                             uint64_t *covered)
{
    if (!sl_read_varint(in, &head->level_count) || head->level_count > SL_LEVELS_MAX) {
        return false;
    }
    for (uint64_t i = 0; i < head->level_count; i++) {
        sl_level *level = &head->levels[i];
        *level = (sl_level){0, 0, 0, 0};
        if (!sl_read_varint(in, &level->covered)) {
            return false;
        }
        if (level->covered == 0) {
            if (i == 0) { /* The highest level exists only because a chunk closed below it, so it is not empty. */
                return false;
            }
            continue;
        }
        level->digest_at = in->at;
        if (!sl_skip(in, SL_DIGEST_SIZE) || !sl_read_locator(locators, home_lsn, &level->lsn, &level->node) ||
            level->covered > UINT64_MAX - *covered) {
            return false;
        }
        *covered += level->covered;
    }
    return true;
}

int sl_root_parse(const uint8_t *data, size_t size, size_t content_size, uint64_t home_lsn, sl_root *root)
{
    sl_root_head *head = &root->head;
    uint64_t covered = 0;
    SL_REQUIRE(content_size <= size);
    sl_reader in = sl_reader_of(data, content_size);
    sl_reader locators = {data, size, content_size};

    SL_REQUIRE(sl_has(&in, 1) && sl_is_kind(data[0]));
    head->kind = data[in.at++];
    SL_REQUIRE(root_key_read(&in, head));
    SL_REQUIRE(sl_read_varint(&in, &head->count));
    root->spine_at = in.at;
    SL_REQUIRE(root_levels_read(&in, &locators, home_lsn, head, &covered));
    root->spine_end = in.at;
    SL_REQUIRE(sl_read_varint(&in, &head->tail_count));
    SL_REQUIRE(covered <= head->count && head->count - covered == head->tail_count);
    head->tail_at = in.at;
    head->tail_locators_at = locators.at;
    if (sl_is_blob((int)head->kind)) {
        SL_REQUIRE(head->tail_count == content_size - in.at && locators.at == size);
    } else {
        SL_REQUIRE(head->tail_count <= SL_CHUNK_ENTRIES_MAX);
    }
    return SL_OK;
}

int sl_root_read(const uint8_t *data, size_t size, size_t content_size, uint64_t home_lsn, sl_root_head *head)
{
    sl_root root;
    int status = sl_root_parse(data, size, content_size, home_lsn, &root);
    if (status == SL_OK) {
        memcpy(head, &root.head, offsetof(sl_root_head, levels) + (size_t)root.head.level_count * sizeof(sl_level));
    }
    return status;
}

/* --- the iterator --------------------------------------------------------------------------------- */

static void entries_start(sl_entries *it, int kind, unsigned level, sl_reader in, sl_reader locators, uint64_t count)
{
    it->in = in;
    it->locators = locators;
    it->home_lsn = 0;
    it->left = count;
    it->index_next = 0;
    it->kind = kind;
    it->level = level;
    it->is_batch = false;
    it->at = in.at;
    it->key_end = in.at;
}

void sl_entries_open_tail(sl_entries *it, const uint8_t *data, size_t size, size_t content_size, uint64_t home_lsn,
                          const sl_root *root)
{
    sl_reader in = {data, content_size, (size_t)root->head.tail_at};
    sl_reader locators = {data, size, (size_t)root->head.tail_locators_at};
    entries_start(it, (int)root->head.kind, 0, in, locators, root->head.tail_count);
    it->home_lsn = home_lsn;
}

int sl_entries_open_loose(sl_entries *it, int kind, unsigned level, const uint8_t *entries, size_t entries_size,
                          const uint8_t *locators, size_t locators_size, uint64_t count)
{
    if (!sl_is_kind(kind) || level > SL_LEVELS_MAX || (sl_is_blob(kind) && level == 0)) {
        return SL_USAGE;
    }
    entries_start(it, kind, level, sl_reader_of(entries, entries_size), sl_reader_of(locators, locators_size), count);
    return SL_OK;
}

int sl_entries_open(sl_entries *it, const uint8_t *data, size_t size, size_t content_size, uint64_t home_lsn,
                    bool is_root, int kind)
{
    if (!sl_is_kind(kind)) {
        return SL_USAGE;
    }
    if (is_root) {
        sl_root root;
        SL_REQUIRE(!sl_is_blob(kind));
        SL_REQUIRE(sl_root_parse(data, size, content_size, home_lsn, &root) == SL_OK);
        SL_REQUIRE(root.head.kind == (uint64_t)kind);
        sl_entries_open_tail(it, data, size, content_size, home_lsn, &root);
        return SL_OK;
    }
    uint64_t count;
    SL_REQUIRE(content_size <= size);
    sl_reader in = sl_reader_of(data, content_size);
    sl_reader locators = {data, size, content_size};
    SL_REQUIRE(sl_has(&in, 2) && data[in.at] == (unsigned)kind);
    in.at++;
    unsigned level = data[in.at++];
    SL_REQUIRE(level <= SL_LEVELS_MAX && (level > 0 || !sl_is_blob(kind)));
    SL_REQUIRE(sl_read_varint(&in, &count) && count >= 1 && count <= SL_CHUNK_ENTRIES_MAX);
    entries_start(it, kind, level, in, locators, count);
    it->home_lsn = home_lsn;
    return SL_OK;
}

/* Read the key of a dict entry, or the element of a set. Return false unless it follows the previous one in order. */
static bool key_read(sl_entries *it, size_t previous_at, size_t previous_end)
{
    sl_reader *in = &it->in;
    bool must_be_text = it->kind == SL_KIND_DICT;
    if (must_be_text && !(sl_has(in, 1) && in->bytes[in->at] >> 5 == 3)) {
        return false;
    }
    if (!sl_item_skip(in)) {
        return false;
    }
    it->key_end = in->at;
    return it->index_next == 0 || sl_bytes_compare(in->bytes + previous_at, previous_end - previous_at,
                                                   in->bytes + it->at, it->key_end - it->at) < 0;
}

/* Read an entry of an upper node: the number of entries that it covers, a digest, and the fingerprints if this is level
 * 1 of a keyed list. */
static bool upper_entry_read(sl_entries *it)
{
    sl_reader *in = &it->in;
    if (!sl_read_varint(in, &it->covered) || it->covered == 0) {
        return false;
    }
    it->slot_at = in->at;
    it->is_ref = true;
    if (!sl_skip(in, SL_DIGEST_SIZE)) {
        return false;
    }
    it->slot_end = in->at;
    if (it->kind == SL_KIND_KEYED && it->level == 1) {
        return it->covered <= SL_CHUNK_ENTRIES_MAX && sl_skip(in, 2 * it->covered);
    }
    return true;
}

/* Read the marker of a batch entry, if it has one. Return false if a set's entry has none. */
static bool marker_read(sl_entries *it, bool *is_marker)
{
    sl_reader *in = &it->in;
    bool is_dict = it->kind == SL_KIND_DICT;
    *is_marker = sl_has(in, 1) && (in->bytes[in->at] == SL_BATCH_DELETE || (!is_dict && in->bytes[in->at] == SL_BATCH_PUT));
    if (!*is_marker) {
        return is_dict;
    }
    it->slot_at = in->at;
    it->slot_end = in->at;
    it->deletes = in->bytes[in->at++] == SL_BATCH_DELETE;
    return true;
}

static bool slot_read(sl_entries *it)
{
    sl_reader *in = &it->in;
    it->covered = 1;
    if (it->is_batch) {
        bool is_marker;
        if (!marker_read(it, &is_marker)) {
            return false;
        }
        if (is_marker) {
            return true;
        }
    }
    if (it->kind == SL_KIND_KEYED && !sl_skip(in, 2)) {
        return false;
    }
    it->slot_at = in->at;
    if (it->kind == SL_KIND_SET || it->kind == SL_KIND_FROZENSET) {
        it->slot_end = in->at;
        return true;
    }
    if (!sl_has(in, 1)) {
        return false;
    }
    uint8_t first = in->bytes[in->at];
    it->is_ref = first == SL_REF_LEAF || first == SL_REF_ROOT;
    bool is_read = it->is_ref ? sl_skip(in, 1 + SL_DIGEST_SIZE) : sl_item_skip(in);
    it->slot_end = in->at;
    return is_read && (it->is_ref || it->slot_end - it->slot_at <= SL_INLINE_SIZE_MAX);
}

int sl_entries_next(sl_entries *it)
{
    if (it->left == 0) {
        SL_REQUIRE(it->in.at == it->in.len && it->locators.at == it->locators.len);
        return SL_END;
    }
    size_t previous_at = it->at;
    size_t previous_end = it->key_end;
    it->at = it->in.at;
    it->is_ref = false;
    it->deletes = false;
    it->lsn = 0;
    it->node = 0;
    if (sl_is_sorted(it->kind)) {
        SL_REQUIRE(key_read(it, previous_at, previous_end));
    }
    SL_REQUIRE(it->level > 0 ? upper_entry_read(it) : slot_read(it));
    if (it->is_ref) {
        SL_REQUIRE(sl_read_locator(&it->locators, it->home_lsn, &it->lsn, &it->node));
    }
    it->left--;
    it->index_next++;
    return SL_OK;
}

/* --- whole nodes ---------------------------------------------------------------------------------- */

int sl_entries_table(const uint8_t *data, size_t size, size_t content_size, uint64_t home_lsn, int is_root, int kind,
                     sl_entry *entries, size_t entries_capacity, uint64_t *count)
{
    sl_entries it;
    int status = sl_entries_open(&it, data, size, content_size, home_lsn, is_root != 0, kind);
    if (status != SL_OK) {
        return status;
    }
    if (it.left > entries_capacity) {
        return SL_SPACE;
    }
    while ((status = sl_entries_next(&it)) == SL_OK) {
        *entries++ = (sl_entry){it.at, it.slot_at, it.in.at, it.covered, it.lsn, it.node};
    }
    if (status != SL_END) {
        return status;
    }
    *count = it.index_next;
    return SL_OK;
}

int sl_entries_copy(const uint8_t *data, size_t size, size_t content_size, uint64_t home_lsn, int is_root, int kind,
                    uint64_t start, uint64_t stop, sl_output *out)
{
    sl_entries it;
    sl_writer writer = sl_writer_of(out);
    int status = sl_entries_open(&it, data, size, content_size, home_lsn, is_root != 0, kind);
    if (status != SL_OK) {
        return status;
    }
    SL_REQUIRE(start <= stop && stop <= it.left);

    size_t bytes_at = it.in.at;
    sl_reader locators = it.locators;
    while (it.index_next < stop) {
        bool is_before = it.index_next < start;
        SL_REQUIRE(sl_entries_next(&it) == SL_OK);
        if (is_before) {
            bytes_at = it.in.at;
            locators = it.locators;
        }
    }
    sl_put(&writer, data + bytes_at, it.in.at - bytes_at);
    SL_REQUIRE(sl_copy_locators(&writer, locators, it.locators.at, home_lsn) == SL_OK);
    return sl_finish(&writer, it.in.at - bytes_at, out);
}

int sl_chunk_summary(const uint8_t *data, size_t size, size_t content_size, int kind, const uint8_t *digest,
                     sl_output *out)
{
    sl_entries it;
    /* The fingerprints are gathered at the beginning of `out`, and later moved behind the count and the digest. */
    sl_writer fingerprints = sl_writer_of(out);
    uint64_t covered = 0;
    int status = sl_entries_open(&it, data, size, content_size, 0, false, kind);
    if (status != SL_OK) {
        return status;
    }
    while ((status = sl_entries_next(&it)) == SL_OK) {
        SL_REQUIRE(it.covered <= UINT64_MAX - covered);
        covered += it.covered;
        if (kind == SL_KIND_KEYED && it.level == 0) {
            sl_put(&fingerprints, data + it.at, 2);
        }
    }
    if (status != SL_END) {
        return status;
    }
    uint8_t head[SL_VARINT_SIZE_MAX + SL_DIGEST_SIZE];
    sl_writer head_writer = {head, sizeof head, 0, false};
    sl_put_varint(&head_writer, covered);
    sl_put(&head_writer, digest, SL_DIGEST_SIZE);

    size_t key_size = sl_is_sorted(kind) ? sl_key_size(&it) : 0;
    if (fingerprints.full || out->capacity - fingerprints.at < head_writer.at) {
        return SL_SPACE;
    }
    memmove(out->bytes + head_writer.at, out->bytes, fingerprints.at);
    sl_writer writer = sl_writer_of(out);
    if (key_size > 0) {
        sl_put(&writer, sl_key(&it), key_size);
    }
    sl_put(&writer, head, head_writer.at);
    writer.at += fingerprints.at;
    return sl_finish(&writer, writer.at, out);
}
