/* msgpack made of Python's objects: arrays as an item, and what a task has written.
 *
 * Trust: objects.h. Invariant: a value that is packed here is packed as ormsgpack packs it.
 */
#include "objects.h"

enum {
    FIXARRAY = 0x90, FIXSTR = 0xA0, NIL = 0xC0, FALSE_ITEM = 0xC2, TRUE_ITEM = 0xC3, FLOAT64 = 0xCB, UINT8 = 0xCC,
    INT8 = 0xD0, STR8 = 0xD9, STR32 = 0xDB, ARRAY16 = 0xDC, ARRAY32 = 0xDD, NEGATIVE = 0xE0
};
enum { MAJOR_BYTES = 2, FIXSTR_SIZE_MAX = 31, FIXARRAY_COUNT_MAX = 15, FIXINT_MAX = 127, FIXINT_MIN = -32 };
enum { HEAD_SIZE_MAX = 9, NUMBER_SIZE_MAX = 9, DIGITS_MAX = 20, WRITES_MAX = 256, TASK_PARTS = 3, WRITE_PARTS = 4 };

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

/* A text, nil for None, or what is msgpack already; false of anything else. */
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
        sl_put_byte(&out, FIXARRAY | (unsigned)parts);
    } else {
        bool is_short = parts <= UINT16_MAX;
        sl_put_byte(&out, is_short ? ARRAY16 : ARRAY32);
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

/* --- what a task has written -------------------------------------------------------------------------- */

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

/* A text, a number, True or False, at its shortest; false of anything else, and of a text that is no UTF-8. */
static bool put_plain(sl_writer *out, PyObject *value)
{
    if (PyUnicode_CheckExact(value)) {
        view text;
        PyObject *owned;
        bool is_text = utf8_of(value, &text, &owned) && text.size <= UINT32_MAX;
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
    if (value == Py_True || value == Py_False) {
        sl_put_byte(out, value == Py_True ? TRUE_ITEM : FALSE_ITEM);
        return true;
    }
    if (PyLong_CheckExact(value)) {
        return put_integer(out, value);
    }
    return PyFloat_CheckExact(value) && put_float(out, value);
}

/* The parts of one write: its channel, its number, None, and its value. False where Python must make them. */
static bool set_write(PyObject *parts, Py_ssize_t number, PyObject *write, PyObject *others, sl_writer room)
{
    PyObject *channel = PyTuple_CheckExact(write) && PyTuple_Size(write) == 2 ? PyTuple_GetItem(write, 0) : NULL;
    if (channel == NULL || !PyUnicode_CheckExact(channel) || PyDict_Contains(others, channel) != 0) {
        return false;
    }
    PyObject *value = PyTuple_GetItem(write, 1);
    if ((PyUnicode_CheckExact(value) && PyUnicode_GetLength(value) > SL_ROOM_SIZE / 8) || !put_plain(&room, value) ||
        room.full) {
        return false;
    }
    Py_ssize_t at = TASK_PARTS + WRITE_PARTS * number;
    return PyList_SetItem(parts, at, shared(channel)) == 0 &&
           PyList_SetItem(parts, at + 1, PyUnicode_FromFormat("%zd", number)) == 0 &&
           PyList_SetItem(parts, at + 2, shared(Py_None)) == 0 &&
           PyList_SetItem(parts, at + 3, bytes_of(room.bytes, room.at)) == 0;
}

/* plain_writes(task, path, writes, others): what stands in the header of what a task has written: see
 * statelog/adapters/langgraph/bundles.py. None where a channel is one of the others, or a value is not plain. */
PyObject *sl_plain_writes(PyObject *module, PyObject *const *args, Py_ssize_t count)
{
    const module_state *state = PyModule_GetState(module);
    if (count != 4 || !PyList_CheckExact(args[2]) || !PyDict_CheckExact(args[3])) {
        PyErr_SetString(PyExc_TypeError, "plain_writes() takes two texts, a list and a dict");
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
    sl_writer room = {state->room->output, SL_ROOM_SIZE, 0, false};
    for (Py_ssize_t i = 0; is_made && i < writes; i++) {
        is_made = set_write(parts, i, PyList_GetItem(args[2], i), args[3], room);
    }
    if (is_made) {
        return parts;
    }
    Py_XDECREF(parts);
    return PyErr_Occurred() ? NULL : shared(Py_None);
}
