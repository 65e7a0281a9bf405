/* Fuzzes the kernels for CBOR items. The whole input is the item, and the second half of the input is a key to find. */
#include "fuzz_input.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    fuzz_input in = {data, size};
    fuzz_block item = fuzz_take(&in, size);
    size_t error_at = SIZE_MAX;
    uint64_t span[2];
    uint64_t first;
    uint64_t count;
    int kind;

    int checked = sl_cbor_check(item.bytes, item.size, &error_at);
    FUZZ_REQUIRE(checked == SL_OK || (checked == SL_MALFORMED && error_at <= size));
    if (sl_cbor_children(item.bytes, item.size, &kind, &first, &count) == SL_OK) {
        FUZZ_REQUIRE(count <= size);
        uint64_t *ends = fuzz_allocate((size_t)count * sizeof *ends);
        int split = sl_cbor_split(item.bytes, item.size, ends, (size_t)count);
        FUZZ_REQUIRE(split == checked);
        free(ends);
    }
    size_t half = size / 2;
    if (sl_cbor_map_get(item.bytes, item.size, item.bytes + (size - half), half, span) == SL_OK) {
        FUZZ_REQUIRE(span[0] < span[1] && span[1] <= size);
    }
    (void)sl_content_hash(item.bytes, item.size);
    free(item.bytes);
    return 0;
}
