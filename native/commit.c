/* The end of a step: the whole record of its checkpoint or rollback, and the version page with the entry of that.
 *
 * Trust: none in nodes and pages. Numbers and items are written as they are; whoever passes them has made or checked them.
 * Invariant (T6): the bytes are those that body, record and page have when they are encoded one by one.
 */
#include "internal.h"

enum { DIGESTS_SIZE = 3 * SL_DIGEST_SIZE, ENVELOPE_SIZE = 48, NO_FLAGS = 0, FORMAT_VERSION = 1 };

static const uint8_t NOTHING_BORROWED[] = {0x80};

static void set_number(uint8_t *numbers, unsigned index, uint64_t number)
{
    sl_writer writer = {numbers + (size_t)8 * index, 8, 0, false};
    sl_put_be(&writer, number, 8);
}

int sl_step_record(sl_step *step, const sl_node_view *state, const sl_node_view *opens, const uint8_t *state_digest,
                   const uint8_t *parent_numbers, const uint8_t *parent_digest, const uint8_t *id, size_t id_size,
                   const uint8_t *metadata, size_t metadata_size, const uint8_t *written, size_t written_size,
                   uint64_t lsn, const uint8_t *previous_chain, const uint8_t *page, size_t page_size, sl_output *out)
{
    uint8_t numbers[8 * SL_CHECKPOINT_NUMBERS];
    const uint8_t *root_digest = state_digest;
    memcpy(numbers, parent_numbers, sizeof numbers);
    bool is_rollback = sl_load_be(numbers + (size_t)8 * SL_NUMBER_TARGET, 8) != 0;
    int type = is_rollback ? SL_TYPE_ROLLBACK : SL_TYPE_CHECKPOINT;
    int status = is_rollback ? SL_ABSENT : sl_step_finish(step, state, opens, state_digest);
    if (status == SL_OK) {
        set_number(numbers, SL_NUMBER_ROOT_LSN, 0);
        set_number(numbers, SL_NUMBER_ROOT_NODE, step->row);
        root_digest = step->rows + step->row * SL_ROW_SIZE + 1;
    } else if (status == SL_ABSENT) { /* the root stays where it is, and nothing was made for it */
        step->row_count = 0;
        step->nodes_size = 0;
    } else {
        return status;
    }
    if (out->capacity < DIGESTS_SIZE + ENVELOPE_SIZE) {
        return SL_FALLBACK;
    }

    sl_output body = {out->bytes + DIGESTS_SIZE + ENVELOPE_SIZE, out->capacity - DIGESTS_SIZE - ENVELOPE_SIZE, 0, 0};
    status = sl_checkpoint_encode(numbers, parent_digest, root_digest, id, id_size, metadata, metadata_size, written,
                                  written_size, NOTHING_BORROWED, sizeof NOTHING_BORROWED, &body);
    if (status != SL_OK) {
        return status == SL_SPACE ? SL_FALLBACK : status;
    }
    uint64_t time_us = sl_load_be(numbers + (size_t)8 * SL_NUMBER_TIME, 8);
    size_t rows_size = (size_t)step->row_count * SL_ROW_SIZE;
    memcpy(out->bytes, body.bytes + body.content_size, SL_DIGEST_SIZE);
    status = sl_chain_digest(type, NO_FLAGS, lsn, time_us, previous_chain, body.bytes, body.content_size,
                             step->rows, rows_size, out->bytes + SL_DIGEST_SIZE);
    if (status != SL_OK) {
        return status;
    }

    memcpy(out->bytes + 2 * SL_DIGEST_SIZE, root_digest, SL_DIGEST_SIZE);

    sl_writer envelope = {out->bytes + DIGESTS_SIZE, ENVELOPE_SIZE, 0, false};
    sl_put_byte(&envelope, FORMAT_VERSION);
    sl_put_byte(&envelope, (unsigned)type);
    sl_put_be(&envelope, NO_FLAGS, 2);
    sl_put_be(&envelope, body.content_size, 4);
    sl_put_be(&envelope, lsn, 8);
    sl_put_be(&envelope, time_us, 8);
    sl_put(&envelope, previous_chain, SL_DIGEST_SIZE);
    sl_put_be(&envelope, step->row_count, 4);
    assert(envelope.at == ENVELOPE_SIZE && !envelope.full);

    sl_writer record = {out->bytes, out->capacity, DIGESTS_SIZE + ENVELOPE_SIZE + body.content_size, false};
    sl_put(&record, step->rows, rows_size);
    size_t nodes_at = record.at;
    sl_put(&record, step->nodes, (size_t)step->nodes_size);
    if (record.full) {
        return SL_FALLBACK;
    }
    sl_output entered = {out->bytes + record.at, out->capacity - record.at, 0, 0};
    status = sl_page_append(page, page_size, (uint32_t)sl_load_be(numbers + (size_t)8 * SL_NUMBER_VERSION, 8), lsn,
                            time_us, &entered);
    if (status != SL_OK) {
        return status == SL_SPACE ? SL_FALLBACK : status;
    }
    step->nodes_at = nodes_at;
    step->record_end = record.at;
    out->size = record.at + entered.size;
    return SL_OK;
}
