/* Computes the dot products of one vector with many rows of small integers.
 *
 * Trust: none in the numbers. Sums wrap at 32 bits. */
#include "internal.h"

enum {
    BLOCK = 64, /* The sum of this many products of 8 and 16 bits fits into 32 bits. */
    AHEAD = 2048
};

#if defined(__GNUC__)
#define PREFETCH(at) __builtin_prefetch(at)
#else
#define PREFETCH(at) (void)(at)
#endif

/* Compilers turn this loop into vector instructions, because its length is constant and its sum is signed. */
static int32_t block_dot(const int8_t *numbers, const int16_t *vector)
{
    int32_t sum = 0;
    for (size_t i = 0; i < BLOCK; i++) {
        sum += (int32_t)numbers[i] * vector[i];
    }
    return sum;
}

int sl_rows_dot(const int8_t *rows, size_t count, size_t dims, const int16_t *vector, int32_t *sums)
{
    const size_t size = count * dims;
    for (size_t row = 0; row < count; row++) {
        const size_t start = row * dims;
        uint32_t sum = 0;
        size_t at = 0;
        for (; dims - at >= BLOCK; at += BLOCK) {
            if (size - start - at > AHEAD) { /* Prefetch, because the processor does not do this beyond a page. */
                PREFETCH(rows + start + at + AHEAD);
            }
            sum += (uint32_t)block_dot(rows + start + at, vector + at);
        }
        for (; at < dims; at++) {
            sum += (uint32_t)((int32_t)rows[start + at] * vector[at]);
        }
        memcpy(sums + row, &sum, sizeof sum);
    }
    return SL_OK;
}
