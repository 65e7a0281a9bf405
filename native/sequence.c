/* Finds the ends of chunks and pieces, finds positions, and appends (FORMAT.md 4.4, 4.5).
 *
 * Trust: none. A function that builds a node copies only what the iterator has checked.
 * Invariant: a root from sl_tail_append equals one that is built from scratch, because the function returns
 * SL_FALLBACK as soon as a chunk would close. */
#include "internal.h"

/* --- hashing -------------------------------------------------------------------------------------- */

/* The function `mix` of FORMAT.md 4.5 (splitmix64: Steele, Lea, Flood 2014), written as macros so that GEAR is a
 * constant. */
#define MIX_1(x) ((x) + UINT64_C(0x9E3779B97F4A7C15))
#define MIX_2(x) (((x) ^ ((x) >> 30)) * UINT64_C(0xBF58476D1CE4E5B9))
#define MIX_3(x) (((x) ^ ((x) >> 27)) * UINT64_C(0x94D049BB133111EB))
#define MIX_4(x) ((x) ^ ((x) >> 31))
#define GEAR_1(b) MIX_4(MIX_3(MIX_2(MIX_1(UINT64_C(1) + (b)))))
#define GEAR_4(b) GEAR_1(b), GEAR_1((b) + 1), GEAR_1((b) + 2), GEAR_1((b) + 3)
#define GEAR_16(b) GEAR_4(b), GEAR_4((b) + 4), GEAR_4((b) + 8), GEAR_4((b) + 12)
#define GEAR_64(b) GEAR_16(b), GEAR_16((b) + 16), GEAR_16((b) + 32), GEAR_16((b) + 48)

static const uint64_t GEAR[256] = {GEAR_64(0), GEAR_64(64), GEAR_64(128), GEAR_64(192)};

uint64_t sl_content_hash(const uint8_t *data, size_t size)
{
    uint64_t hash = UINT64_C(0xCBF29CE484222325); /* FNV-1a, 64 bits */
    for (size_t i = 0; i < size; i++) {
        hash = (hash ^ data[i]) * UINT64_C(0x100000001B3);
    }
    hash = MIX_1(hash);
    hash = MIX_2(hash);
    hash = MIX_3(hash);
    return MIX_4(hash);
}

static uint64_t entry_hash(const sl_entries *it)
{
    if (sl_is_sorted(it->kind)) {
        return sl_content_hash(sl_key(it), sl_key_size(it));
    }
    const uint8_t *slot = it->in.bytes + it->slot_at;
    if (it->is_ref) {
        return sl_load_be(it->level == 0 ? slot + 1 : slot, 8);
    }
    return sl_content_hash(slot, it->slot_end - it->slot_at);
}

bool sl_chunk_closes(const sl_entries *it, uint64_t count, size_t size)
{
    if (count >= SL_CHUNK_ENTRIES_MAX || size >= SL_CHUNK_SIZE_CLOSE) {
        return true;
    }
    if (count < SL_CHUNK_ENTRIES_MIN) {
        return false;
    }
    uint64_t hash = entry_hash(it);
    if (it->level == 0) {
        return (hash & 7) == 0;
    }
    unsigned shift = 8 * (it->level < 6 ? it->level : 6);
    return ((hash >> shift) & 15) == 0;
}

int sl_boundaries(int kind, int level, const uint8_t *entries, size_t entries_size, const uint8_t *locators,
                  size_t locators_size, uint64_t count, sl_boundary *closes, size_t closes_capacity,
                  uint64_t *closes_count)
{
    sl_entries it;
    uint64_t start_index = 0;
    size_t start_at = 0;
    size_t found = 0;
    int status = level < 0 ? SL_USAGE
                           : sl_entries_open_loose(&it, kind, (unsigned)level, entries, entries_size, locators,
                                                   locators_size, count);
    if (status != SL_OK) {
        return status;
    }
    while ((status = sl_entries_next(&it)) == SL_OK) {
        if (!sl_chunk_closes(&it, it.index_next - start_index, it.in.at - start_at)) {
            continue;
        }
        if (found == closes_capacity) {
            return SL_SPACE;
        }
        closes[found++] = (sl_boundary){it.index_next, it.in.at, it.locators.at};
        start_index = it.index_next;
        start_at = it.in.at;
    }
    if (status != SL_END) {
        return status;
    }
    *closes_count = found;
    return SL_OK;
}

/* --- fingerprints in a row ------------------------------------------------------------------------ */

/* Return a nonzero value if one of the four 16-bit lanes is zero (Mycroft 1987). */
static inline uint64_t zero_lanes(uint64_t lanes)
{
    return (lanes - UINT64_C(0x0001000100010001)) & ~lanes & UINT64_C(0x8000800080008000);
}

int64_t sl_prints_find(const uint8_t *prints, size_t size, uint32_t fingerprint, size_t start)
{
    size_t count = size / 2;
    uint16_t wanted;
    uint8_t big_endian[2] = {(uint8_t)(fingerprint >> 8), (uint8_t)fingerprint};
    memcpy(&wanted, big_endian, 2);
    uint64_t pattern = wanted * UINT64_C(0x0001000100010001);
    enum { BLOCK = 16 };
    size_t i = start;
    for (; i < count && count - i >= BLOCK; i += BLOCK) {
        uint64_t words[BLOCK / 4];
        uint64_t hits = 0;
        memcpy(words, prints + 2 * i, sizeof words);
        for (size_t j = 0; j < BLOCK / 4; j++) {
            hits |= zero_lanes(words[j] ^ pattern);
        }
        if (hits != 0) {
            break;
        }
    }
    for (; i < count; i++) {
        if (memcmp(prints + 2 * i, big_endian, 2) == 0) {
            return (int64_t)i;
        }
    }
    return -1;
}

/* --- strings -------------------------------------------------------------------------------------- */

/* Return the size of the piece that begins at `data`, or 0 if no piece closes within `size` bytes. */
static size_t piece_size(const uint8_t *data, size_t size)
{
    size_t last = size < SL_PIECE_SIZE_MAX ? size : SL_PIECE_SIZE_MAX;
    uint64_t hash = 0;
    /* The hash shifts by one bit per byte, so it depends only on the last 64 bytes. */
    for (size_t i = SL_PIECE_SIZE_MIN - 64; i < last; i++) {
        hash = (hash << 1) + GEAR[data[i]];
        if (i + 1 >= SL_PIECE_SIZE_MIN && hash >> 52 == 0) {
            return i + 1;
        }
    }
    return last == SL_PIECE_SIZE_MAX ? last : 0;
}

int sl_blob_cuts(const uint8_t *data, size_t size, uint64_t *ends, size_t ends_capacity, uint64_t *count)
{
    size_t at = 0;
    size_t found = 0;
    for (size_t piece; (piece = piece_size(data + at, size - at)) > 0; at += piece) {
        if (found == ends_capacity) {
            return SL_SPACE;
        }
        ends[found++] = at + piece;
    }
    *count = found;
    return SL_OK;
}

/* --- positions ------------------------------------------------------------------------------------ */

static int blob_tail_position(const uint8_t *data, size_t size, size_t content_size, uint64_t position,
                              sl_position_hit *hit)
{
    sl_root root;
    SL_REQUIRE(sl_root_parse(data, size, content_size, 0, &root) == SL_OK);
    SL_REQUIRE(sl_is_blob((int)root.head.kind) && position < root.head.tail_count);
    *hit = (sl_position_hit){0, position, root.head.tail_at, content_size, 0, 0, root.head.tail_count};
    return SL_OK;
}

int sl_find_position(const uint8_t *data, size_t size, size_t content_size, uint64_t home_lsn, int is_root, int kind,
                     uint64_t position, sl_position_hit *hit)
{
    sl_entries it;
    uint64_t left = position;
    if (is_root != 0 && sl_is_blob(kind)) {
        return blob_tail_position(data, size, content_size, position, hit);
    }
    int status = sl_entries_open(&it, data, size, content_size, home_lsn, is_root != 0, kind);
    if (status != SL_OK) {
        return status;
    }
    while ((status = sl_entries_next(&it)) == SL_OK) {
        if (left < it.covered) {
            *hit = (sl_position_hit){it.index_next - 1, left, it.slot_at, it.in.at, it.lsn, it.node, it.covered};
            return SL_OK;
        }
        left -= it.covered;
    }
    return SL_MALFORMED;
}

int sl_fingerprint_find(const uint8_t *data, size_t size, size_t content_size, int is_root, unsigned fingerprint,
                        uint64_t start, uint64_t *position)
{
    sl_entries it;
    uint64_t base = 0;
    int status = sl_entries_open(&it, data, size, content_size, 0, is_root != 0, SL_KIND_KEYED);
    if (status != SL_OK) {
        return status;
    }
    if (it.level > 1 || fingerprint > UINT16_MAX) {
        return SL_USAGE;
    }
    while ((status = sl_entries_next(&it)) == SL_OK) {
        const uint8_t *fingerprints = data + (it.level == 0 ? it.at : it.slot_end);
        for (uint64_t i = 0; i < it.covered; i++) { /* At levels 0 and 1, `covered` is at most 128. */
            if (base + i >= start && sl_load_be(fingerprints + 2 * i, 2) == fingerprint) {
                *position = base + i;
                return SL_OK;
            }
        }
        base += it.covered;
    }
    return status == SL_END ? SL_ABSENT : status;
}

/* --- append --------------------------------------------------------------------------------------- */

/* Return SL_OK if no chunk closes when the added entries follow `tail_size` bytes of the root's tail. */
static int append_check(const sl_root *root, size_t tail_size, sl_entries *added)
{
    int status;
    while ((status = sl_entries_next(added)) == SL_OK) {
        if (sl_chunk_closes(added, root->head.tail_count + added->index_next, tail_size + added->in.at)) {
            return SL_FALLBACK;
        }
    }
    return status == SL_END ? SL_OK : status;
}

int sl_tail_append(const uint8_t *data, size_t size, size_t content_size, uint64_t home_lsn, const uint8_t *entries,
                   size_t entries_size, const uint8_t *locators, size_t locators_size, uint64_t count, sl_output *out)
{
    sl_root root;
    sl_entries it;
    int status = sl_root_parse(data, size, content_size, home_lsn, &root);
    if (status != SL_OK) {
        return status;
    }
    int kind = (int)root.head.kind;
    if (sl_is_sorted(kind) || sl_is_blob(kind)) {
        return SL_USAGE;
    }
    sl_entries_open_tail(&it, data, size, content_size, home_lsn, &root);
    while ((status = sl_entries_next(&it)) == SL_OK) {
    }
    if (status != SL_END) {
        return status;
    }
    status = sl_entries_open_loose(&it, kind, 0, entries, entries_size, locators, locators_size, count);
    assert(status == SL_OK);
    SL_REQUIRE(count <= UINT64_MAX - root.head.count);
    size_t tail_at = (size_t)root.head.tail_at;
    status = append_check(&root, content_size - tail_at, &it);
    if (status != SL_OK) {
        return status;
    }

    sl_writer writer = sl_writer_of(out);
    size_t count_at = (size_t)(root.head.key_at + root.head.key_size);
    sl_put(&writer, data, count_at);
    sl_put_varint(&writer, root.head.count + count);
    sl_put(&writer, data + root.spine_at, root.spine_end - root.spine_at);
    sl_put_varint(&writer, root.head.tail_count + count);
    sl_put(&writer, data + tail_at, content_size - tail_at);
    sl_put(&writer, entries, entries_size);
    size_t content_end = writer.at;
    SL_REQUIRE(sl_copy_locators(&writer, (sl_reader){data, size, content_size}, size, home_lsn) == SL_OK);
    sl_put(&writer, locators, locators_size);
    return sl_finish(&writer, content_end, out);
}
