/* Drives one fuzz target without a fuzz engine.
 *
 * fuzz_NAME CORPUS_DIRECTORY [SECONDS [SEED]]
 *
 * Replays every file of the directory, and then mutations of these files for SECONDS. The same seed gives the same
 * mutations in the same order. Exits 0 if nothing was found. Otherwise a sanitizer or FUZZ_REQUIRE aborts the
 * process, which prints the input as hex, so that it can be added to the corpus. */
#define _POSIX_C_SOURCE 200809L

#include "fuzz_input.h"

#include <dirent.h>
#include <signal.h>
#include <time.h>

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/common_interface_defs.h>
#endif

enum { INPUT_SIZE_MAX = 16384, INPUTS_MAX = 256, MUTATIONS_MAX = 6 };

static fuzz_block corpus[INPUTS_MAX];
static size_t corpus_count;
static uint8_t current[INPUT_SIZE_MAX];
static size_t current_size;
static uint64_t random_state;

static void print_current(void)
{
    (void)fprintf(stderr, "input of %zu bytes: ", current_size);
    for (size_t i = 0; i < current_size; i++) {
        (void)fprintf(stderr, "%02x", current[i]);
    }
    (void)fputc('\n', stderr);
}

static void on_abort(int number)
{
    print_current();
    (void)signal(number, SIG_DFL);
    (void)raise(number);
}

/* Return a random number below `limit`, which must not be 0. The generator is xorshift64* (Vigna 2016). */
static size_t random_below(size_t limit)
{
    random_state ^= random_state >> 12;
    random_state ^= random_state << 25;
    random_state ^= random_state >> 27;
    return (size_t)((random_state * UINT64_C(0x2545F4914F6CDD1D)) >> 33) % limit;
}

static void load_file(const char *directory, const char *name)
{
    char path[4096];
    (void)snprintf(path, sizeof path, "%s/%s", directory, name);
    FILE *file = fopen(path, "rb");
    FUZZ_REQUIRE(file != NULL && corpus_count < INPUTS_MAX);
    uint8_t *bytes = fuzz_allocate(INPUT_SIZE_MAX);
    corpus[corpus_count++] = (fuzz_block){bytes, fread(bytes, 1, INPUT_SIZE_MAX, file)};
    (void)fclose(file);
}

static void load_corpus(const char *directory)
{
    struct dirent **names = NULL;
    int count = scandir(directory, &names, NULL, alphasort);
    FUZZ_REQUIRE(count >= 0);
    for (int i = 0; i < count; i++) {
        if (names[i]->d_name[0] != '.') {
            load_file(directory, names[i]->d_name);
        }
        free(names[i]);
    }
    free((void *)names);
    FUZZ_REQUIRE(corpus_count > 0);
}

static void run_current(void)
{
    uint8_t *exact = fuzz_allocate(current_size);
    memcpy(exact, current, current_size);
    (void)LLVMFuzzerTestOneInput(exact, current_size);
    free(exact);
}

static void set_current(const fuzz_block *input)
{
    memcpy(current, input->bytes, input->size);
    current_size = input->size;
}

/* Replace `lost` bytes of the current input, from offset `at` on, by `size` bytes. */
static void splice_current(size_t at, size_t lost, const uint8_t *bytes, size_t size)
{
    if (current_size - lost > INPUT_SIZE_MAX - size) {
        return;
    }
    memmove(current + at + size, current + at + lost, current_size - at - lost);
    memcpy(current + at, bytes, size);
    current_size += size - lost;
}

static void mutate_current(void)
{
    static const uint8_t edges[] = {0x00, 0x01, 0x17, 0x18, 0x1B, 0x3B, 0x5B, 0x60, 0x7B, 0x7F, 0x80,
                                    0x9B, 0xBB, 0xC2, 0xD9, 0xF9, 0xFB, 0xFC, 0xFD, 0xFE, 0xFF};
    uint8_t bytes[32];
    size_t at = random_below(current_size + 1);
    size_t left = current_size - at;
    unsigned before = left > 0 ? current[at] : 0;
    size_t lost = left > 0 ? random_below(left < 24 ? left + 1 : 24) : 0;
    const fuzz_block *other = &corpus[random_below(corpus_count)];
    size_t from = other->size > 0 ? random_below(other->size) : 0;
    size_t size = other->size - from < sizeof bytes ? other->size - from : random_below(sizeof bytes);

    switch (random_below(6)) {
    case 0:
        bytes[0] = (uint8_t)(before ^ (1U << random_below(8)));
        splice_current(at, left > 0 ? 1 : 0, bytes, 1);
        break;
    case 1:
        splice_current(at, left > 0 ? 1 : 0, &edges[random_below(sizeof edges)], 1);
        break;
    case 2:
        splice_current(at, 0, &edges[random_below(sizeof edges)], 1);
        break;
    case 3:
        splice_current(at, lost, bytes, 0);
        break;
    case 4:
        memcpy(bytes, other->bytes + from, size);
        splice_current(at, lost, bytes, size);
        break;
    default:
        bytes[0] = (uint8_t)(before + random_below(5) - 2);
        splice_current(at, left > 0 ? 1 : 0, bytes, 1);
        break;
    }
}

int main(int argc, char **argv)
{
    if (argc < 2) {
        (void)fprintf(stderr, "usage: %s CORPUS_DIRECTORY [SECONDS [SEED]]\n", argv[0]);
        return 2;
    }
    time_t seconds = argc > 2 ? (time_t)strtol(argv[2], NULL, 10) : 0;
    random_state = argc > 3 ? strtoull(argv[3], NULL, 10) | 1 : 1;
    (void)signal(SIGABRT, on_abort);
#if defined(__SANITIZE_ADDRESS__)
    __sanitizer_set_death_callback(print_current);
#endif
    load_corpus(argv[1]);
    for (size_t i = 0; i < corpus_count; i++) {
        set_current(&corpus[i]);
        run_current();
    }
    uint64_t runs = corpus_count;
    for (time_t end = time(NULL) + seconds; time(NULL) < end;) {
        for (int i = 0; i < 256; i++, runs++) {
            set_current(&corpus[random_below(corpus_count)]);
            for (size_t mutations = 1 + random_below(MUTATIONS_MAX); mutations > 0; mutations--) {
                mutate_current();
            }
            run_current();
        }
    }
    for (size_t i = 0; i < corpus_count; i++) {
        free(corpus[i].bytes);
    }
    (void)printf("%s: %llu inputs, nothing found\n", argv[0], (unsigned long long)runs);
    return 0;
}
