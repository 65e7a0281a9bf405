/* Implements the writer lock, which admits one writer at a time among all processes. The lock is fair, and is never
 * lost when a process dies.
 *
 * All processes map a page that contains a robust mutex and a queue of tickets. Only the mutex excludes other
 * writers; processes try it and never block on it. Only the queue determines the order: a process that has to wait
 * draws a ticket and sleeps on `changes` (futex) until a release wakes the ticket in `serving`.
 * Trust: the page belongs to processes of the same user. A page with a different layout is rejected. Any numbers in
 * the queue are tolerated; the worst result is a late or unfair turn.
 * Invariants:
 * 1. The tickets from `serving` to `next` - 1 wait; if the two are equal, no process waits. A process advances
 *   `serving` only by compare-and-swap from the ticket that it passes, so each ticket is passed once.
 * 2. A process tries the mutex out of turn in four cases only: no process waits; its own turn is not over;
 *   nothing changed for SLICE_NS; the timeout of its call has expired. A turn ends TURN_NS after it began. It ends
 *   earlier if its owner releases the lock for good, or does not acquire it again within GRACE_NS of a release. It
 *   also ends at a release if the owner had needed more than GRACE_NS to acquire the lock again.
 * 3. No process sleeps longer than SLICE_NS without checking. So a waiter or owner that is killed or stopped at
 *   any point (even between a release and its wake-up) delays the others by 2 * SLICE_NS at most, once. A process
 *   that finds the mutex free after SLICE_NS without a change takes it, and passes the ticket in `serving`.
 * 4. A page is not unmapped while its mutex is owned, because the kernel could not find the mutex when the owner
 *   dies.
 * 5. `is_abandoned` is set before the mutex of a dead owner is made consistent. It stays set until the owner's
 *   state is reported as repaired. */
#ifdef __linux__
#define _GNU_SOURCE
#endif

#include "internal.h"

#ifdef __linux__
#include <unistd.h>
#endif

#if defined(__linux__) && defined(_POSIX_THREAD_PROCESS_SHARED) && _POSIX_THREAD_PROCESS_SHARED > 0

#include <errno.h>
#include <limits.h>
#include <linux/futex.h>
#include <pthread.h>
#include <sys/syscall.h>
#include <time.h>

enum {
    /* The number of remembered tickets of waiters that gave up. If a ticket is forgotten, the next waiter waits up to
     * SLICE_NS for it. */
    GIVEN_UP_MAX = 128,
    WAKE_BITS = 32
};

static const uint64_t SECOND_NS = 1000000000;
static const uint64_t MILLISECOND_NS = 1000000;
static const uint64_t SLICE_NS = 2000000;
/* A turn is long enough for several commits, because changing the owner after each commit would be slow. */
static const uint64_t TURN_NS = 2000000;
static const uint64_t GRACE_NS = 200000; /* An owner that commits in a loop comes back after a tenth of this time. */
/* The interval at which the next waiter checks whether the turn has ended. */
static const uint64_t LOOK_NS = 100000;
static const uint64_t MAGIC = 0x736c77726974656c;

typedef struct {
    uint64_t magic; /* Written last, so that a page with it is complete. */
    uint64_t layout;
    /* The next waiter does not try the mutex before this time. Only the owner of the mutex writes it. */
    uint64_t turn_end_ns;
    uint32_t is_abandoned;
    uint32_t turn; /* The number of the current turn. The owner of the mutex raises it when its turn begins. */
    uint32_t next;
    uint32_t serving;
    uint32_t changes;
    uint32_t given_up[GIVEN_UP_MAX]; /* Ticket t was given up if given_up[t % GIVEN_UP_MAX] is t. */
    uint64_t turn_limit_ns; /* The latest end of this turn. Only the owner of the mutex writes it. */
    pthread_mutex_t mutex;
} lock_page;

/* Return, as one number, the properties in which two builds must agree to share a page: the layout of this file, the
 * word size, and the C library of the mutex. */
static uint64_t layout_here(void)
{
    uint64_t version = 3;
#ifdef __GLIBC__
    uint64_t library = 1;
#else
    uint64_t library = 2;
#endif
    return version << 48 | library << 40 | (uint64_t)sizeof(void *) << 32 | (uint64_t)sizeof(lock_page);
}

static uint32_t load(uint32_t *word) { return __atomic_load_n(word, __ATOMIC_SEQ_CST); }

static void store(uint32_t *word, uint32_t value) { __atomic_store_n(word, value, __ATOMIC_SEQ_CST); }

static uint64_t clock_ns(void)
{
    struct timespec now;
    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * SECOND_NS + (uint64_t)now.tv_nsec;
}

static void set_turn_end(lock_page *page, uint64_t end_ns)
{
    __atomic_store_n(&page->turn_end_ns, end_ns, __ATOMIC_SEQ_CST);
}

/* Return the remaining time of the current turn. */
static uint64_t turn_left_ns(lock_page *page, uint64_t now_ns)
{
    uint64_t left_ns = __atomic_load_n(&page->turn_end_ns, __ATOMIC_SEQ_CST) - now_ns;
    return left_ns <= TURN_NS ? left_ns : 0;
}

static bool has_room(const uint8_t *bytes, size_t size)
{
    return size >= sizeof(lock_page) && (uintptr_t)bytes % _Alignof(lock_page) == 0;
}

/* Return the page in `bytes`, or NULL unless a build with the same layout has initialised it. */
static lock_page *page_of(uint8_t *bytes, size_t size)
{
    lock_page *page = (lock_page *)(void *)bytes;
    bool is_ours = has_room(bytes, size) && __atomic_load_n(&page->magic, __ATOMIC_ACQUIRE) == MAGIC &&
                   page->layout == layout_here();
    return is_ours ? page : NULL;
}

static uint32_t wake_bit(uint32_t ticket) { return (uint32_t)1 << ticket % WAKE_BITS; }

/* Sleep until `changes` differs from `seen`, the ticket is woken, or `until_ns` is reached. Return true if the time
 * was reached. */
static bool wait_for_change(lock_page *page, uint32_t seen, uint32_t ticket, uint64_t until_ns)
{
    struct timespec until = {(time_t)(until_ns / SECOND_NS), (long)(until_ns % SECOND_NS)};
    if (syscall(SYS_futex, &page->changes, FUTEX_WAIT_BITSET, seen, &until, NULL, wake_bit(ticket)) == 0 ||
        errno == EAGAIN || errno == EINTR) {
        return false;
    }
    if (errno != ETIMEDOUT) { /* Sleep instead, because a sandbox may forbid futexes. */
        (void)clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &until, NULL);
    }
    return true;
}

static void wake_first(lock_page *page)
{
    (void)__atomic_add_fetch(&page->changes, 1, __ATOMIC_SEQ_CST);
    (void)syscall(SYS_futex, &page->changes, FUTEX_WAKE_BITSET, INT_MAX, NULL, NULL, wake_bit(load(&page->serving)));
}

/* If `serving` is still `ticket`, advance it to the next ticket that was not given up. */
static void pass_ticket(lock_page *page, uint32_t ticket)
{
    uint32_t end = load(&page->next);
    uint32_t after = ticket;
    do {
        after++;
    } while (after != end && load(&page->given_up[after % GIVEN_UP_MAX]) == after);
    (void)__atomic_compare_exchange_n(&page->serving, &ticket, after, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);
}

/* Leave the queue. Return true if the next waiter must be woken. */
static bool leave_queue(lock_page *page, sl_lock *lock)
{
    uint32_t ticket = lock->ticket;
    if (!lock->has_ticket) {
        return false;
    }
    lock->has_ticket = 0;
    /* Store this before checking `serving`, so that a process that advances `serving` later skips this ticket. */
    store(&page->given_up[ticket % GIVEN_UP_MAX], ticket);
    if (load(&page->serving) != ticket) {
        return false;
    }
    pass_ticket(page, ticket);
    return true;
}

/* Try the mutex. Return SL_LOCK_BUSY if it has an owner, SL_LOCK_OWNED or SL_LOCK_ABANDONED if it is owned now, and
 * SL_LOCK_LOST or SL_LOCK_INVALID if it cannot be. */
static int take(lock_page *page, sl_lock *lock)
{
    int error = pthread_mutex_trylock(&page->mutex);
    if (error == EOWNERDEAD) {
        store(&page->is_abandoned, 1);
        error = pthread_mutex_consistent(&page->mutex);
    }
    if (error != 0) {
        return error == EBUSY ? SL_LOCK_BUSY : error == ENOTRECOVERABLE ? SL_LOCK_LOST : SL_LOCK_INVALID;
    }
    lock->is_held = 1;
    if (lock->has_ticket || lock->turn != page->turn) {
        lock->turn = ++page->turn;
        page->turn_limit_ns = clock_ns() + TURN_NS;
    }
    set_turn_end(page, page->turn_limit_ns);
    (void)leave_queue(page, lock);
    return load(&page->is_abandoned) ? SL_LOCK_ABANDONED : SL_LOCK_OWNED;
}

static void draw_ticket(lock_page *page, sl_lock *lock)
{
    lock->ticket = __atomic_fetch_add(&page->next, 1, __ATOMIC_SEQ_CST);
    lock->has_ticket = 1;
}

static int take_in_turn(lock_page *page, sl_lock *lock, uint64_t deadline_ns)
{
    bool is_stuck = false;
    for (;;) {
        uint32_t seen = load(&page->changes);
        uint32_t serving = load(&page->serving);
        /* This process slept so long that its ticket was passed like a dead waiter's ticket. */
        if ((int32_t)(serving - lock->ticket) > 0) {
            draw_ticket(page, lock);
            continue;
        }
        uint64_t now_ns = clock_ns();
        uint64_t left_ns = turn_left_ns(page, now_ns);
        bool is_served = serving == lock->ticket;
        if ((is_served && left_ns == 0) || is_stuck || now_ns >= deadline_ns) {
            int status = take(page, lock);
            if (status != SL_LOCK_BUSY) {
                if (is_stuck) {
                    pass_ticket(page, serving);
                }
                return status;
            }
        }
        if (now_ns >= deadline_ns) {
            return SL_LOCK_BUSY;
        }
        /* A waiter may conclude that nothing moves only after it has slept for SLICE_NS. */
        bool is_whole = !is_served || left_ns == 0;
        uint64_t pause_ns = is_whole ? SLICE_NS : left_ns < LOOK_NS ? left_ns : LOOK_NS;
        uint64_t until_ns = deadline_ns - now_ns < pause_ns ? deadline_ns : now_ns + pause_ns;
        bool is_late = wait_for_change(page, seen, lock->ticket, until_ns);
        is_stuck = is_late && is_whole && until_ns != deadline_ns && load(&page->changes) == seen &&
                   load(&page->serving) == serving;
    }
}

size_t sl_lock_size(void) { return sizeof(lock_page); }

int sl_lock_owner_at(void)
{
#ifdef __GLIBC__
    return 0;
#else /* In musl, the type of the mutex comes first. */
    return (int)sizeof(int);
#endif
}

int sl_lock_initialise(uint8_t *bytes, size_t size)
{
    lock_page *page = (lock_page *)(void *)bytes;
    pthread_mutexattr_t attributes;
    if (!has_room(bytes, size) || pthread_mutexattr_init(&attributes) != 0) {
        return SL_LOCK_INVALID;
    }
    __atomic_store_n(&page->magic, 0, __ATOMIC_SEQ_CST);
    memset(page, 0, sizeof *page);
    bool is_made = pthread_mutexattr_setpshared(&attributes, PTHREAD_PROCESS_SHARED) == 0 &&
                   pthread_mutexattr_setrobust(&attributes, PTHREAD_MUTEX_ROBUST) == 0 &&
                   pthread_mutex_init(&page->mutex, &attributes) == 0;
    (void)pthread_mutexattr_destroy(&attributes);
    if (!is_made) {
        return SL_LOCK_INVALID;
    }
    page->next = page->serving = 1; /* Tickets are numbered from 1, because given_up is initially 0. */
    page->turn = 1;                 /* Turns are numbered from 1, because sl_lock.turn is initially 0. */
    page->layout = layout_here();
    __atomic_store_n(&page->magic, MAGIC, __ATOMIC_RELEASE);
    return SL_LOCK_OWNED;
}

int sl_lock_check(uint8_t *bytes, size_t size)
{
    return page_of(bytes, size) != NULL ? SL_LOCK_OWNED : SL_LOCK_INVALID;
}

int sl_lock_try(sl_lock *lock, uint8_t *bytes, size_t size)
{
    lock_page *page = page_of(bytes, size);
    return page == NULL || lock->is_held ? SL_LOCK_INVALID : take(page, lock);
}

int sl_lock_acquire(sl_lock *lock, uint8_t *bytes, size_t size, uint32_t timeout_ms)
{
    lock_page *page = page_of(bytes, size);
    if (page == NULL || lock->is_held) {
        return SL_LOCK_INVALID;
    }
    if (!lock->has_ticket) {
        lock->comes_back = clock_ns() - lock->released_ns <= GRACE_NS;
        if (load(&page->next) == load(&page->serving) ||
            (lock->turn == load(&page->turn) && turn_left_ns(page, clock_ns()) != 0)) {
            int status = take(page, lock);
            if (status != SL_LOCK_BUSY) {
                return status;
            }
        }
        draw_ticket(page, lock);
    }
    return take_in_turn(page, lock, clock_ns() + timeout_ms * MILLISECOND_NS);
}

int sl_lock_release(sl_lock *lock, uint8_t *bytes, size_t size, int goes_on)
{
    lock_page *page = page_of(bytes, size);
    if (page == NULL) {
        return lock->is_held ? SL_LOCK_INVALID : SL_LOCK_OWNED;
    }
    if (!lock->is_held) {
        if (leave_queue(page, lock)) {
            wake_first(page);
        }
        return SL_LOCK_OWNED;
    }
    uint64_t now_ns = clock_ns();
    uint64_t left_ns = turn_left_ns(page, now_ns);
    bool is_over = !goes_on || !lock->comes_back || left_ns == 0;
    lock->released_ns = now_ns;
    if (is_over) {
        set_turn_end(page, 0);
    } else if (left_ns > GRACE_NS) {
        set_turn_end(page, now_ns + GRACE_NS);
    }
    if (pthread_mutex_unlock(&page->mutex) != 0) { /* Another thread owns the mutex. */
        return SL_LOCK_INVALID;
    }
    lock->is_held = 0;
    /* A waiter draws its ticket first and then tries the mutex, so one of the two processes sees the other. */
    __atomic_thread_fence(__ATOMIC_SEQ_CST);
    if (load(&page->next) == load(&page->serving)) {
        return SL_LOCK_OWNED;
    }
    if (is_over) {
        wake_first(page);
    } else { /* The next waiter polls and needs no wake-up. The other waiters see that `changes` moves. */
        (void)__atomic_add_fetch(&page->changes, 1, __ATOMIC_SEQ_CST);
    }
    return SL_LOCK_OWNED;
}

int sl_lock_abandon(sl_lock *lock, uint8_t *bytes, size_t size)
{
    lock_page *page = page_of(bytes, size);
    if (page != NULL && lock->is_held) {
        store(&page->is_abandoned, 1);
    }
    return sl_lock_release(lock, bytes, size, 0);
}

int sl_lock_repaired(sl_lock *lock, uint8_t *bytes, size_t size)
{
    lock_page *page = page_of(bytes, size);
    if (page == NULL || !lock->is_held) {
        return SL_LOCK_INVALID;
    }
    store(&page->is_abandoned, 0);
    return SL_LOCK_OWNED;
}

#else /* Without robust mutexes, sl_lock_size returns 0, and the caller uses a different lock. */

size_t sl_lock_size(void) { return 0; }

int sl_lock_owner_at(void) { return -1; }

int sl_lock_initialise(uint8_t *bytes, size_t size)
{
    (void)bytes;
    (void)size;
    return SL_LOCK_INVALID;
}

int sl_lock_check(uint8_t *bytes, size_t size) { return sl_lock_initialise(bytes, size); }

int sl_lock_try(sl_lock *lock, uint8_t *bytes, size_t size)
{
    (void)lock;
    return sl_lock_initialise(bytes, size);
}

int sl_lock_acquire(sl_lock *lock, uint8_t *bytes, size_t size, uint32_t timeout_ms)
{
    (void)timeout_ms;
    return sl_lock_try(lock, bytes, size);
}

int sl_lock_release(sl_lock *lock, uint8_t *bytes, size_t size, int goes_on)
{
    (void)goes_on;
    return sl_lock_try(lock, bytes, size);
}

int sl_lock_abandon(sl_lock *lock, uint8_t *bytes, size_t size) { return sl_lock_try(lock, bytes, size); }

int sl_lock_repaired(sl_lock *lock, uint8_t *bytes, size_t size) { return sl_lock_try(lock, bytes, size); }

#endif
