/* Fuzzes version pages. Input: the version's offset from the first version, then the page. */
#include "fuzz_input.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    fuzz_input in = {data, size};
    uint32_t offset = fuzz_byte(&in);
    fuzz_block page = fuzz_take(&in, in.left);
    sl_output out = fuzz_output(8 + 32 * 16);
    sl_version_entry entry;
    uint32_t first = 0;
    uint32_t last = 0;
    int64_t found;

    if (sl_page_range(page.bytes, page.size, &first, &last) == SL_OK) {
        FUZZ_REQUIRE(first <= last && last - first < 32);
        FUZZ_REQUIRE(sl_page_read(page.bytes, page.size, last, &entry) == SL_OK);
        FUZZ_REQUIRE(sl_page_find_time(page.bytes, page.size, entry.time_us, &found) == SL_OK);
        FUZZ_REQUIRE(found >= (int64_t)first - 1 && found <= last && (entry.lsn == 0 || found == last));
    }
    (void)sl_page_read(page.bytes, page.size, first + offset, &entry);
    int status = sl_page_append(page.bytes, page.size, first + offset, 1, 2, &out);
    FUZZ_REQUIRE(status != SL_SPACE);
    if (status == SL_OK) {
        FUZZ_REQUIRE(sl_page_read(out.bytes, out.size, first + offset, &entry) == SL_OK && entry.time_us == 2);
    }
    free(out.bytes);
    free(page.bytes);
    return 0;
}
