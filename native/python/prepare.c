/* Plain writes, encoded (statelog/store/writes.py): a dict of channels that take their values as they come.
 *
 * Trust: objects.h. Of the update nothing is known: what is not of the exact types below is left to Python, which
 * encodes or refuses it. Only the encoder's types are looked into, so that no code of the caller's is run.
 */
#include "objects.h"

enum { SHAPE_ITEM, SHAPE_ITEMS, SHAPE_ONE_ITEM, SHAPE_ITEMS_OR_ITEM };

static PyObject *items_of(const module_state *state, PyObject *values)
{
    bool is_list = PyList_CheckExact(values);
    Py_ssize_t count = is_list ? PyList_Size(values) : PyTuple_Size(values);
    PyObject *items = PyList_New(count);
    for (Py_ssize_t i = 0; i < count && items != NULL; i++) {
        if (is_list && PyList_Size(values) != count) { /* a finalizer has changed it */
            Py_DECREF(items);
            return shared(Py_None);
        }
        PyObject *value = is_list ? PyList_GetItem(values, i) : PyTuple_GetItem(values, i);
        PyObject *item = value == NULL ? NULL : sl_plain_item(state, value, 0);
        if (item == NULL || item == Py_None) {
            Py_DECREF(items);
            return item;
        }
        (void)PyList_SetItem(items, i, item);
    }
    return items;
}

static PyObject *payload_of(const module_state *state, uint64_t shape, PyObject *value)
{
    bool is_list = PyList_CheckExact(value);
    if (shape == SHAPE_ONE_ITEM) {
        PyObject *item = sl_plain_item(state, value, 0);
        if (item == NULL || item == Py_None) {
            return item;
        }
        PyObject *items = PyList_New(1);
        if (items == NULL) {
            Py_DECREF(item);
            return NULL;
        }
        (void)PyList_SetItem(items, 0, item);
        return items;
    }
    if (shape == SHAPE_ITEM || (shape == SHAPE_ITEMS_OR_ITEM && !is_list)) {
        return sl_plain_item(state, value, 0);
    }
    return is_list || PyTuple_CheckExact(value) ? items_of(state, value) : shared(Py_None);
}

/* One write, a `Prepared` of statelog/reducers.py; None where Python must make it. */
static PyObject *write_of(const module_state *state, PyObject *const *args, PyObject *channel, PyObject *value)
{
    uint64_t shape;
    if (!PyUnicode_CheckExact(channel) || PyDict_GetItemWithError(args[2], channel) == NULL) {
        return PyErr_Occurred() ? NULL : shared(Py_None);
    }
    PyObject *plan = PyDict_GetItemWithError(args[1], channel);
    if (plan == NULL && PyErr_Occurred()) {
        return NULL;
    }
    plan = plan == NULL ? args[3] : plan;
    if (plan == Py_None) {
        return shared(Py_None);
    }
    if (!read_number_at(plan, 0, &shape)) {
        return NULL;
    }
    PyObject *payload = payload_of(state, shape, value);
    if (payload == NULL || payload == Py_None) {
        return payload;
    }
    PyObject *fields[] = {shared(channel), shared(PyTuple_GetItem(plan, 1)), payload, shared(Py_False), shared(Py_None)};
    return named(args[4], fields, sizeof fields / sizeof fields[0]);
}

/* The writes of an update, as a list; None where Python must make them. The arguments are those of prepare_plain(). */
static PyObject *writes_of(const module_state *state, PyObject *const *args)
{
    if (!PyDict_CheckExact(args[0])) {
        return shared(Py_None);
    }
    PyObject *writes = PyList_New(0);
    PyObject *channel;
    PyObject *value;
    Py_ssize_t size = PyDict_Size(args[0]);
    Py_ssize_t at = 0;
    while (writes != NULL && PyDict_Next(args[0], &at, &channel, &value)) {
        Py_INCREF(channel); /* a finalizer may take it out of the dict */
        Py_INCREF(value);
        PyObject *write = write_of(state, args, channel, value);
        Py_DECREF(channel);
        Py_DECREF(value);
        bool is_made = write != NULL && write != Py_None && PyDict_Size(args[0]) == size;
        if (!is_made || PyList_Append(writes, write) < 0) {
            Py_DECREF(writes);
            writes = PyErr_Occurred() ? NULL : shared(Py_None);
            Py_XDECREF(write);
            return writes;
        }
        Py_DECREF(write);
    }
    return writes;
}

/* prepare_plain(update, plans, known channels, plan of other channels, type of a write): a list, or None. */
PyObject *sl_prepare_plain(PyObject *module, PyObject *const *args, Py_ssize_t count)
{
    const module_state *state = PyModule_GetState(module);
    if (count != 5 || !PyDict_CheckExact(args[1]) || !PyDict_CheckExact(args[2])) {
        PyErr_SetString(PyExc_TypeError, "prepare_plain() takes an update, two dicts, a plan and a type");
        return NULL;
    }
    return writes_of(state, args);
}
