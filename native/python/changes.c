/* What prepared writes change in a state, where that can be told at once (statelog/log/step.py says it for all cases).
 *
 * Trust: objects.h. Invariant: nothing here runs Python code but to read names of reducers and channels, which are slots.
 */
#include "objects.h"

enum { WRITE_CHANNEL, WRITE_REDUCER, WRITE_PAYLOAD, WRITE_IS_OVERWRITE };
enum { HELD_ROOT = 1, HELD_OPENS = 2 };
enum { WRITES, LISTS, CHANNEL_KEYS, ARGUMENTS };

/* The operation of a write; 0 where it is none that a step has, -1 on an error. */
static long operation_of(const module_state *state, PyObject *write)
{
    PyObject *is_overwrite = PyTuple_GetItem(write, WRITE_IS_OVERWRITE);
    PyObject *reducer = PyTuple_GetItem(write, WRITE_REDUCER);
    if (is_overwrite == NULL || reducer == NULL) {
        return -1;
    }
    if (is_overwrite != Py_False) {
        return is_overwrite == Py_True ? CHANGE_PUT : 0;
    }
    PyObject *name = PyObject_GetAttr(reducer, state->names[NAME_NAME]);
    PyObject *operation = name == NULL ? NULL : PyDict_GetItemWithError(state->operations, name);
    Py_XDECREF(name);
    if (operation == NULL) {
        return PyErr_Occurred() ? -1 : 0;
    }
    long found = PyLong_AsLong(operation);
    return found < 0 && !PyErr_Occurred() ? 0 : found;
}

/* Items one after another, in one. */
static PyObject *joined(PyObject *items, Py_ssize_t count)
{
    size_t size = 0;
    for (Py_ssize_t i = 0; i < count; i++) {
        view item;
        if (!read_bytes(PyList_GetItem(items, i), &item)) {
            return NULL;
        }
        size += item.size;
    }
    if (count == 1) {
        return shared(PyList_GetItem(items, 0));
    }
    PyObject *all = bytes_of(NULL, size);
    uint8_t *at = all == NULL ? NULL : (uint8_t *)PyBytes_AsString(all);
    for (Py_ssize_t i = 0; i < count && at != NULL; i++) {
        view item;
        if (!read_bytes(PyList_GetItem(items, i), &item)) {
            Py_DECREF(all);
            return NULL;
        }
        memcpy(at, item.bytes, item.size);
        at += item.size;
    }
    return all;
}

/* What the removal of a channel changes. */
static outcome removal_of(const module_state *state, PyObject *const *args, PyObject *write, PyObject **change)
{
    PyObject *channel = PyObject_GetAttr(write, state->names[NAME_CHANNEL]);
    PyObject *key = channel == NULL ? NULL : PyDict_GetItemWithError(args[CHANNEL_KEYS], channel);
    Py_XDECREF(channel);
    if (key == NULL) {
        return PyErr_Occurred() ? FAILED : UNKNOWN;
    }
    *change = Py_BuildValue("iOy#iiO()", (int)CHANGE_REMOVE, key, "", (Py_ssize_t)0, 0, 0, state->no_node);
    return *change == NULL ? FAILED : KNOWN;
}

/* What one write changes. */
static outcome change_of(const module_state *state, PyObject *const *args, PyObject *write, PyObject **change)
{
    if ((PyObject *)Py_TYPE(write) == state->removal_type) {
        return removal_of(state, args, write, change);
    }
    if ((PyObject *)Py_TYPE(write) != state->write_type) {
        return UNKNOWN;
    }
    PyObject *payload = PyTuple_GetItem(write, WRITE_PAYLOAD);
    PyObject *channel = PyTuple_GetItem(write, WRITE_CHANNEL);
    PyObject *key = channel == NULL ? NULL : PyDict_GetItemWithError(args[CHANNEL_KEYS], channel);
    long operation = key == NULL ? 0 : operation_of(state, write);
    if (payload == NULL || operation <= 0) {
        return PyErr_Occurred() ? FAILED : UNKNOWN;
    }
    if (PyBytes_CheckExact(payload) && operation != CHANGE_APPEND) {
        *change = Py_BuildValue("lOOiiO()", operation, key, payload, 0, 0, state->no_node);
        return *change == NULL ? FAILED : KNOWN;
    }
    PyObject *held = PyDict_CheckExact(args[LISTS]) ? PyDict_GetItemWithError(args[LISTS], key) : NULL;
    Py_ssize_t count = PyList_CheckExact(payload) ? PyList_Size(payload) : 0;
    if (held == NULL || count == 0) {
        return PyErr_Occurred() ? FAILED : UNKNOWN;
    }
    PyObject *root = PyTuple_GetItem(held, HELD_ROOT);
    PyObject *opens = PyTuple_GetItem(held, HELD_OPENS);
    PyObject *items = root == NULL || opens == NULL ? NULL : joined(payload, count);
    if (items != NULL) {
        *change = Py_BuildValue("iONniOO", (int)CHANGE_APPEND, key, items, count, (int)SL_KIND_LIST, root, opens);
    }
    return *change == NULL ? FAILED : KNOWN;
}

/* Put a change among others, by its key; two of one channel belong together. */
static outcome enter(PyObject *changes, PyObject *change)
{
    view key;
    Py_ssize_t at = PyList_Size(changes);
    if (!read_bytes_at(change, CHANGE_KEY, &key)) {
        return FAILED;
    }
    for (; at > 0; at--) {
        view before;
        if (!read_bytes_at(PyList_GetItem(changes, at - 1), CHANGE_KEY, &before)) {
            return FAILED;
        }
        int order = sl_bytes_compare(before.bytes, before.size, key.bytes, key.size);
        if (order == 0) {
            return UNKNOWN;
        }
        if (order < 0) {
            break;
        }
    }
    return PyList_Insert(changes, at, change) < 0 ? FAILED : KNOWN;
}

/* plain_changes(writes, lists, channel keys): changes, ascending by key; None where Python must find them out. */
PyObject *sl_plain_changes(PyObject *module, PyObject *const *args, Py_ssize_t count)
{
    const module_state *state = PyModule_GetState(module);
    if (count != ARGUMENTS || !PyDict_CheckExact(args[CHANNEL_KEYS]) || state->write_type == NULL) {
        PyErr_SetString(PyExc_TypeError, "plain_changes() takes writes and two dicts, after bind_writes()");
        return NULL;
    }
    if (!PyList_CheckExact(args[WRITES])) {
        return shared(Py_None);
    }
    Py_ssize_t writes = PyList_Size(args[WRITES]);
    PyObject *changes = PyList_New(0);
    outcome found = changes == NULL ? FAILED : KNOWN;
    for (Py_ssize_t i = 0; i < writes && found == KNOWN; i++) {
        PyObject *change = NULL;
        PyObject *write = PyList_GetItem(args[WRITES], i);
        found = write == NULL ? FAILED : change_of(state, args, write, &change);
        if (found == KNOWN) {
            found = enter(changes, change);
        }
        Py_XDECREF(change);
    }
    if (found == KNOWN) {
        return changes;
    }
    Py_XDECREF(changes);
    return found == FAILED ? NULL : shared(Py_None);
}
