/* Reads version pages, which pack the entries of a branch's consecutive versions, and appends to them. Also computes
 * jump depths (FORMAT.md 6).
 *
 * Trust: none. The caller checks the checksum or MAC.
 * Invariants: a page has 1 to 32 entries, for consecutive versions with the same quotient version / 32. */
#include "internal.h"

enum { PAGE_HEAD_SIZE = 8, PAGE_ENTRY_SIZE = 16, PAGE_VERSIONS = 32 };

typedef struct {
    const uint8_t *entries;
    uint32_t first;
    uint32_t count;
} page_view;

static bool page_open(const uint8_t *page, size_t size, page_view *view)
{
    sl_reader in = sl_reader_of(page, size);
    if (!sl_has(&in, PAGE_HEAD_SIZE)) {
        return false;
    }
    view->first = (uint32_t)sl_load_be(page, 4);
    view->count = (uint32_t)sl_load_be(page + 4, 4);
    view->entries = page + PAGE_HEAD_SIZE;
    return view->count >= 1 && view->count <= PAGE_VERSIONS - view->first % PAGE_VERSIONS &&
           size - PAGE_HEAD_SIZE == (size_t)view->count * PAGE_ENTRY_SIZE;
}

static const uint8_t *entry_at(const page_view *view, uint32_t index)
{
    return view->entries + (size_t)index * PAGE_ENTRY_SIZE;
}

int sl_page_append(const uint8_t *page, size_t size, uint32_t version, uint64_t lsn, uint64_t time_us,
                   sl_output *out)
{
    sl_writer writer = sl_writer_of(out);
    page_view view = {NULL, version, 0};
    if (size > 0) {
        SL_REQUIRE(page_open(page, size, &view));
        if (version < view.first || version - view.first < view.count ||
            version / PAGE_VERSIONS != view.first / PAGE_VERSIONS) {
            return SL_USAGE;
        }
    }
    uint32_t index = version - view.first;
    sl_put_be(&writer, view.first, 4);
    sl_put_be(&writer, index + 1, 4);
    if (size > 0) {
        sl_put(&writer, view.entries, size - PAGE_HEAD_SIZE);
    }
    for (uint32_t i = view.count; i < index; i++) { /* A skipped version gets the entry of an expired version. */
        static const uint8_t expired[PAGE_ENTRY_SIZE] = {0};
        sl_put(&writer, expired, sizeof expired);
    }
    sl_put_be(&writer, lsn, 8);
    sl_put_be(&writer, time_us, 8);
    return sl_finish(&writer, writer.at, out);
}

int sl_page_read(const uint8_t *page, size_t size, uint32_t version, sl_version_entry *entry)
{
    page_view view;
    SL_REQUIRE(page_open(page, size, &view));
    if (version < view.first || version - view.first >= view.count) {
        return SL_ABSENT;
    }
    const uint8_t *at = entry_at(&view, version - view.first);
    *entry = (sl_version_entry){sl_load_be(at, 8), sl_load_be(at + 8, 8)};
    return SL_OK;
}

int sl_page_range(const uint8_t *page, size_t size, uint32_t *first, uint32_t *last)
{
    page_view view;
    SL_REQUIRE(page_open(page, size, &view));
    *first = view.first;
    *last = view.first + view.count - 1;
    return SL_OK;
}

int sl_page_find_time(const uint8_t *page, size_t size, uint64_t time_us, int64_t *version)
{
    page_view view;
    SL_REQUIRE(page_open(page, size, &view));
    *version = (int64_t)view.first - 1;
    for (uint32_t i = 0; i < view.count; i++) { /* There are at most 32 entries. An expired entry has LSN 0. */
        const uint8_t *at = entry_at(&view, i);
        if (sl_load_be(at, 8) != 0 && sl_load_be(at + 8, 8) <= time_us) {
            *version = (int64_t)view.first + i;
        }
    }
    return SL_OK;
}

uint64_t sl_jump_depth(uint64_t depth)
{
    /* In skew-binary form, a depth is a sum of numbers 2^k - 1, each the largest that fits. The last number is
     * the length of the jump. */
    uint64_t size = UINT64_MAX;
    for (uint64_t left = depth; left > 0; left -= size) {
        while (size > left) {
            size >>= 1;
        }
    }
    return depth > 0 ? depth - size : 0;
}
