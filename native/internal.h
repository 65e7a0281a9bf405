/* Declares what the kernels share: a reader, a writer, varints, CBOR items, and one iterator over entries.
 *
 * Trust: none in the bytes. The pointers and sizes passed as arguments are trusted.
 * Invariants: a reader has at <= len, a writer at <= capacity. Comparisons never add to `at`: they use `len -
 * at < need`. A writer that runs out of room stays `full` and writes nothing more. */
#ifndef STATELOG_INTERNAL_H
#define STATELOG_INTERNAL_H

#include "statelog_kernels.h"

#include <assert.h>
#include <stdbool.h>
#include <string.h>

enum {
    SL_DEPTH_MAX = 128,        /* The maximum nesting of arrays and maps, FORMAT.md 7. */
    SL_INLINE_SIZE_MAX = 64,   /* FORMAT.md 4.1 */
    SL_DIGEST_SIZE = 20,       /* BLAKE2b-160 */
    SL_SEAL_SIZE = 8,          /* The checksum (XXH3-64) or MAC that follows a value in the index. */
    SL_CHUNK_ENTRIES_MIN = 8,  /* FORMAT.md 4.5 */
    SL_CHUNK_SIZE_CLOSE = 8192,
    SL_PIECE_SIZE_MAX = 16384, /* FORMAT.md 4.4 */
    SL_REF_LEAF = 0xFC,        /* FORMAT.md 4.1 */
    SL_REF_ROOT = 0xFD,
    SL_NODE_LEAF = 1,          /* FORMAT.md 4 */
    SL_NODE_ROOT = 2,
    SL_NODE_CHUNK = 3,
    SL_NODE_PIECE = 4,
    SL_VARINT_SIZE_MAX = 10,
    SL_END = -1 /* An iterator returns this after its last entry. A kernel never returns it. */
};

#define SL_REQUIRE(condition)     \
    do {                          \
        if (!(condition)) {       \
            return SL_MALFORMED;  \
        }                         \
    } while (0)

/* --- reading -------------------------------------------------------------------------------------- */

typedef struct {
    const uint8_t *bytes;
    size_t len;
    size_t at;
} sl_reader;

static inline sl_reader sl_reader_of(const uint8_t *bytes, size_t len) { return (sl_reader){bytes, len, 0}; }

static inline bool sl_has(const sl_reader *in, uint64_t need)
{
    assert(in->at <= in->len);
#ifdef SL_PLANT_OVERREAD /* This bound is one byte off. `native/fuzz/run.py --plant` must find it. */
    return in->len - in->at + 1 >= need;
#else
    return in->len - in->at >= need;
#endif
}

static inline bool sl_skip(sl_reader *in, uint64_t size)
{
    if (!sl_has(in, size)) {
        return false;
    }
    in->at += (size_t)size;
    return true;
}

static inline uint64_t sl_load_be(const uint8_t *from, size_t size)
{
    uint64_t value = 0;
    for (size_t i = 0; i < size; i++) {
        value = (value << 8) | from[i];
    }
    return value;
}

/* Read an unsigned LEB128 number of up to 64 bits in its shortest form. */
static inline bool sl_read_varint(sl_reader *in, uint64_t *value)
{
    uint64_t result = 0;
    for (unsigned shift = 0; sl_has(in, 1); shift += 7) {
        uint8_t byte = in->bytes[in->at++];
        if ((shift == 63 && byte > 1) || (shift > 0 && byte == 0)) {
            return false;
        }
        result |= (uint64_t)(byte & 0x7F) << shift;
        if (byte < 0x80) {
            *value = result;
            return true;
        }
    }
    return false;
}

/* Compare encoded bytes like memcmp. A prefix precedes a longer string. */
static inline int sl_bytes_compare(const uint8_t *a, size_t a_size, const uint8_t *b, size_t b_size)
{
    size_t shared = a_size < b_size ? a_size : b_size;
    int order = shared > 0 ? memcmp(a, b, shared) : 0;
    if (order != 0) {
        return order < 0 ? -1 : 1;
    }
    return (a_size > b_size) - (a_size < b_size);
}

/* --- writing -------------------------------------------------------------------------------------- */

typedef struct {
    uint8_t *bytes;
    size_t capacity;
    size_t at;
    bool full;
} sl_writer;

static inline sl_writer sl_writer_of(const sl_output *out) { return (sl_writer){out->bytes, out->capacity, 0, false}; }

static inline void sl_put(sl_writer *out, const uint8_t *from, size_t size)
{
    assert(out->at <= out->capacity);
    if (out->full || out->capacity - out->at < size) {
        out->full = true;
        return;
    }
    if (size > 0) {
        memcpy(out->bytes + out->at, from, size);
        out->at += size;
    }
}

static inline void sl_put_byte(sl_writer *out, unsigned byte)
{
    uint8_t one = (uint8_t)byte;
    sl_put(out, &one, 1);
}

static inline void sl_put_be(sl_writer *out, uint64_t value, size_t size)
{
    uint8_t encoded[8];
    assert(size <= sizeof encoded);
    for (size_t i = 0; i < size; i++) {
        encoded[i] = (uint8_t)(value >> (8 * (size - 1 - i)));
    }
    sl_put(out, encoded, size);
}

static inline void sl_put_varint(sl_writer *out, uint64_t value)
{
    uint8_t encoded[SL_VARINT_SIZE_MAX];
    size_t size = 0;
    for (; value >= 0x80; value >>= 7) {
        encoded[size++] = (uint8_t)(value | 0x80);
    }
    encoded[size++] = (uint8_t)value;
    sl_put(out, encoded, size);
}

static inline int sl_finish(const sl_writer *writer, size_t content_size, sl_output *out)
{
    if (writer->full) {
        return SL_SPACE;
    }
    out->size = writer->at;
    out->content_size = content_size;
    return SL_OK;
}

/* --- CBOR items (cbor.c) -------------------------------------------------------------------------- */

typedef enum {
    SL_ITEM_POSITIVE, /* The argument is the value. */
    SL_ITEM_NEGATIVE, /* The value is -1 - argument. */
    SL_ITEM_BYTES,    /* The argument is the size in bytes, as for SL_ITEM_TEXT. */
    SL_ITEM_TEXT,
    SL_ITEM_LIST, /* The argument is the number of items, as for a tuple, set, frozenset and codec. */
    SL_ITEM_TUPLE,
    SL_ITEM_MAP, /* The argument is the number of pairs. */
    SL_ITEM_SET,
    SL_ITEM_FROZENSET,
    SL_ITEM_CODEC,
    SL_ITEM_SCALAR_TAG, /* A big integer, datetime, UUID or Decimal. */
    SL_ITEM_FALSE,
    SL_ITEM_TRUE,
    SL_ITEM_NULL,
    SL_ITEM_FLOAT
} sl_shape;

typedef struct {
    sl_shape shape;
    uint64_t argument;
    size_t payload_at; /* The offset of a string's bytes, or of a container's first child. */
    double number;     /* The value of SL_ITEM_FLOAT. */
} sl_item;

/* Read and check an item's head, and the rest of the item unless it is a container. */
bool sl_item_open(sl_reader *in, sl_item *item);
/* Read and check one whole item. On failure, `at` is the start of the innermost invalid item. */
bool sl_item_skip(sl_reader *in);
/* Skip a text string that was checked before, in constant time. */
bool sl_text_skip(sl_reader *in);
/* Check that `data` is exactly one valid item, and set `item` to its head. */
bool sl_item_whole(const uint8_t *data, size_t size, sl_item *item);
void sl_put_head(sl_writer *out, unsigned major, uint64_t argument);
void sl_put_float(sl_writer *out, double number);
/* Write the tag and array head, or the map head, of a container. */
void sl_put_container(sl_writer *out, sl_shape shape, uint64_t argument);

/* --- entries (node.c) ----------------------------------------------------------------------------- */

typedef struct {
    sl_root_head head;
    size_t spine_at;  /* The offset of `levels`. */
    size_t spine_end; /* The end of the last level, where `tail count` follows. */
} sl_root;

int sl_root_parse(const uint8_t *data, size_t size, size_t content_size, uint64_t home_lsn, sl_root *root);

/* An iterator over entries and their locators. The fields from `at` on describe the entry that was read last. */
typedef struct {
    sl_reader in;
    sl_reader locators;
    uint64_t home_lsn;
    uint64_t left;
    uint64_t index_next;
    int kind;
    unsigned level;
    bool is_batch; /* True for a batch, whose entries may contain SL_BATCH_DELETE or SL_BATCH_PUT. */

    size_t at;
    size_t key_end; /* The key in a dict, or the element of a set, is at [at, key_end). */
    size_t slot_at;
    size_t slot_end; /* The end of the slot or digest. Fingerprints may follow the digest. */
    uint64_t covered;
    uint64_t lsn;
    uint64_t node;
    bool is_ref;
    bool deletes;
} sl_entries;

int sl_entries_open(sl_entries *it, const uint8_t *data, size_t size, size_t content_size, uint64_t home_lsn,
                    bool is_root, int kind);
int sl_entries_open_loose(sl_entries *it, int kind, unsigned level, const uint8_t *entries, size_t entries_size,
                          const uint8_t *locators, size_t locators_size, uint64_t count);
/* Iterate over the tail of a parsed root of any kind except str and bytes. */
void sl_entries_open_tail(sl_entries *it, const uint8_t *data, size_t size, size_t content_size, uint64_t home_lsn,
                          const sl_root *root);
/* Read the next entry. After the last entry, return SL_END, or SL_MALFORMED if bytes are left over. */
int sl_entries_next(sl_entries *it);
bool sl_read_locator(sl_reader *in, uint64_t home_lsn, uint64_t *lsn, uint64_t *node);
void sl_put_locator(sl_writer *out, uint64_t lsn, uint64_t node);
/* Copy the locators of `from` up to offset `end`. Replace LSN 0 by `home_lsn`. */
int sl_copy_locators(sl_writer *out, sl_reader from, size_t end, uint64_t home_lsn);

static inline bool sl_is_sorted(int kind) { return kind >= SL_KIND_DICT && kind <= SL_KIND_FROZENSET; }
static inline bool sl_is_blob(int kind) { return kind == SL_KIND_STR || kind == SL_KIND_BYTES; }
static inline bool sl_is_kind(int kind) { return kind >= SL_KIND_LIST && kind <= SL_KIND_KEYED; }
static inline size_t sl_key_size(const sl_entries *it) { return it->key_end - it->at; }
static inline const uint8_t *sl_key(const sl_entries *it) { return it->in.bytes + it->at; }

/* --- identity (blake2b.c) ------------------------------------------------------------------------- */

enum { SL_HASH_BLOCK_SIZE = 128, SL_MAC_KEY_SIZE = 32 };
enum { SL_TYPE_CHECKPOINT = 2, SL_TYPE_ROLLBACK = 3 }; /* Record types. */

/* A digest in progress: call sl_hash_begin, then sl_hash_add for each part, then sl_hash_end. */
typedef struct {
    uint64_t h[8];
    /* The number of bytes compressed so far. It would overflow at 2^64 bytes, which cannot occur. */
    uint64_t hashed;
    size_t held;
    uint8_t block[SL_HASH_BLOCK_SIZE];
} sl_hash;

void sl_hash_begin(sl_hash *hash, const char personal[16]);
void sl_hash_begin_keyed(sl_hash *hash, const char personal[16], const uint8_t key[SL_MAC_KEY_SIZE], size_t digest_size);
void sl_hash_add(sl_hash *hash, const uint8_t *data, size_t size);
void sl_hash_end(sl_hash *hash, uint8_t digest[SL_DIGEST_SIZE]);

/* --- checkpoints (identity.c) ---------------------------------------------------------------------- */

/* Indices into the `numbers` argument of sl_checkpoint_encode. */
enum {
    SL_NUMBER_THREAD,
    SL_NUMBER_BRANCH,
    SL_NUMBER_VERSION,
    SL_NUMBER_PARENT_BRANCH,
    SL_NUMBER_PARENT_VERSION,
    SL_NUMBER_JUMP_BRANCH,
    SL_NUMBER_JUMP_VERSION,
    SL_NUMBER_DEPTH,
    SL_NUMBER_JUMP_DEPTH,
    SL_NUMBER_ROOT_LSN,
    SL_NUMBER_ROOT_NODE,
    SL_NUMBER_TARGET,
    SL_NUMBER_TIME
};

/* --- steps (commit.c, entry.c, step.c, step_close.c, step_slot.c) -------------------------------------------- */

enum {
    SL_STEP_ENTRY_SIZE_MAX = 2 + SL_INLINE_SIZE_MAX, /* The first 2 bytes are for a fingerprint in a keyed list. */
    SL_STEP_LOCATOR_SIZE_MAX = SL_VARINT_SIZE_MAX + 5,
    SL_STEP_HELD_HEAD_SIZE = 1 + SL_DIGEST_SIZE + 8 + 4 + 4,
    SL_ENVELOPE_REST_SIZE = 48
};

/* A view of a node that was read. */
typedef struct {
    const uint8_t *bytes;
    size_t size;
    size_t content_size;
    uint64_t lsn;
} sl_node_view;

/* The gathered entries of one level, and their locators. */
typedef struct {
    sl_writer entries;
    sl_writer locators;
    uint64_t count;
} sl_entry_row;

void sl_step_begin(sl_step *step, const uint8_t *held, size_t held_size, const uint8_t *known, size_t known_size);
/* Write a record's envelope except the checksum (SL_ENVELOPE_REST_SIZE bytes). The flags mark the record as the last
 * one of its transaction. */
void sl_put_envelope(uint8_t *to, int type, size_t body_size, uint64_t lsn, uint64_t time_us, const uint8_t *previous_chain,
                     uint64_t row_count);
const uint8_t *sl_step_row_digest(const sl_step *step, uint64_t row);
/* Find a node in `step->held`. If it is not there, set `step->wanted` and return SL_WANTED. */
int sl_step_node(sl_step *step, uint8_t type, const uint8_t *digest, uint64_t lsn, uint64_t node, sl_node_view *view);
/* Read the next held node. Set `at` to the offset of its type and digest. Return SL_END after the last node. */
int sl_step_held_next(sl_reader *held, size_t *at, sl_node_view *view);
/* Return the unused part of `step->nodes`. */
sl_output sl_step_room(sl_step *step);
/* Add the node that the caller has written to sl_step_room. If the step or `step->known` has an equal node, use that
 * node instead. */
int sl_step_take_node(sl_step *step, uint8_t type, size_t size, size_t content_size);
/* Select the node of `row`, as if it were the node made last. */
void sl_step_place_row(sl_step *step, uint64_t row);
/* Write a ref to the node that was made or selected last. */
void sl_step_put_ref(sl_writer *entries, sl_writer *locators, unsigned ref, const sl_step *step);
/* Write the slot of `item`, which has been checked. `is_top` is true if the item is a channel's value. Uses
 * `step->scratch` from `scratch_at` on. */
int sl_step_put_slot(sl_step *step, const uint8_t *item, size_t size, bool is_top, size_t scratch_at,
                     sl_writer *entries, sl_writer *locators);

/* Append entries to a list, and close every chunk that ends in its tail. Uses `step->scratch`. */
int sl_step_append_closing(sl_step *step, const sl_node_view *root, const sl_root_head *head,
                           const sl_entry_row *added);
/* Apply the gathered changes to the state's root, and close every chunk that ends in its tail. Uses `step->scratch`. */
int sl_step_merge_closing(sl_step *step, const sl_node_view *root);
/* Merge a batch into the tail of a dict or set, and write the new tail to `row`. Unlike sl_tail_merge, this does not
 * check whether chunks close. `below` is the node whose entries precede the tail, or NULL if it is unknown. */
int sl_tail_merge_open(const sl_node_view *node, const sl_root *root, const sl_node_view *below, const uint8_t *batch,
                       size_t batch_size, const uint8_t *locators, size_t locators_size, uint64_t count,
                       sl_entry_row *row);
/* Apply all changes, and make the state's new root. Return SL_ABSENT if its digest is still `state_digest`. */
int sl_step_change(sl_step *step, const sl_node_view *state, const uint8_t *state_digest, const uint8_t *changes,
                   size_t changes_size);
/* Find the state's entry for `key`. Return SL_ABSENT if there is none, or if its value is not a root, to which a step
 * could append. */
int sl_step_find_list(const sl_node_view *state, const uint8_t *key, size_t key_size, sl_key_hit *hit);

/* --- where chunks close (sequence.c) -------------------------------------------------------------- */

/* Return true if a chunk of `count` entries in `size` bytes closes after the last entry read. */
bool sl_chunk_closes(const sl_entries *it, uint64_t count, size_t size);

#endif
