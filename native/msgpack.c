/* Finds the boundaries of the items in one msgpack array (github.com/msgpack/msgpack/blob/master/spec.md).
 *
 * Trust: none. The code counts the items still to come, so nesting needs neither recursion nor a stack. Text is
 * not checked for UTF-8, because the program that decodes the items checks it.
 * Invariants: an item takes at least one byte, so a count above the number of bytes left is rejected before
 * use. The number of items to come never exceeds the size of the input. */
#include "internal.h"

enum {
    FIXMAP = 0x80, FIXARRAY = 0x90, FIXSTR = 0xA0, NIL = 0xC0, NEVER_USED = 0xC1, FALSE_ITEM = 0xC2, TRUE_ITEM = 0xC3,
    BIN8 = 0xC4, BIN32 = 0xC6, EXT8 = 0xC7, EXT32 = 0xC9, FLOAT32 = 0xCA, FLOAT64 = 0xCB, UINT8 = 0xCC, UINT64 = 0xCF,
    INT8 = 0xD0, INT64 = 0xD3, FIXEXT1 = 0xD4, FIXEXT16 = 0xD8, STR8 = 0xD9, STR32 = 0xDB, ARRAY16 = 0xDC,
    ARRAY32 = 0xDD, MAP16 = 0xDE, MAP32 = 0xDF, NEGATIVE = 0xE0
};
enum { FIXARRAY_COUNT_MAX = 15, EXT_TYPE_SIZE = 1 };

static bool read_be(sl_reader *in, size_t size, uint64_t *value)
{
    if (!sl_has(in, size)) {
        return false;
    }
    *value = sl_load_be(in->bytes + in->at, size);
    in->at += size;
    return true;
}

/* Read a big-endian number of `size` bytes, the payload's size. Skip the payload and `extra` more bytes. */
static bool skip_sized(sl_reader *in, size_t size, size_t extra)
{
    uint64_t payload;
    /* The payload is smaller than 2^32 bytes, so the sum does not overflow. */
    return read_be(in, size, &payload) && sl_skip(in, payload + extra);
}

/* Skip an item's head, and also the rest of the item unless it is an array or a map. Set `children` to the number of
 * items in the array or map (keys and values), and otherwise to 0. */
static bool open_item(sl_reader *in, uint64_t *children)
{
    *children = 0;
    if (!sl_has(in, 1)) {
        return false;
    }
    unsigned byte = in->bytes[in->at++];
    if (byte < FIXMAP || byte >= NEGATIVE || byte == NIL || byte == FALSE_ITEM || byte == TRUE_ITEM) {
        return true;
    }
    if (byte < FIXARRAY) {
        *children = 2 * (uint64_t)(byte - FIXMAP);
    } else if (byte < FIXSTR) {
        *children = byte - FIXARRAY;
    } else if (byte < NIL) {
        return sl_skip(in, byte - FIXSTR);
    } else if (byte >= BIN8 && byte <= BIN32) {
        return skip_sized(in, (size_t)1 << (byte - BIN8), 0);
    } else if (byte >= EXT8 && byte <= EXT32) {
        return skip_sized(in, (size_t)1 << (byte - EXT8), EXT_TYPE_SIZE);
    } else if (byte == FLOAT32 || byte == FLOAT64) {
        return sl_skip(in, byte == FLOAT32 ? 4 : 8);
    } else if (byte >= UINT8 && byte <= UINT64) {
        return sl_skip(in, UINT64_C(1) << (byte - UINT8));
    } else if (byte >= INT8 && byte <= INT64) {
        return sl_skip(in, UINT64_C(1) << (byte - INT8));
    } else if (byte >= FIXEXT1 && byte <= FIXEXT16) {
        return sl_skip(in, (UINT64_C(1) << (byte - FIXEXT1)) + EXT_TYPE_SIZE);
    } else if (byte >= STR8 && byte <= STR32) {
        return skip_sized(in, (size_t)1 << (byte - STR8), 0);
    } else if (byte == ARRAY16 || byte == ARRAY32) {
        return read_be(in, byte == ARRAY16 ? 2 : 4, children) && sl_has(in, *children);
    } else if (byte == MAP16 || byte == MAP32) {
        if (!read_be(in, byte == MAP16 ? 2 : 4, children)) {
            return false;
        }
        *children *= 2;
    } else {
        return false; /* This is the byte NEVER_USED of the specification. */
    }
    return sl_has(in, *children);
}

static bool skip_item(sl_reader *in)
{
    for (uint64_t left = 1; left > 0; left--) {
        uint64_t children;
        if (!open_item(in, &children)) {
            return false;
        }
        left += children;
        if (!sl_has(in, left - 1)) {
            return false;
        }
    }
    return true;
}

/* Read the head of an array. Return false unless it has its shortest form. */
static bool open_array(sl_reader *in, uint64_t *count)
{
    if (!sl_has(in, 1)) {
        return false;
    }
    unsigned byte = in->bytes[in->at];
    uint64_t least = byte == ARRAY32 ? UINT64_C(0x10000) : byte == ARRAY16 ? FIXARRAY_COUNT_MAX + 1 : 0;
    bool is_array = byte == ARRAY16 || byte == ARRAY32 || (byte >= FIXARRAY && byte < FIXSTR);
    return is_array && open_item(in, count) && *count >= least && sl_has(in, *count);
}

int sl_msgpack_array(const uint8_t *data, size_t size, uint64_t *first, uint64_t *count)
{
    sl_reader in = sl_reader_of(data, size);
    uint64_t found;
    SL_REQUIRE(open_array(&in, &found));
    *first = in.at;
    *count = found;
    return SL_OK;
}

int sl_msgpack_split(const uint8_t *data, size_t size, uint64_t *ends, size_t ends_capacity)
{
    sl_reader in = sl_reader_of(data, size);
    uint64_t count;
    SL_REQUIRE(open_array(&in, &count));
    if (count > ends_capacity) {
        return SL_SPACE;
    }
    for (uint64_t i = 0; i < count; i++) {
        SL_REQUIRE(skip_item(&in));
        ends[i] = in.at;
    }
    SL_REQUIRE(in.at == size);
    return SL_OK;
}
