/* Checks one record in one call: the digest and the shape of each node, and the refs between its nodes.
 *
 * Refs to other records are looked up in a cache of the refs and nodes seen so far. Each slot of the cache has one
 * fingerprint, which a newer one replaces. A ref that is not in the cache is returned for the caller to look up.
 * Fingerprints have 64 bits and a secret seed, so an attacker cannot forge a match.
 *
 * Trust: the caller has checked the record's checksum. Nothing else is trusted.
 * Invariants: a record passes if tree/check.py passes it (T3, T4, T5). After a failure, the caller
 * runs that code to describe the fault. */
#include "internal.h"

enum {
    REF_SIZE = 1 + SL_DIGEST_SIZE,
    TYPE_AT = 9,
    FLAGS_AT = 10,
    BODY_SIZE_AT = 12,
    TIME_AT = 24,
    PREVIOUS_AT = 32,
    FLAG_VACUUMED = 2,
    FLAG_REDACTED = 4,
    ENVELOPE_SIZE = 56,
    SHARED_SIZE_MIN = 4096, /* FORMAT.md 6, key `d` */
};

typedef struct {
    const uint8_t *record;
    size_t size;
    uint64_t lsn;
    uint64_t parent; /* The number of the node whose refs are being checked. */
    uint64_t children;
    const sl_node_place *places; /* The places of the record's nodes, ascending by number. */
    uint64_t place_count;
    sl_seen_nodes *seen;
    sl_node_ref *refs;
    size_t refs_capacity;
    sl_record_facts facts;
} check;

static uint64_t mix(uint64_t x)
{
    x ^= x >> 30;
    x *= 0xBF58476D1CE4E5B9;
    x ^= x >> 27;
    x *= 0x94D049BB133111EB;
    return x ^ x >> 31;
}

static uint64_t fingerprint(uint64_t seed, uint64_t type, const uint8_t *digest, uint64_t lsn, uint64_t node)
{
    uint64_t found = mix(seed ^ lsn);
    found = mix(found + (node << 3 | type));
    found = mix(found ^ sl_load_be(digest, 8));
    found = mix(found + sl_load_be(digest + 8, 8));
    found = mix(found ^ sl_load_be(digest + 16, 4));
    return found != 0 ? found : 1; /* 0 marks an empty slot. */
}

/* Return true if the node is in the cache. Otherwise add it. */
static bool see(sl_seen_nodes *seen, uint64_t type, const uint8_t *digest, uint64_t lsn, uint64_t node)
{
    uint64_t wanted = fingerprint(seen->seed, type, digest, lsn, node);
    uint64_t *slot = &seen->slots[wanted % seen->count];
    if (*slot == wanted) {
        return true;
    }
    *slot = wanted;
    return false;
}

/* Return true if the record itself contains the node. */
static bool holds(const check *run, uint64_t type, const uint8_t *digest, uint64_t node)
{
    uint64_t low = 0;
    uint64_t high = run->place_count;
    while (low < high) {
        uint64_t middle = low + (high - low) / 2;
        if (run->places[middle].number < node) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    const sl_node_place *place = &run->places[low];
    return low < run->place_count && place->number == node && place->type == type &&
           memcmp(place->digest, digest, SL_DIGEST_SIZE) == 0;
}

static int check_child(check *run, uint64_t type, const uint8_t *digest, uint64_t lsn, uint64_t node)
{
    run->children++;
    if (lsn == run->lsn) {
        SL_REQUIRE(holds(run, type, digest, node));
        return SL_OK;
    }
    SL_REQUIRE(lsn > 0 && lsn < run->lsn);
    if (see(run->seen, type, digest, lsn, node)) {
        return SL_OK;
    }
    if (run->facts.ref_count == run->refs_capacity) {
        return SL_SPACE;
    }
    run->refs[run->facts.ref_count++] =
        (sl_node_ref){run->parent, type, (uint64_t)(digest - run->record), lsn, node};
    return SL_OK;
}

#define CHECK_CHILD(...)                             \
    do {                                             \
        int child_status = check_child(__VA_ARGS__); \
        if (child_status != SL_OK) {                 \
            return child_status;                     \
        }                                            \
    } while (0)

static int check_entries(check *run, const uint8_t *node, size_t size, size_t content_size, bool is_root)
{
    int kind = node[0];
    sl_entries it;
    int status = sl_entries_open(&it, node, size, content_size, run->lsn, is_root, kind);
    if (status != SL_OK) {
        return status;
    }
    uint64_t level = is_root ? 0 : node[1]; /* sl_entries_open succeeded, so a chunk has these two bytes. */
    while ((status = sl_entries_next(&it)) == SL_OK) {
        const uint8_t *slot = node + it.slot_at;
        if (level > 0) {
            CHECK_CHILD(run, level == 1 && sl_is_blob(kind) ? SL_NODE_PIECE : SL_NODE_CHUNK, slot, it.lsn, it.node);
        } else if (it.in.at - it.slot_at == REF_SIZE && slot[0] >= SL_REF_LEAF) {
            CHECK_CHILD(run, slot[0] == SL_REF_LEAF ? SL_NODE_LEAF : SL_NODE_ROOT, slot + 1, it.lsn, it.node);
        }
    }
    return status == SL_END ? SL_OK : status;
}

static int check_root(check *run, const uint8_t *node, size_t size, size_t content_size)
{
    sl_root_head head;
    SL_REQUIRE(sl_root_read(node, size, content_size, run->lsn, &head) == SL_OK);
    for (uint64_t i = 0; i < head.level_count; i++) {
        if (head.levels[i].digest_at != 0) {
            CHECK_CHILD(run, SL_NODE_CHUNK, node + head.levels[i].digest_at, head.levels[i].lsn, head.levels[i].node);
        }
    }
    if (sl_is_blob(node[0])) {
        return SL_OK;
    }
    return check_entries(run, node, size, content_size, true);
}

static int check_node(check *run, const sl_node_place *place)
{
    const uint8_t *node = run->record + place->content_at;
    size_t content_size = (size_t)place->content_size;
    size_t size = (size_t)place->total_size;
    /* A vacuumed record stores no digests: those in `places` were computed from the content. */
    if ((run->record[FLAGS_AT + 1] & FLAG_VACUUMED) == 0) {
        uint8_t digest[SL_DIGEST_SIZE];
        SL_REQUIRE(sl_node_digest((int)place->type, node, content_size, digest) == SL_OK);
        SL_REQUIRE(memcmp(digest, place->digest, SL_DIGEST_SIZE) == 0);
    }
    run->facts.shared_count += place->type == SL_NODE_LEAF ? content_size >= SHARED_SIZE_MIN : place->type == SL_NODE_ROOT && sl_is_blob(node[0]);
    run->facts.node_count++;
    (void)see(run->seen, place->type, place->digest, run->lsn, place->number);
    if (place->type == SL_NODE_PIECE) {
        return SL_OK;
    }
    if (place->type == SL_NODE_LEAF) {
        size_t error_at;
        SL_REQUIRE(size == content_size);
        return sl_cbor_check(node, content_size, &error_at);
    }
    run->parent = place->number;
    run->children = 0;
    int status = place->type == SL_NODE_ROOT ? check_root(run, node, size, content_size)
                                     : check_entries(run, node, size, content_size, false);
    if (status != SL_OK) {
        return status;
    }
    sl_reader in = sl_reader_of(node, size);
    in.at = content_size;
    while (in.at < in.len) {
        uint64_t number_read;
        SL_REQUIRE(run->children-- > 0 && sl_read_varint(&in, &number_read) && sl_read_varint(&in, &number_read));
    }
    SL_REQUIRE(run->children == 0);
    return SL_OK;
}

int sl_seen_node(const sl_seen_nodes *seen, uint64_t type, const uint8_t *digest, uint64_t lsn, uint64_t node)
{
    uint64_t wanted = fingerprint(seen->seed, type, digest, lsn, node);
    return seen->slots[wanted % seen->count] == wanted ? SL_OK : SL_ABSENT;
}

int sl_record_verify(const uint8_t *record, size_t size, uint64_t lsn, sl_seen_nodes *seen, sl_node_place *places,
                     size_t places_capacity, sl_node_ref *refs, size_t refs_capacity, sl_record_facts *facts)
{
    if (seen->count == 0) {
        return SL_USAGE;
    }
    uint64_t count = 0;
    uint64_t row_count = 0;
    int status = sl_record_nodes(record, size, places, places_capacity, &count, &row_count);
    if (status != SL_OK) {
        return status;
    }
    check run = {record, size, lsn, 0, 0, places, row_count, seen, refs, refs_capacity, {0, 0, 0, {0}, 0}};
    for (uint64_t row = 0; row < row_count; row++) {
        status = check_node(&run, &places[row]);
        if (status != SL_OK) {
            return status;
        }
    }
    uint64_t flags = sl_load_be(record + FLAGS_AT, 2);
    if ((flags & (FLAG_REDACTED | FLAG_VACUUMED)) == 0) {
        const uint8_t *body = record + ENVELOPE_SIZE;
        size_t body_size = (size_t)sl_load_be(record + BODY_SIZE_AT, 4);
        status = sl_chain_digest(record[TYPE_AT], (int)flags, lsn, sl_load_be(record + TIME_AT, 8),
                                 record + PREVIOUS_AT, body, body_size, body + body_size, (size_t)count * SL_ROW_SIZE,
                                 run.facts.chain_digest);
    }
    *facts = run.facts;
    return status;
}

int sl_records_verify(const uint8_t *const *records, const uint64_t *sizes, const uint64_t *lsns, size_t record_count,
                      sl_seen_nodes *seen, sl_node_place *places, size_t places_capacity, sl_node_ref *refs,
                      size_t refs_capacity, sl_record_facts *facts)
{
    size_t used = 0;
    if (seen->count == 0) {
        return SL_USAGE;
    }
    for (size_t i = 0; i < record_count; i++) {
        if (sl_record_verify(records[i], (size_t)sizes[i], lsns[i], seen, places, places_capacity, refs + used,
                             refs_capacity - used, &facts[i]) != SL_OK) {
            facts[i] = (sl_record_facts){0, 0, 0, {0}, 1};
        }
        used += (size_t)facts[i].ref_count;
    }
    return SL_OK;
}
