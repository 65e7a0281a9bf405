/* Encodes the record of an event (of an entry or a lease) and its index changes (FORMAT.md 5 and 6).
 *
 * Trust: none in nodes. Numbers, strings and items are written unchecked, because the caller has made or checked them.
 * Invariant (T6): the record and the index changes are those that the general path makes, byte for byte. See
 * tests/properties/test_entry_kernel.py. The kernel returns SL_FALLBACK if the value must be cut
 * into pieces, closes a chunk, or may be stored already. */
#include "internal.h"

enum {
    NO_FLAGS = 0,
    TYPE_ENTRY = 10,
    DIGESTS_SIZE = 2 * SL_DIGEST_SIZE,
    TAG_SIZE = 8,
    RANK = 128, /* The rank of priority 0. */
    LEASE_MARK = '/'
};

enum { MAJOR_UNSIGNED = 0, MAJOR_BYTES = 2, MAJOR_TEXT = 3, MAJOR_ARRAY = 4, NULL_ITEM = 0xF6 };
enum { BODY_FIELDS = 14, ORDER_FIELDS = 3, CLAIM_FIELDS = 5 };
enum { ACT_DELETE = 1, ACT_EXPIRE = 2, ACT_RELEASE = 6, ACT_COMPLETE = 7, ACT_DEAD = 9 };

/* The offsets in `fixed`, which sl_entry_make describes. */
enum {
    THREAD_AT = 0,
    ACT_AT = 8,
    LSN_AT = 16,
    TIME_AT = 24,
    CREATED_AT = 32,
    EXPIRES_AT = 40,
    RANK_AT = 48,
    READY_AT = 56,
    ATTEMPTS_AT = 64,
    ROOT_LSN_AT = 72,
    ROOT_NODE_AT = 80,
    WAS_THERE_AT = 88,
    ROW_AT = 96,
    CLAIM_AT = 144,
    ROOT_DIGEST_AT = 184,
    CHAIN_AT = 204
};

typedef struct {
    uint64_t lsn; /* 0 if the index has no row for this key. */
    uint64_t expires_us;
    uint64_t order_us;
    uint64_t rank;
    const uint8_t *tag;
    uint64_t deadline_us;
} entry_row;

typedef struct {
    const uint8_t *fixed;
    const uint8_t *key;
    size_t key_size;
    uint64_t lsn;
    uint64_t root_lsn; /* 0 if the entry has no value. */
    uint64_t root_node;
    const uint8_t *root_digest;
    bool is_claimed;
    bool is_lease;
    bool stays; /* Whether the entry exists after the event. */
    bool was_there;
} entry_event;

static uint64_t number_at(const uint8_t *fixed, size_t at) { return sl_load_be(fixed + at, 8); }

static bool has_tag(const uint8_t *tag)
{
    static const uint8_t none[TAG_SIZE];
    return memcmp(tag, none, TAG_SIZE) != 0;
}

static bool goes(uint64_t act)
{
    return act == ACT_DELETE || act == ACT_EXPIRE || act == ACT_COMPLETE || act == ACT_DEAD;
}

/* --- the value ------------------------------------------------------------------------------------ */

/* Make the nodes of the new value, and store its root in `event`. An unchanged root keeps its location. */
static int change_value(sl_step *step, entry_event *event, const uint8_t *changes, size_t changes_size)
{
    static const uint8_t empty[] = {SL_KIND_DICT, 0, 0, 0};
    sl_node_view state = {empty, sizeof empty, sizeof empty, 0};
    int status = SL_OK;
    if (step->held_size > 0) {
        status = sl_step_node(step, SL_NODE_ROOT, event->root_digest, event->root_lsn, event->root_node, &state);
    }
    if (status == SL_OK) {
        status = sl_step_change(step, &state, event->root_digest, changes, changes_size);
    }
    if (status == SL_ABSENT) {
        step->made.row_count = step->made.large_count = step->nodes_size = 0;
        return SL_OK;
    }
    if (status == SL_OK && step->made.large_count > 0) {
        return SL_FALLBACK; /* The general path looks up whether the store already has this leaf. */
    }
    if (status == SL_OK) {
        step->made.root_row = step->row;
        event->root_lsn = event->lsn;
        event->root_node = step->row;
        event->root_digest = sl_step_row_digest(step, step->row);
    }
    return status;
}

/* --- the record ----------------------------------------------------------------------------------- */

static void put_unsigned(sl_writer *out, uint64_t number) { sl_put_head(out, MAJOR_UNSIGNED, number); }

static void put_field(sl_writer *out, const uint8_t *fixed, size_t at) { put_unsigned(out, number_at(fixed, at)); }

static void put_root(sl_writer *body, const entry_event *event)
{
    if (event->root_lsn == 0) {
        sl_put_byte(body, NULL_ITEM);
    } else {
        sl_put_head(body, MAJOR_BYTES, SL_DIGEST_SIZE);
        sl_put(body, event->root_digest, SL_DIGEST_SIZE);
    }
    put_unsigned(body, event->root_lsn == event->lsn ? 0 : event->root_lsn);
    put_unsigned(body, event->root_node);
}

static void put_order(sl_writer *body, const uint8_t *fixed)
{
    if (number_at(fixed, RANK_AT) == RANK && number_at(fixed, READY_AT) == 0 && number_at(fixed, ATTEMPTS_AT) == 0) {
        sl_put_byte(body, NULL_ITEM);
        return;
    }
    sl_put_head(body, MAJOR_ARRAY, ORDER_FIELDS);
    put_field(body, fixed, RANK_AT);
    put_field(body, fixed, READY_AT);
    put_field(body, fixed, ATTEMPTS_AT);
}

static void put_claim(sl_writer *body, const entry_event *event)
{
    const uint8_t *claim = event->fixed + CLAIM_AT;
    if (!event->is_claimed) {
        sl_put_byte(body, NULL_ITEM);
        return;
    }
    sl_put_head(body, MAJOR_ARRAY, CLAIM_FIELDS);
    put_field(body, claim, 0);
    sl_put_head(body, MAJOR_BYTES, TAG_SIZE);
    sl_put(body, claim + 8, TAG_SIZE);
    for (size_t at = 16; at <= 32; at += 8) {
        put_field(body, claim, at);
    }
}

static void put_body(sl_writer *body, const entry_event *event, const uint8_t *agent, size_t agent_size,
                     const uint8_t *error, size_t error_size)
{
    const uint8_t *fixed = event->fixed;
    sl_put_head(body, MAJOR_ARRAY, BODY_FIELDS);
    put_field(body, fixed, THREAD_AT);
    put_field(body, fixed, ACT_AT);
    sl_put_head(body, MAJOR_TEXT, event->key_size);
    sl_put(body, event->key, event->key_size);
    sl_put(body, agent, agent_size);
    put_field(body, fixed, ROW_AT); /* This is the LSN of the key's previous record. */
    put_field(body, fixed, CREATED_AT);
    put_field(body, fixed, EXPIRES_AT);
    put_root(body, event);
    put_order(body, fixed);
    put_claim(body, event);
    sl_put(body, error, error_size);
    sl_put_head(body, MAJOR_ARRAY, 0); /* The record borrows no nodes from other threads. */
}

/* --- the index ------------------------------------------------------------------------------------ */

/* Begin an index change: write the sizes of its key and payload, and then the first bytes of the key. */
static void begin_change(sl_writer *out, size_t key_size, size_t payload_size, unsigned prefix, const uint8_t *thread)
{
    sl_put_be(out, 1 + 8 + key_size, 2);
    sl_put_be(out, payload_size, 2);
    sl_put_byte(out, prefix);
    sl_put(out, thread, 8);
}

/* Begin the index row of the entry's key. The row's own key begins with `k` if the entry exists, otherwise `K`. */
static void put_name(sl_writer *out, const entry_event *event, size_t payload_size, bool is_there)
{
    begin_change(out, event->key_size, payload_size, is_there ? 'k' : 'K', event->fixed + THREAD_AT);
    sl_put(out, event->key, event->key_size);
}

static void put_event(sl_writer *out, const entry_event *event, size_t payload_size, uint64_t lsn)
{
    begin_change(out, 8, payload_size, 'e', event->fixed + THREAD_AT);
    sl_put_be(out, lsn, 8);
}

static void put_expiry(sl_writer *out, const entry_event *event, size_t payload_size, uint64_t expires_us, uint64_t lsn)
{
    begin_change(out, 16, payload_size, 'E', event->fixed + THREAD_AT);
    sl_put_be(out, expires_us, 8);
    sl_put_be(out, lsn, 8);
}

static void put_deadline(sl_writer *out, const entry_event *event, size_t payload_size, const entry_row *row)
{
    begin_change(out, TAG_SIZE + 16, payload_size, 'Q', event->fixed + THREAD_AT);
    sl_put(out, row->tag, TAG_SIZE);
    sl_put_be(out, row->deadline_us, 8);
    sl_put_be(out, row->lsn, 8);
}

/* Begin the queue row of a claimable entry: directory, rank, time, and last segment of the key. */
static void put_queued(sl_writer *out, const entry_event *event, size_t payload_size, const entry_row *row)
{
    size_t name_at = event->key_size;
    while (name_at > 0 && event->key[name_at - 1] != '/') {
        name_at--;
    }
    size_t directory_size = name_at > 0 ? name_at - 1 : 0;
    size_t name_size = event->key_size - name_at;
    begin_change(out, directory_size + 1 + 1 + 8 + name_size, payload_size, 'q', event->fixed + THREAD_AT);
    sl_put(out, event->key, directory_size);
    sl_put_byte(out, 0);
    sl_put_byte(out, (unsigned)row->rank);
    sl_put_be(out, row->order_us, 8);
    sl_put(out, event->key + name_at, name_size);
}

static bool is_same_place(const entry_row *a, const entry_row *b) { return a->order_us == b->order_us && a->rank == b->rank; }

/* Delete the index rows that the key's previous record wrote, except rows that put_rows replaces and rows that stay
 * the same. */
static void take_out(sl_writer *out, const entry_event *event, const entry_row *before, const entry_row *row)
{
    bool is_queued = event->stays && !event->is_claimed;
    if (before->expires_us > 0) {
        put_expiry(out, event, SL_ENTRY_DELETED, before->expires_us, before->lsn);
    }
    if (has_tag(before->tag)) {
        put_deadline(out, event, SL_ENTRY_DELETED, before);
    } else if (event->was_there && !(is_queued && is_same_place(before, row))) {
        put_queued(out, event, SL_ENTRY_DELETED, before);
    }
    if (event->was_there != event->stays) {
        put_name(out, event, SL_ENTRY_DELETED, event->was_there);
    }
    if (event->is_lease) {
        put_event(out, event, SL_ENTRY_DELETED, before->lsn);
    }
}

static void put_rows(sl_writer *out, const entry_event *event)
{
    enum { ROW_SIZE = 25, CLAIMED_ROW_SIZE = ROW_SIZE + TAG_SIZE + 8 };
    const uint8_t *fixed = event->fixed;
    const entry_row before = {number_at(fixed, ROW_AT),      number_at(fixed, ROW_AT + 8),
                              number_at(fixed, ROW_AT + 16), number_at(fixed, ROW_AT + 24),
                              fixed + ROW_AT + 32,           number_at(fixed, ROW_AT + 40)};
    uint64_t ready_us = number_at(fixed, READY_AT);
    const entry_row row = {event->lsn,
                           number_at(fixed, EXPIRES_AT),
                           ready_us > 0 ? ready_us : number_at(fixed, CREATED_AT),
                           number_at(fixed, RANK_AT),
                           fixed + CLAIM_AT + 8,
                           event->is_claimed ? number_at(fixed, CLAIM_AT + 16) : 0};
    if (before.lsn > 0) {
        take_out(out, event, &before, &row);
    }
    if (event->is_lease && number_at(fixed, ACT_AT) == ACT_RELEASE) {
        put_name(out, event, SL_ENTRY_DELETED, false);
        return;
    }
    put_name(out, event, event->is_claimed ? CLAIMED_ROW_SIZE : ROW_SIZE, event->stays);
    sl_put_be(out, row.lsn, 8);
    sl_put_be(out, row.expires_us, 8);
    sl_put_be(out, row.order_us, 8);
    sl_put_byte(out, (unsigned)row.rank);
    if (event->is_claimed) {
        sl_put(out, row.tag, TAG_SIZE);
        sl_put_be(out, row.deadline_us, 8);
    }
    put_event(out, event, 0, row.lsn);
    bool was_queued = event->was_there && !has_tag(before.tag);
    if (event->stays && !event->is_claimed && !(was_queued && is_same_place(&before, &row))) {
        put_queued(out, event, ready_us > 0, &row);
        if (ready_us > 0) {
            sl_put_byte(out, 1);
        }
    }
    if (row.expires_us > 0) {
        put_expiry(out, event, event->key_size, row.expires_us, row.lsn);
        sl_put(out, event->key, event->key_size);
    }
    if (event->is_claimed) {
        put_deadline(out, event, event->key_size, &row);
        sl_put(out, event->key, event->key_size);
    }
}

/* --- the kernel ----------------------------------------------------------------------------------- */

int sl_entry_make(sl_step *step, const uint8_t *fixed, const uint8_t *held, size_t held_size, const uint8_t *changes,
                  size_t changes_size, const uint8_t *key, size_t key_size, const uint8_t *agent, size_t agent_size,
                  const uint8_t *error, size_t error_size, sl_output *out)
{
    entry_event event = {fixed,
                         key,
                         key_size,
                         number_at(fixed, LSN_AT),
                         number_at(fixed, ROOT_LSN_AT),
                         number_at(fixed, ROOT_NODE_AT),
                         fixed + ROOT_DIGEST_AT,
                         has_tag(fixed + CLAIM_AT + 8),
                         key_size > 0 && key[0] == LEASE_MARK,
                         false,
                         number_at(fixed, WAS_THERE_AT) > 0};
    sl_step_begin(step, held, held_size, NULL, 0);
    if (key_size > SL_ENTRY_KEY_SIZE_MAX || out->capacity < DIGESTS_SIZE + SL_ENVELOPE_REST_SIZE) {
        return SL_FALLBACK;
    }
    int status = changes_size > 0 ? change_value(step, &event, changes, changes_size) : SL_OK;
    if (status != SL_OK) {
        return status;
    }
    event.stays = event.root_lsn > 0 && !goes(number_at(fixed, ACT_AT));

    size_t body_at = DIGESTS_SIZE + SL_ENVELOPE_REST_SIZE;
    size_t rows_size = (size_t)step->made.row_count * SL_ROW_SIZE;
    sl_writer writer = {out->bytes, out->capacity, body_at, false};
    put_body(&writer, &event, agent, agent_size, error, error_size);
    size_t body_size = writer.at - body_at;
    uint64_t time_us = number_at(fixed, TIME_AT);
    sl_put(&writer, step->rows, rows_size);
    step->made.nodes_at = writer.at;
    sl_put(&writer, step->nodes, (size_t)step->nodes_size);
    step->made.record_end = writer.at;
    put_rows(&writer, &event);
    if (writer.full) {
        return SL_FALLBACK;
    }
    step->made.page_end = writer.at;
    status = sl_chain_digest(TYPE_ENTRY, NO_FLAGS, event.lsn, time_us, fixed + CHAIN_AT, out->bytes + body_at, body_size,
                             step->rows, rows_size, out->bytes);
    if (status != SL_OK) {
        return status;
    }
    memcpy(out->bytes + SL_DIGEST_SIZE, event.root_digest, SL_DIGEST_SIZE);
    sl_put_envelope(out->bytes + DIGESTS_SIZE, TYPE_ENTRY, body_size, event.lsn, time_us, fixed + CHAIN_AT,
                    step->made.row_count);
    out->size = writer.at;
    return SL_OK;
}
