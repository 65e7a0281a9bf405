/* Fuzzes the wake-up file. The input overwrites bytes of the file while two waiters use it. */
#include "fuzz_input.h"

enum { STALE_MS = 1000, HEADER_SIZE = 8 };

static void overwrite(fuzz_input *in, uint8_t *file)
{
    size_t at = HEADER_SIZE + (fuzz_size(in) << 1);
    fuzz_block bytes = fuzz_take(in, fuzz_byte(in));
    size_t left = SL_WAKE_FILE_SIZE - at;
    memcpy(file + at, bytes.bytes, bytes.size < left ? bytes.size : left);
    free(bytes.bytes);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    fuzz_input in = {data, size};
    uint8_t *file = fuzz_allocate(SL_WAKE_FILE_SIZE);
    memset(file, 0, SL_WAKE_FILE_SIZE);
    FUZZ_REQUIRE(sl_wake_open(file, SL_WAKE_FILE_SIZE) == SL_OK);
    fuzz_block subject = fuzz_take(&in, fuzz_byte(&in));
    sl_wake_place place = {1, 0, 0, 0, fuzz_byte(&in)}, last = {2, 0, 0, 0, 0};
    int may_enter = sl_wake_enter(file, SL_WAKE_FILE_SIZE, &last, 3, 1, subject.bytes, subject.size, STALE_MS);
    FUZZ_REQUIRE(may_enter == SL_OK && last.ticket == 1 && last.slot == 0);
    while (in.left > 0) {
        sl_output found = fuzz_output(SL_WAKE_SUBJECT_SIZE_MAX);
        sl_wake_place called = {0, 0, 0, 0, 0};
        uint64_t number;
        int was_called;
        overwrite(&in, file);
        (void)sl_wake_enter(file, SL_WAKE_FILE_SIZE, &place, 3, 1, subject.bytes, subject.size, STALE_MS);
        (void)sl_wake_call_mask(file, SL_WAKE_FILE_SIZE, 2);
        for (int i = 0; i < 3 && sl_wake_next(file, SL_WAKE_FILE_SIZE, &called, STALE_MS, &found) == SL_OK; i++) {
            FUZZ_REQUIRE(called.owner != 0 && called.slot < 256 && found.size > 0);
            (void)sl_wake_call(file, SL_WAKE_FILE_SIZE, &called);
        }
        (void)sl_wake_is_first(file, SL_WAKE_FILE_SIZE, &last, STALE_MS);
        (void)sl_wake_sleep(file, SL_WAKE_FILE_SIZE, &last, 0, STALE_MS);
        (void)sl_wake_describe(file, SL_WAKE_FILE_SIZE, &last, 1, 7);
        (void)sl_wake_positions(file, SL_WAKE_FILE_SIZE, STALE_MS, &number);
        (void)sl_wake_note(file, SL_WAKE_FILE_SIZE, 1);
        (void)sl_wake_ticket(file, SL_WAKE_FILE_SIZE, &number);
        (void)sl_wake_noted(file, SL_WAKE_FILE_SIZE, &number);
        (void)sl_wake_leave(file, SL_WAKE_FILE_SIZE, &place, &was_called);
        free(found.bytes);
    }
    free(subject.bytes);
    free(file);
    return 0;
}
