/* Checks and reads the tree pages of LMDB's file (LMDB 0.9 on 64-bit machines: see MDB_page and MDB_node in its mdb.c).
 *
 * LMDB trusts its pages; this code does not. A page that passes contains nothing but nodes, in the order of their keys,
 * so every look-up finds the right node.
 *
 * Trust: none in the bytes. All numbers are in native byte order, as LMDB writes them.
 * Invariants: a returned node is inside the page, with key and data. Keys ascend strictly. */
#include "internal.h"

enum {
    PAGE_HEADER_SIZE = 16,
    FLAGS_AT = 10,
    LOWER_AT = 12,
    UPPER_AT = 14,
    POINTER_SIZE = 2,
    NODE_HEADER_SIZE = 8,
    DATABASE_SIZE = 48,
    PAGE_NUMBER_SIZE = 8,
    PAGE_SIZE_MAX = 1 << 16,
    META_FREE_ROOT_AT = 80,
    META_LAST_PAGE_AT = 136,
    META_TRANSACTION_AT = 144,
    META_END = 152,
    DEPTH_MAX = 8,
    FREE_ENTRIES_MAX = 4096,
};

/* The memory into which LMDB has mapped the file. */
typedef struct {
    const uint8_t *bytes;
    size_t page_size;
    uint64_t page_count;
} lmdb_map;

static uint64_t load_u16(const uint8_t *from)
{
    uint16_t value;
    memcpy(&value, from, sizeof value);
    return value;
}

static uint64_t load_u64(const uint8_t *from)
{
    uint64_t value;
    memcpy(&value, from, sizeof value);
    return value;
}

/* Compare two keys in the order of the table: by value for integers, otherwise by bytes. */
static int keys_compare(const uint8_t *a, size_t a_size, const uint8_t *b, size_t b_size, bool are_integers)
{
    if (!are_integers) {
        return sl_bytes_compare(a, a_size, b, b_size);
    }
    uint64_t left = load_u64(a);
    uint64_t right = load_u64(b);
    return (left > right) - (left < right);
}

/* Read the node at offset `at`, which may be any number. Return SL_PAGE_SOUND, or a fault. */
static uint64_t node_read(const uint8_t *page, size_t size, size_t at, bool is_branch, sl_lmdb_node *node)
{
    if (at % 2 != 0 || at > size || size - at < NODE_HEADER_SIZE) {
        return SL_PAGE_NODES;
    }
    uint64_t low = load_u16(page + at) | load_u16(page + at + 2) << 16;
    uint64_t flags = load_u16(page + at + 4);
    size_t key_size = (size_t)load_u16(page + at + 6);
    size_t left = size - at - NODE_HEADER_SIZE;
    if (key_size > left) {
        return SL_PAGE_NODES;
    }
    size_t data_at = at + NODE_HEADER_SIZE + key_size;
    if (is_branch) { /* In a branch, these three numbers form the page number of the child. */
        *node = (sl_lmdb_node){at + NODE_HEADER_SIZE, key_size, 0, low | flags << 32, data_at};
        return SL_PAGE_SOUND;
    }
    uint64_t stored = flags == SL_LMDB_LONG ? PAGE_NUMBER_SIZE : low;
    if (stored > left - key_size || key_size == 0) {
        return SL_PAGE_NODES;
    }
    if ((flags != 0 && flags != SL_LMDB_LONG && flags != SL_LMDB_TABLE) ||
        (flags == SL_LMDB_TABLE && low != DATABASE_SIZE)) {
        return SL_PAGE_NODE_FLAGS;
    }
    *node = (sl_lmdb_node){at + NODE_HEADER_SIZE, key_size, flags, low, data_at};
    return SL_PAGE_SOUND;
}

/* Return the number of bytes that a node takes, including the padding of an odd size. */
static size_t node_extent(const sl_lmdb_node *node, bool is_branch)
{
    uint64_t stored = node->flags == SL_LMDB_LONG ? PAGE_NUMBER_SIZE : is_branch ? 0 : node->value;
    uint64_t extent = NODE_HEADER_SIZE + node->key_size + stored;
    return (size_t)(extent + extent % 2);
}

int sl_lmdb_page(const uint8_t *page, size_t size, int has_integer_keys, const uint8_t *low, size_t low_size,
                 const uint8_t *high, size_t high_size, int lists_all, sl_lmdb_node *nodes, size_t nodes_capacity,
                 sl_lmdb_page_facts *facts)
{
    if (size < PAGE_HEADER_SIZE || size > PAGE_SIZE_MAX ||
        (has_integer_keys && ((low != NULL && low_size != 8) || (high != NULL && high_size != 8)))) {
        return SL_USAGE;
    }
    uint64_t kind = load_u16(page + FLAGS_AT);
    size_t lower = (size_t)load_u16(page + LOWER_AT);
    size_t upper = (size_t)load_u16(page + UPPER_AT);
    bool is_branch = kind == SL_PAGE_BRANCH;
    *facts = (sl_lmdb_page_facts){load_u64(page), kind, 0, 0, SL_PAGE_SOUND};
    if (kind != SL_PAGE_BRANCH && kind != SL_PAGE_LEAF) {
        facts->fault = SL_PAGE_KIND;
        return SL_OK;
    }
    if (lower % 2 != 0 || lower <= PAGE_HEADER_SIZE || lower > upper || upper > size) {
        facts->fault = SL_PAGE_BOUNDS;
        return SL_OK;
    }
    sl_lmdb_node last = {0, 0, 0, 0, 0};
    size_t used = 0;
    uint64_t listed = 0;
    uint64_t count = (lower - PAGE_HEADER_SIZE) / POINTER_SIZE;
    for (uint64_t index = 0; index < count; index++) {
        sl_lmdb_node node;
        size_t at = (size_t)load_u16(page + PAGE_HEADER_SIZE + index * POINTER_SIZE);
        facts->fault = at < upper ? SL_PAGE_NODES : node_read(page, size, at, is_branch, &node);
        if (facts->fault != SL_PAGE_SOUND) {
            return SL_OK;
        }
        /* LMDB never reads the key of a branch's first child, so that key may have any value. */
        bool is_first_child = is_branch && index == 0;
        if (has_integer_keys && !is_first_child && node.key_size != 8) {
            facts->fault = SL_PAGE_NODES;
            return SL_OK;
        }
        const uint8_t *key = page + node.key_at;
        bool is_in_order =
            is_first_child ||
            ((last.key_at == 0 ||
              keys_compare(page + last.key_at, (size_t)last.key_size, key, (size_t)node.key_size, has_integer_keys) < 0) &&
             (low == NULL || keys_compare(low, low_size, key, (size_t)node.key_size, has_integer_keys) <= 0) &&
             (high == NULL || keys_compare(key, (size_t)node.key_size, high, high_size, has_integer_keys) < 0));
        if (!is_in_order) {
            facts->fault = SL_PAGE_ORDER;
            return SL_OK;
        }
        used += node_extent(&node, is_branch);
        if (!is_first_child) {
            last = node;
        }
        if (nodes != NULL && (lists_all || is_branch || node.flags != 0)) {
            if (listed == nodes_capacity) {
                return SL_SPACE;
            }
            nodes[listed++] = node;
        }
    }
    /* All nodes are at or after `upper`. If the sizes differ, the nodes overlap or leave a gap. */
    if (used != size - upper) {
        facts->fault = SL_PAGE_BOUNDS;
    }
    facts->count = count;
    facts->listed = listed;
    return SL_OK;
}

static const uint8_t *page_of(const uint8_t *at, size_t size)
{
    return at - (uintptr_t)at % size;
}

int sl_lmdb_leaf_at(const uint8_t *at, size_t size, uint64_t number)
{
    const uint8_t *page = page_of(at, size);
    sl_lmdb_page_facts facts;
    if (sl_lmdb_page(page, size, 0, NULL, 0, NULL, 0, 0, NULL, 0, &facts) != SL_OK) {
        return SL_PAGE_KIND;
    }
    if (facts.fault != SL_PAGE_SOUND) {
        return (int)facts.fault;
    }
    return facts.number == number && facts.kind == SL_PAGE_LEAF ? SL_PAGE_SOUND : SL_PAGE_OTHER;
}

/* --- the free list in LMDB's map of the file ------------------------------------------ */

static const uint8_t *map_page(const lmdb_map *map, uint64_t number)
{
    return number < map->page_count ? map->bytes + number * map->page_size : NULL;
}

/* Return true if a list of pages contains `number`. A list is a count, then page numbers in descending order. */
static bool list_has(const uint8_t *list, uint64_t size, uint64_t number)
{
    uint64_t low = 0;
    uint64_t high = size < PAGE_NUMBER_SIZE ? 0 : load_u64(list);
    if (high > size / PAGE_NUMBER_SIZE - (size >= PAGE_NUMBER_SIZE)) {
        return false;
    }
    while (low < high) {
        uint64_t middle = low + (high - low) / 2;
        uint64_t found = load_u64(list + PAGE_NUMBER_SIZE * (1 + middle));
        if (found == number) {
            return true;
        }
        if (found > number) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return false;
}

/* Return true if a node of the free list contains the page `number`. */
static bool node_has(const lmdb_map *map, const uint8_t *page, const sl_lmdb_node *node, uint64_t number)
{
    if (node->flags != SL_LMDB_LONG) {
        return list_has(page + node->data_at, node->value, number);
    }
    uint64_t first = load_u64(page + node->data_at);
    uint64_t size = (uint64_t)PAGE_HEADER_SIZE + node->value; /* The sum cannot overflow: node->value has 32 bits. */
    const uint8_t *list = map_page(map, first);
    if (list == NULL || size > (map->page_count - first) * map->page_size) {
        return false;
    }
    return list_has(list + PAGE_HEADER_SIZE, node->value, number);
}

static bool tree_has(const lmdb_map *map, uint64_t root, uint64_t number)
{
    struct {
        const uint8_t *page;
        size_t next;
    } path[DEPTH_MAX];
    size_t depth = 0;
    unsigned left = FREE_ENTRIES_MAX;
    path[0].page = map_page(map, root);
    path[0].next = 0;
    if (path[0].page == NULL) {
        return false;
    }
    for (;;) {
        const uint8_t *page = path[depth].page;
        uint64_t kind = load_u16(page + FLAGS_AT);
        size_t lower = (size_t)load_u16(page + LOWER_AT);
        size_t pointer_at = PAGE_HEADER_SIZE + path[depth].next * POINTER_SIZE;
        if ((kind != SL_PAGE_BRANCH && kind != SL_PAGE_LEAF) || lower > map->page_size) {
            return false;
        }
        if (pointer_at + POINTER_SIZE > lower) {
            if (depth == 0) {
                return false;
            }
            depth--;
            continue;
        }
        path[depth].next++;
        sl_lmdb_node node;
        bool is_branch = kind == SL_PAGE_BRANCH;
        size_t at = (size_t)load_u16(page + pointer_at);
        if (left-- == 0 || node_read(page, map->page_size, at, is_branch, &node) != SL_PAGE_SOUND) {
            return false;
        }
        if (is_branch) {
            const uint8_t *child = map_page(map, node.value);
            if (child == NULL || depth + 1 == DEPTH_MAX) {
                return false;
            }
            depth++;
            path[depth].page = child;
            path[depth].next = 0;
        } else if (node_has(map, page, &node, number)) {
            return true;
        }
    }
}

/* The fields that this file reads from the last commit's meta page. */
typedef struct {
    lmdb_map map;
    uint64_t free_root;
} lmdb_meta;

static bool meta_read(uint64_t address, size_t size, uint64_t transaction, lmdb_meta *meta)
{
    const uint8_t *map = (const uint8_t *)(uintptr_t)address;
    if (size < META_END || size > PAGE_SIZE_MAX) {
        return false;
    }
    const uint8_t *page = map + (transaction & 1) * size;
    uint64_t last_page = load_u64(page + META_LAST_PAGE_AT);
    *meta = (lmdb_meta){{map, size, last_page + 1}, load_u64(page + META_FREE_ROOT_AT)};
    return load_u64(page + META_TRANSACTION_AT) == transaction && last_page < UINT64_MAX / PAGE_SIZE_MAX;
}

/* Return true if no commit has followed the commit N = `transaction`. Commit N + 2 may overwrite the meta page of
 * commit N, and pages that commit N freed, while this kernel reads them. Commit N + 1 has written the other meta page
 * before, so it is enough to check that page. */
static bool is_last(const lmdb_meta *meta, uint64_t transaction)
{
    __atomic_thread_fence(__ATOMIC_ACQUIRE);
    return load_u64(meta->map.bytes + (~transaction & 1) * meta->map.page_size + META_TRANSACTION_AT) < transaction;
}

int sl_lmdb_is_free_at(uint64_t address, size_t size, uint64_t transaction, uint64_t number)
{
    lmdb_meta meta;
    return meta_read(address, size, transaction, &meta) && tree_has(&meta.map, meta.free_root, number) &&
           is_last(&meta, transaction);
}

/* Return the page number in the header at `page`. A page of a write transaction is in LMDB's own memory, where `page`
 * may point before its header. Even then, reading is safe, because the address is in the same system page, and the
 * number is wrong but only compared. */
#ifdef __GNUC__
__attribute__((noinline, no_sanitize("address")))
#endif
static uint64_t number_borne(const uint8_t *page)
{
    uint8_t number[8];
    /* This does not call memcpy, because a sanitizer would check the call. */
    for (size_t i = 0; i < sizeof number; i++) {
        number[i] = page[i];
    }
    return load_u64(number);
}

/* The layout of an entry of sl_lmdb_seen: two flags, the low bits of the commit's number, and the page number.
 * Several threads may share the cache, so an entry is one word. */
enum { SEEN_IN_USE = 1, SEEN_SOUND = 2, SEEN_FLAGS = 3, SEEN_COMMIT_BITS = 22, SEEN_PAGE_AT = 24 };

static uint64_t seen_entry(uint64_t transaction, uint64_t number)
{
    return number << SEEN_PAGE_AT | (transaction & ((1U << SEEN_COMMIT_BITS) - 1)) << 2;
}

static unsigned seen_flags(const sl_lmdb_seen *seen, uint64_t transaction, uint64_t number)
{
    uint64_t entry = __atomic_load_n(&seen->pages[number % SL_LMDB_SEEN], __ATOMIC_RELAXED);
    return entry >> 2 == seen_entry(transaction, number) >> 2 ? (unsigned)(entry & SEEN_FLAGS) : 0;
}

static void seen_note(sl_lmdb_seen *seen, uint64_t transaction, uint64_t number, unsigned flags)
{
    if (transaction != 0 && number < UINT64_MAX >> SEEN_PAGE_AT) {
        uint64_t entry = seen_entry(transaction, number) | flags | seen_flags(seen, transaction, number);
        __atomic_store_n(&seen->pages[number % SL_LMDB_SEEN], entry, __ATOMIC_RELAXED);
    }
}

int64_t sl_lmdb_page_in_use(const uint8_t *at, size_t size, uint64_t map, uint64_t transaction, int may_be_own,
                            sl_lmdb_seen *seen)
{
    const uint8_t *page = page_of(at, size);
    uint64_t borne = number_borne(page);
    if (map == 0) {
        return may_be_own || borne > INT64_MAX ? SL_LMDB_OWN : (int64_t)borne;
    }
    uint64_t number = (uint64_t)((uintptr_t)page - (uintptr_t)map) / size;
    if (may_be_own && borne != number) {
        return SL_LMDB_OWN;
    }
    if ((seen_flags(seen, transaction, number) & SEEN_IN_USE) == 0) {
        if (sl_lmdb_is_free_at(map, size, transaction, number)) {
            return SL_LMDB_FREE;
        }
        seen_note(seen, transaction, number, SEEN_IN_USE);
    }
    return (int64_t)number;
}

/* --- rows of a sealed table ------------------------------------------------------------- */

/* Return the MAC of a row, which covers the size of the key, the key and the payload. */
static uint64_t row_mac(const uint8_t *mac_key, const uint8_t *row, size_t key_size, size_t sealed_size)
{
    static const char PERSONAL[16] = "stlg-rowmac-1";
    const uint8_t size[2] = {(uint8_t)(key_size >> 8), (uint8_t)key_size};
    uint8_t digest[SL_DIGEST_SIZE];
    sl_hash hash;
    sl_hash_begin_keyed(&hash, PERSONAL, mac_key, SL_SEAL_SIZE);
    sl_hash_add(&hash, size, sizeof size);
    sl_hash_add(&hash, row, sealed_size);
    sl_hash_end(&hash, digest);
    return sl_load_be(digest, SL_SEAL_SIZE);
}

/* Read the node at `index` of a valid leaf. Return false if its value is not inline, or its checksum or MAC is
 * wrong. */
static bool row_open(const uint8_t *page, size_t size, uint64_t index, const uint8_t *mac_key, sl_lmdb_node *node)
{
    size_t at = (size_t)load_u16(page + PAGE_HEADER_SIZE + index * POINTER_SIZE);
    if (node_read(page, size, at, false, node) != SL_PAGE_SOUND || node->flags != 0 || node->value < SL_SEAL_SIZE) {
        return false;
    }
    size_t sealed_size = (size_t)(node->key_size + node->value - SL_SEAL_SIZE); /* The value follows its key. */
    const uint8_t *row = page + node->key_at;
    uint64_t seal = mac_key == NULL ? sl_checksum(row, sealed_size)
                                    : row_mac(mac_key, row, (size_t)node->key_size, sealed_size);
    return seal == sl_load_be(row + sealed_size, SL_SEAL_SIZE);
}

/* Return the index of the node whose key is at offset `key_at` in a valid leaf, or `count` if there is none. */
static uint64_t row_index(const uint8_t *page, uint64_t count, size_t key_at)
{
    uint64_t index = 0;
    while (index < count &&
           load_u16(page + PAGE_HEADER_SIZE + index * POINTER_SIZE) + (size_t)NODE_HEADER_SIZE != key_at) {
        index++;
    }
    return index;
}

/* Return true if a page of the map is a valid leaf, has the right number and is in use. */
static bool leaf_is_sound(const uint8_t *page, size_t size, uint64_t map, uint64_t transaction, sl_lmdb_seen *seen)
{
    int64_t number = sl_lmdb_page_in_use(page, size, map, transaction, 0, seen);
    if (map == 0 || number < 0) {
        return false;
    }
    if ((seen_flags(seen, transaction, (uint64_t)number) & SEEN_SOUND) == 0) {
        if (sl_lmdb_leaf_at(page, size, (uint64_t)number) != SL_PAGE_SOUND) {
            return false;
        }
        seen_note(seen, transaction, (uint64_t)number, SEEN_SOUND | SEEN_IN_USE);
    }
    return true;
}

int sl_lmdb_rows_read(const uint8_t *at, size_t size, uint64_t map, uint64_t transaction, sl_lmdb_seen *seen,
                      const uint8_t *mac_key, const uint8_t *prefix, size_t prefix_size, int downwards,
                      size_t count_max, sl_output *out, uint64_t *ends, sl_lmdb_rows *rows)
{
    const uint8_t *page = page_of(at, size);
    if (!leaf_is_sound(page, size, map, transaction, seen)) {
        return SL_FALLBACK;
    }
    /* Check `lower` again, because the page may have been damaged since the cache recorded it as sound. */
    size_t lower = (size_t)load_u16(page + LOWER_AT);
    uint64_t node_count = lower > PAGE_HEADER_SIZE && lower <= size ? (lower - PAGE_HEADER_SIZE) / POINTER_SIZE : 0;
    uint64_t index = row_index(page, node_count, (size_t)(at - page));
    if (index == node_count) {
        return SL_FALLBACK;
    }
    sl_writer writer = sl_writer_of(out);
    uint64_t left = downwards ? index + 1 : node_count - index;
    uint64_t count = 0;
    bool is_end = false;
    for (; left > 0 && count < count_max && !is_end; left--) {
        sl_lmdb_node node;
        if (!row_open(page, size, index, mac_key, &node)) { /* The next call begins with this row. */
            break;
        }
        is_end = node.key_size < prefix_size || memcmp(page + node.key_at, prefix, prefix_size) != 0;
        if (!is_end) {
            sl_put(&writer, page + node.key_at, (size_t)(node.key_size + node.value - SL_SEAL_SIZE));
            if (writer.full) {
                break;
            }
            ends[2 * count] = writer.at - (node.value - SL_SEAL_SIZE);
            ends[2 * count + 1] = writer.at;
            count++;
        }
        index = downwards ? index - 1 : index + 1;
    }
    if (count == 0 && !is_end) {
        return SL_FALLBACK;
    }
    *rows = (sl_lmdb_rows){count, is_end};
    out->size = count > 0 ? (size_t)ends[2 * count - 1] : 0;
    return SL_OK;
}
