/* Checks CBOR items and walks over them. FORMAT.md 7 defines the profile (RFC 8949 section 4.2.1, restricted).
 *
 * Trust: none. Nesting uses a stack of SL_DEPTH_MAX frames, never recursion.
 * Invariant: an item that sl_item_skip accepts has exactly one encoding, so equal values have equal bytes. */
#include "internal.h"

#include <float.h>
#include <math.h>

enum { MAJOR_POSITIVE, MAJOR_NEGATIVE, MAJOR_BYTES, MAJOR_TEXT, MAJOR_ARRAY, MAJOR_MAP, MAJOR_TAG, MAJOR_SIMPLE };

enum {
    TAG_BIG_POSITIVE = 2,
    TAG_BIG_NEGATIVE = 3,
    TAG_CODEC = 27,
    TAG_UUID = 37,
    TAG_SET = 258,
    TAG_TUPLE = 51300,
    TAG_FROZENSET = 51301,
    TAG_DATETIME = 51302,
    TAG_DECIMAL = 51303
};

/* --- heads ---------------------------------------------------------------------------------------- */

static bool head_read(sl_reader *in, unsigned *major, unsigned *info, uint64_t *argument)
{
    static const uint64_t least[4] = {24, 0x100, 0x10000, 0x100000000};

    if (!sl_has(in, 1)) {
        return false;
    }
    uint8_t initial = in->bytes[in->at++];
    *major = initial >> 5;
    *info = initial & 31;
    if (*info < 24) {
        *argument = *info;
        return true;
    }
    if (*info > 27) {
        return false;
    }
    size_t size = (size_t)1 << (*info - 24);
    if (!sl_has(in, size)) {
        return false;
    }
    *argument = sl_load_be(in->bytes + in->at, size);
    in->at += size;
    return *major == MAJOR_SIMPLE || *argument >= least[*info - 24];
}

void sl_put_head(sl_writer *out, unsigned major, uint64_t argument)
{
    if (argument < 24) {
        sl_put_byte(out, (major << 5) | (unsigned)argument);
        return;
    }
    unsigned power = argument <= 0xFF ? 0 : argument <= 0xFFFF ? 1 : argument <= 0xFFFFFFFF ? 2 : 3;
    sl_put_byte(out, (major << 5) | (24 + power));
    sl_put_be(out, argument, (size_t)1 << power);
}

void sl_put_container(sl_writer *out, sl_shape shape, uint64_t argument)
{
    if (shape == SL_ITEM_TUPLE || shape == SL_ITEM_SET || shape == SL_ITEM_FROZENSET) {
        sl_put_head(out, MAJOR_TAG, shape == SL_ITEM_TUPLE ? TAG_TUPLE : shape == SL_ITEM_SET ? TAG_SET : TAG_FROZENSET);
    }
    sl_put_head(out, shape == SL_ITEM_MAP ? MAJOR_MAP : MAJOR_ARRAY, argument);
}

/* --- floats --------------------------------------------------------------------------------------- */

static double half_to_double(unsigned half)
{
    unsigned exponent = (half >> 10) & 31;
    unsigned fraction = half & 0x3FF;
    double magnitude;
    if (exponent == 0) {
        magnitude = (double)fraction * 0x1p-24;
    } else if (exponent < 31) {
        uint64_t bits = (uint64_t)(exponent - 15 + 1023) << 52 | (uint64_t)fraction << 42;
        memcpy(&magnitude, &bits, sizeof magnitude);
    } else {
        magnitude = fraction == 0 ? HUGE_VAL : NAN;
    }
    return half & 0x8000 ? -magnitude : magnitude;
}

/* Return true if `number`, which is not NaN, is exactly representable in half precision. Set `half` to its bits. */
static bool half_from_double(double number, uint64_t *half)
{
    uint64_t bits;
    memcpy(&bits, &number, sizeof bits);
    uint64_t sign = (bits >> 48) & 0x8000;
    uint64_t fraction = bits & 0xFFFFFFFFFFFFF;
    int exponent = (int)((bits >> 52) & 0x7FF) - 1023;
    if (isinf(number)) {
        *half = sign | 0x7C00;
        return true;
    }
    if (exponent == -1023 && fraction == 0) {
        *half = sign;
        return true;
    }
    if (exponent < -24 || exponent > 15) {
        return false;
    }
    if (exponent >= -14) {
        *half = sign | ((uint64_t)(exponent + 15) << 10) | (fraction >> 42);
        return (fraction & 0x3FFFFFFFFFF) == 0;
    }
    unsigned dropped = (unsigned)(28 - exponent); /* A subnormal half counts in units of 2^-24. */
    uint64_t significand = fraction | (UINT64_C(1) << 52);
    *half = sign | (significand >> dropped);
    return (significand & ((UINT64_C(1) << dropped) - 1)) == 0;
}

static bool is_single(double number)
{
    return isinf(number) || (fabs(number) <= (double)FLT_MAX && (double)(float)number == number);
}

void sl_put_float(sl_writer *out, double number)
{
    uint64_t bits;
    if (isnan(number)) {
        sl_put_byte(out, 0xF9);
        sl_put_be(out, 0x7E00, 2);
    } else if (half_from_double(number, &bits)) {
        sl_put_byte(out, 0xF9);
        sl_put_be(out, bits, 2);
    } else if (is_single(number)) {
        float single = (float)number;
        uint32_t single_bits;
        memcpy(&single_bits, &single, sizeof single_bits);
        sl_put_byte(out, 0xFA);
        sl_put_be(out, single_bits, 4);
    } else {
        memcpy(&bits, &number, sizeof bits);
        sl_put_byte(out, 0xFB);
        sl_put_be(out, bits, 8);
    }
}

/* Decode a float of 2, 4 or 8 bytes. Return false unless this is its shortest form. */
static bool float_read(unsigned info, uint64_t bits, double *number)
{
    uint64_t half;
    if (info == 25) {
        *number = half_to_double((unsigned)bits);
        return !isnan(*number) || bits == 0x7E00;
    }
    if (info == 26) {
        uint32_t single_bits = (uint32_t)bits;
        float single;
        memcpy(&single, &single_bits, sizeof single);
        *number = (double)single;
        return !isnan(*number) && !half_from_double(*number, &half);
    }
    memcpy(number, &bits, sizeof *number);
    return !isnan(*number) && !is_single(*number);
}

/* --- text ----------------------------------------------------------------------------------------- */

/* Return the size of the UTF-8 sequence at `at` (Unicode, table 3-7), or 0 if it is invalid. */
static size_t utf8_sequence_size(const uint8_t *at, size_t left)
{
    uint8_t lead = at[0];
    uint8_t least = 0x80;
    uint8_t most = 0xBF;
    size_t size;
    if (lead < 0x80) {
        return 1;
    }
    if (lead < 0xC2 || lead > 0xF4) {
        return 0;
    }
    if (lead < 0xE0) {
        size = 2;
    } else if (lead < 0xF0) {
        size = 3;
        least = lead == 0xE0 ? 0xA0 : least;
        most = lead == 0xED ? 0x9F : most;
    } else {
        size = 4;
        least = lead == 0xF0 ? 0x90 : least;
        most = lead == 0xF4 ? 0x8F : most;
    }
    if (left < size || at[1] < least || at[1] > most) {
        return 0;
    }
    for (size_t i = 2; i < size; i++) {
        if ((at[i] & 0xC0) != 0x80) {
            return 0;
        }
    }
    return size;
}

static bool utf8_check(const uint8_t *text, size_t size)
{
    size_t at = 0;
    while (at < size) {
        uint64_t word;
        if (size - at >= sizeof word) {
            memcpy(&word, text + at, sizeof word);
            if ((word & UINT64_C(0x8080808080808080)) == 0) {
                at += sizeof word;
                continue;
            }
        }
        size_t step = utf8_sequence_size(text + at, size - at);
        if (step == 0) {
            return false;
        }
        at += step;
    }
    return true;
}

/* --- items ---------------------------------------------------------------------------------------- */

static bool string_read(sl_reader *in, unsigned major, uint64_t size, sl_item *item)
{
    item->shape = major == MAJOR_TEXT ? SL_ITEM_TEXT : SL_ITEM_BYTES;
    item->argument = size;
    item->payload_at = in->at;
    return sl_skip(in, size) && (major == MAJOR_BYTES || utf8_check(in->bytes + item->payload_at, (size_t)size));
}

static bool container_read(sl_reader *in, sl_shape shape, uint64_t count, sl_item *item)
{
    item->shape = shape;
    item->argument = count;
    item->payload_at = in->at;
    /* Each child takes at least one byte. Reject a count that exceeds the bytes left, before it is used. */
    return sl_has(in, count) && (shape != SL_ITEM_MAP || sl_has(in, 2 * count));
}

static bool tagged_read(sl_reader *in, uint64_t tag, sl_item *item)
{
    unsigned major;
    unsigned info;
    uint64_t argument;
    if (!head_read(in, &major, &info, &argument)) {
        return false;
    }
    switch (tag) {
    case TAG_TUPLE:
        return major == MAJOR_ARRAY && container_read(in, SL_ITEM_TUPLE, argument, item);
    case TAG_SET:
        return major == MAJOR_ARRAY && container_read(in, SL_ITEM_SET, argument, item);
    case TAG_FROZENSET:
        return major == MAJOR_ARRAY && container_read(in, SL_ITEM_FROZENSET, argument, item);
    case TAG_CODEC:
        return major == MAJOR_ARRAY && argument == 2 && container_read(in, SL_ITEM_CODEC, argument, item);
    case TAG_BIG_POSITIVE:
    case TAG_BIG_NEGATIVE: /* The encoding must be the shortest, and the value must not fit into 64 bits. */
        if (major != MAJOR_BYTES || argument < 9 || !string_read(in, major, argument, item) ||
            in->bytes[item->payload_at] == 0) {
            return false;
        }
        break;
    case TAG_UUID:
        if (major != MAJOR_BYTES || argument != 16 || !string_read(in, major, argument, item)) {
            return false;
        }
        break;
    case TAG_DATETIME:
    case TAG_DECIMAL:
        if (major != MAJOR_TEXT || !string_read(in, major, argument, item)) {
            return false;
        }
        break;
    default:
        return false;
    }
    item->shape = SL_ITEM_SCALAR_TAG;
    return true;
}

static bool simple_read(unsigned info, uint64_t argument, sl_item *item)
{
    if (info >= 25) {
        item->shape = SL_ITEM_FLOAT;
        return float_read(info, argument, &item->number);
    }
    item->shape = info == 20 ? SL_ITEM_FALSE : info == 21 ? SL_ITEM_TRUE : SL_ITEM_NULL;
    return info >= 20 && info <= 22;
}

bool sl_item_open(sl_reader *in, sl_item *item)
{
    unsigned major;
    unsigned info;
    uint64_t argument;
    if (!head_read(in, &major, &info, &argument)) {
        return false;
    }
    switch (major) {
    case MAJOR_POSITIVE:
    case MAJOR_NEGATIVE:
        item->shape = major == MAJOR_POSITIVE ? SL_ITEM_POSITIVE : SL_ITEM_NEGATIVE;
        item->argument = argument;
        return true;
    case MAJOR_BYTES:
    case MAJOR_TEXT:
        return string_read(in, major, argument, item);
    case MAJOR_ARRAY:
        return container_read(in, SL_ITEM_LIST, argument, item);
    case MAJOR_MAP:
        return container_read(in, SL_ITEM_MAP, argument, item);
    case MAJOR_TAG:
        return tagged_read(in, argument, item);
    default:
        return simple_read(info, argument, item);
    }
}

/* A container whose children are being read. Map keys and set elements must ascend. */
typedef struct {
    uint64_t left;
    size_t child_at;
    size_t previous_at; /* The offset of the last key or element. It is valid if previous_end is not 0. */
    size_t previous_end;
    sl_shape shape;
} frame;

static bool is_container(sl_shape shape) { return shape >= SL_ITEM_LIST && shape <= SL_ITEM_CODEC; }

static bool child_is_text(const frame *top)
{
    return (top->shape == SL_ITEM_MAP && top->left % 2 == 0) || (top->shape == SL_ITEM_CODEC && top->left == 2);
}

static bool child_is_ordered(const frame *top)
{
    return (top->shape == SL_ITEM_MAP && top->left % 2 == 0) || top->shape == SL_ITEM_SET ||
           top->shape == SL_ITEM_FROZENSET;
}

/* Finish the child [child_at, end): check its order, and move to the next child. */
static bool child_close(frame *top, const uint8_t *bytes, size_t end)
{
    if (child_is_ordered(top)) {
        if (top->previous_end != 0 &&
            sl_bytes_compare(bytes + top->previous_at, top->previous_end - top->previous_at, bytes + top->child_at,
                             end - top->child_at) >= 0) {
            return false;
        }
        top->previous_at = top->child_at;
        top->previous_end = end;
    }
    top->left--;
    top->child_at = end;
    return true;
}

static bool item_walk(sl_reader *in, unsigned depth_max)
{
    frame stack[SL_DEPTH_MAX];
    assert(depth_max <= SL_DEPTH_MAX);
    unsigned depth = 0;
    for (;;) {
        sl_item item;
        size_t start = in->at;
        bool is_allowed = sl_item_open(in, &item) &&
                          (depth == 0 || !child_is_text(&stack[depth - 1]) || item.shape == SL_ITEM_TEXT);
        if (!is_allowed || (is_container(item.shape) && depth == depth_max)) {
            in->at = start;
            return false;
        }
        if (is_container(item.shape) && item.argument > 0) {
            uint64_t children = item.shape == SL_ITEM_MAP ? 2 * item.argument : item.argument;
            stack[depth++] = (frame){children, in->at, 0, 0, item.shape};
            continue;
        }
        for (; depth > 0; depth--) {
            frame *top = &stack[depth - 1];
            if (!child_close(top, in->bytes, in->at)) {
                in->at = top->child_at;
                return false;
            }
            if (top->left > 0) {
                break;
            }
        }
        if (depth == 0) {
            return true;
        }
    }
}

bool sl_item_skip(sl_reader *in) { return item_walk(in, SL_DEPTH_MAX); }

bool sl_text_skip(sl_reader *in)
{
    unsigned major;
    unsigned info;
    uint64_t argument;
    return head_read(in, &major, &info, &argument) && major == MAJOR_TEXT && sl_skip(in, argument);
}

bool sl_item_whole(const uint8_t *data, size_t size, sl_item *item)
{
    sl_reader in = sl_reader_of(data, size);
    sl_reader head = in;
    return sl_item_skip(&in) && in.at == size && sl_item_open(&head, item);
}

/* --- public --------------------------------------------------------------------------------------- */

int sl_cbor_check(const uint8_t *data, size_t size, size_t *error_at)
{
    sl_reader in = sl_reader_of(data, size);
    if (sl_item_skip(&in) && in.at == size) {
        return SL_OK;
    }
    *error_at = in.at;
    return SL_MALFORMED;
}

int sl_cbor_children(const uint8_t *data, size_t size, int *kind, uint64_t *first, uint64_t *count)
{
    sl_reader in = sl_reader_of(data, size);
    sl_item item;
    SL_REQUIRE(sl_item_open(&in, &item));
    switch (item.shape) {
    case SL_ITEM_LIST:
        *kind = SL_KIND_LIST;
        break;
    case SL_ITEM_TUPLE:
        *kind = SL_KIND_TUPLE;
        break;
    case SL_ITEM_MAP:
        *kind = SL_KIND_DICT;
        break;
    case SL_ITEM_SET:
        *kind = SL_KIND_SET;
        break;
    case SL_ITEM_FROZENSET:
        *kind = SL_KIND_FROZENSET;
        break;
    default:
        return SL_ABSENT;
    }
    *first = item.payload_at;
    *count = item.shape == SL_ITEM_MAP ? 2 * item.argument : item.argument;
    return SL_OK;
}

int sl_cbor_split(const uint8_t *data, size_t size, uint64_t *ends, size_t ends_capacity)
{
    sl_reader in = sl_reader_of(data, size);
    sl_item item;
    SL_REQUIRE(sl_item_open(&in, &item));
    if (!is_container(item.shape) || item.shape == SL_ITEM_CODEC) {
        return SL_ABSENT;
    }
    frame top = {item.shape == SL_ITEM_MAP ? 2 * item.argument : item.argument, in.at, 0, 0, item.shape};
    if (top.left > ends_capacity) {
        return SL_SPACE;
    }
    while (top.left > 0) {
        SL_REQUIRE(!child_is_text(&top) || (sl_has(&in, 1) && in.bytes[in.at] >> 5 == MAJOR_TEXT));
        SL_REQUIRE(item_walk(&in, SL_DEPTH_MAX - 1) && child_close(&top, data, in.at));
        *ends++ = in.at;
    }
    SL_REQUIRE(in.at == size);
    return SL_OK;
}

int sl_cbor_map_get(const uint8_t *data, size_t size, const uint8_t *key, size_t key_size, uint64_t *span)
{
    sl_reader in = sl_reader_of(data, size);
    sl_item item;
    SL_REQUIRE(sl_item_open(&in, &item));
    for (uint64_t left = item.shape == SL_ITEM_MAP ? item.argument : 0; left > 0; left--) {
        size_t key_at = in.at;
        SL_REQUIRE(sl_text_skip(&in));
        size_t value_at = in.at;
        int order = sl_bytes_compare(key, key_size, data + key_at, value_at - key_at);
        if (order < 0) {
            return SL_ABSENT;
        }
        SL_REQUIRE(sl_item_skip(&in));
        if (order == 0) {
            span[0] = value_at;
            span[1] = in.at;
            return SL_OK;
        }
    }
    return SL_ABSENT;
}
