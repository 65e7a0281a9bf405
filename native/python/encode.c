/* Encodes plain Python values as CBOR items (FORMAT.md 7). Nearly all writes consist of such values.
 *
 * Trust: none in the value. For any other type, size or depth the result is None, and statelog/format/cbor.py
 * encodes the value or reports the error.
 * Invariants: no Python code runs here, so no object changes while it is read. The size of the output bounds
 * the running time. */
#include "objects.h"

enum {
    MAJOR_UNSIGNED = 0,
    MAJOR_NEGATIVE = 1,
    MAJOR_BYTES = 2,
    MAJOR_TEXT = 3,
    MAJOR_LIST = 4,
    MAJOR_MAP = 5,
    ITEM_FALSE = 0xF4,
    ITEM_TRUE = 0xF5,
    ITEM_NULL = 0xF6,
    KEYS_MAX = 32,      /* The maximum number of keys of one map. */
    LEVELS_MAX = 32     /* The maximum nesting in one call, because a thread's stack may be small. */
};

typedef struct {
    const uint8_t *bytes;
    size_t size;
    PyObject *value;
} member;

static bool put_text(sl_writer *out, PyObject *text)
{
    view bytes;
    PyObject *owned;
    bool is_text = utf8_of(text, &bytes, &owned);
    if (is_text) {
        sl_put_head(out, MAJOR_TEXT, bytes.size);
        sl_put(out, bytes.bytes, bytes.size);
    }
    Py_XDECREF(owned);
    return is_text;
}

static bool put_integer(sl_writer *out, PyObject *number)
{
    int overflow;
    long long value = PyLong_AsLongLongAndOverflow(number, &overflow);
    if (overflow != 0) {
        return false;
    }
    if (value >= 0) {
        sl_put_head(out, MAJOR_UNSIGNED, (uint64_t)value);
    } else {
        sl_put_head(out, MAJOR_NEGATIVE, (uint64_t)(-1 - value));
    }
    return true;
}

/* Return true if key `a` comes before key `b`. Encoded keys are ordered by size, then by bytes. */
static bool stands_before(const member *a, const member *b)
{
    return a->size != b->size ? a->size < b->size : memcmp(a->bytes, b->bytes, a->size) < 0;
}

static bool put_value(sl_writer *out, PyObject *value, unsigned levels);

static bool put_map(sl_writer *out, PyObject *map, unsigned levels)
{
    member members[KEYS_MAX];
    size_t count = 0;
    Py_ssize_t at = 0;
    PyObject *key;
    PyObject *value;
    if (PyDict_Size(map) > KEYS_MAX) {
        return false;
    }
    while (PyDict_Next(map, &at, &key, &value)) {
        Py_ssize_t size;
        const char *bytes = PyUnicode_CheckExact(key) && PyUnicode_GetLength(key) <= SL_KEPT_TEXT_MAX
                                ? PyUnicode_AsUTF8AndSize(key, &size)
                                : NULL;
        if (bytes == NULL) {
            PyErr_Clear();
            return false;
        }
        member one = {(const uint8_t *)bytes, (size_t)size, value};
        size_t place = count++;
        for (; place > 0 && stands_before(&one, &members[place - 1]); place--) {
            members[place] = members[place - 1];
        }
        members[place] = one;
    }
    sl_put_head(out, MAJOR_MAP, count);
    for (size_t i = 0; i < count; i++) {
        sl_put_head(out, MAJOR_TEXT, members[i].size);
        sl_put(out, members[i].bytes, members[i].size);
        if (!put_value(out, members[i].value, levels)) {
            return false;
        }
    }
    return true;
}

static bool put_list(sl_writer *out, PyObject *list, unsigned levels)
{
    Py_ssize_t count = PyList_Size(list);
    sl_put_head(out, MAJOR_LIST, (uint64_t)count);
    for (Py_ssize_t i = 0; i < count; i++) {
        if (!put_value(out, PyList_GetItem(list, i), levels)) {
            return false;
        }
    }
    return true;
}

/* Encode a value. `levels` bounds the recursion. */
static bool put_value(sl_writer *out, PyObject *value, unsigned levels)
{
    if (out->full) {
        return false;
    }
    if (PyUnicode_CheckExact(value)) {
        return put_text(out, value);
    }
    if (PyLong_CheckExact(value)) {
        return put_integer(out, value);
    }
    if (value == Py_None || value == Py_True || value == Py_False) {
        sl_put_byte(out, value == Py_None ? ITEM_NULL : value == Py_True ? ITEM_TRUE : ITEM_FALSE);
        return true;
    }
    if (PyFloat_CheckExact(value)) {
        sl_put_float(out, PyFloat_AsDouble(value));
        return true;
    }
    if (PyBytes_CheckExact(value)) {
        view bytes;
        if (!read_bytes(value, &bytes)) {
            return false;
        }
        sl_put_head(out, MAJOR_BYTES, bytes.size);
        sl_put(out, bytes.bytes, bytes.size);
        return true;
    }
    bool is_map = PyDict_CheckExact(value);
    if (levels == 0 || (!is_map && !PyList_CheckExact(value))) {
        return false;
    }
    return is_map ? put_map(out, value, levels - 1) : put_list(out, value, levels - 1);
}

/* encode_plain(value, depth): encode a plain value that is nested at `depth`. Return None if Python must encode or
 * refuse it. */
PyObject *sl_encode_plain(PyObject *module, PyObject *const *args, Py_ssize_t count)
{
    const module_state *state = PyModule_GetState(module);
    uint64_t depth;
    if (count != 2 || !read_number(args[1], &depth)) {
        PyErr_SetString(PyExc_TypeError, "encode_plain() takes a value and its depth");
        return NULL;
    }
    sl_writer out = {state->room, SL_ROOM_SIZE, 0, false};
    unsigned left = depth < SL_DEPTH_MAX ? SL_DEPTH_MAX - (unsigned)depth : 0;
    if (!put_value(&out, args[0], left < LEVELS_MAX ? left : LEVELS_MAX) || out.full) {
        return shared(Py_None);
    }
    return bytes_of(out.bytes, out.at);
}
