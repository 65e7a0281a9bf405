/* Small items checked and cut apart, and small groups written, under the interpreter's lock.
 *
 * Why: cffi lets go of that lock around each call. Where several threads wait for it, that costs more than a small call
 * does, and mostly another thread goes on: of eight that write at once, each then waits for all the others.
 *
 * Trust: the bytes are untrusted, as in every kernel.
 */
#include "objects.h"

#ifndef _WIN32
#include <unistd.h>
#endif

enum { ENDS_MAX = 512 };

/* check_item(data): None if it is one item of the profile, else where the innermost item that is wrong begins. */
PyObject *sl_check_item(PyObject *module, PyObject *data)
{
    view item;
    size_t error_at = 0;
    (void)module;
    if (!read_bytes(data, &item)) {
        return NULL;
    }
    return sl_cbor_check(item.bytes, item.size, &error_at) == SL_OK ? shared(Py_None) : number_of(error_at);
}

/* split_small(data): the items of a msgpack array, as a list; None where it is none, or not well-formed; False where it has
 * too many. */
PyObject *sl_split_small(PyObject *module, PyObject *data)
{
    view array;
    uint64_t first;
    uint64_t count;
    uint64_t ends[ENDS_MAX];
    (void)module;
    if (!read_bytes(data, &array)) {
        return NULL;
    }
    if (sl_msgpack_array(array.bytes, array.size, &first, &count) != SL_OK) {
        return shared(Py_None);
    }
    if (count > ENDS_MAX) {
        return shared(Py_False);
    }
    if (sl_msgpack_split(array.bytes, array.size, ends, (size_t)count) != SL_OK) {
        return shared(Py_None);
    }
    PyObject *items = PyList_New((Py_ssize_t)count);
    for (uint64_t i = 0; i < count && items != NULL; i++) {
        PyObject *item = bytes_of(array.bytes + first, (size_t)(ends[i] - first));
        if (item == NULL) {
            Py_DECREF(items);
            return NULL;
        }
        (void)PyList_SetItem(items, (Py_ssize_t)i, item);
        first = ends[i];
    }
    return items;
}

/* --- arrays of msgpack, as an item -------------------------------------------------------------------- */

enum { MAJOR_BYTES = 2, FIXSTR_SIZE_MAX = 31, FIXARRAY_COUNT_MAX = 15, HEAD_SIZE_MAX = 9 };

/* A text: of less than 32 bytes behind one, else behind five. False where it is not UTF-8. */
static bool put_text(sl_writer *out, PyObject *text)
{
    view bytes;
    PyObject *owned;
    bool is_text = utf8_of(text, &bytes, &owned) && bytes.size <= UINT32_MAX;
    if (is_text) {
        if (bytes.size <= FIXSTR_SIZE_MAX) {
            sl_put_byte(out, 0xA0U | (unsigned)bytes.size);
        } else {
            sl_put_byte(out, 0xDB);
            sl_put_be(out, bytes.size, 4);
        }
        sl_put(out, bytes.bytes, bytes.size);
    }
    Py_XDECREF(owned);
    return is_text;
}

/* A text, nil for None, or what is msgpack already; false of anything else. */
static bool put_part(sl_writer *out, PyObject *part)
{
    view data;
    if (part == Py_None) {
        sl_put_byte(out, 0xC0);
        return true;
    }
    if (PyUnicode_CheckExact(part)) {
        return put_text(out, part);
    }
    if (!PyBytes_CheckExact(part) || !read_bytes(part, &data)) {
        PyErr_Clear();
        return false;
    }
    sl_put(out, data.bytes, data.size);
    return true;
}

/* pack_array(prefix, parts): the item of a codec's value whose payload is the array of the parts, a list; None where one is
 * none of those, or they are too much. */
PyObject *sl_pack_array(PyObject *module, PyObject *const *args, Py_ssize_t count)
{
    const module_state *state = PyModule_GetState(module);
    view prefix;
    if (count != 2 || !PyList_CheckExact(args[1]) || !read_bytes(args[0], &prefix)) {
        PyErr_SetString(PyExc_TypeError, "pack_array() takes bytes and a list");
        return NULL;
    }
    sl_writer out = {state->room->output, SL_ROOM_SIZE, 0, false};
    Py_ssize_t parts = PyList_Size(args[1]);
    if (parts <= FIXARRAY_COUNT_MAX) {
        sl_put_byte(&out, 0x90U | (unsigned)parts);
    } else {
        bool is_short = parts <= UINT16_MAX;
        sl_put_byte(&out, is_short ? 0xDC : 0xDD);
        sl_put_be(&out, (uint64_t)parts, is_short ? 2 : 4);
    }
    for (Py_ssize_t i = 0; i < parts; i++) {
        if (!put_part(&out, PyList_GetItem(args[1], i)) || out.full) {
            return shared(Py_None);
        }
    }
    uint8_t head_bytes[HEAD_SIZE_MAX];
    sl_writer head = {head_bytes, sizeof head_bytes, 0, false};
    sl_put_head(&head, MAJOR_BYTES, out.at);
    PyObject *item = bytes_of(NULL, prefix.size + head.at + out.at);
    if (item != NULL) {
        uint8_t *to = (uint8_t *)PyBytes_AsString(item);
        memcpy(to, prefix.bytes, prefix.size);
        memcpy(to + prefix.size, head_bytes, head.at);
        memcpy(to + prefix.size + head.at, out.bytes, out.at);
    }
    return item;
}

/* write_held(descriptor, data, at): how many bytes were written. */
PyObject *sl_write_held(PyObject *module, PyObject *const *args, Py_ssize_t count)
{
    view data;
    uint64_t descriptor;
    uint64_t at;
    (void)module;
    if (count != 3 || !read_number(args[0], &descriptor) || !read_bytes(args[1], &data) || !read_number(args[2], &at)) {
        if (!PyErr_Occurred()) {
            PyErr_SetString(PyExc_TypeError, "write_held() takes a descriptor, bytes and an offset");
        }
        return NULL;
    }
#ifdef _WIN32
    return PyLong_FromLong(0);
#else
    ssize_t written = pwrite((int)descriptor, data.bytes, data.size, (off_t)at);
    return written < 0 ? PyErr_SetFromErrno(PyExc_OSError) : PyLong_FromSsize_t((Py_ssize_t)written);
#endif
}
