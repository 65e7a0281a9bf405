/* Plain values of Python's in msgpack, packed as ormsgpack packs them.
 *
 * Trust: objects.h; values are a user's, and may be of any type and depth. Invariants: nothing here runs Python code, so what
 * is packed stays what it is meanwhile; what waits for its next member lies in an array, not in calls.
 */
#include "plain.h"

enum {
    FIXMAP = 0x80, FIXARRAY = 0x90, FIXSTR = 0xA0, NIL = 0xC0, FALSE_ITEM = 0xC2, TRUE_ITEM = 0xC3, FLOAT64 = 0xCB,
    UINT8 = 0xCC, INT8 = 0xD0, STR8 = 0xD9, ARRAY16 = 0xDC, MAP16 = 0xDE
};
enum { MAJOR_BYTES = 2, FIXSTR_SIZE_MAX = 31, FIXED_COUNT_MAX = 15, FIXINT_MAX = 127, FIXINT_MIN = -32 };
enum { HEAD_SIZE_MAX = 9, DEPTH_MAX = 16 };

/* A list or dict, and where its next member is. */
typedef struct {
    PyObject *container;
    Py_ssize_t at;
} opened;

/* How many bytes of 1, 2, 4 and 8, as the power of two that this is, a number takes. */
static unsigned width_of(uint64_t number) { return number > UINT32_MAX ? 3 : number > UINT16_MAX ? 2 : number > UINT8_MAX; }

static void put_sized(sl_writer *out, unsigned first, unsigned width, uint64_t number)
{
    sl_put_byte(out, first + width);
    sl_put_be(out, number, (size_t)1 << width);
}

static bool put_integer(sl_writer *out, PyObject *value)
{
    int is_over;
    long long number = PyLong_AsLongLongAndOverflow(value, &is_over);
    if (is_over != 0) {
        uint64_t large = is_over > 0 ? PyLong_AsUnsignedLongLong(value) : UINT64_MAX;
        if (is_over < 0 || PyErr_Occurred()) {
            PyErr_Clear();
            return false;
        }
        put_sized(out, UINT8, 3, large);
    } else if (number > FIXINT_MAX) {
        put_sized(out, UINT8, width_of((uint64_t)number), (uint64_t)number);
    } else if (number >= FIXINT_MIN) {
        sl_put_byte(out, (uint8_t)number);
    } else {
        unsigned width = number >= INT8_MIN ? 0 : number >= INT16_MIN ? 1 : number >= INT32_MIN ? 2 : 3;
        put_sized(out, INT8, width, (uint64_t)number);
    }
    return true;
}

static bool put_float(sl_writer *out, PyObject *value)
{
    uint64_t bits;
    double number = PyFloat_AsDouble(value);
    memcpy(&bits, &number, sizeof bits);
    put_sized(out, FLOAT64 - 3, 3, bits);
    return true;
}

static bool put_text(sl_writer *out, PyObject *value)
{
    view text;
    PyObject *owned;
    if (PyUnicode_GetLength(value) > SL_PLAIN_SIZE_MAX) {
        return false;
    }
    bool is_text = utf8_of(value, &text, &owned);
    if (is_text && text.size <= FIXSTR_SIZE_MAX) {
        sl_put_byte(out, FIXSTR | (unsigned)text.size);
    } else if (is_text) {
        put_sized(out, STR8, width_of(text.size), text.size);
    }
    if (is_text) {
        sl_put(out, text.bytes, text.size);
    }
    Py_XDECREF(owned);
    return is_text;
}

/* A value that has no members. */
static bool put_single(sl_writer *out, PyObject *value)
{
    if (PyUnicode_CheckExact(value)) {
        return put_text(out, value);
    }
    if (value == Py_True || value == Py_False) {
        sl_put_byte(out, value == Py_True ? TRUE_ITEM : FALSE_ITEM);
        return true;
    }
    if (PyLong_CheckExact(value)) {
        return put_integer(out, value);
    }
    return PyFloat_CheckExact(value) && put_float(out, value);
}

static void put_count(sl_writer *out, unsigned fixed, unsigned sized, Py_ssize_t count)
{
    if (count <= FIXED_COUNT_MAX) {
        sl_put_byte(out, fixed | (unsigned)count);
    } else {
        unsigned width = count > UINT16_MAX ? 2 : 1;
        put_sized(out, sized - 1, width, (uint64_t)count);
    }
}

void sl_put_array_head(sl_writer *out, Py_ssize_t count) { put_count(out, FIXARRAY, ARRAY16, count); }

/* The next member of the innermost container, borrowed, its key put; NULL behind the last one of the outermost. False where a
 * key is no text. */
static bool next_member(sl_writer *out, opened *stack, size_t *depth, PyObject **member)
{
    PyObject *key;
    *member = NULL;
    while (*depth > 0) {
        opened *inner = &stack[*depth - 1];
        if (PyList_CheckExact(inner->container)) {
            if (inner->at < PyList_Size(inner->container)) {
                *member = PyList_GetItem(inner->container, inner->at++);
                return *member != NULL;
            }
        } else if (PyDict_Next(inner->container, &inner->at, &key, member)) {
            return PyUnicode_CheckExact(key) && put_text(out, key);
        }
        --*depth;
    }
    return true;
}

bool sl_put_plain(sl_writer *out, PyObject *value)
{
    opened stack[DEPTH_MAX];
    size_t depth = 0;
    while (value != NULL && !out->full) {
        bool is_list = PyList_CheckExact(value);
        if (is_list || PyDict_CheckExact(value)) {
            if (depth == DEPTH_MAX) {
                return false;
            }
            if (is_list) {
                sl_put_array_head(out, PyList_Size(value));
            } else {
                put_count(out, FIXMAP, MAP16, PyDict_Size(value));
            }
            stack[depth++] = (opened){value, 0};
        } else if (value == Py_None && depth > 0) { /* alone it is no msgpack for LangGraph's serialiser */
            sl_put_byte(out, NIL);
        } else if (!put_single(out, value)) {
            return false;
        }
        if (!next_member(out, stack, &depth, &value)) {
            return false;
        }
    }
    return !out->full;
}

bool sl_is_whole(PyObject *value, size_t size, size_t split_size_min)
{
    return !PyList_CheckExact(value) || size < split_size_min * (size_t)PyList_Size(value);
}

PyObject *sl_item_of(view prefix, const uint8_t *payload, size_t size)
{
    uint8_t head_bytes[HEAD_SIZE_MAX];
    sl_writer head = {head_bytes, sizeof head_bytes, 0, false};
    sl_put_head(&head, MAJOR_BYTES, size);
    PyObject *item = bytes_of(NULL, prefix.size + head.at + size);
    if (item != NULL) {
        uint8_t *to = (uint8_t *)PyBytes_AsString(item);
        memcpy(to, prefix.bytes, prefix.size);
        memcpy(to + prefix.size, head_bytes, head.at);
        memcpy(to + prefix.size + head.at, payload, size);
    }
    return item;
}

/* plain_item(prefix, value, split_size_min): the item of a codec's value whose payload is a plain value in msgpack; None where
 * Python must make it: also of a list that is to be split. */
PyObject *sl_plain_msgpack(PyObject *module, PyObject *const *args, Py_ssize_t count)
{
    const module_state *state = PyModule_GetState(module);
    view prefix;
    if (count != 3 || !read_bytes(args[0], &prefix) || !PyLong_CheckExact(args[2])) {
        PyErr_SetString(PyExc_TypeError, "plain_item() takes bytes, a value and a number");
        return NULL;
    }
    sl_writer out = {state->room->output, SL_PLAIN_SIZE_MAX, 0, false};
    bool is_made = sl_put_plain(&out, args[1]) && sl_is_whole(args[1], out.at, (size_t)PyLong_AsLong(args[2]));
    return is_made ? sl_item_of(prefix, out.bytes, out.at) : shared(Py_None);
}
