/* Applies reducers to two whole CBOR items: addition, comparison, merge of maps, and union of sets.
 *
 * Trust: none. Both items are checked in full before anything is built from them.
 * Invariants: results are canonical, and equal the results of Python's operators on the decoded values. If a kernel
 * cannot compute the result cheaply, it returns SL_FALLBACK. Nested maps use a stack, not recursion. */
#include "internal.h"

#include <math.h>

enum { MAJOR_POSITIVE = 0, MAJOR_NEGATIVE = 1, MAJOR_BYTES = 2, MAJOR_TEXT = 3 };

/* --- numbers -------------------------------------------------------------------------------------- */

/* A Python integer of 64 bits and a sign. Its value is `argument`, or -1 - `argument` if it is negative. */
typedef struct {
    bool is_negative;
    uint64_t argument;
} integer;

static bool is_integer(sl_shape shape)
{
    return shape == SL_ITEM_POSITIVE || shape == SL_ITEM_NEGATIVE || shape == SL_ITEM_FALSE || shape == SL_ITEM_TRUE;
}

static bool is_number(sl_shape shape) { return is_integer(shape) || shape == SL_ITEM_FLOAT; }

static integer integer_of(const sl_item *item)
{
    switch (item->shape) {
    case SL_ITEM_FALSE:
        return (integer){false, 0};
    case SL_ITEM_TRUE:
        return (integer){false, 1};
    default:
        return (integer){item->shape == SL_ITEM_NEGATIVE, item->argument};
    }
}

static double double_of(const sl_item *item)
{
    if (item->shape == SL_ITEM_FLOAT) {
        return item->number;
    }
    integer value = integer_of(item);
    if (!value.is_negative) {
        return (double)value.argument;
    }
    return value.argument == UINT64_MAX ? -0x1p64 : -(double)(value.argument + 1);
}

/* Add two integers. Return false if the sum needs more than 64 bits. */
static bool integer_add(integer a, integer b, integer *sum)
{
    if (a.is_negative == b.is_negative) {
        uint64_t carry = a.is_negative ? 1 : 0; /* This is because (-1 - a) + (-1 - b) = -1 - (a + b + 1). */
        uint64_t total = a.argument + b.argument;
        if (total < a.argument || total > UINT64_MAX - carry) {
            return false;
        }
        *sum = (integer){a.is_negative, total + carry};
        return true;
    }
    uint64_t positive = a.is_negative ? b.argument : a.argument;
    uint64_t negative = a.is_negative ? a.argument : b.argument;
    *sum = positive > negative ? (integer){false, positive - negative - 1} : (integer){true, negative - positive};
    return true;
}

static int integer_compare(integer a, integer b)
{
    if (a.is_negative != b.is_negative) {
        return a.is_negative ? -1 : 1;
    }
    int order = (a.argument > b.argument) - (a.argument < b.argument);
    return a.is_negative ? -order : order;
}

/* Compare an integer exactly with a float that is not NaN. */
static int integer_compare_float(integer a, double b)
{
    if (b >= 0x1p64) {
        return -1;
    }
    if (b < -0x1p64) {
        return 1;
    }
    integer truncated = {false, 0};
    double whole;
    if (b == -0x1p64) {
        return integer_compare(a, (integer){true, UINT64_MAX});
    }
    if (b <= -1) {
        truncated = (integer){true, (uint64_t)-b - 1};
        whole = -(double)(uint64_t)-b;
    } else {
        truncated.argument = b > 0 ? (uint64_t)b : 0;
        whole = (double)truncated.argument;
    }
    int order = integer_compare(a, truncated);
    return order != 0 ? order : (whole > b) - (whole < b);
}

/* --- add and compare ------------------------------------------------------------------------------ */

static bool is_foreign(sl_shape shape) { return shape == SL_ITEM_SCALAR_TAG || shape == SL_ITEM_CODEC; }

static int add_numbers(const sl_item *a, const sl_item *b, sl_writer *out)
{
    integer sum;
    if (!is_integer(a->shape) || !is_integer(b->shape)) {
        sl_put_float(out, double_of(a) + double_of(b));
    } else if (integer_add(integer_of(a), integer_of(b), &sum)) {
        sl_put_head(out, sum.is_negative ? MAJOR_NEGATIVE : MAJOR_POSITIVE, sum.argument);
    } else {
        return SL_FALLBACK;
    }
    return SL_OK;
}

int sl_add(const uint8_t *a, size_t a_size, const uint8_t *b, size_t b_size, sl_output *out)
{
    sl_item left;
    sl_item right;
    sl_writer writer = sl_writer_of(out);
    SL_REQUIRE(sl_item_whole(a, a_size, &left) && sl_item_whole(b, b_size, &right));
    if (is_foreign(left.shape) || is_foreign(right.shape)) {
        return SL_FALLBACK;
    }
    if (is_number(left.shape) && is_number(right.shape)) {
        int status = add_numbers(&left, &right, &writer);
        return status == SL_OK ? sl_finish(&writer, writer.at, out) : status;
    }
    if (left.shape != right.shape) {
        return SL_TYPE;
    }
    switch (left.shape) {
    case SL_ITEM_BYTES:
    case SL_ITEM_TEXT:
        sl_put_head(&writer, left.shape == SL_ITEM_TEXT ? MAJOR_TEXT : MAJOR_BYTES, left.argument + right.argument);
        break;
    case SL_ITEM_LIST:
    case SL_ITEM_TUPLE:
        sl_put_container(&writer, left.shape, left.argument + right.argument);
        break;
    default:
        return SL_TYPE;
    }
    sl_put(&writer, a + left.payload_at, a_size - left.payload_at);
    sl_put(&writer, b + right.payload_at, b_size - right.payload_at);
    return sl_finish(&writer, writer.at, out);
}

static int compare_numbers(const sl_item *a, const sl_item *b, int *order)
{
    bool a_is_integer = is_integer(a->shape);
    bool b_is_integer = is_integer(b->shape);
    if ((!a_is_integer && isnan(a->number)) || (!b_is_integer && isnan(b->number))) {
        return SL_FALLBACK;
    }
    if (a_is_integer && b_is_integer) {
        *order = integer_compare(integer_of(a), integer_of(b));
    } else if (a_is_integer) {
        *order = integer_compare_float(integer_of(a), b->number);
    } else if (b_is_integer) {
        *order = -integer_compare_float(integer_of(b), a->number);
    } else {
        *order = (a->number > b->number) - (a->number < b->number);
    }
    return SL_OK;
}

int sl_compare(const uint8_t *a, size_t a_size, const uint8_t *b, size_t b_size, int *order)
{
    sl_item left;
    sl_item right;
    SL_REQUIRE(sl_item_whole(a, a_size, &left) && sl_item_whole(b, b_size, &right));
    bool left_is_string = left.shape == SL_ITEM_TEXT || left.shape == SL_ITEM_BYTES;
    bool right_is_string = right.shape == SL_ITEM_TEXT || right.shape == SL_ITEM_BYTES;
    if ((!left_is_string && !is_number(left.shape)) || (!right_is_string && !is_number(right.shape))) {
        return SL_FALLBACK;
    }
    if (is_number(left.shape) && is_number(right.shape)) {
        return compare_numbers(&left, &right, order);
    }
    if (left.shape != right.shape) {
        return SL_TYPE;
    }
    *order = sl_bytes_compare(a + left.payload_at, (size_t)left.argument, b + right.payload_at, (size_t)right.argument);
    return SL_OK;
}

/* --- merges --------------------------------------------------------------------------------------- */

/* A container in progress. Its count is known only at its end, so frame_open reserves space for the largest head. */
typedef struct {
    uint64_t a_left;
    uint64_t b_left;
    uint64_t count;
    size_t head_at;
    size_t payload_at;
    sl_shape shape;
} frame;

static frame frame_open(sl_writer *out, const sl_item *a, const sl_item *b)
{
    frame opened = {a->argument, b->argument, 0, out->at, 0, a->shape};
    sl_put_container(out, a->shape, a->argument + b->argument);
    opened.payload_at = out->at;
    return opened;
}

static void frame_close(sl_writer *out, const frame *closing)
{
    uint8_t head[16];
    sl_writer head_writer = {head, sizeof head, 0, false};
    sl_put_container(&head_writer, closing->shape, closing->count);
    if (out->full) {
        return;
    }
    memmove(out->bytes + closing->head_at + head_writer.at, out->bytes + closing->payload_at,
            out->at - closing->payload_at);
    memcpy(out->bytes + closing->head_at, head, head_writer.at);
    out->at -= closing->payload_at - closing->head_at - head_writer.at;
}

static bool is_map_next(const sl_reader *in) { return sl_has(in, 1) && in->bytes[in->at] >> 5 == 5; }

/* Set `order` to -1 if the next key of `a` comes first, 1 for `b`, 0 if equal. A side without pairs comes last. */
static bool pair_order(const frame *top, sl_reader a, sl_reader b, int *order)
{
    size_t a_at = a.at;
    size_t b_at = b.at;
    if (top->a_left == 0 || top->b_left == 0) {
        *order = top->a_left == 0 ? 1 : -1;
        return true;
    }
    if (!sl_text_skip(&a) || !sl_text_skip(&b)) {
        return false;
    }
    *order = sl_bytes_compare(a.bytes + a_at, a.at - a_at, b.bytes + b_at, b.at - b_at);
    return true;
}

/* Skip a pair, or copy it to `out` if given. */
static bool pair_take(sl_reader *in, uint64_t *left, sl_writer *out)
{
    size_t start = in->at;
    if (!sl_text_skip(in) || !sl_item_skip(in)) {
        return false;
    }
    *left -= 1;
    if (out != NULL) {
        sl_put(out, in->bytes + start, in->at - start);
    }
    return true;
}

/* Merge a key that both sides have. If `deep` and both values are maps, open them as `nested`.
 * Otherwise b's value replaces a's. */
static bool pair_meet(frame *top, sl_reader *a, sl_reader *b, bool deep, sl_writer *out, frame *nested)
{
    sl_reader a_value = *a;
    sl_reader b_value = *b;
    nested->shape = SL_ITEM_NULL;
    if (!sl_text_skip(&a_value) || !sl_text_skip(&b_value)) {
        return false;
    }
    if (!deep || !is_map_next(&a_value) || !is_map_next(&b_value)) {
        return pair_take(a, &top->a_left, NULL) && pair_take(b, &top->b_left, out);
    }
    sl_item a_item;
    sl_item b_item;
    sl_put(out, a->bytes + a->at, a_value.at - a->at);
    *a = a_value;
    *b = b_value;
    top->a_left--;
    top->b_left--;
    if (!sl_item_open(a, &a_item) || !sl_item_open(b, &b_item)) {
        return false;
    }
    *nested = frame_open(out, &a_item, &b_item);
    return true;
}

int sl_merge_maps(const uint8_t *a, size_t a_size, const uint8_t *b, size_t b_size, int deep, sl_output *out)
{
    frame stack[SL_DEPTH_MAX];
    unsigned depth = 0;
    sl_item a_item;
    sl_item b_item;
    sl_writer writer = sl_writer_of(out);
    SL_REQUIRE(sl_item_whole(a, a_size, &a_item) && sl_item_whole(b, b_size, &b_item));
    if (a_item.shape != SL_ITEM_MAP || b_item.shape != SL_ITEM_MAP) {
        return SL_TYPE;
    }
    sl_reader a_in = {a, a_size, a_item.payload_at};
    sl_reader b_in = {b, b_size, b_item.payload_at};
    stack[depth++] = frame_open(&writer, &a_item, &b_item);
    while (depth > 0) {
        frame *top = &stack[depth - 1];
        int order;
        if (top->a_left == 0 && top->b_left == 0) {
            frame_close(&writer, top);
            depth--;
            continue;
        }
        SL_REQUIRE(pair_order(top, a_in, b_in, &order));
        top->count++;
        if (order < 0) {
            SL_REQUIRE(pair_take(&a_in, &top->a_left, &writer));
        } else if (order > 0) {
            SL_REQUIRE(pair_take(&b_in, &top->b_left, &writer));
        } else {
            frame nested;
            SL_REQUIRE(pair_meet(top, &a_in, &b_in, deep != 0, &writer, &nested));
            if (nested.shape == SL_ITEM_MAP) {
                /* This always holds, because both items passed the depth check of sl_item_whole. */
                SL_REQUIRE(depth < SL_DEPTH_MAX);
                stack[depth++] = nested;
            }
        }
    }
    return sl_finish(&writer, writer.at, out);
}

/* One input of a union, and its current element, which is stored so that each element is read only once. */
typedef struct {
    sl_reader in;
    size_t at;
    uint64_t left;
    bool is_present;
} side;

static bool side_next(side *from)
{
    from->is_present = from->left > 0;
    from->at = from->in.at;
    if (!from->is_present) {
        return true;
    }
    from->left--;
    return sl_item_skip(&from->in);
}

int sl_union(const uint8_t *a, size_t a_size, const uint8_t *b, size_t b_size, sl_output *out)
{
    sl_item a_item;
    sl_item b_item;
    sl_writer writer = sl_writer_of(out);
    SL_REQUIRE(sl_item_whole(a, a_size, &a_item) && sl_item_whole(b, b_size, &b_item));
    if (a_item.shape != b_item.shape || (a_item.shape != SL_ITEM_SET && a_item.shape != SL_ITEM_FROZENSET)) {
        return SL_TYPE;
    }
    side left = {{a, a_size, a_item.payload_at}, 0, a_item.argument, false};
    side right = {{b, b_size, b_item.payload_at}, 0, b_item.argument, false};
    frame top = frame_open(&writer, &a_item, &b_item);
    SL_REQUIRE(side_next(&left) && side_next(&right));
    while (left.is_present || right.is_present) {
        int order = !right.is_present  ? -1
                    : !left.is_present ? 1
                                       : sl_bytes_compare(a + left.at, left.in.at - left.at, b + right.at,
                                                          right.in.at - right.at);
        const side *from = order <= 0 ? &left : &right;
        sl_put(&writer, from->in.bytes + from->at, from->in.at - from->at);
        top.count++;
        SL_REQUIRE(order > 0 || side_next(&left));
        SL_REQUIRE(order < 0 || side_next(&right));
    }
    frame_close(&writer, &top);
    return sl_finish(&writer, writer.at, out);
}
