/* Fuzzes msgpack arrays. The whole input is the array. */
#include "fuzz_input.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    fuzz_input in = {data, size};
    fuzz_block array = fuzz_take(&in, size);
    uint64_t first = 0;
    uint64_t count = 0;
    int status = sl_msgpack_array(array.bytes, array.size, &first, &count);
    FUZZ_REQUIRE(status == SL_OK || status == SL_MALFORMED);
    if (status == SL_OK) {
        FUZZ_REQUIRE(first <= size && count <= size - first);
        uint64_t *ends = fuzz_allocate((size_t)count * sizeof *ends);
        status = sl_msgpack_split(array.bytes, array.size, ends, (size_t)count);
        FUZZ_REQUIRE(status == SL_OK || status == SL_MALFORMED);
        uint64_t end = first;
        for (uint64_t i = 0; status == SL_OK && i < count; i++) {
            FUZZ_REQUIRE(ends[i] > end && ends[i] <= size);
            end = ends[i];
        }
        FUZZ_REQUIRE(status != SL_OK || end == size);
        FUZZ_REQUIRE(count == 0 || sl_msgpack_split(array.bytes, array.size, ends, (size_t)count - 1) == SL_SPACE);
        free(ends);
    } else {
        FUZZ_REQUIRE(sl_msgpack_split(array.bytes, array.size, NULL, 0) == SL_MALFORMED);
    }
    free(array.bytes);
    return 0;
}
