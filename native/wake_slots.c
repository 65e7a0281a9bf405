/* Manages the wake-up file: each waiter, in a thread of any process, owns a slot with a pair of words (wake.c).
 *
 * header, 64 bytes:   magic u64 | tickets given u64 | records noted u64 | slots used u32 | zeros
 * 256 slots, of 512:  sequence u32 | waiters u32 | owner u64 | ticket u64 | mask u64 | heartbeat u64 |
 *                     position u64 | is_called u32 | subject size u32 | subject, up to 400 | bell u32 | zeros
 *
 * A slot is free while `owner` is 0. A waiter enters by swapping its random number into `owner`. It renews
 * `heartbeat` (ms of CLOCK_BOOTTIME, or of CLOCK_MONOTONIC if the system lacks that) whenever it wakes. Another
 * waiter may take over a slot that is not renewed.
 * A slot with a subject is called, which wakes exactly one waiter. A slot without a subject is only notified. A
 * caller swaps `is_called` from 0 to 1. It is 2 while the owner enters or leaves and cannot be called. If the owner
 * of a called slot has died, the first waiter with the same subject inherits the call.
 * One thread can wait in several slots: it sleeps on one slot, and the `bell` of the other slots is the number of
 * that slot plus 1. A call to a slot also notifies the slot of its bell.
 * A committing process adds to `records noted`. If the log grows by more records, some process commits without
 * reaching this file.
 * Trust: the memory is shared with other processes. Any value in it is tolerated; the worst result is an early
 * or late wake-up.
 * Invariants: the sequence of a slot never decreases, so a waiter that has lost its slot cannot sleep through a
 * call to the next owner. Exactly one waiter takes a call: the owner of the slot when it wakes or leaves, or the waiter
 * that inherits the call. */
#ifdef __linux__
#define _GNU_SOURCE
#else
#define _POSIX_C_SOURCE 200809L
#endif

#include "internal.h"

#include <time.h>

enum {
    HEADER_SIZE = 64,
    SLOT_SIZE = 512,
    SLOTS = 256,
    CALLABLE = 0,
    CALLED = 1,
    CHANGING = 2
};

static const uint64_t MAGIC = 0x31656B6177676C73; /* The bytes are "slgwake1", with the lowest byte first. */
static const uint64_t CALLED_STALE_MS = 60000;    /* How long a call to a dead owner can be inherited. */
static const uint64_t SECOND_MS = 1000;
static const uint64_t MS_NS = 1000000;

typedef struct {
    uint64_t magic;
    uint64_t tickets;
    uint64_t noted;
    uint32_t used;
    uint8_t zeros[36];
} wake_header;

typedef struct {
    uint32_t word[2];
    uint64_t owner;
    uint64_t ticket;
    uint64_t mask;
    uint64_t heartbeat_ms;
    uint64_t position;
    uint32_t is_called;
    uint32_t subject_size;
    uint8_t subject[SL_WAKE_SUBJECT_SIZE_MAX];
    uint32_t bell;
    uint8_t zeros[52];
} wake_slot;

_Static_assert(sizeof(wake_header) == HEADER_SIZE, "the header has no gaps");
_Static_assert(sizeof(wake_slot) == SLOT_SIZE, "a slot has no gaps");
_Static_assert(SL_WAKE_FILE_SIZE == HEADER_SIZE + SLOTS * SLOT_SIZE, "the file is header and slots");

#define LOAD(of) __atomic_load_n(&(of), __ATOMIC_SEQ_CST)
#define STORE(to, value) __atomic_store_n(&(to), (value), __ATOMIC_SEQ_CST)
#define SWAP_IF(of, before, after) \
    __atomic_compare_exchange_n(&(of), &(before), (after), false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST)

static wake_header *header_of(uint8_t *file) { return (wake_header *)(void *)file; }

static wake_slot *slot_of(uint8_t *file, size_t index)
{
    return (wake_slot *)(void *)(file + HEADER_SIZE + index * SLOT_SIZE);
}

static bool is_file(const uint8_t *file, size_t size)
{
    return (uintptr_t)file % sizeof(uint64_t) == 0 && size >= SL_WAKE_FILE_SIZE;
}

static size_t slots_used(uint8_t *file)
{
    uint32_t used = LOAD(header_of(file)->used);
    return used < SLOTS ? used : SLOTS;
}

static uint64_t clock_ms(void)
{
    struct timespec now;
#ifdef CLOCK_BOOTTIME
    (void)clock_gettime(CLOCK_BOOTTIME, &now);
#else
    (void)clock_gettime(CLOCK_MONOTONIC, &now);
#endif
    return (uint64_t)now.tv_sec * SECOND_MS + (uint64_t)now.tv_nsec / MS_NS;
}

/* Return the time since the slot was renewed. A heartbeat slightly after `now_ms` was read from the clock a moment
 * later, and has age 0. A heartbeat far in the future was written before a reboot, and has the greatest age. */
static uint64_t age_ms(wake_slot *slot, uint64_t now_ms)
{
    uint64_t heartbeat_ms = LOAD(slot->heartbeat_ms);
    if (heartbeat_ms <= now_ms) {
        return now_ms - heartbeat_ms;
    }
    return heartbeat_ms - now_ms < SECOND_MS ? 0 : UINT64_MAX;
}

static void raise_to(uint64_t *word, uint64_t value)
{
    uint64_t before = LOAD(*word);
    while (before < value && !SWAP_IF(*word, before, value)) {
    }
}

/* Return the slot of `place`, or NULL if its owner has lost it. */
static wake_slot *own_slot(uint8_t *file, const sl_wake_place *place)
{
    if (place->slot >= SLOTS || place->owner == 0) {
        return NULL;
    }
    wake_slot *slot = slot_of(file, place->slot);
    return LOAD(slot->owner) == place->owner ? slot : NULL;
}

static size_t subject_size(wake_slot *slot)
{
    uint32_t size = LOAD(slot->subject_size);
    return size <= SL_WAKE_SUBJECT_SIZE_MAX ? size : 0;
}

static bool is_same_subject(wake_slot *one, wake_slot *other)
{
    size_t size = subject_size(one);
    return size == subject_size(other) && memcmp(one->subject, other->subject, size) == 0;
}

int sl_wake_open(uint8_t *file, size_t size)
{
    if (!is_file(file, size)) {
        return SL_USAGE;
    }
    uint64_t before = 0;
    return SWAP_IF(header_of(file)->magic, before, MAGIC) || before == MAGIC ? SL_OK : SL_MALFORMED;
}

/* Take a free slot, or else the stale slot that was renewed longest ago. Return NULL if there is neither. */
static wake_slot *take_slot(uint8_t *file, sl_wake_place *place, uint64_t stale_ms, uint64_t now_ms)
{
    size_t oldest = SLOTS;
    uint64_t oldest_ms = 0, oldest_owner = 0;
    for (size_t i = 0; i < SLOTS; i++) {
        wake_slot *slot = slot_of(file, i);
        uint64_t owner = LOAD(slot->owner);
        if (owner == 0) {
            if (SWAP_IF(slot->owner, owner, place->owner)) {
                place->slot = (uint32_t)i;
                return slot;
            }
            continue;
        }
        uint64_t old_ms = age_ms(slot, now_ms);
        uint64_t needed_ms = LOAD(slot->is_called) == CALLED && stale_ms < CALLED_STALE_MS ? CALLED_STALE_MS : stale_ms;
        if (old_ms > needed_ms && old_ms > oldest_ms) {
            oldest = i;
            oldest_ms = old_ms;
            oldest_owner = owner;
        }
    }
    if (oldest == SLOTS || !SWAP_IF(slot_of(file, oldest)->owner, oldest_owner, place->owner)) {
        return NULL;
    }
    place->slot = (uint32_t)oldest;
    return slot_of(file, oldest);
}

int sl_wake_enter(uint8_t *file, size_t size, sl_wake_place *place, uint64_t mask, uint64_t position,
                  const uint8_t *subject, size_t subject_len, uint64_t stale_ms)
{
    if (!is_file(file, size) || place->owner == 0 || subject_len > SL_WAKE_SUBJECT_SIZE_MAX) {
        return SL_USAGE;
    }
    wake_header *header = header_of(file);
    uint64_t now_ms = clock_ms();
    wake_slot *slot = take_slot(file, place, stale_ms, now_ms);
    if (slot == NULL) {
        return SL_ABSENT;
    }
    STORE(slot->is_called, CHANGING);
    STORE(slot->heartbeat_ms, now_ms);
    if (place->ticket == 0) {
        place->ticket = __atomic_add_fetch(&header->tickets, 1, __ATOMIC_SEQ_CST);
    } else if (place->ticket <= INT64_MAX) {
        raise_to(&header->tickets, place->ticket);
    }
    uint32_t used = LOAD(header->used);
    while (used <= place->slot && !SWAP_IF(header->used, used, place->slot + 1)) {
    }
    STORE(slot->ticket, place->ticket);
    STORE(slot->bell, place->bell);
    STORE(slot->position, position);
    STORE(slot->subject_size, 0);
    if (subject_len > 0) {
        memcpy(slot->subject, subject, subject_len);
    }
    STORE(slot->subject_size, (uint32_t)subject_len);
    place->sequence = LOAD(slot->word[0]);
    STORE(slot->mask, mask);
    STORE(slot->is_called, CALLABLE);
    return SL_OK;
}

int sl_wake_leave(uint8_t *file, size_t size, const sl_wake_place *place, int *was_called)
{
    *was_called = 0;
    if (!is_file(file, size)) {
        return SL_USAGE;
    }
    wake_slot *slot = own_slot(file, place);
    if (slot == NULL) {
        return SL_ABSENT;
    }
    *was_called = __atomic_exchange_n(&slot->is_called, CHANGING, __ATOMIC_SEQ_CST) == CALLED;
    STORE(slot->mask, 0);
    uint64_t owner = place->owner;
    (void)SWAP_IF(slot->owner, owner, 0);
    return SL_OK;
}

static bool is_first(uint8_t *file, wake_slot *own, uint64_t ticket, uint64_t stale_ms, uint64_t now_ms)
{
    size_t used = slots_used(file);
    for (size_t i = 0; i < used; i++) {
        wake_slot *slot = slot_of(file, i);
        if (slot != own && LOAD(slot->owner) != 0 && LOAD(slot->ticket) < ticket && age_ms(slot, now_ms) <= stale_ms &&
            LOAD(slot->is_called) != CHANGING && is_same_subject(slot, own)) {
            return false;
        }
    }
    return true;
}

/* Inherit a call to a dead owner with the same subject, if `own` is the first waiter for it. */
static bool inherit_call(uint8_t *file, wake_slot *own, uint64_t ticket, uint64_t stale_ms)
{
    uint64_t now_ms = clock_ms();
    size_t used = slots_used(file);
    for (size_t i = 0; i < used; i++) {
        wake_slot *slot = slot_of(file, i);
        uint32_t called = CALLED;
        if (slot != own && LOAD(slot->owner) != 0 && LOAD(slot->is_called) == CALLED &&
            age_ms(slot, now_ms) > stale_ms && is_same_subject(slot, own) &&
            is_first(file, own, ticket, stale_ms, now_ms) && SWAP_IF(slot->is_called, called, CHANGING)) {
            return true;
        }
    }
    return false;
}

/* Read the sequence before `is_called`, so that the next wait reports a call that arrives between the two. */
static bool take_call(wake_slot *slot, sl_wake_place *place)
{
    uint32_t sequence = LOAD(slot->word[0]);
    bool is_called = __atomic_exchange_n(&slot->is_called, CALLABLE, __ATOMIC_SEQ_CST) == CALLED;
    bool is_woken = is_called || sequence != place->sequence;
    place->sequence = sequence;
    return is_woken;
}

int sl_wake_sleep(uint8_t *file, size_t size, sl_wake_place *place, uint64_t timeout_ns, uint64_t stale_ms)
{
    if (!is_file(file, size)) {
        return SL_USAGE;
    }
    wake_slot *slot = own_slot(file, place);
    if (slot == NULL) {
        return SL_FALLBACK;
    }
    STORE(slot->heartbeat_ms, clock_ms());
    if (take_call(slot, place)) {
        return SL_OK;
    }
    (void)sl_wake_wait(slot->word, place->sequence, timeout_ns);
    if (own_slot(file, place) == NULL) {
        return SL_FALLBACK;
    }
    STORE(slot->heartbeat_ms, clock_ms());
    if (take_call(slot, place) || (subject_size(slot) && inherit_call(file, slot, place->ticket, stale_ms))) {
        return SL_OK;
    }
    return SL_ABSENT;
}

int sl_wake_is_first(uint8_t *file, size_t size, const sl_wake_place *place, uint64_t stale_ms)
{
    if (!is_file(file, size)) {
        return SL_USAGE;
    }
    wake_slot *own = own_slot(file, place);
    return own == NULL || is_first(file, own, place->ticket, stale_ms, clock_ms()) ? SL_OK : SL_ABSENT;
}

int sl_wake_describe(uint8_t *file, size_t size, const sl_wake_place *place, uint64_t mask, uint64_t position)
{
    if (!is_file(file, size)) {
        return SL_USAGE;
    }
    wake_slot *slot = own_slot(file, place);
    if (slot == NULL) {
        return SL_FALLBACK;
    }
    STORE(slot->ticket, place->ticket);
    STORE(slot->bell, place->bell);
    STORE(slot->mask, mask);
    STORE(slot->position, position);
    return SL_OK;
}

int sl_wake_ticket(uint8_t *file, size_t size, uint64_t *ticket)
{
    if (!is_file(file, size)) {
        return SL_USAGE;
    }
    *ticket = __atomic_add_fetch(&header_of(file)->tickets, 1, __ATOMIC_SEQ_CST);
    return SL_OK;
}

int sl_wake_positions(uint8_t *file, size_t size, uint64_t within_ms, uint64_t *lowest)
{
    if (!is_file(file, size)) {
        return SL_USAGE;
    }
    uint64_t now_ms = clock_ms();
    size_t used = slots_used(file);
    *lowest = 0;
    for (size_t i = 0; i < used; i++) {
        wake_slot *slot = slot_of(file, i);
        uint64_t position = LOAD(slot->position);
        if (LOAD(slot->owner) != 0 && position != 0 && age_ms(slot, now_ms) <= within_ms &&
            (*lowest == 0 || position < *lowest)) {
            *lowest = position;
        }
    }
    return *lowest == 0 ? SL_ABSENT : SL_OK;
}

int sl_wake_next(uint8_t *file, size_t size, sl_wake_place *place, uint64_t stale_ms, sl_output *subject)
{
    if (!is_file(file, size) || subject->capacity < SL_WAKE_SUBJECT_SIZE_MAX) {
        return SL_USAGE;
    }
    uint64_t now_ms = clock_ms();
    size_t used = slots_used(file);
    sl_wake_place found = {0, UINT64_MAX, SLOTS, 0, 0};
    for (size_t i = 0; i < used; i++) {
        wake_slot *slot = slot_of(file, i);
        uint64_t owner = LOAD(slot->owner), ticket = LOAD(slot->ticket);
        bool is_behind = ticket > place->ticket || (ticket == place->ticket && i > place->slot);
        bool is_before = found.owner == 0 || ticket < found.ticket;
        if (owner != 0 && is_behind && is_before && LOAD(slot->is_called) == CALLABLE && subject_size(slot) != 0 &&
            age_ms(slot, now_ms) <= stale_ms) {
            found = (sl_wake_place){owner, ticket, (uint32_t)i, 0, 0};
        }
    }
    if (found.owner == 0) {
        return SL_ABSENT;
    }
    wake_slot *slot = slot_of(file, found.slot);
    subject->size = subject_size(slot);
    memcpy(subject->bytes, slot->subject, subject->size);
    *place = found;
    return SL_OK;
}

int sl_wake_call(uint8_t *file, size_t size, const sl_wake_place *place)
{
    if (!is_file(file, size)) {
        return SL_USAGE;
    }
    wake_slot *slot = own_slot(file, place);
    uint32_t callable = CALLABLE, called = CALLED;
    if (slot == NULL || !SWAP_IF(slot->is_called, callable, CALLED)) {
        return SL_ABSENT;
    }
    /* If another waiter has just taken over the slot, withdraw the call, which was not for that waiter. */
    if (own_slot(file, place) == NULL) {
        (void)SWAP_IF(slot->is_called, called, CALLABLE);
        return SL_ABSENT;
    }
    uint32_t bell = LOAD(slot->bell);
    if (bell > 0 && bell <= SLOTS) {
        (void)sl_wake_notify(slot_of(file, bell - 1)->word);
    }
    return sl_wake_notify(slot->word);
}

int sl_wake_call_mask(uint8_t *file, size_t size, uint64_t mask)
{
    if (!is_file(file, size)) {
        return SL_USAGE;
    }
    size_t used = slots_used(file);
    for (size_t i = 0; i < used; i++) {
        wake_slot *slot = slot_of(file, i);
        if (LOAD(slot->owner) != 0 && (LOAD(slot->mask) & mask) != 0 && LOAD(slot->subject_size) == 0) {
            (void)sl_wake_notify(slot->word);
        }
    }
    return SL_OK;
}

int sl_wake_note(uint8_t *file, size_t size, uint64_t records)
{
    if (!is_file(file, size)) {
        return SL_USAGE;
    }
    (void)__atomic_add_fetch(&header_of(file)->noted, records, __ATOMIC_SEQ_CST);
    return SL_OK;
}

int sl_wake_noted(uint8_t *file, size_t size, uint64_t *records)
{
    if (!is_file(file, size)) {
        return SL_USAGE;
    }
    *records = LOAD(header_of(file)->noted);
    return SL_OK;
}
