/* The public header of the statelog kernels.
 *
 * Bytes in, bytes out: the kernels do no I/O, allocate nothing, have no mutable globals, and are re-entrant. The
 * input cannot cause unbounded recursion. Every input is untrusted. For bytes that FORMAT.md does not allow, a
 * function returns SL_MALFORMED. Unless its comment says otherwise, a function returns a status, and writes results
 * only with SL_OK. After any other status, the bytes of an output buffer are unspecified and its sizes are unchanged.
 *
 * A node is `size` bytes: `content_size` bytes of content, then its locators. `home_lsn` is the LSN of the node's
 * record. In results, it replaces LSN 0 of a locator. */
#ifndef STATELOG_KERNELS_H
#define STATELOG_KERNELS_H

#include <stddef.h>
#include <stdint.h>

/* >>> cdef: native/build.py passes everything up to the closing marker to cffi. */

enum {
    SL_OK = 0,
    SL_MALFORMED = 1, /* Bytes that FORMAT.md does not allow. */
    SL_FALLBACK = 2,  /* Valid input that this kernel does not support: take the general path. */
    SL_ABSENT = 3,    /* Not found. */
    SL_TYPE = 4,      /* The types of a reducer's two values do not match. */
    SL_USAGE = 5,     /* Invalid arguments: a bug of the caller. */
    SL_SPACE = 6,     /* The output buffer is too small. */
    SL_WANTED = 7     /* A step needs a node that the caller did not pass: see `sl_step.wanted`. */
};

enum {
    SL_KIND_LIST = 0,
    SL_KIND_TUPLE = 1,
    SL_KIND_DICT = 2,
    SL_KIND_SET = 3,
    SL_KIND_FROZENSET = 4,
    SL_KIND_STR = 5,
    SL_KIND_BYTES = 6,
    SL_KIND_KEYED = 7
};

enum {
    /* Each level has at most half the entries of the level below, and there are fewer than 2^64 entries. */
    SL_LEVELS_MAX = 64,
    SL_CHUNK_ENTRIES_MAX = 128, /* FORMAT.md 4.5 */
    SL_PIECE_SIZE_MIN = 2048,   /* FORMAT.md 4.4 */
    SL_BATCH_DELETE = 0xFE,     /* In a batch of sl_tail_merge, follows a key or element to delete. */
    SL_BATCH_PUT = 0xFF         /* Follows a set element to add. No CBOR item or ref begins with either marker. */
};

/* A caller's buffer of `capacity` bytes. A kernel sets `size`, and for nodes `content_size`. */
typedef struct {
    uint8_t *bytes;
    size_t capacity;
    size_t size;
    size_t content_size;
} sl_output;

/* The results are structs of 64-bit numbers without padding, so that a caller may read them as arrays. Names
 * that end in `_at` or `end` are offsets into the input. */
typedef struct {
    uint64_t covered;
    uint64_t digest_at; /* 0 if this level is empty. */
    uint64_t lsn;
    uint64_t node;
} sl_level;

typedef struct {
    uint64_t kind;
    uint64_t key_at;
    uint64_t key_size;
    uint64_t count;
    uint64_t level_count;
    uint64_t tail_count;
    uint64_t tail_at;
    uint64_t tail_locators_at;
    sl_level levels[SL_LEVELS_MAX]; /* The highest level comes first. */
} sl_root_head;

typedef struct {
    uint64_t at;
    uint64_t slot_at; /* The offset of the slot, or of the digest at level >= 1. */
    uint64_t end;
    uint64_t covered; /* The number of level-0 entries below this entry; 1 at level 0. */
    uint64_t lsn;     /* 0 if the slot has no ref. */
    uint64_t node;
} sl_entry;

typedef struct {
    uint64_t index;
    uint64_t found;
    uint64_t slot_at;
    uint64_t end;
    uint64_t lsn;
    uint64_t node;
    uint64_t covered_before;
} sl_key_hit;

typedef struct {
    uint64_t index;
    uint64_t offset_inside;
    uint64_t slot_at;
    uint64_t end;
    uint64_t lsn;
    uint64_t node;
    uint64_t covered; /* The number of level-0 entries below the entry. */
} sl_position_hit;

typedef struct {
    uint64_t entries_end;
    uint64_t byte_end;
    uint64_t locator_byte_end;
} sl_boundary;

typedef struct {
    uint64_t type;
    uint64_t content_at;
    uint64_t content_size;
    uint64_t total_size;
    uint64_t number;
    uint8_t digest[24]; /* 20 bytes. Copied from the row, or computed from the content if the row has no digest. */
} sl_node_place;

typedef struct {
    uint64_t body_at;
    uint64_t body_size;
    uint64_t node_count; /* The number of the last node that was not vacuumed, plus 1. */
    uint64_t row_count;  /* The number of nodes that were not vacuumed. */
    uint64_t size;       /* The size of the record. Other bytes may follow it. */
} sl_record_parts;

typedef struct {
    uint64_t lsn;
    uint64_t time_us;
} sl_version_entry;

typedef struct {
    uint64_t parent; /* The number of the referring node. */
    uint64_t type;
    uint64_t digest_at;
    uint64_t lsn;
    uint64_t node;
} sl_node_ref;

typedef struct {
    uint64_t *slots; /* The caller initialises the slots with zeros. */
    uint64_t count;
    uint64_t seed;
} sl_seen_nodes;

typedef struct {
    uint64_t node_count;
    uint64_t shared_count;
    uint64_t ref_count;
    uint8_t chain_digest[24]; /* The 20 bytes of the digest, or zeros if the record is redacted. */
    uint64_t is_refused;      /* sl_records_verify sets this if a check failed or a buffer was full. */
} sl_record_facts;

enum {
    SL_PAGE_BRANCH = 1, /* LMDB's page flags. */
    SL_PAGE_LEAF = 2,
    SL_LMDB_LONG = 1, /* LMDB's node flag: the data is the number of the value's first page. */
    SL_LMDB_TABLE = 2, /* LMDB's node flag: the data is the record of a table. */
    SL_LMDB_OWN = -1,  /* sl_lmdb_page_in_use returns these instead of a page number. */
    SL_LMDB_FREE = -2
};

enum { /* The faults of an LMDB page. */
    SL_PAGE_SOUND = 0,
    SL_PAGE_KIND = 1,
    SL_PAGE_BOUNDS = 2,
    SL_PAGE_NODES = 3,
    SL_PAGE_NODE_FLAGS = 4,
    SL_PAGE_ORDER = 5,
    SL_PAGE_OTHER = 6
};

typedef struct {
    uint64_t number; /* The page number in the header. */
    uint64_t kind;
    uint64_t count;  /* The number of nodes. */
    uint64_t listed; /* The number of returned nodes. */
    uint64_t fault;
} sl_lmdb_page_facts;

typedef struct {
    uint64_t key_at;
    uint64_t key_size;
    uint64_t flags;
    uint64_t value; /* The child's page in a branch, or the size of the value in a leaf. */
    uint64_t data_at;
} sl_lmdb_node;

/* The output and working memory of a step, for one step at a time. The rows (of the node table, FORMAT.md 3) and the
 * nodes are copied into the record unchanged. A ref with LSN 0 points into the record being built. */
enum {
    SL_ROW_SIZE = 29,
    SL_STEP_ROWS_MAX = 256,
    SL_STEP_NODES_SIZE = 65536,
    SL_STEP_BATCH_SIZE = 8192,
    SL_STEP_SCRATCH_SIZE = 65536,
    SL_STEP_LISTS_MAX = 8,     /* The maximum number of roots that are held for the next step. */
    SL_STEP_HELD_SIZE = 49152, /* The maximum total size of the held roots. */
    SL_STEP_LEVELS = 2 /* A step may add to this number of levels above the entries. */
};

typedef struct {
    uint64_t root_row; /* The row of the state's root. */
    uint64_t row_count; /* 0 if the state does not change. */
    uint64_t nodes_at; /* An offset in `out`, as are `record_end` and `page_end`: see sl_step_make. */
    uint64_t record_end;
    uint64_t page_end;
    /* The number of leaves of 4096 bytes or more, which the caller looks up in the whole store. */
    uint64_t large_count;
} sl_step_made;

typedef struct {
    uint64_t type;
    uint64_t lsn;
    uint64_t node;
    uint8_t digest[24]; /* The 20 bytes of the digest. */
} sl_step_wanted;

typedef struct {
    sl_step_made made;     /* Valid after SL_OK. */
    sl_step_wanted wanted; /* Valid after SL_WANTED, and after sl_step_list. */
    const uint8_t *held;   /* See sl_step_make. */
    size_t held_size;
    const uint8_t *known;
    size_t known_size;
    uint64_t row; /* The last node made: its row, and then its offsets in `nodes`. */
    uint64_t at;
    uint64_t content_end;
    uint64_t end;
    uint64_t home_lsn; /* 0 for a new node. For a known leaf, its LSN; `row` is then its node number. */
    uint8_t digest[24];
    uint64_t nodes_size;
    uint64_t change_count;
    uint64_t batch_size;
    uint64_t locators_size;
    uint64_t list_count;
    uint64_t list_rows[SL_STEP_LISTS_MAX];               /* The rows of the roots of changed lists. */
    /* The previous digests of the roots of these lists, and then the previous digest of the state's root. */
    const uint8_t *lists_before[1 + SL_STEP_LISTS_MAX];
    uint8_t rows[SL_STEP_ROWS_MAX * SL_ROW_SIZE];
    uint8_t nodes[SL_STEP_NODES_SIZE];
    uint8_t batch[SL_STEP_BATCH_SIZE];
    uint8_t locators[SL_STEP_BATCH_SIZE];
    uint8_t scratch[SL_STEP_SCRATCH_SIZE]; /* A thread's stack may be too small for this. */
} sl_step;

enum { /* The node that a walk has reached. */
    SL_WALK_STATE = 0, /* The root of the dict. */
    SL_WALK_LIST = 1,  /* The root of the list. */
    SL_WALK_CHUNK = 2,
    SL_WALK_ITEM = 3 /* The leaf that contains the item. */
};

typedef struct {
    uint64_t item_at;   /* The offset of the item in the record, if it was found. */
    uint64_t item_size; /* 0 if the walk continues in the record `lsn`. */
    uint64_t lsn;       /* The LSN of the record that contains the next node. */
    uint64_t is_marked; /* 1 if the dict has the key `mark`. */
    uint64_t stage;
    uint64_t node;
    uint64_t position;  /* The position relative to the next node. */
    uint8_t digest[24]; /* The 20 bytes of the next node's digest. */
} sl_walk;

/* cbor.c: items of the CBOR profile (FORMAT.md 7). */
/* Sets error_at only if it returns SL_MALFORMED. */
int sl_cbor_check(const uint8_t *data, size_t size, size_t *error_at);
/* This function reads only the head. */
int sl_cbor_children(const uint8_t *data, size_t size, int *kind, uint64_t *first, uint64_t *count);
/* This function reads the whole item. */
int sl_cbor_split(const uint8_t *data, size_t size, uint64_t *ends, size_t ends_capacity);
int sl_cbor_map_get(const uint8_t *data, size_t size, const uint8_t *key, size_t key_size, uint64_t *span);

/* msgpack.c: finds the items of one encoded array, whose head must have its shortest form. FORMAT.md and the store do
 * not use msgpack; the serialisers of other programs write it. */
/* This function reads only the head. */
int sl_msgpack_array(const uint8_t *data, size_t size, uint64_t *first, uint64_t *count);
/* This function reads the whole array. */
int sl_msgpack_split(const uint8_t *data, size_t size, uint64_t *ends, size_t ends_capacity);

/* node.c: roots, chunks and their entries (FORMAT.md 4.2, 4.3) */
int sl_root_read(const uint8_t *data, size_t size, size_t content_size, uint64_t home_lsn, sl_root_head *head);
int sl_entries_table(const uint8_t *data, size_t size, size_t content_size, uint64_t home_lsn, int is_root, int kind,
                     sl_entry *entries, size_t entries_capacity, uint64_t *count);
int sl_entries_copy(const uint8_t *data, size_t size, size_t content_size, uint64_t home_lsn, int is_root, int kind,
                    uint64_t start, uint64_t stop, sl_output *out); /* out->content_size is the size of the entries. */
int sl_chunk_summary(const uint8_t *data, size_t size, size_t content_size, int kind, const uint8_t *digest,
                     sl_output *out);

/* edit.c: replaces entries [start, stop) of a chunk. The new chunk must close only at its end (is_closed) or nowhere
 * (not is_closed). SL_FALLBACK: it would close elsewhere. */
int sl_chunk_replace(const uint8_t *data, size_t size, size_t content_size, uint64_t home_lsn, int kind,
                     uint64_t start, uint64_t stop, const uint8_t *entries, size_t entries_size,
                     const uint8_t *locators, size_t locators_size, uint64_t added, int is_closed, sl_output *out);

/* sequence.c: positions, appends, and the ends of chunks (FORMAT.md 4.4, 4.5). */
uint64_t sl_content_hash(const uint8_t *data, size_t size);
int sl_find_position(const uint8_t *data, size_t size, size_t content_size, uint64_t home_lsn, int is_root, int kind,
                     uint64_t position, sl_position_hit *hit);
int sl_fingerprint_find(const uint8_t *data, size_t size, size_t content_size, int is_root, unsigned fingerprint,
                        uint64_t start, uint64_t *position);
int sl_tail_append(const uint8_t *data, size_t size, size_t content_size, uint64_t home_lsn, const uint8_t *entries,
                   size_t entries_size, const uint8_t *locators, size_t locators_size, uint64_t count, sl_output *out);
int sl_boundaries(int kind, int level, const uint8_t *entries, size_t entries_size, const uint8_t *locators,
                  size_t locators_size, uint64_t count, sl_boundary *closes, size_t closes_capacity,
                  uint64_t *closes_count);
int64_t sl_prints_find(const uint8_t *prints, size_t size, uint32_t fingerprint, size_t start); /* -1 if not found. */
int sl_blob_cuts(const uint8_t *data, size_t size, uint64_t *ends, size_t ends_capacity, uint64_t *count);

/* map.c: looks up and changes keys in dicts and sets. */
int sl_find_key(const uint8_t *data, size_t size, size_t content_size, uint64_t home_lsn, int is_root, int kind,
                const uint8_t *key, size_t key_size, sl_key_hit *hit);
int sl_tail_merge(const uint8_t *data, size_t size, size_t content_size, uint64_t home_lsn, const uint8_t *batch,
                  size_t batch_size, const uint8_t *locators, size_t locators_size, uint64_t count, sl_output *out);

/* record.c: the parts of a record, and its nodes (FORMAT.md 3) */
int sl_record_open(const uint8_t *record, size_t size, sl_record_parts *parts);
int sl_record_node(const uint8_t *record, size_t size, uint64_t number, sl_node_place *place);
/* Finds `count` nodes that have the given type, numbers (8 bytes each, big-endian) and digests. `places` receives
 * three numbers for each node: the offset of its content, the size of its content, the size of the node. `found` is the
 * number of nodes found, also after an error. SL_ABSENT: the next node is missing, or its type or digest differs. */
int sl_record_find(const uint8_t *record, size_t size, int type, const uint8_t *numbers, const uint8_t *digests,
                   size_t count, uint64_t *places, uint64_t *found);
/* Returns the nodes that were not vacuumed, ascending. `count` is the number of all nodes, `row_count` the number of
 * returned nodes. */
int sl_record_nodes(const uint8_t *record, size_t size, sl_node_place *places, size_t places_capacity,
                    uint64_t *count, uint64_t *row_count);

/* walk.c: finds an item of the list that a dict stores under `key`. Before the first call, set stage, node, position
 * and digest, and clear the other fields. While `item_size` is 0, call again with the record `walk->lsn`. SL_FALLBACK:
 * the dict has more than one node, or the list or the item is stored in a form that a walk cannot read. SL_ABSENT: the
 * key, the position or a node is missing. */
int sl_item_find(const uint8_t *record, size_t size, uint64_t lsn, const uint8_t *key, size_t key_size,
                 const uint8_t *mark, size_t mark_size, sl_walk *walk);

/* vectors.c: the dot products of one vector with `count` rows, of `dims` numbers each. Sums wrap at 32 bits. */
int sl_rows_dot(const int8_t *rows, size_t count, size_t dims, const int16_t *vector, int32_t *sums);

/* identity.c: digests of 20 bytes, and checkpoint bodies, which contain digests (FORMAT.md 3 to 5). */
int sl_node_digest(int type, const uint8_t *content, size_t content_size, uint8_t *digest);
int sl_chain_digest(int type, int flags, uint64_t lsn, uint64_t time_us, const uint8_t *previous, const uint8_t *body,
                    size_t body_size, const uint8_t *rows, size_t rows_size, uint8_t *digest);
/* Output: the body, then the checkpoint's digest. content_size: size of the body. Items (id, metadata, ...) are
 * copied unchecked. numbers: SL_CHECKPOINT_NUMBERS numbers of 8 bytes, big-endian; null has all bits set. In order:
 * thread, branch, version, parent branch, parent version, jump branch, jump version, depth, jump depth, root LSN, root
 * node, target, time. */
enum { SL_CHECKPOINT_NUMBERS = 13 };
int sl_checkpoint_encode(const uint8_t *numbers, const uint8_t *parent_digest, const uint8_t *root_digest,
                         const uint8_t *id, size_t id_size, const uint8_t *metadata, size_t metadata_size,
                         const uint8_t *written, size_t written_size, const uint8_t *borrowed, size_t borrowed_size,
                         sl_output *out);

/* commit.c: makes one step, which encodes the record of the checkpoint after a head. SL_FALLBACK: the step does not
 * support the change (for example, a chunk closes in the middle); take the general path.
 *
 * fixed: the numbers of sl_checkpoint_encode, with the LSN and node number of the parent's root; the LSN of the record,
 * 8 bytes; the digests of the parent and of its state; the chain digest so far. If the target is not 0, the step is a
 * rollback.
 * held: joined nodes, in the form in which a step returns them for the next step: type, digest, LSN (8), size (4),
 * content size (4), node. SL_WANTED: `held` lacks the node that `step->wanted` names. Add the node and call again.
 * changes: one for each channel, ascending by key item: operation, number of items (4), size of the key item
 * (2), size of the key item of a keyed list (2; 0 for other lists), size of the payload (4), then the two key items and
 * the payload.
 * known: digest, LSN (8) and node number (4) of existing leaves. The step refers to these leaves and does not make them
 * again.
 * out: the checkpoint's digest, the chain digest that includes the record, the digest of the state; the record without
 * its checksum; the version page with the checkpoint's entry; the held nodes for the next step, unless the state
 * does not change. */
enum {
    SL_STEP_PUT = 1,      /* An item, the channel's new value. */
    SL_STEP_ADD = 2,      /* An item, added to an inline value. */
    SL_STEP_APPEND = 3,   /* Joined items, appended to a list. */
    SL_STEP_PUT_ONCE = 4, /* An item, the value of a channel that has none. */
    SL_STEP_REMOVE = 5    /* Removes a channel, if it exists. */
};
int sl_step_make(sl_step *step, const uint8_t *fixed, const uint8_t *held, size_t held_size, const uint8_t *changes,
                 size_t changes_size, const uint8_t *known, size_t known_size, const uint8_t *id, size_t id_size,
                 const uint8_t *metadata, size_t metadata_size, const uint8_t *written, size_t written_size,
                 const uint8_t *borrowed, size_t borrowed_size, const uint8_t *page, size_t page_size, sl_output *out);
/* Finds a channel's list, and sets `step->wanted` to its root. SL_ABSENT: the channel has no list that a step can
 * append to. */
int sl_step_list(sl_step *step, const uint8_t *state_digest, const uint8_t *held, size_t held_size, const uint8_t *key,
                 size_t key_size);
/* Returns the fingerprints of items that are to be appended to a keyed list. SL_FALLBACK: an item has no key, or a
 * fingerprint occurs twice or is in `prints`. */
int sl_step_prints(const uint8_t *items, size_t items_size, const uint8_t *key, size_t key_size,
                   const uint8_t *prints, size_t prints_size, sl_output *out);

/* entry.c: encodes the record of an event (of an entry or a lease), and the index changes that follow from it.
 * SL_FALLBACK: take the general path.
 *
 * fixed: numbers of 8 bytes, big-endian, in this order:
 *   thread, act, LSN of the record, time, creation, expiry, rank, time from which the entry may be claimed, number of
 *   claims; LSN (0: no value) and node number of the current root; 1 if the entry exists before the event;
 *   the current row of the key (LSN, expiry, order, rank, tag of 8 bytes, deadline; zeros if there is no row);
 *   the claim (token, tag, deadline, deadline by the wall clock, duration; zeros if there is no claim);
 *   digest of the current root; chain digest of the previous record.
 * held: nodes as for sl_step_make, including the current root. If it is empty, the changes are made to an empty value.
 * changes: as for sl_step_make. If it is empty, the root does not change.
 * agent, error: encoded items.
 * out: chain digest of the record; digest of the root; the record without its checksum; index changes up to `page_end`.
 *   An index change is: size of the key and size of the payload (2 bytes each), key, payload. The payload size
 *   SL_ENTRY_DELETED deletes the key. */
enum { SL_ENTRY_KEY_SIZE_MAX = 401, SL_ENTRY_DELETED = 0xFFFF };
int sl_entry_make(sl_step *step, const uint8_t *fixed, const uint8_t *held, size_t held_size, const uint8_t *changes,
                  size_t changes_size, const uint8_t *key, size_t key_size, const uint8_t *agent, size_t agent_size,
                  const uint8_t *error, size_t error_size, sl_output *out);

/* verify.c: checks all nodes of a record. `places` must have room for them. SL_MALFORMED: a check failed. */
int sl_record_verify(const uint8_t *record, size_t size, uint64_t lsn, sl_seen_nodes *seen, sl_node_place *places,
                     size_t places_capacity, sl_node_ref *refs, size_t refs_capacity, sl_record_facts *facts);
/* Checks several records in order. `refs` receives the refs of all records, one record after another. */
int sl_records_verify(const uint8_t *const *records, const uint64_t *sizes, const uint64_t *lsns, size_t record_count,
                      sl_seen_nodes *seen, sl_node_place *places, size_t places_capacity, sl_node_ref *refs,
                      size_t refs_capacity, sl_record_facts *facts);
int sl_seen_node(const sl_seen_nodes *seen, uint64_t type, const uint8_t *digest, uint64_t lsn, uint64_t node);

/* The fields of a checkpoint's body, which is checked in full. A null number is UINT64_MAX; a null digest has offset
 * 0. */
typedef struct {
    uint64_t numbers[SL_CHECKPOINT_NUMBERS - 1]; /* The numbers of sl_checkpoint_encode without the time. */
    uint64_t parent_digest_at;
    uint64_t root_digest_at;
    uint64_t id_at; /* The offsets of items. Each item ends where the next one begins. */
    uint64_t metadata_at;
    uint64_t written_at;
    uint64_t borrowed_at;
    uint64_t borrowed_end;
} sl_checkpoint_fields;
int sl_checkpoint_decode(const uint8_t *body, size_t size, int is_rollback, sl_checkpoint_fields *fields);
typedef struct {
    sl_checkpoint_fields fields; /* Offsets are relative to the record. */
    uint64_t time_us;
    uint8_t digest[24]; /* The 20 bytes of the checkpoint's digest. */
} sl_checkpoint_record;
/* Read the record of a checkpoint. The caller has checked its checksum.
 * SL_FALLBACK: the LSN or format differs, the record is not a checkpoint or rollback, or it is redacted or vacuumed. */
int sl_checkpoint_read(const uint8_t *record, size_t size, uint64_t lsn, sl_checkpoint_record *found);
typedef struct {
    uint64_t type;
    uint64_t thread; /* The first field of the body, or 0 if it is not a number. */
    uint64_t branch; /* The second field of a checkpoint's body, or 0 if it is not a number. */
    uint64_t time_us;
    uint8_t chain[24]; /* The 20 bytes of the chain digest. */
} sl_next_record;
/* Read the record that follows the record with the chain digest `chain`. The caller has checked its checksum.
 * SL_FALLBACK: the chain digest, LSN or format differs, or the record is redacted or vacuumed. */
int sl_record_next(const uint8_t *record, size_t size, uint64_t lsn, const uint8_t *chain, sl_next_record *found);

/* reduce.c: reducers on two whole CBOR items */
int sl_add(const uint8_t *a, size_t a_size, const uint8_t *b, size_t b_size, sl_output *out);
int sl_compare(const uint8_t *a, size_t a_size, const uint8_t *b, size_t b_size, int *order);
int sl_merge_maps(const uint8_t *a, size_t a_size, const uint8_t *b, size_t b_size, int deep, sl_output *out);
int sl_union(const uint8_t *a, size_t a_size, const uint8_t *b, size_t b_size, sl_output *out);

/* version_index.c: version pages (FORMAT.md 6) */
int sl_page_append(const uint8_t *page, size_t size, uint32_t version, uint64_t lsn, uint64_t time_us,
                   sl_output *out);
/* SL_ABSENT: the page has no entry for `version`. */
int sl_page_read(const uint8_t *page, size_t size, uint32_t version, sl_version_entry *entry);
int sl_page_range(const uint8_t *page, size_t size, uint32_t *first, uint32_t *last);
int sl_page_find_time(const uint8_t *page, size_t size, uint64_t time_us, int64_t *version);
uint64_t sl_jump_depth(uint64_t depth); /* Returns the depth to which a checkpoint of this depth jumps. */

/* lmdb.c: checks a page of LMDB's file. `low` and `high` bound its keys (inclusive, exclusive); NULL: no bound.
 * `lists_all`: return all nodes; otherwise, leave out the nodes of a leaf that have no flags. `nodes` may be NULL. A
 * fault of the page is in `facts`, not in the status. */
int sl_lmdb_page(const uint8_t *page, size_t size, int has_integer_keys, const uint8_t *low, size_t low_size,
                 const uint8_t *high, size_t high_size, int lists_all, sl_lmdb_node *nodes, size_t nodes_capacity,
                 sl_lmdb_page_facts *facts);
/* Checks the leaf page that contains `at`, and returns SL_PAGE_*. All `size` bytes must be readable. */
int sl_lmdb_leaf_at(const uint8_t *at, size_t size, uint64_t number);
/* Returns 1 if the page `number` is in the free list of the commit `transaction`. Returns 0 if it is not, or if that
 * is unknown because the commit is not the last one. address: where LMDB has mapped the file. size: the page size. The
 * map must include all pages that the commit's meta page counts. */
int sl_lmdb_is_free_at(uint64_t address, size_t size, uint64_t transaction, uint64_t number);
/* A cache of pages that were found to be in use, or to be sound leaves, in a commit. The caller provides it,
 * filled with zeros. Several threads may share it. Each entry contains a page number and the low bits of the
 * commit's number. */
enum { SL_LMDB_SEEN = 256 };
typedef struct {
    uint64_t pages[SL_LMDB_SEEN];
} sl_lmdb_seen;
/* Returns the number of the page that contains `at`, an address that LMDB has returned. map: where LMDB has mapped the
 * file, or 0 if that is unknown.
 * SL_LMDB_OWN: the page may belong to a write transaction. SL_LMDB_FREE: the page is free. */
int64_t sl_lmdb_page_in_use(const uint8_t *at, size_t size, uint64_t map, uint64_t transaction, int may_be_own,
                            sl_lmdb_seen *seen);
/* Read rows of a sealed table from one leaf page of LMDB's map, beginning with the key at `at`, while their keys begin
 * with `prefix`. `downwards`: read in descending order.
 * Checks: the page (as sl_lmdb_leaf_at and sl_lmdb_page_in_use do), and the seal of each row, including the row that
 * ends the scan.
 * mac_key: the key of the MACs of the rows, 32 bytes; NULL if the seals are checksums.
 * out: key and payload of each row, joined. ends: for each row, the end of its key and the end of its payload in `out`,
 * with room for count_max rows.
 * SL_FALLBACK: a check of the page or of the first row has failed or is not possible, or the value of the first row is
 * on separate pages. The caller then reads the rows one by one. */
typedef struct {
    uint64_t count;
    uint64_t is_end; /* 1 if the next key on the page does not begin with the prefix. */
} sl_lmdb_rows;
int sl_lmdb_rows_read(const uint8_t *at, size_t size, uint64_t map, uint64_t transaction, sl_lmdb_seen *seen,
                      const uint8_t *mac_key, const uint8_t *prefix, size_t prefix_size, int downwards,
                      size_t count_max, sl_output *out, uint64_t *ends, sl_lmdb_rows *rows);

/* xxh3.c: XXH3-64 without a seed. The checksum is stored, big-endian, before each record and after each index value. */
uint64_t sl_checksum(const uint8_t *data, size_t size);

/* board.c: reads several records of board entries, which the caller has joined.
 *
 * An entry is plain if its record is sound, has the right LSN, is neither redacted nor vacuumed, and if the entry
 * exists, is not claimed and has no error. The caller reads other entries by the general path, which reports damage.
 * ends, lsns: the end of each record in `records`, ascending, and its LSN: numbers of 8 bytes, big-endian.
 * out: the agent and the encoded value of each plain entry, joined. The digest of the entry's root replaces the value
 * if the value is not in the same record, has more than one level, or does not fit into `out`. Without `with_values`,
 * there are neither values nor digests.
 * done: the number of entries read before `out` was full. plain: the number of plain entries among these. If the first
 * entry does not fit into `out`, it is not plain. */
typedef struct {
    uint64_t is_plain; /* If it is 0, only `lsn` is valid. */
    uint64_t agent_at; /* The offset in `out`, or UINT64_MAX if the record names no agent. */
    uint64_t value_at;
    uint64_t value_end;
    uint64_t act;
    uint64_t time_us;
    uint64_t created_us;
    uint64_t expires_us;
    uint64_t rank;
    uint64_t ready_us;
    uint64_t attempts;
    uint64_t lsn;
    /* The LSN of the root whose digest replaces the value, or 0 if `out` contains the value. */
    uint64_t root_lsn;
    uint64_t root_node;
} sl_entry_facts;
int sl_entries_read(const uint8_t *records, const uint8_t *ends, const uint8_t *lsns, size_t count, int with_values,
                    sl_output *out, sl_entry_facts *entries, uint64_t *done, uint64_t *plain);

/* wake.c: two words of shared memory that threads of all processes can wait on: {sequence, waiters}, aligned to 4. */
int sl_wake_notify(uint32_t *word);
int sl_wake_read(uint32_t *word, uint32_t *sequence);
/* SL_OK: the sequence differs from `seen`. SL_ABSENT: it is still equal, and the time is up or a signal arrived. */
int sl_wake_wait(uint32_t *word, uint32_t seen, uint64_t timeout_ns);
/* wake_slots.c: a file of slots, mapped with MAP_SHARED and aligned to 8. Each waiter owns a slot, which contains the
 * two words of wake.c. */
enum { SL_WAKE_FILE_SIZE = 131136, SL_WAKE_SUBJECT_SIZE_MAX = 400 };
typedef struct {
    uint64_t owner;    /* A nonzero random number, drawn by the caller. */
    uint64_t ticket;   /* 0 before sl_wake_enter draws it. */
    uint32_t slot;
    uint32_t sequence; /* The sequence that the waiter saw last. */
    uint32_t bell;     /* The number plus 1 of a second slot that a call also notifies, or 0. */
} sl_wake_place;
int sl_wake_open(uint8_t *file, size_t size); /* Initialises a file of zeros. SL_MALFORMED: not a wake-up file. */
/* Takes a slot for a waiter. SL_ABSENT: every slot is owned and was renewed within stale_ms. */
int sl_wake_enter(uint8_t *file, size_t size, sl_wake_place *place, uint64_t mask, uint64_t position,
                  const uint8_t *subject, size_t subject_size, uint64_t stale_ms);
int sl_wake_leave(uint8_t *file, size_t size, const sl_wake_place *place, int *was_called);
/* SL_OK: the waiter was called or notified since `sequence`. SL_ABSENT: it was not. SL_FALLBACK: another waiter
 * has taken over the slot. */
int sl_wake_sleep(uint8_t *file, size_t size, sl_wake_place *place, uint64_t timeout_ns, uint64_t stale_ms);
/* SL_ABSENT: a waiter with the same subject and a lower ticket was renewed within stale_ms. Otherwise SL_OK. */
int sl_wake_is_first(uint8_t *file, size_t size, const sl_wake_place *place, uint64_t stale_ms);
/* Writes `mask`, `position`, and the ticket and bell of `place` into the slot. */
int sl_wake_describe(uint8_t *file, size_t size, const sl_wake_place *place, uint64_t mask, uint64_t position);
int sl_wake_ticket(uint8_t *file, size_t size, uint64_t *ticket); /* Draws the next ticket. */
/* Returns the lowest nonzero position of the slots renewed within `within_ms`. SL_ABSENT: there is none. */
int sl_wake_positions(uint8_t *file, size_t size, uint64_t within_ms, uint64_t *lowest);
/* Moves `place` to the next slot, by ticket and slot number, that has a subject and can be called, and returns the
 * subject. SL_ABSENT: no further slot has a subject and can be called. */
int sl_wake_next(uint8_t *file, size_t size, sl_wake_place *place, uint64_t stale_ms, sl_output *subject);
/* Calls the waiter in the slot of `place`. SL_ABSENT: it has lost the slot, or cannot be called now. */
int sl_wake_call(uint8_t *file, size_t size, const sl_wake_place *place);
/* Notifies the waiters without a subject whose mask shares a bit with `mask`. */
int sl_wake_call_mask(uint8_t *file, size_t size, uint64_t mask);
int sl_wake_note(uint8_t *file, size_t size, uint64_t records);   /* Adds to the count of committed records. */
int sl_wake_noted(uint8_t *file, size_t size, uint64_t *records);

/* writer_lock.c: a lock that admits one writing process at a time, in a page mapped with MAP_SHARED. */
enum {
    SL_LOCK_OWNED = 0,
    SL_LOCK_ABANDONED = 1, /* The lock is owned, but a dead owner's state has not been repaired yet. */
    SL_LOCK_BUSY = 2,      /* Another process owns the lock, and the time is up. */
    SL_LOCK_LOST = 3,      /* The lock can never be owned again. */
    SL_LOCK_INVALID = 4    /* The page is not valid, or this thread does not own the lock. */
};
/* One user of the lock, initially all zeros. Only one thread at a time may use this struct, and the thread that
 * acquires the lock must release it. */
typedef struct {
    uint32_t is_held;
    uint32_t has_ticket;
    uint32_t ticket;
    uint32_t turn;
    uint32_t comes_back;  /* 1 if this user acquired the lock soon after its previous release. */
    uint64_t released_ns; /* The time of the last release. */
} sl_lock;
size_t sl_lock_size(void); /* Returns the size of the page, aligned to 8, or 0 if the system lacks this lock. */
/* Returns the offset of the owner's 32-bit word in a robust mutex, or -1 if the system has no robust mutexes. */
int sl_lock_owner_at(void);
/* Initialises a page, even if it has contents from before a reboot. No other process may use the page. */
int sl_lock_initialise(uint8_t *page, size_t size);
int sl_lock_check(uint8_t *page, size_t size);
/* Waits for the lock. After SL_LOCK_BUSY, the caller stays in the queue until it acquires the lock with a later call or
 * calls sl_lock_release. */
int sl_lock_acquire(sl_lock *lock, uint8_t *page, size_t size, uint32_t timeout_ms);
int sl_lock_try(sl_lock *lock, uint8_t *page, size_t size); /* Acquires the lock ahead of all waiters. */
/* Releases the lock, or leaves the queue. goes_on: the caller wants the lock again soon, and keeps its turn if
 * `comes_back` is set. */
int sl_lock_release(sl_lock *lock, uint8_t *page, size_t size, int goes_on);
int sl_lock_abandon(sl_lock *lock, uint8_t *page, size_t size); /* Releases the lock as if its owner had died. */
int sl_lock_repaired(sl_lock *lock, uint8_t *page, size_t size);

/* <<< cdef */

#endif
