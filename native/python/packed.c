/* Arrays in msgpack as an item, and what a task has written.
 *
 * Trust: objects.h.
 */
#include "plain.h"

enum { FIXSTR = 0xA0, NIL = 0xC0, STR32 = 0xDB };
enum { FIXSTR_SIZE_MAX = 31, WRITES_MAX = 256, TASK_PARTS = 3, WRITE_PARTS = 4 };

/* A text: of less than 32 bytes behind one, else behind five. False where it is not UTF-8. */
static bool put_text(sl_writer *out, PyObject *text)
{
    view bytes;
    PyObject *owned;
    bool is_text = utf8_of(text, &bytes, &owned) && bytes.size <= UINT32_MAX;
    if (is_text) {
        if (bytes.size <= FIXSTR_SIZE_MAX) {
            sl_put_byte(out, FIXSTR | (unsigned)bytes.size);
        } else {
            sl_put_byte(out, STR32);
            sl_put_be(out, bytes.size, 4);
        }
        sl_put(out, bytes.bytes, bytes.size);
    }
    Py_XDECREF(owned);
    return is_text;
}

/* A text, nil for None, a plain dict, or what is msgpack already; false of anything else. */
static bool put_part(sl_writer *out, PyObject *part)
{
    view data;
    if (part == Py_None) {
        sl_put_byte(out, NIL);
        return true;
    }
    if (PyUnicode_CheckExact(part)) {
        return put_text(out, part);
    }
    if (PyDict_CheckExact(part)) {
        size_t left = out->capacity - out->at;
        sl_writer bounded = {out->bytes, out->at + (left < SL_PLAIN_SIZE_MAX ? left : SL_PLAIN_SIZE_MAX), out->at, out->full};
        bool is_plain = sl_put_plain(&bounded, part);
        out->at = bounded.at;
        return is_plain;
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
    sl_put_array_head(&out, parts);
    for (Py_ssize_t i = 0; i < parts; i++) {
        if (!put_part(&out, PyList_GetItem(args[1], i)) || out.full) {
            return shared(Py_None);
        }
    }
    return sl_item_of(prefix, out.bytes, out.at);
}

/* --- what a task has written -------------------------------------------------------------------------- */

/* The parts of one write: its channel, its number, and its value: see bundles.py. False where Python must make them. */
static bool set_write(PyObject *parts, Py_ssize_t number, PyObject *write, PyObject *const *args, sl_writer room)
{
    PyObject *channel = PyTuple_CheckExact(write) && PyTuple_Size(write) == 2 ? PyTuple_GetItem(write, 0) : NULL;
    if (channel == NULL || !PyUnicode_CheckExact(channel) || PyDict_Contains(args[3], channel) != 0) {
        return false;
    }
    PyObject *value = PyTuple_GetItem(write, 1);
    PyObject *form = value == Py_None ? PyTuple_GetItem(args[4], 0) : Py_None;
    PyObject *data = value == Py_None ? shared(PyTuple_GetItem(args[4], 1)) : NULL;
    if (data == NULL && sl_put_plain(&room, value) && sl_is_whole(value, room.at, (size_t)PyLong_AsLong(args[5]))) {
        data = bytes_of(room.bytes, room.at);
    }
    Py_ssize_t at = TASK_PARTS + WRITE_PARTS * number;
    if (data == NULL || PyList_SetItem(parts, at + 3, data) != 0) {
        return false;
    }
    return PyList_SetItem(parts, at, shared(channel)) == 0 &&
           PyList_SetItem(parts, at + 1, PyUnicode_FromFormat("%zd", number)) == 0 &&
           PyList_SetItem(parts, at + 2, shared(form)) == 0;
}

/* plain_writes(task, path, writes, others, none, split_size_min): what stands in the header of what a task has written: see
 * statelog/adapters/langgraph/saver/bundles.py. None where a channel is one of the others, or a value is not plain. */
PyObject *sl_plain_writes(PyObject *module, PyObject *const *args, Py_ssize_t count)
{
    const module_state *state = PyModule_GetState(module);
    if (count != 6 || !PyList_CheckExact(args[2]) || !PyDict_CheckExact(args[3]) || !PyTuple_CheckExact(args[4]) ||
        PyTuple_Size(args[4]) != 2 || !PyLong_CheckExact(args[5])) {
        PyErr_SetString(PyExc_TypeError, "plain_writes() takes two texts, a list, a dict, a pair and a number");
        return NULL;
    }
    Py_ssize_t writes = PyList_Size(args[2]);
    if (writes == 0 || writes > WRITES_MAX) {
        return shared(Py_None);
    }
    PyObject *parts = PyList_New(TASK_PARTS + WRITE_PARTS * writes);
    bool is_made = parts != NULL && PyList_SetItem(parts, 0, shared(args[0])) == 0 &&
                   PyList_SetItem(parts, 1, shared(args[1])) == 0 &&
                   PyList_SetItem(parts, 2, PyUnicode_FromFormat("%zd", writes)) == 0;
    sl_writer room = {state->room->output, SL_PLAIN_SIZE_MAX, 0, false};
    for (Py_ssize_t i = 0; is_made && i < writes; i++) {
        is_made = set_write(parts, i, PyList_GetItem(args[2], i), args, room);
    }
    if (is_made) {
        return parts;
    }
    Py_XDECREF(parts);
    return PyErr_Occurred() ? NULL : shared(Py_None);
}
