/* Reads several records of board entries in one call (FORMAT.md 3 to 5).
 *
 * Trust: none in the records. This file checks their checksums, and that each reference leads to a node with
 * the type and digest in the reference.
 * Invariants: if an entry is not plain, only `is_plain` and `lsn` are valid. The fields and the value of a
 * plain entry equal those of the general path, byte for byte. */
#include "internal.h"

enum {
    FORMAT_VERSION = 1,
    TYPE_ENTRY = 10,
    FLAG_CONTINUES = 1,
    CHECKSUM_SIZE = 8,
    VERSION_AT = 8,
    TYPE_AT = 9,
    RECORD_FLAGS_AT = 10,
    BODY_SIZE_AT = 12,
    LSN_AT = 16,
    TIME_AT = 24,
    ENVELOPE_SIZE = 56,
    BODY_FIELDS = 14,
    ORDER_FIELDS = 3,
    RANK_DEFAULT = 128
};
enum { ACT_DELETE = 1, ACT_EXPIRE = 2, ACT_COMPLETE = 7, ACT_DEAD = 9 };

/* The item that names the channel in which an entry stores its value. */
static const uint8_t VALUE_KEY[] = {0x65, 'v', 'a', 'l', 'u', 'e'};

/* A record, and the fields of its body that locate the value. */
typedef struct {
    const uint8_t *bytes;
    size_t size;
    uint64_t lsn;
    const uint8_t *root_digest;
    uint64_t root_lsn; /* 0 if the root is in this record. */
    uint64_t root_node;
} entry_record;

/* A node in a record: its content, followed by its locators. */
typedef struct {
    const uint8_t *bytes;
    size_t content_size;
    size_t size;
} found_node;

/* Find a node of a record by its number. Return false unless the node table has `type` and `digest` for it. The
 * content is not compared with the digest, because the record's checksum covers both. */
static bool node_in_record(const entry_record *record, uint64_t type, const uint8_t *digest, uint64_t number,
                           found_node *node)
{
    sl_node_place place;
    if (sl_record_node(record->bytes, record->size, number, &place) != SL_OK || place.type != type ||
        memcmp(place.digest, digest, SL_DIGEST_SIZE) != 0) {
        return false;
    }
    *node = (found_node){record->bytes + place.content_at, (size_t)place.content_size, (size_t)place.total_size};
    return true;
}

/* --- the body ------------------------------------------------------------------------------------- */

static bool take_number(sl_reader *in, uint64_t *number)
{
    sl_item item;
    if (!sl_item_open(in, &item) || item.shape != SL_ITEM_POSITIVE) {
        return false;
    }
    *number = item.argument;
    return true;
}

static bool take_null(sl_reader *in)
{
    sl_item item;
    return sl_item_open(in, &item) && item.shape == SL_ITEM_NULL;
}

/* Read a byte string or a text string. Set `bytes` to NULL for a null item. */
static bool take_string(sl_reader *in, sl_shape shape, const uint8_t **bytes, size_t *size)
{
    sl_item item;
    if (!sl_item_open(in, &item) || (item.shape != shape && item.shape != SL_ITEM_NULL)) {
        return false;
    }
    *bytes = item.shape == shape ? in->bytes + item.payload_at : NULL;
    *size = item.shape == shape ? (size_t)item.argument : 0;
    return true;
}

static bool take_order(sl_reader *in, sl_entry_facts *facts)
{
    sl_item item;
    facts->rank = RANK_DEFAULT;
    facts->ready_us = 0;
    facts->attempts = 0;
    if (!sl_item_open(in, &item)) {
        return false;
    }
    if (item.shape == SL_ITEM_NULL) {
        return true;
    }
    return item.shape == SL_ITEM_LIST && item.argument == ORDER_FIELDS && take_number(in, &facts->rank) &&
           take_number(in, &facts->ready_us) && take_number(in, &facts->attempts);
}

static bool goes(uint64_t act)
{
    return act == ACT_DELETE || act == ACT_EXPIRE || act == ACT_COMPLETE || act == ACT_DEAD;
}

/* Read the body of a record. Return false unless the entry exists, is not claimed, and has no error. */
static bool body_read(entry_record *record, sl_reader *in, const uint8_t **agent, size_t *agent_size,
                      sl_entry_facts *facts)
{
    sl_item item;
    uint64_t ignored;
    const uint8_t *key;
    size_t size;
    bool is_read =
        sl_item_open(in, &item) && item.shape == SL_ITEM_LIST && item.argument == BODY_FIELDS &&
        take_number(in, &ignored) && take_number(in, &facts->act) && take_string(in, SL_ITEM_TEXT, &key, &size) &&
        take_string(in, SL_ITEM_TEXT, agent, agent_size) && take_number(in, &ignored) &&
        take_number(in, &facts->created_us) && take_number(in, &facts->expires_us) &&
        take_string(in, SL_ITEM_BYTES, &record->root_digest, &size) && size == SL_DIGEST_SIZE &&
        take_number(in, &record->root_lsn) && take_number(in, &record->root_node) && take_order(in, facts) &&
        take_null(in) && take_null(in) && sl_item_skip(in);
    return is_read && in->at == in->len && !goes(facts->act);
}

/* --- the value ------------------------------------------------------------------------------------ */

/* Write the value of a slot. Return false unless the value is inline or in a leaf of this record. */
static bool put_small(const entry_record *record, const uint8_t *slot, size_t size, uint64_t lsn, uint64_t number,
                      sl_writer *out)
{
    found_node leaf;
    if (size > 0 && slot[0] < SL_REF_LEAF) {
        sl_put(out, slot, size);
        return true;
    }
    if (size != 1 + SL_DIGEST_SIZE || slot[0] != SL_REF_LEAF || lsn != record->lsn ||
        !node_in_record(record, SL_NODE_LEAF, slot + 1, number, &leaf)) {
        return false;
    }
    sl_put(out, leaf.bytes, leaf.content_size);
    return true;
}

static bool put_head(int kind, uint64_t count, sl_writer *out)
{
    switch (kind) {
    case SL_KIND_LIST:
        sl_put_container(out, SL_ITEM_LIST, count);
        return true;
    case SL_KIND_TUPLE:
        sl_put_container(out, SL_ITEM_TUPLE, count);
        return true;
    case SL_KIND_DICT:
        sl_put_container(out, SL_ITEM_MAP, count);
        return true;
    case SL_KIND_SET:
        sl_put_container(out, SL_ITEM_SET, count);
        return true;
    case SL_KIND_FROZENSET:
        sl_put_container(out, SL_ITEM_FROZENSET, count);
        return true;
    default:
        return false;
    }
}

/* Write the list, dict, tuple or set that is stored as a tree. Return false unless the tree is one node and put_small
 * accepts all of its values. */
static bool put_tree(const entry_record *record, const uint8_t *digest, uint64_t number, sl_writer *out)
{
    found_node node;
    sl_root root;
    sl_entries it;
    if (!node_in_record(record, SL_NODE_ROOT, digest, number, &node) ||
        sl_root_parse(node.bytes, node.size, node.content_size, record->lsn, &root) != SL_OK ||
        root.head.level_count > 0 || !put_head((int)root.head.kind, root.head.count, out)) {
        return false;
    }
    sl_entries_open_tail(&it, node.bytes, node.size, node.content_size, record->lsn, &root);
    int status;
    while ((status = sl_entries_next(&it)) == SL_OK) {
        bool is_set = it.kind == SL_KIND_SET || it.kind == SL_KIND_FROZENSET;
        if (sl_is_sorted(it.kind)) {
            sl_put(out, sl_key(&it), sl_key_size(&it));
        }
        if (!is_set && !put_small(record, it.in.bytes + it.slot_at, it.slot_end - it.slot_at, it.lsn, it.node, out)) {
            return false;
        }
    }
    return status == SL_END;
}

static bool put_value(const entry_record *record, sl_writer *out)
{
    found_node root;
    sl_key_hit hit;
    if (record->root_lsn != 0 ||
        !node_in_record(record, SL_NODE_ROOT, record->root_digest, record->root_node, &root) ||
        sl_find_key(root.bytes, root.size, root.content_size, record->lsn, 1, SL_KIND_DICT, VALUE_KEY, sizeof VALUE_KEY,
                    &hit) != SL_OK ||
        !hit.found) {
        return false;
    }
    const uint8_t *slot = root.bytes + hit.slot_at;
    size_t size = (size_t)(hit.end - hit.slot_at);
    if (size == 1 + SL_DIGEST_SIZE && slot[0] == SL_REF_ROOT) {
        return hit.lsn == record->lsn && put_tree(record, slot + 1, hit.node, out);
    }
    return put_small(record, slot, size, hit.lsn, hit.node, out);
}

/* --- entries -------------------------------------------------------------------------------------- */

static bool record_is_sound(const uint8_t *bytes, size_t size, uint64_t lsn)
{
    return size >= ENVELOPE_SIZE && bytes[VERSION_AT] == FORMAT_VERSION && bytes[TYPE_AT] == TYPE_ENTRY &&
           (sl_load_be(bytes + RECORD_FLAGS_AT, 2) & ~(uint64_t)FLAG_CONTINUES) == 0 &&
           sl_load_be(bytes + LSN_AT, 8) == lsn && sl_load_be(bytes + BODY_SIZE_AT, 4) <= size - ENVELOPE_SIZE &&
           sl_load_be(bytes, CHECKSUM_SIZE) == sl_checksum(bytes + CHECKSUM_SIZE, size - CHECKSUM_SIZE);
}

/* Read an entry into `facts`. Write its agent and its value to `out`; if the value is elsewhere or too large,
 * write the digest of the root instead. `out` may be full afterwards. */
static bool entry_read(const uint8_t *bytes, size_t size, bool with_value, bool is_first, sl_writer *out,
                       sl_entry_facts *facts)
{
    if (!record_is_sound(bytes, size, facts->lsn)) {
        return false;
    }
    entry_record record = {bytes, size, facts->lsn, NULL, 0, 0};
    sl_reader body = {bytes, ENVELOPE_SIZE + (size_t)sl_load_be(bytes + BODY_SIZE_AT, 4), ENVELOPE_SIZE};
    const uint8_t *agent;
    size_t agent_size;
    if (!body_read(&record, &body, &agent, &agent_size, facts)) {
        return false;
    }
    facts->agent_at = agent == NULL ? UINT64_MAX : out->at;
    sl_put(out, agent, agent_size);
    facts->value_at = out->at;
    if (with_value) {
        bool is_here = put_value(&record, out);
        if (out->full && !is_first) {
            return false;
        }
        if (!is_here || out->full) {
            out->full = false;
            out->at = (size_t)facts->value_at;
            sl_put(out, record.root_digest, SL_DIGEST_SIZE);
            facts->root_lsn = record.root_lsn != 0 ? record.root_lsn : record.lsn;
            facts->root_node = record.root_node;
        }
    }
    facts->value_end = out->at;
    facts->time_us = sl_load_be(bytes + TIME_AT, 8);
    return true;
}

int sl_entries_read(const uint8_t *records, const uint8_t *ends, const uint8_t *lsns, size_t count, int with_values,
                    sl_output *out, sl_entry_facts *entries, uint64_t *done, uint64_t *plain)
{
    sl_writer writer = sl_writer_of(out);
    size_t at = 0;
    *done = 0;
    *plain = 0;
    for (size_t i = 0; i < count; i++) {
        size_t before = writer.at;
        size_t end = (size_t)sl_load_be(ends + 8 * i, 8);
        sl_entry_facts facts = {.lsn = sl_load_be(lsns + 8 * i, 8)};
        facts.is_plain = entry_read(records + at, end - at, with_values != 0, i == 0, &writer, &facts);
        if (writer.full && i > 0) { /* The caller reads this record with the next call. */
            break;
        }
        if (writer.full || !facts.is_plain) {
            writer.full = false;
            writer.at = before;
            facts.is_plain = 0;
        }
        entries[i] = facts;
        at = end;
        *done = i + 1;
        *plain += facts.is_plain;
        out->size = writer.at;
    }
    return SL_OK;
}
