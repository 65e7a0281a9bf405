/* Joins JSON texts into one JSON array, and copies values decoded from JSON, for adapters that store values as JSON.
 *
 * Trust: none in the items, which come from a file. While a value is copied, every object is owned while it is
 * read.
 * Invariants: the kernel reads no byte beyond an item. A copy has at most LEVELS_MAX levels, and shares no list or dict. */
#include "objects.h"

enum { MAJOR_TEXT = 3, LEVELS_MAX = 200, ADDITIONAL_64 = 27 };

/* Get the UTF-8 bytes of an item that consists of `prefix` and a CBOR text string. Return false for any other item. */
static bool text_of(PyObject *item, view prefix, view *text)
{
    view bytes;
    if (!PyBytes_CheckExact(item) || !read_bytes(item, &bytes) || bytes.size <= prefix.size ||
        memcmp(bytes.bytes, prefix.bytes, prefix.size) != 0) {
        return false;
    }
    const uint8_t *at = bytes.bytes + prefix.size;
    size_t left = bytes.size - prefix.size - 1;
    unsigned additional = *at & 31;
    uint64_t size = additional;
    if (*at++ >> 5 != MAJOR_TEXT || additional > ADDITIONAL_64) {
        return false;
    }
    if (additional > 23) {
        size_t width = (size_t)1 << (additional - 24);
        if (left < width) {
            return false;
        }
        size = 0;
        for (size_t i = 0; i < width; i++) {
            size = size << 8 | *at++;
        }
        left -= width;
    }
    *text = (view){at, left};
    return size == left;
}

/* join_texts(items, prefix): return a JSON array of the texts that follow the prefix in each item. */
PyObject *sl_join_texts(PyObject *module, PyObject *const *args, Py_ssize_t count)
{
    (void)module;
    view prefix;
    if (count != 2 || !PyList_CheckExact(args[0]) || !PyBytes_CheckExact(args[1]) || !read_bytes(args[1], &prefix)) {
        PyErr_SetString(PyExc_TypeError, "join_texts() takes a list and bytes");
        return NULL;
    }
    Py_ssize_t items = PyList_Size(args[0]);
    size_t size = 2;
    view text;
    for (Py_ssize_t i = 0; i < items; i++) {
        if (!text_of(PyList_GetItem(args[0], i), prefix, &text)) {
            return PyErr_Format(PyExc_ValueError, "item %zd is not a text after the prefix", i);
        }
        size += text.size + (i > 0);
    }
    char *joined = PyMem_Malloc(size);
    if (joined == NULL) {
        return PyErr_NoMemory();
    }
    size_t at = 0;
    joined[at++] = '[';
    for (Py_ssize_t i = 0; i < items; i++) {
        (void)text_of(PyList_GetItem(args[0], i), prefix, &text);
        if (i > 0) {
            joined[at++] = ',';
        }
        memcpy(joined + at, text.bytes, text.size);
        at += text.size;
    }
    joined[at++] = ']';
    PyObject *made = PyUnicode_DecodeUTF8(joined, (Py_ssize_t)at, NULL);
    PyMem_Free(joined);
    return made;
}

static PyObject *copy(PyObject *value, unsigned levels);

static PyObject *copy_list(PyObject *value, unsigned levels)
{
    Py_ssize_t size = PyList_Size(value);
    PyObject *made = PyList_New(size);
    for (Py_ssize_t i = 0; made != NULL && i < size; i++) {
        PyObject *item = shared(PyList_GetItem(value, i));
        PyObject *copied = item == NULL ? NULL : copy(item, levels);
        Py_XDECREF(item);
        if (copied == NULL || PyList_SetItem(made, i, copied) < 0) {
            Py_CLEAR(made);
        }
    }
    return made;
}

static PyObject *copy_dict(PyObject *value, unsigned levels)
{
    PyObject *made = PyDict_Copy(value);
    PyObject *key;
    PyObject *item;
    Py_ssize_t at = 0;
    /* Changing the dict while iterating is allowed, because the loop replaces values and adds no key. */
    while (made != NULL && PyDict_Next(made, &at, &key, &item)) {
        if (!PyList_CheckExact(item) && !PyDict_CheckExact(item)) {
            continue;
        }
        PyObject *copied = copy(item, levels);
        if (copied == NULL || PyDict_SetItem(made, key, copied) < 0) {
            Py_CLEAR(made);
        }
        Py_XDECREF(copied);
    }
    return made;
}

/* Copy a value. `levels` bounds the recursion. */
static PyObject *copy(PyObject *value, unsigned levels)
{
    bool is_list = PyList_CheckExact(value);
    if (!is_list && !PyDict_CheckExact(value)) {
        return shared(value);
    }
    if (levels == 0) {
        PyErr_SetString(PyExc_RecursionError, "the value is nested too deep to be copied");
        return NULL;
    }
    return is_list ? copy_list(value, levels - 1) : copy_dict(value, levels - 1);
}

/* copy_plain(value): copy lists and dicts, and share all other objects. */
PyObject *sl_copy_plain(PyObject *module, PyObject *const *args, Py_ssize_t count)
{
    (void)module;
    if (count != 1) {
        PyErr_SetString(PyExc_TypeError, "copy_plain() takes a value");
        return NULL;
    }
    return copy(args[0], LEVELS_MAX);
}
