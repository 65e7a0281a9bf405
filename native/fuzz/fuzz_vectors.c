/* Fuzzes dot products. Input: the number of dimensions, then the vector, then the rows. */
#include "fuzz_input.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    fuzz_input in = {data, size};
    size_t dims = fuzz_byte(&in) + 1U;
    fuzz_block vector = fuzz_take(&in, 2 * dims);
    if (vector.size == 2 * dims) {
        size_t count = in.left / dims;
        fuzz_block rows = fuzz_take(&in, count * dims);
        int16_t *numbers = fuzz_allocate(2 * dims);
        int32_t *sums = fuzz_allocate(4 * count);
        memcpy(numbers, vector.bytes, 2 * dims);
        FUZZ_REQUIRE(sl_rows_dot((const int8_t *)rows.bytes, count, dims, numbers, sums) == SL_OK);
        for (size_t row = 0; row < count; row++) {
            int64_t sum = 0;
            for (size_t i = 0; i < dims; i++) {
                sum += (int64_t)(int8_t)rows.bytes[row * dims + i] * numbers[i];
            }
            FUZZ_REQUIRE((uint32_t)sum == (uint32_t)sums[row]);
        }
        free(sums);
        free(numbers);
        free(rows.bytes);
    }
    free(vector.bytes);
    return 0;
}
