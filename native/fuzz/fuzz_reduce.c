/* Fuzzes reducers. Input: the size of the first item, then both items. */
#include "fuzz_input.h"

static void check_result(int status, const sl_output *out)
{
    size_t error_at;
    FUZZ_REQUIRE(status != SL_SPACE && status != SL_USAGE);
    FUZZ_REQUIRE(status != SL_OK || sl_cbor_check(out->bytes, out->size, &error_at) == SL_OK);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    fuzz_input in = {data, size};
    size_t a_size = fuzz_size(&in);
    fuzz_block a = fuzz_take(&in, a_size);
    fuzz_block b = fuzz_take(&in, in.left);
    sl_output out = fuzz_output(a.size + b.size + 32);
    int order = 0;
    int reverse = 0;

    check_result(sl_add(a.bytes, a.size, b.bytes, b.size, &out), &out);
    check_result(sl_merge_maps(a.bytes, a.size, b.bytes, b.size, 0, &out), &out);
    check_result(sl_merge_maps(a.bytes, a.size, b.bytes, b.size, 1, &out), &out);
    check_result(sl_union(a.bytes, a.size, b.bytes, b.size, &out), &out);
    if (sl_compare(a.bytes, a.size, b.bytes, b.size, &order) == SL_OK) {
        FUZZ_REQUIRE(sl_compare(b.bytes, b.size, a.bytes, a.size, &reverse) == SL_OK && order == -reverse);
    }
    free(out.bytes);
    free(a.bytes);
    free(b.bytes);
    return 0;
}
