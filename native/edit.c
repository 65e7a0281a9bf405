/* Replaces entries of one chunk, if this moves no chunk boundary.
 *
 * Trust: none.
 * Invariant: the result closes exactly where the given chunk closed: at its end or, for an open level, nowhere.
 * Otherwise the result is SL_FALLBACK, and the caller takes the path that moves boundaries. */
#include "internal.h"

typedef struct {
    size_t bytes_at;
    size_t locators_at;
} place;

static place place_of(const sl_entries *it)
{
    return (place){it->in.at, it->locators.at};
}

/* Return SL_OK if the chunk closes only at its end (`is_closed`) or nowhere (not `is_closed`). Otherwise return
 * SL_FALLBACK. */
static int boundaries_keep(const sl_writer *out, int kind, unsigned level, size_t body_at, size_t body_end,
                           uint64_t count, bool is_closed)
{
    sl_entries it;
    int status = sl_entries_open_loose(&it, kind, level, out->bytes + body_at, body_end - body_at,
                                       out->bytes + body_end, out->at - body_end, count);
    while (status == SL_OK && (status = sl_entries_next(&it)) == SL_OK) {
        bool is_last = it.index_next == count;
        if (sl_chunk_closes(&it, it.index_next, it.in.at) != (is_last && is_closed)) {
            return SL_FALLBACK;
        }
    }
    return status == SL_END ? SL_OK : status;
}

int sl_chunk_replace(const uint8_t *data, size_t size, size_t content_size, uint64_t home_lsn, int kind,
                     uint64_t start, uint64_t stop, const uint8_t *entries, size_t entries_size,
                     const uint8_t *locators, size_t locators_size, uint64_t added, int is_closed, sl_output *out)
{
    sl_entries it;
    sl_writer writer = sl_writer_of(out);
    int status = sl_entries_open(&it, data, size, content_size, home_lsn, false, kind);
    if (status != SL_OK) {
        return status;
    }
    uint64_t old_count = it.left;
    SL_REQUIRE(start <= stop && stop <= old_count);
    unsigned level = it.level;
    place begin = place_of(&it);
    place gap = begin;
    place behind = begin;
    for (uint64_t i = 0; i < old_count; i++) {
        SL_REQUIRE(sl_entries_next(&it) == SL_OK);
        gap = i + 1 == start ? place_of(&it) : gap;
        behind = i + 1 == stop ? place_of(&it) : behind;
    }
    SL_REQUIRE(sl_entries_next(&it) == SL_END);
    if (added > SL_CHUNK_ENTRIES_MAX) {
        return SL_FALLBACK;
    }
    uint64_t count = old_count - (stop - start) + added;
    if (count == 0 || count > SL_CHUNK_ENTRIES_MAX) {
        return SL_FALLBACK;
    }

    sl_put_byte(&writer, (unsigned)kind);
    sl_put_byte(&writer, level);
    sl_put_varint(&writer, count);
    size_t body_at = writer.at;
    sl_put(&writer, data + begin.bytes_at, gap.bytes_at - begin.bytes_at);
    sl_put(&writer, entries, entries_size);
    sl_put(&writer, data + behind.bytes_at, content_size - behind.bytes_at);
    size_t body_end = writer.at;
    sl_reader from = {data, size, begin.locators_at};
    SL_REQUIRE(sl_copy_locators(&writer, from, gap.locators_at, home_lsn) == SL_OK);
    sl_put(&writer, locators, locators_size);
    from.at = behind.locators_at;
    SL_REQUIRE(sl_copy_locators(&writer, from, size, home_lsn) == SL_OK);
    if (writer.full) {
        return SL_SPACE;
    }
    status = boundaries_keep(&writer, kind, level, body_at, body_end, count, is_closed != 0);
    return status == SL_OK ? sl_finish(&writer, body_end, out) : status;
}
