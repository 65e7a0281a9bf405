/* Makes a step: encodes the whole record of the next checkpoint or rollback from the head and the changes. Also
 * encodes the version page with the new entry, and the nodes that the next step needs first.
 *
 * Trust: none in nodes and pages. Numbers and items are written unchecked, because the caller has encoded or checked
 * them.
 * Invariant (T6): the bytes equal those that the general path makes when it encodes the body, the record and the page
 * one by one. */
#include "internal.h"

enum {
    DIGESTS_SIZE = 3 * SL_DIGEST_SIZE,
    NO_FLAGS = 0,
    FORMAT_VERSION = 1,
    LSN_AT = 8 * SL_CHECKPOINT_NUMBERS, /* This and the following values are offsets in `fixed`. */
    PARENT_AT = LSN_AT + 8,
    STATE_AT = PARENT_AT + SL_DIGEST_SIZE,
    CHAIN_AT = STATE_AT + SL_DIGEST_SIZE
};

static uint64_t number_of(const uint8_t *numbers, unsigned index) { return sl_load_be(numbers + (size_t)8 * index, 8); }

static void set_number(uint8_t *numbers, unsigned index, uint64_t number)
{
    sl_writer writer = {numbers + (size_t)8 * index, 8, 0, false};
    sl_put_be(&writer, number, 8);
}

void sl_step_begin(sl_step *step, const uint8_t *held, size_t held_size, const uint8_t *known, size_t known_size)
{
    step->made = (sl_step_made){0};
    step->held = held;
    step->held_size = held_size;
    step->known = known;
    step->known_size = known_size;
    step->row = step->nodes_size = 0;
    step->change_count = step->batch_size = step->locators_size = step->list_count = 0;
}

/* Make the nodes of the new state, unless the state is unchanged. Store the location of its root in `numbers`. */
static int change_state(sl_step *step, uint8_t *numbers, const uint8_t *state_digest, const uint8_t *changes,
                        size_t changes_size)
{
    sl_node_view state;
    int status = sl_step_node(step, SL_NODE_ROOT, state_digest, number_of(numbers, SL_NUMBER_ROOT_LSN),
                              number_of(numbers, SL_NUMBER_ROOT_NODE), &state);
    if (status == SL_OK) {
        status = sl_step_change(step, &state, state_digest, changes, changes_size);
    }
    if (status == SL_OK) {
        step->made.root_row = step->row;
        set_number(numbers, SL_NUMBER_ROOT_LSN, 0);
        set_number(numbers, SL_NUMBER_ROOT_NODE, step->row);
    } else if (status == SL_ABSENT) { /* The state is unchanged: keep the root's location, and drop the nodes. */
        step->made.row_count = step->made.large_count = step->nodes_size = 0;
        status = SL_OK;
    }
    return status;
}

void sl_put_envelope(uint8_t *to, int type, size_t body_size, uint64_t lsn, uint64_t time_us, const uint8_t *previous_chain,
                     uint64_t row_count)
{
    sl_writer envelope = {to, SL_ENVELOPE_REST_SIZE, 0, false};
    sl_put_byte(&envelope, FORMAT_VERSION);
    sl_put_byte(&envelope, (unsigned)type);
    sl_put_be(&envelope, NO_FLAGS, 2);
    sl_put_be(&envelope, body_size, 4);
    sl_put_be(&envelope, lsn, 8);
    sl_put_be(&envelope, time_us, 8);
    sl_put(&envelope, previous_chain, SL_DIGEST_SIZE);
    sl_put_be(&envelope, row_count, 4);
    assert(envelope.at == SL_ENVELOPE_REST_SIZE && !envelope.full);
}

static void put_held(sl_writer *out, unsigned type, const uint8_t *digest, const sl_node_view *node)
{
    sl_put_byte(out, type);
    sl_put(out, digest, SL_DIGEST_SIZE);
    sl_put_be(out, node->lsn, 8);
    sl_put_be(out, node->size, 4);
    sl_put_be(out, node->content_size, 4);
    sl_put(out, node->bytes, node->size);
}

static void put_held_row(sl_step *step, uint64_t lsn, uint64_t row, sl_writer *out)
{
    sl_step_place_row(step, row);
    sl_node_view node = {step->nodes + step->at, (size_t)(step->end - step->at),
                         (size_t)(step->content_end - step->at), lsn};
    put_held(out, SL_NODE_ROOT, step->digest, &node);
}

/* Write the roots for the next step: the new roots, and as many of the other held roots as fit. */
static int put_all_held(sl_step *step, uint64_t lsn, const uint8_t *state_digest, sl_writer *out)
{
    sl_reader held = sl_reader_of(step->held, step->held_size);
    sl_node_view node;
    size_t begin_at = out->at;
    size_t at = 0;
    uint64_t count = step->list_count;
    int status;
    put_held_row(step, lsn, step->made.root_row, out);
    for (uint64_t i = 0; i < count; i++) {
        put_held_row(step, lsn, step->list_rows[i], out);
    }
    step->lists_before[count] = state_digest;
    while ((status = sl_step_held_next(&held, &at, &node)) == SL_OK) {
        bool is_kept = held.bytes[at] == SL_NODE_ROOT && count < SL_STEP_LISTS_MAX &&
                       out->at - begin_at + SL_STEP_HELD_HEAD_SIZE + node.size <= SL_STEP_HELD_SIZE;
        for (uint64_t i = 0; i <= step->list_count && is_kept; i++) {
            is_kept = memcmp(held.bytes + at + 1, step->lists_before[i], SL_DIGEST_SIZE) != 0;
        }
        if (is_kept) {
            put_held(out, SL_NODE_ROOT, held.bytes + at + 1, &node);
            count++;
        }
    }
    return status == SL_END ? SL_OK : status;
}

int sl_step_list(sl_step *step, const uint8_t *state_digest, const uint8_t *held, size_t held_size, const uint8_t *key,
                 size_t key_size)
{
    sl_node_view state;
    sl_key_hit hit;
    sl_step_begin(step, held, held_size, NULL, 0);
    int status = sl_step_node(step, SL_NODE_ROOT, state_digest, 0, 0, &state);
    if (status == SL_OK) {
        status = sl_step_find_list(&state, key, key_size, &hit);
    }
    if (status == SL_OK) {
        step->wanted = (sl_step_wanted){SL_NODE_ROOT, hit.lsn, hit.node, {0}};
        memcpy(step->wanted.digest, state.bytes + hit.slot_at + 1, SL_DIGEST_SIZE);
    }
    return status;
}

int sl_step_make(sl_step *step, const uint8_t *fixed, const uint8_t *held, size_t held_size, const uint8_t *changes,
                 size_t changes_size, const uint8_t *known, size_t known_size, const uint8_t *id, size_t id_size,
                 const uint8_t *metadata, size_t metadata_size, const uint8_t *written, size_t written_size,
                 const uint8_t *borrowed, size_t borrowed_size, const uint8_t *page, size_t page_size, sl_output *out)
{
    uint8_t numbers[LSN_AT];
    uint64_t lsn = sl_load_be(fixed + LSN_AT, 8);
    const uint8_t *root_digest = fixed + STATE_AT;
    memcpy(numbers, fixed, sizeof numbers);
    sl_step_begin(step, held, held_size, known, known_size);
    bool is_rollback = number_of(numbers, SL_NUMBER_TARGET) != 0;
    int type = is_rollback ? SL_TYPE_ROLLBACK : SL_TYPE_CHECKPOINT;
    int status = is_rollback ? SL_OK : change_state(step, numbers, fixed + STATE_AT, changes, changes_size);
    if (status != SL_OK || out->capacity < DIGESTS_SIZE + SL_ENVELOPE_REST_SIZE) {
        return status != SL_OK ? status : SL_FALLBACK;
    }
    if (step->made.row_count > 0) {
        root_digest = sl_step_row_digest(step, step->made.root_row);
    }

    sl_output body = {out->bytes + DIGESTS_SIZE + SL_ENVELOPE_REST_SIZE, out->capacity - DIGESTS_SIZE - SL_ENVELOPE_REST_SIZE, 0, 0};
    status = sl_checkpoint_encode(numbers, fixed + PARENT_AT, root_digest, id, id_size, metadata, metadata_size, written,
                                  written_size, borrowed, borrowed_size, &body);
    if (status != SL_OK) {
        return status == SL_SPACE ? SL_FALLBACK : status;
    }
    uint64_t time_us = number_of(numbers, SL_NUMBER_TIME);
    size_t rows_size = (size_t)step->made.row_count * SL_ROW_SIZE;
    memcpy(out->bytes, body.bytes + body.content_size, SL_DIGEST_SIZE);
    status = sl_chain_digest(type, NO_FLAGS, lsn, time_us, fixed + CHAIN_AT, body.bytes, body.content_size,
                             step->rows, rows_size, out->bytes + SL_DIGEST_SIZE);
    if (status != SL_OK) {
        return status;
    }
    memcpy(out->bytes + 2 * SL_DIGEST_SIZE, root_digest, SL_DIGEST_SIZE);

    sl_put_envelope(out->bytes + DIGESTS_SIZE, type, body.content_size, lsn, time_us, fixed + CHAIN_AT,
                    step->made.row_count);

    sl_writer writer = {out->bytes, out->capacity, DIGESTS_SIZE + SL_ENVELOPE_REST_SIZE + body.content_size, false};
    sl_put(&writer, step->rows, rows_size);
    step->made.nodes_at = writer.at;
    sl_put(&writer, step->nodes, (size_t)step->nodes_size);
    step->made.record_end = writer.at;
    sl_output entered = {out->bytes + writer.at, out->capacity - writer.at, 0, 0};
    status = sl_page_append(page, page_size, (uint32_t)number_of(numbers, SL_NUMBER_VERSION), lsn, time_us, &entered);
    if (status != SL_OK || writer.full) {
        return status == SL_OK || status == SL_SPACE ? SL_FALLBACK : status;
    }
    writer.at += entered.size;
    step->made.page_end = writer.at;
    if (step->made.row_count > 0) {
        status = put_all_held(step, lsn, fixed + STATE_AT, &writer);
    }
    if (status == SL_OK && !writer.full) {
        out->size = writer.at;
    }
    return status == SL_OK && writer.full ? SL_FALLBACK : status;
}
