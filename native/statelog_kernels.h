/* The public face of the statelog kernels.
 *
 * Bytes in, bytes out: no I/O, no globals that change, no allocation, no recursion on input, re-entrant.
 * Every input is untrusted: any byte string may be passed, and what FORMAT.md does not allow is answered
 * with SL_MALFORMED. Every function returns a status; results are written on SL_OK only (the bytes of an
 * output buffer are unspecified after any other status, its sizes are untouched).
 *
 * A node is `size` bytes: `content_size` bytes of content, then its locators. `home_lsn` is the LSN of the
 * record that holds it: locators with LSN 0 are handed out with home_lsn in place of 0.
 */
#ifndef STATELOG_KERNELS_H
#define STATELOG_KERNELS_H

#include <stddef.h>
#include <stdint.h>

/* >>> cdef: native/build.py hands everything up to the closing marker to cffi. */

enum {
    SL_OK = 0,
    SL_MALFORMED = 1, /* bytes that FORMAT.md does not allow */
    SL_FALLBACK = 2,  /* well formed, but not for this kernel: take the general path */
    SL_ABSENT = 3,    /* what was looked for is not there */
    SL_TYPE = 4,      /* a reducer's two values do not go together */
    SL_USAGE = 5,     /* arguments that no caller should pass */
    SL_SPACE = 6,     /* the output buffer is too small */
    SL_WANTED = 7     /* a step lacks a node, and tells which */
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
    SL_LEVELS_MAX = 64,         /* a level at least halves the entries below it, of which there are < 2^64 */
    SL_CHUNK_ENTRIES_MAX = 128, /* FORMAT.md 4.5 */
    SL_PIECE_SIZE_MIN = 2048,   /* FORMAT.md 4.4 */
    SL_BATCH_DELETE = 0xFE,     /* markers in the batches of sl_tail_merge: no CBOR item and no ref begins */
    SL_BATCH_PUT = 0xFF         /* with them */
};

/* A caller's buffer of `capacity` bytes; a kernel sets `size`, and for nodes `content_size`. */
typedef struct {
    uint8_t *bytes;
    size_t capacity;
    size_t size;
    size_t content_size;
} sl_output;

/* Results are structs of 64-bit numbers without padding, so that a caller may read them as arrays.
 * Names that end in `_at` or `end` are offsets into the input. */
typedef struct {
    uint64_t covered;
    uint64_t digest_at; /* 0: nothing is stored for this level */
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
    sl_level levels[SL_LEVELS_MAX]; /* the highest first */
} sl_root_head;

typedef struct {
    uint64_t at;
    uint64_t slot_at; /* of the slot, or at level >= 1 of the digest */
    uint64_t end;
    uint64_t covered; /* 1 at level 0 */
    uint64_t lsn;     /* 0 where there is no ref */
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
    uint64_t covered; /* by the entry */
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
    uint8_t digest[24]; /* of 20 bytes: as the row says; where rows say none, of the content */
} sl_node_place;

typedef struct {
    uint64_t body_at;
    uint64_t body_size;
    uint64_t node_count; /* vacuumed ones included, up to the last one that is left where there are such */
    uint64_t row_count;  /* of nodes that are left */
    uint64_t size;       /* of the record: there may be more behind it */
} sl_record_parts;

typedef struct {
    uint64_t lsn;
    uint64_t time_us;
} sl_version_entry;

typedef struct {
    uint64_t parent; /* number of the node that refers */
    uint64_t type;
    uint64_t digest_at;
    uint64_t lsn;
    uint64_t node;
} sl_node_ref;

typedef struct {
    uint64_t *slots; /* of zeros at first */
    uint64_t count;
    uint64_t seed;
} sl_seen_nodes;

typedef struct {
    uint64_t node_count;
    uint64_t shared_count;
    uint64_t ref_count;
    uint8_t chain_digest[24]; /* of 20 bytes; zeros where the record was redacted */
    uint64_t is_refused;      /* by sl_records_verify: something does not hold, or there was no room */
} sl_record_facts;

enum {
    SL_PAGE_BRANCH = 1, /* LMDB's flags of a page, */
    SL_PAGE_LEAF = 2,
    SL_LMDB_LONG = 1, /* and of a node: its data is the number of the first page of its value, */
    SL_LMDB_TABLE = 2, /* or the record of a table */
    SL_LMDB_OWN = -1,  /* in place of a page's number, */
    SL_LMDB_FREE = -2
};

enum { /* what is wrong with a page of LMDB's */
    SL_PAGE_SOUND = 0,
    SL_PAGE_KIND = 1,
    SL_PAGE_BOUNDS = 2,
    SL_PAGE_NODES = 3,
    SL_PAGE_NODE_FLAGS = 4,
    SL_PAGE_ORDER = 5,
    SL_PAGE_OTHER = 6
};

typedef struct {
    uint64_t number; /* as the page says */
    uint64_t kind;
    uint64_t count;  /* of nodes */
    uint64_t listed; /* of those, how many were handed out */
    uint64_t fault;
} sl_lmdb_page_facts;

typedef struct {
    uint64_t key_at;
    uint64_t key_size;
    uint64_t flags;
    uint64_t value; /* branch: the child's page; leaf: size of the value */
    uint64_t data_at;
} sl_lmdb_node;

/* What one step at a time is gathered in. Rows and nodes go into the record as they are: a row is one of the node table
 * (FORMAT.md 3). Where refs lead, LSN 0 names the record in the making. */
enum {
    SL_ROW_SIZE = 29,
    SL_STEP_ROWS_MAX = 256,
    SL_STEP_NODES_SIZE = 65536,
    SL_STEP_BATCH_SIZE = 8192,
    SL_STEP_SCRATCH_SIZE = 65536,
    SL_STEP_LISTS_MAX = 8,     /* roots that are held for the next step, */
    SL_STEP_HELD_SIZE = 49152, /* and the size of all */
    SL_STEP_LEVELS = 2 /* above the entries of a list or a state: so many may take what has closed below */
};

typedef struct {
    uint64_t root_row; /* of the state; what stands in the output up to `page_end` is told by sl_step_make */
    uint64_t row_count; /* 0: the state stays as it was */
    uint64_t nodes_at;
    uint64_t record_end;
    uint64_t page_end;
    uint64_t large_count; /* rows of leaves that are to be looked for in the whole store: of 4096 bytes and up */
} sl_step_made;

typedef struct {
    uint64_t type;
    uint64_t lsn;
    uint64_t node;
    uint8_t digest[24]; /* of 20 bytes */
} sl_step_wanted;

typedef struct {
    sl_step_made made;     /* on SL_OK */
    sl_step_wanted wanted; /* on SL_WANTED */
    const uint8_t *held;   /* see sl_step_make */
    size_t held_size;
    const uint8_t *known;
    size_t known_size;
    uint64_t row; /* of the node made last, and where it stands in `nodes` */
    uint64_t at;
    uint64_t content_end;
    uint64_t end;
    uint64_t home_lsn; /* 0; of a leaf that was known its LSN, and `row` is its number */
    uint8_t digest[24];
    uint64_t nodes_size;
    uint64_t change_count;
    uint64_t batch_size;
    uint64_t locators_size;
    uint64_t list_count;
    uint64_t list_rows[SL_STEP_LISTS_MAX];               /* of the roots of lists appended to, */
    const uint8_t *lists_before[1 + SL_STEP_LISTS_MAX]; /* and digests of what these replace; the state's last */
    uint8_t rows[SL_STEP_ROWS_MAX * SL_ROW_SIZE];
    uint8_t nodes[SL_STEP_NODES_SIZE];
    uint8_t batch[SL_STEP_BATCH_SIZE];
    uint8_t locators[SL_STEP_BATCH_SIZE];
    uint8_t scratch[SL_STEP_SCRATCH_SIZE]; /* a thread's stack may be small */
} sl_step;

/* cbor.c: the profile of FORMAT.md 7 */
int sl_cbor_check(const uint8_t *data, size_t size, size_t *error_at); /* error_at: set on SL_MALFORMED */
int sl_cbor_children(const uint8_t *data, size_t size, int *kind, uint64_t *first, uint64_t *count); /* head only */
int sl_cbor_split(const uint8_t *data, size_t size, uint64_t *ends, size_t ends_capacity); /* whole item */
int sl_cbor_map_get(const uint8_t *data, size_t size, const uint8_t *key, size_t key_size, uint64_t *span);

/* msgpack.c: the items of one encoded array, whose head is of the shortest form. Neither FORMAT.md nor the store knows
 * msgpack: it is what others' serialisers emit. */
int sl_msgpack_array(const uint8_t *data, size_t size, uint64_t *first, uint64_t *count); /* head only */
int sl_msgpack_split(const uint8_t *data, size_t size, uint64_t *ends, size_t ends_capacity); /* whole array */

/* node.c: roots, chunks and their entries (FORMAT.md 4.2, 4.3) */
int sl_root_read(const uint8_t *data, size_t size, size_t content_size, uint64_t home_lsn, sl_root_head *head);
int sl_entries_table(const uint8_t *data, size_t size, size_t content_size, uint64_t home_lsn, int is_root, int kind,
                     sl_entry *entries, size_t entries_capacity, uint64_t *count);
int sl_entries_copy(const uint8_t *data, size_t size, size_t content_size, uint64_t home_lsn, int is_root, int kind,
                    uint64_t start, uint64_t stop, sl_output *out); /* content_size: bytes of the entries */
int sl_chunk_summary(const uint8_t *data, size_t size, size_t content_size, int kind, const uint8_t *digest,
                     sl_output *out);

/* edit.c: entries [start, stop) of a chunk replaced, where it then closes at its end (is_closed) or nowhere */
int sl_chunk_replace(const uint8_t *data, size_t size, size_t content_size, uint64_t home_lsn, int kind,
                     uint64_t start, uint64_t stop, const uint8_t *entries, size_t entries_size,
                     const uint8_t *locators, size_t locators_size, uint64_t added, int is_closed, sl_output *out);

/* sequence.c: positions, appends, and where chunks close (FORMAT.md 4.4, 4.5) */
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
int64_t sl_prints_find(const uint8_t *prints, size_t size, uint32_t fingerprint, size_t start); /* -1: none */
int sl_blob_cuts(const uint8_t *data, size_t size, uint64_t *ends, size_t ends_capacity, uint64_t *count);

/* map.c: dicts and sets by key */
int sl_find_key(const uint8_t *data, size_t size, size_t content_size, uint64_t home_lsn, int is_root, int kind,
                const uint8_t *key, size_t key_size, sl_key_hit *hit);
int sl_tail_merge(const uint8_t *data, size_t size, size_t content_size, uint64_t home_lsn, const uint8_t *batch,
                  size_t batch_size, const uint8_t *locators, size_t locators_size, uint64_t count, sl_output *out);

/* record.c: the parts of a record, and its nodes (FORMAT.md 3) */
int sl_record_open(const uint8_t *record, size_t size, sl_record_parts *parts);
int sl_record_node(const uint8_t *record, size_t size, uint64_t number, sl_node_place *place);
/* As sl_record_node, for who knows what to find there: `count` nodes of a type, their numbers of 8 bytes, big-endian, and
 * their digests. Of each three numbers: the place of its content, the content's size, the node's. SL_ABSENT: one is not
 * a node of that type and digest; `found` come before it. */
int sl_record_find(const uint8_t *record, size_t size, int type, const uint8_t *numbers, const uint8_t *digests,
                   size_t count, uint64_t *places, uint64_t *found);
/* The nodes that are left, ascending; `count`: of all, `row_count`: of those. */
int sl_record_nodes(const uint8_t *record, size_t size, sl_node_place *places, size_t places_capacity,
                    uint64_t *count, uint64_t *row_count);

/* identity.c: digests of 20 bytes, and the bodies of checkpoints, which go with theirs (FORMAT.md 3 to 5) */
int sl_node_digest(int type, const uint8_t *content, size_t content_size, uint8_t *digest);
int sl_chain_digest(int type, int flags, uint64_t lsn, uint64_t time_us, const uint8_t *previous, const uint8_t *body,
                    size_t body_size, const uint8_t *rows, size_t rows_size, uint8_t *digest);
/* The body, then the checkpoint's digest; content_size: of the body. Items (id, metadata, ...) are written as they
 * are. numbers: SL_CHECKPOINT_NUMBERS of 8 bytes, big-endian, all ones for null: thread, branch, version, parent
 * branch, parent version, jump branch, jump version, depth, jump depth, root LSN, root node, target, time. */
enum { SL_CHECKPOINT_NUMBERS = 13 };
int sl_checkpoint_encode(const uint8_t *numbers, const uint8_t *parent_digest, const uint8_t *root_digest,
                         const uint8_t *id, size_t id_size, const uint8_t *metadata, size_t metadata_size,
                         const uint8_t *written, size_t written_size, const uint8_t *borrowed, size_t borrowed_size,
                         sl_output *out);

/* commit.c: one step, from a head to what its next checkpoint brings to the disk, as long as no chunk closes but at an end.
 * SL_FALLBACK: the step is of no use, take the general path.
 *
 * fixed: the numbers of sl_checkpoint_encode, LSN and number of the root being those of the parent's; the LSN of the
 * record, of 8 bytes, too; digests of the parent, of its state, and of the chain so far. A target makes it a rollback.
 * held: nodes, one after another, as a step puts them out for the next: type, digest, LSN (8), size (4), size of the
 * content (4), the node. SL_WANTED: one is not among them, `wanted` of the step names it; then once more, with it.
 * changes: ascending by key item, one of each channel: operation, number of items (4), sizes of key item (2), of the key
 * item of a keyed list (2; 0: of none) and of the payload (4), and these three.
 * known: digest, LSN (8) and number (4) of leaves that lie elsewhere: these are referred to, not made.
 * out: digest of the checkpoint, of the chain with the record, of the state; the record but for its checksum; the version
 * page with the checkpoint's entry; what is held for the next step, unless the state stays as it was. */
enum {
    SL_STEP_PUT = 1,      /* an item, the channel's new value */
    SL_STEP_ADD = 2,      /* an item, added to an inline value */
    SL_STEP_APPEND = 3,   /* items one after another, appended to a list */
    SL_STEP_PUT_ONCE = 4, /* an item, the value of a channel that has none */
    SL_STEP_REMOVE = 5    /* takes a channel out, if it is there */
};
int sl_step_make(sl_step *step, const uint8_t *fixed, const uint8_t *held, size_t held_size, const uint8_t *changes,
                 size_t changes_size, const uint8_t *known, size_t known_size, const uint8_t *id, size_t id_size,
                 const uint8_t *metadata, size_t metadata_size, const uint8_t *written, size_t written_size,
                 const uint8_t *borrowed, size_t borrowed_size, const uint8_t *page, size_t page_size, sl_output *out);
/* The list that a channel holds, as `wanted` of a step; SL_ABSENT: none that a step would append to. */
int sl_step_list(sl_step *step, const uint8_t *state_digest, const uint8_t *held, size_t held_size, const uint8_t *key,
                 size_t key_size);
int sl_step_prints(const uint8_t *items, size_t items_size, const uint8_t *key, size_t key_size,
                   const uint8_t *prints, size_t prints_size, sl_output *out);

/* entry.c: the record of an event of an entry or a lease, and its index changes. SL_FALLBACK: take the general path.
 *
 * fixed: numbers of 8 bytes, big-endian, in this order:
 *   thread, act, LSN of the record, time, creation, expiry, rank, time from which the entry may be claimed, number of
 *   claims; LSN (0: no value) and node number of the current root; 1 if the entry exists before the event;
 *   the current row of the key (LSN, expiry, order, rank, tag of 8 bytes, deadline; zeros if there is no row);
 *   the claim (token, tag, deadline, deadline by the wall clock, duration; zeros if there is no claim);
 *   digest of the current root; chain digest of the record before.
 * held: nodes as for sl_step_make, with the current root. If it is empty, the changes are made to an empty value.
 * changes: as for sl_step_make. If it is empty, the root does not change.
 * agent, error: encoded items.
 * out: chain digest of the record; digest of the root; the record without its checksum; index changes up to `page_end`.
 *   An index change is: size of the key and size of the payload (2 bytes each), key, payload. The payload size
 *   SL_ENTRY_DELETED deletes the key. */
enum { SL_ENTRY_KEY_SIZE_MAX = 401, SL_ENTRY_DELETED = 0xFFFF };
int sl_entry_make(sl_step *step, const uint8_t *fixed, const uint8_t *held, size_t held_size, const uint8_t *changes,
                  size_t changes_size, const uint8_t *key, size_t key_size, const uint8_t *agent, size_t agent_size,
                  const uint8_t *error, size_t error_size, sl_output *out);

/* verify.c: all nodes of a record. `places`: room for as many nodes as it has. SL_MALFORMED: something does not hold. */
int sl_record_verify(const uint8_t *record, size_t size, uint64_t lsn, sl_seen_nodes *seen, sl_node_place *places,
                     size_t places_capacity, sl_node_ref *refs, size_t refs_capacity, sl_record_facts *facts);
/* One after the other; refs of all stand in a row. */
int sl_records_verify(const uint8_t *const *records, const uint64_t *sizes, const uint64_t *lsns, size_t record_count,
                      sl_seen_nodes *seen, sl_node_place *places, size_t places_capacity, sl_node_ref *refs,
                      size_t refs_capacity, sl_record_facts *facts);
int sl_seen_node(const sl_seen_nodes *seen, uint64_t type, const uint8_t *digest, uint64_t lsn, uint64_t node);

/* The fields of a checkpoint's body, all of it checked; SL_NO_NUMBER and offset 0 for null. */
typedef struct {
    uint64_t numbers[SL_CHECKPOINT_NUMBERS - 1]; /* as sl_checkpoint_encode takes them, without the time */
    uint64_t parent_digest_at;
    uint64_t root_digest_at;
    uint64_t id_at; /* of items, which end where the next one begins */
    uint64_t metadata_at;
    uint64_t written_at;
    uint64_t borrowed_at;
    uint64_t borrowed_end;
} sl_checkpoint_fields;
int sl_checkpoint_decode(const uint8_t *body, size_t size, int is_rollback, sl_checkpoint_fields *fields);
typedef struct {
    sl_checkpoint_fields fields; /* offsets are those in the record */
    uint64_t time_us;
    uint8_t digest[24]; /* of 20 bytes: the checkpoint's */
} sl_checkpoint_record;
/* A whole record whose checksum was checked. SL_FALLBACK: it is of another LSN, format or type, or redacted. */
int sl_checkpoint_read(const uint8_t *record, size_t size, uint64_t lsn, sl_checkpoint_record *found);
typedef struct {
    uint64_t type;
    uint64_t thread; /* the first field of the body; 0 if it is not a number */
    uint64_t branch; /* the second field of a checkpoint's body; 0 if it is not a number */
    uint64_t time_us;
    uint8_t chain[24]; /* of 20 bytes: the chain digest */
} sl_next_record;
/* The record behind one with the chain digest `chain`; its checksum was checked. SL_FALLBACK: it does not continue that
 * chain, is of another LSN or format, or redacted. */
int sl_record_next(const uint8_t *record, size_t size, uint64_t lsn, const uint8_t *chain, sl_next_record *found);

/* reduce.c: reducers on two whole CBOR items */
int sl_add(const uint8_t *a, size_t a_size, const uint8_t *b, size_t b_size, sl_output *out);
int sl_compare(const uint8_t *a, size_t a_size, const uint8_t *b, size_t b_size, int *order);
int sl_merge_maps(const uint8_t *a, size_t a_size, const uint8_t *b, size_t b_size, int deep, sl_output *out);
int sl_union(const uint8_t *a, size_t a_size, const uint8_t *b, size_t b_size, sl_output *out);

/* version_index.c: version pages (FORMAT.md 6) */
int sl_page_append(const uint8_t *page, size_t size, uint32_t version, uint64_t lsn, uint64_t time_us,
                   sl_output *out);
/* SL_ABSENT: the page does not hold that version. */
int sl_page_read(const uint8_t *page, size_t size, uint32_t version, sl_version_entry *entry);
int sl_page_range(const uint8_t *page, size_t size, uint32_t *first, uint32_t *last);
int sl_page_find_time(const uint8_t *page, size_t size, uint64_t time_us, int64_t *version);
uint64_t sl_jump_depth(uint64_t depth); /* returns the depth that a checkpoint of this depth jumps to */

/* lmdb.c: a page of LMDB's file. `low`, `high`: its keys are at least, below; NULL: no bound. `lists_all`: hand out
 * all nodes, else of a leaf those with flags; `nodes` may be NULL. A fault is no status: facts tell it. */
int sl_lmdb_page(const uint8_t *page, size_t size, int has_integer_keys, const uint8_t *low, size_t low_size,
                 const uint8_t *high, size_t high_size, int lists_all, sl_lmdb_node *nodes, size_t nodes_capacity,
                 sl_lmdb_page_facts *facts);
/* Returns SL_PAGE_*; at: lies in a whole page. */
int sl_lmdb_leaf_at(const uint8_t *at, size_t size, uint64_t number);
/* Whether the free list of the last commit, `transaction`, has a page; 0 also where that cannot be told. address, size: of
 * LMDB's map, which holds whatever pages the commit's meta page tells of, and of a page. */
int sl_lmdb_is_free_at(uint64_t address, size_t size, uint64_t transaction, uint64_t number);
/* A cache of pages that were found to be in use, or to be sound leaves, in a commit. The caller provides it, filled
 * with zeros. Several threads may share it. Each entry has a page number and the last bits of the commit's number. */
enum { SL_LMDB_SEEN = 256 };
typedef struct {
    uint64_t pages[SL_LMDB_SEEN];
} sl_lmdb_seen;
/* The number of the page that contains `at`, which LMDB has lent. map: the address of LMDB's map, 0 if it is not known.
 * SL_LMDB_OWN: the page may belong to a write transaction. SL_LMDB_FREE: the page is free. */
int64_t sl_lmdb_page_in_use(const uint8_t *at, size_t size, uint64_t map, uint64_t transaction, int may_be_own,
                            sl_lmdb_seen *seen);
/* Read rows of a sealed table from one leaf page of LMDB's map, beginning with the key at `at`, while their keys begin
 * with `prefix`. `downwards`: read in descending order.
 * Checks: the page (as sl_lmdb_leaf_at and sl_lmdb_page_in_use do), and the seal of each row, also of the row that ends
 * the scan.
 * mac_key: the key of the MACs of the rows, 32 bytes; NULL if the seals are checksums.
 * out: key and payload of each row, joined. ends: for each row, the end of its key and the end of its payload in `out`;
 * room for count_max rows.
 * SL_FALLBACK: a check of the page or of the first row has failed or is not possible, or the first row has pages of its
 * own. The caller then reads the rows one by one. */
typedef struct {
    uint64_t count;
    uint64_t is_end; /* 1: the next key on the page does not begin with the prefix */
} sl_lmdb_rows;
int sl_lmdb_rows_read(const uint8_t *at, size_t size, uint64_t map, uint64_t transaction, sl_lmdb_seen *seen,
                      const uint8_t *mac_key, const uint8_t *prefix, size_t prefix_size, int downwards,
                      size_t count_max, sl_output *out, uint64_t *ends, sl_lmdb_rows *rows);

/* xxh3.c: XXH3-64 without a seed. It is stored, big-endian, before records and after values of the index. */
uint64_t sl_checksum(const uint8_t *data, size_t size);

/* board.c: reads joined records of entries of the board.
 *
 * An entry is plain if its record is sound, has the right LSN, is neither redacted nor shortened, and if the entry
 * exists, is not claimed and has no error. The caller reads other entries by the general path, which reports damage.
 * ends, lsns: the end of each record in `records`, ascending, and its LSN: numbers of 8 bytes, big-endian.
 * out: the agent and the encoded value of each plain entry, joined. The digest of the entry's root replaces the value
 * if the value is not in the same record, has more than one level, or does not fit into `out`. Without `with_values`,
 * there are neither values nor digests.
 * done: the number of entries read before `out` was full. plain: the number of plain entries among these. If the first
 * entry does not fit into `out`, it is not plain. */
typedef struct {
    uint64_t is_plain; /* if 0, only the LSN has a meaning */
    uint64_t agent_at; /* offset in `out`; UINT64_MAX if the record names no agent */
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
    uint64_t root_lsn; /* LSN of the root whose digest replaces the value; 0: `out` has the value */
    uint64_t root_node;
} sl_entry_facts;
int sl_entries_read(const uint8_t *records, const uint8_t *ends, const uint8_t *lsns, size_t count, int with_values,
                    sl_output *out, sl_entry_facts *entries, uint64_t *done, uint64_t *plain);

/* wake.c: two words of shared memory that other processes wait on: {sequence, waiters}, aligned to 4 */
int sl_wake_notify(uint32_t *word);
int sl_wake_read(uint32_t *word, uint32_t *sequence);
int sl_wake_wait(uint32_t *word, uint32_t seen, uint64_t timeout_ns); /* SL_OK: moved on; SL_ABSENT: not (yet) */
/* wake_slots.c: a file of slots of such words, that all map (MAP_SHARED), aligned to 8; each waiter has one. */
enum { SL_WAKE_FILE_SIZE = 131136, SL_WAKE_SUBJECT_SIZE_MAX = 400 };
typedef struct {
    uint64_t owner;    /* of the slot, random and not 0; its caller draws it */
    uint64_t ticket;   /* 0: not given yet */
    uint32_t slot;
    uint32_t sequence; /* of the word, as it was seen last */
    uint32_t bell;     /* number plus 1 of the slot whose owner a call wakes, too; 0: none */
} sl_wake_place;
int sl_wake_open(uint8_t *file, size_t size); /* begins one of zeros; SL_MALFORMED: it is another file */
/* SL_ABSENT: there is no slot that is free, or was not renewed for stale_ms. */
int sl_wake_enter(uint8_t *file, size_t size, sl_wake_place *place, uint64_t mask, uint64_t position,
                  const uint8_t *subject, size_t subject_size, uint64_t stale_ms);
int sl_wake_leave(uint8_t *file, size_t size, const sl_wake_place *place, int *was_called);
/* SL_OK: called or notified since `sequence`; SL_ABSENT: not (yet); SL_FALLBACK: another has the slot. */
int sl_wake_sleep(uint8_t *file, size_t size, sl_wake_place *place, uint64_t timeout_ns, uint64_t stale_ms);
int sl_wake_is_first(uint8_t *file, size_t size, const sl_wake_place *place, uint64_t stale_ms); /* else SL_ABSENT */
/* Writes mask and position into the slot, and the ticket and the bell of `place`. */
int sl_wake_describe(uint8_t *file, size_t size, const sl_wake_place *place, uint64_t mask, uint64_t position);
int sl_wake_ticket(uint8_t *file, size_t size, uint64_t *ticket); /* draws the next */
int sl_wake_positions(uint8_t *file, size_t size, uint64_t within_ms, uint64_t *lowest); /* SL_ABSENT: nobody has one */
/* The next slot behind `place`, by ticket and slot, that can be called, with its subject. SL_ABSENT: none. */
int sl_wake_next(uint8_t *file, size_t size, sl_wake_place *place, uint64_t stale_ms, sl_output *subject);
int sl_wake_call(uint8_t *file, size_t size, const sl_wake_place *place); /* SL_ABSENT: it cannot be called any more */
int sl_wake_call_mask(uint8_t *file, size_t size, uint64_t mask); /* wakes those without a subject */
int sl_wake_note(uint8_t *file, size_t size, uint64_t records);   /* adds to the records that were committed */
int sl_wake_noted(uint8_t *file, size_t size, uint64_t *records);

/* writer_lock.c: the lock of the one process that writes, in a page that all map (MAP_SHARED) */
enum {
    SL_LOCK_OWNED = 0,
    SL_LOCK_ABANDONED = 1, /* owned, and what an owner that died left has not been repaired */
    SL_LOCK_BUSY = 2,      /* another owns it, and the time is up */
    SL_LOCK_LOST = 3,      /* never to be owned again */
    SL_LOCK_INVALID = 4    /* not such a page, or not owned by this thread */
};
/* One user of the lock, zero at first; one thread at a time. The thread that locks is the one that releases. */
typedef struct {
    uint32_t is_held;
    uint32_t has_ticket;
    uint32_t ticket;
    uint32_t turn;
    uint32_t comes_back;  /* this user last acquired the lock again soon after releasing it */
    uint64_t released_ns; /* time of the last release */
} sl_lock;
size_t sl_lock_size(void); /* bytes of a page, aligned to 8; 0 where there is no such lock */
/* The offset in a robust mutex of the 32-bit word of its owner, as the kernel knows it; -1 without robust mutexes. */
int sl_lock_owner_at(void);
/* Make a page; only by one who knows that no other process uses it, also over what a reboot left. */
int sl_lock_initialise(uint8_t *page, size_t size);
int sl_lock_check(uint8_t *page, size_t size);
/* Wait to own the lock. After SL_LOCK_BUSY the place in the queue is kept, for another call or for the release. */
int sl_lock_acquire(sl_lock *lock, uint8_t *page, size_t size, uint32_t timeout_ms);
int sl_lock_try(sl_lock *lock, uint8_t *page, size_t size); /* before those who wait */
int sl_lock_release(sl_lock *lock, uint8_t *page, size_t size, int goes_on); /* the lock, or the place in the queue */
int sl_lock_abandon(sl_lock *lock, uint8_t *page, size_t size); /* release it as an owner that died would */
int sl_lock_repaired(sl_lock *lock, uint8_t *page, size_t size);

/* <<< cdef */

#endif
