/* Declares what the fuzz targets share: functions that cut an input into arguments, and output buffers of the size
 * that statelog/kernels uses. Each argument is in a block of exactly its size, so AddressSanitizer detects a read
 * past its end. */
#ifndef STATELOG_FUZZ_INPUT_H
#define STATELOG_FUZZ_INPUT_H

#include "statelog_kernels.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Report a broken contract of a kernel, and abort like a sanitizer. */
#define FUZZ_REQUIRE(condition)                                                 \
    do {                                                                        \
        if (!(condition)) {                                                     \
            (void)fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #condition); \
            abort();                                                            \
        }                                                                       \
    } while (0)

typedef struct {
    uint8_t *bytes;
    size_t size;
} fuzz_block;

typedef struct {
    const uint8_t *bytes;
    size_t left;
} fuzz_input;

static inline void *fuzz_allocate(size_t size)
{
    void *bytes = malloc(size > 0 ? size : 1);
    FUZZ_REQUIRE(bytes != NULL);
    return bytes;
}

static inline unsigned fuzz_byte(fuzz_input *in)
{
    if (in->left == 0) {
        return 0;
    }
    in->left--;
    return *in->bytes++;
}

static inline size_t fuzz_size(fuzz_input *in)
{
    unsigned high = fuzz_byte(in);
    return high << 8 | fuzz_byte(in);
}

/* Return the next `size` bytes of the input, or all that remain. */
static inline fuzz_block fuzz_take(fuzz_input *in, size_t size)
{
    size_t taken = size < in->left ? size : in->left;
    uint8_t *bytes = fuzz_allocate(taken);
    if (taken > 0) {
        memcpy(bytes, in->bytes, taken);
    }
    in->bytes += taken;
    in->left -= taken;
    return (fuzz_block){bytes, taken};
}

static inline sl_output fuzz_output(size_t capacity) { return (sl_output){fuzz_allocate(capacity), capacity, 0, 0}; }

#endif
