/* Notifies and waits through a pair of 32-bit words in shared memory, {sequence, waiters}. wake_slots.c defines a file
 * with many such pairs.
 *
 * To notify, a process raises `sequence` and wakes the waiters. A waiter sleeps until `sequence` differs from the value
 * that it saw last. On Linux, this uses a shared futex(2), which works between processes. On other systems, and in
 * sandboxes that forbid futexes, waiters sleep in short bounded steps.
 * Trust: the memory is shared with other processes. Any value in it is tolerated; the worst result is an early
 * or late wake-up.
 * Invariant: a waiter that dies leaves `waiters` too high, which only costs a system call per notification. */
#ifdef __linux__
#define _GNU_SOURCE
#else
#define _POSIX_C_SOURCE 200809L
#endif

#include "internal.h"

#include <time.h>

#ifdef __linux__
#include <errno.h>
#include <limits.h>
#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>
#endif

static const uint64_t POLL_STEP_NS = 2000000;
static const uint64_t SECOND_NS = 1000000000;

static struct timespec timespec_of(uint64_t duration_ns)
{
    return (struct timespec){(time_t)(duration_ns / SECOND_NS), (long)(duration_ns % SECOND_NS)};
}

static uint64_t clock_ns(void)
{
    struct timespec now;
    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * SECOND_NS + (uint64_t)now.tv_nsec;
}

static bool is_aligned(const uint32_t *word) { return (uintptr_t)word % sizeof *word == 0; }

static uint32_t sequence_read(uint32_t *word) { return __atomic_load_n(&word[0], __ATOMIC_SEQ_CST); }

int sl_wake_read(uint32_t *word, uint32_t *sequence)
{
    if (!is_aligned(word)) {
        return SL_USAGE;
    }
    *sequence = sequence_read(word);
    return SL_OK;
}

int sl_wake_notify(uint32_t *word)
{
    if (!is_aligned(word)) {
        return SL_USAGE;
    }
    (void)__atomic_add_fetch(&word[0], 1, __ATOMIC_SEQ_CST);
#ifdef __linux__
    if (__atomic_load_n(&word[1], __ATOMIC_SEQ_CST) != 0) {
        (void)syscall(SYS_futex, word, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
    }
#endif
    return SL_OK;
}

/* Sleep until a wake-up, a change of `word`, or the timeout. Return false if a signal arrived. */
static bool wake_sleep(uint32_t *word, uint32_t seen, uint64_t duration_ns)
{
#ifdef __linux__
    struct timespec duration = timespec_of(duration_ns);
    if (syscall(SYS_futex, word, FUTEX_WAIT, seen, &duration, NULL, 0) == 0 || errno == EAGAIN || errno == ETIMEDOUT) {
        return true;
    }
    if (errno == EINTR) {
        return false;
    }
#else
    (void)word;
    (void)seen;
#endif
    struct timespec step = timespec_of(duration_ns < POLL_STEP_NS ? duration_ns : POLL_STEP_NS);
    return nanosleep(&step, NULL) == 0;
}

int sl_wake_wait(uint32_t *word, uint32_t seen, uint64_t timeout_ns)
{
    if (!is_aligned(word)) {
        return SL_USAGE;
    }
    uint64_t start = clock_ns();
    bool is_undisturbed = true;
    (void)__atomic_add_fetch(&word[1], 1, __ATOMIC_SEQ_CST);
    while (is_undisturbed && sequence_read(word) == seen) {
        uint64_t elapsed = clock_ns() - start;
        if (elapsed >= timeout_ns) {
            break;
        }
        is_undisturbed = wake_sleep(word, seen, timeout_ns - elapsed);
    }
    (void)__atomic_sub_fetch(&word[1], 1, __ATOMIC_SEQ_CST);
    return sequence_read(word) == seen ? SL_ABSENT : SL_OK;
}
