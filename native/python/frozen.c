/* Checks whether values have changed since they were serialised, without serialising them again.
 *
 * Values are *frozen* as follows: str, bytes, numbers, booleans and None stay as they are. A list, tuple,
 * dict or plain model becomes a tuple of its type and its frozen members. Anything else becomes an Ellipsis,
 * which counts as changed.
 * Trust: none in the value. A metaclass or `learn` may run Python code, which may change the value being read.
 * So every object is owned while it is read, every index is checked, and an inconsistent value becomes an
 * Ellipsis. */
#include "objects.h"

enum { LEVELS_MAX = 32 }; /* The maximum depth of a value, because a thread's stack may be small. */

typedef struct {
    const module_state *state;
    PyObject *kinds; /* A dict that maps a type to whether it is a plain model. */
    PyObject *learn; /* A function that decides this for a type that is not in `kinds`. */
    /* True if the item is deeper than LEVELS_MAX. Its rest is then not read, because the item may contain itself. */
    bool is_deep;
} freezing;

static bool is_leaf(PyObject *value)
{
    return value == Py_None || PyUnicode_CheckExact(value) || PyLong_CheckExact(value) || PyBool_Check(value) ||
           PyBytes_CheckExact(value) || PyFloat_CheckExact(value);
}

static PyObject *nothing_known(void) { return shared(Py_Ellipsis); }

static PyObject *freeze(freezing *with, PyObject *value, unsigned levels);

/* Freeze a member, and store it at `place` in the record. Return false, with an error set, on failure. */
static bool freeze_member(freezing *with, PyObject *record, Py_ssize_t place, PyObject *member, unsigned levels)
{
    PyObject *frozen = freeze(with, member, levels);
    return frozen != NULL && PyTuple_SetItem(record, place, frozen) == 0;
}

static PyObject *freeze_items(freezing *with, PyObject *items, unsigned levels)
{
    bool is_list = PyList_CheckExact(items);
    Py_ssize_t count = is_list ? PyList_Size(items) : PyTuple_Size(items);
    PyObject *record = PyTuple_New(1 + count);
    if (record == NULL) {
        return NULL;
    }
    (void)PyTuple_SetItem(record, 0, shared((PyObject *)Py_TYPE(items)));
    for (Py_ssize_t i = 0; i < count; i++) {
        PyObject *item = shared(is_list ? PyList_GetItem(items, i) : PyTuple_GetItem(items, i));
        bool is_done = item != NULL && freeze_member(with, record, 1 + i, item, levels);
        Py_XDECREF(item);
        if (!is_done) {
            Py_DECREF(record);
            if (item == NULL) { /* Python code has shortened the list. */
                PyErr_Clear();
                return nothing_known();
            }
            return NULL;
        }
    }
    return record;
}

/* Return a dict or a model as a tuple: its type, a model's extra fields, and then alternating keys and values. */
static PyObject *freeze_members(freezing *with, PyObject *kind, PyObject *extra, PyObject *held, unsigned levels)
{
    Py_ssize_t head = extra == NULL ? 1 : 2;
    Py_ssize_t size = head + 2 * PyDict_Size(held);
    Py_ssize_t place = head;
    Py_ssize_t at = 0;
    PyObject *key;
    PyObject *value;
    PyObject *record = PyTuple_New(size);
    if (record == NULL) {
        return NULL;
    }
    (void)PyTuple_SetItem(record, 0, shared(kind));
    if (extra != NULL && !freeze_member(with, record, 1, extra, levels)) {
        Py_DECREF(record);
        return NULL;
    }
    while (place < size && PyDict_Next(held, &at, &key, &value)) {
        Py_INCREF(key);
        Py_INCREF(value);
        bool is_done = freeze_member(with, record, place, key, levels) &&
                       freeze_member(with, record, place + 1, value, levels);
        Py_DECREF(key);
        Py_DECREF(value);
        if (!is_done) {
            Py_DECREF(record);
            return NULL;
        }
        place += 2;
    }
    if (place != size || head + 2 * PyDict_Size(held) != size) { /* Python code has changed the dict. */
        Py_DECREF(record);
        return nothing_known();
    }
    return record;
}

/* Get a model's members and extra fields as new references. Return false, without an error, if the model is not
 * fully initialised. */
static bool open_model(const module_state *state, PyObject *model, PyObject **held, PyObject **extra)
{
    *held = PyObject_GetAttr(model, state->held_name);
    *extra = *held == NULL ? NULL : PyObject_GetAttr(model, state->extra_name);
    if (*extra != NULL && PyDict_CheckExact(*held) && (*extra == Py_None || PyDict_CheckExact(*extra))) {
        return true;
    }
    PyErr_Clear();
    Py_XDECREF(*held);
    Py_XDECREF(*extra);
    return false;
}

/* Return 1 if values of the type `kind` are plain models, 0 if not, or -1 with an error set. */
static int is_plain(freezing *with, PyObject *kind)
{
    PyObject *found = PyDict_GetItemWithError(with->kinds, kind);
    if (found != NULL) {
        return found == Py_True;
    }
    found = PyErr_Occurred() ? NULL : PyObject_CallFunctionObjArgs(with->learn, kind, NULL);
    int answer = found == NULL ? -1 : found == Py_True;
    Py_XDECREF(found);
    return answer;
}

static PyObject *freeze_model(freezing *with, PyObject *model, unsigned levels)
{
    PyObject *kind = (PyObject *)Py_TYPE(model);
    PyObject *held;
    PyObject *extra;
    int answer = is_plain(with, kind);
    if (answer < 0) {
        return NULL;
    }
    if (!answer || !open_model(with->state, model, &held, &extra)) {
        return nothing_known();
    }
    PyObject *record = freeze_members(with, kind, extra, held, levels);
    Py_DECREF(held);
    Py_DECREF(extra);
    return record;
}

/* Freeze a value. `levels` bounds the recursion. */
static PyObject *freeze(freezing *with, PyObject *value, unsigned levels)
{
    if (is_leaf(value)) {
        return shared(value);
    }
    if (levels == 0 || with->is_deep) {
        with->is_deep = true;
        return nothing_known();
    }
    if (PyList_CheckExact(value) || PyTuple_CheckExact(value)) {
        return freeze_items(with, value, levels - 1);
    }
    if (PyDict_CheckExact(value)) {
        return freeze_members(with, (PyObject *)Py_TYPE(value), NULL, value, levels - 1);
    }
    return freeze_model(with, value, levels - 1);
}

static bool is_still(const module_state *state, PyObject *frozen, PyObject *value);

static bool are_items_still(const module_state *state, PyObject *record, PyObject *items)
{
    bool is_list = PyList_CheckExact(items);
    Py_ssize_t size = PyTuple_Size(record);
    if (1 + (is_list ? PyList_Size(items) : PyTuple_Size(items)) != size) {
        return false;
    }
    for (Py_ssize_t i = 1; i < size; i++) {
        PyObject *item = shared(is_list ? PyList_GetItem(items, i - 1) : PyTuple_GetItem(items, i - 1));
        bool is_same = item != NULL && is_still(state, PyTuple_GetItem(record, i), item);
        Py_XDECREF(item);
        if (!is_same) {
            PyErr_Clear();
            return false;
        }
    }
    return true;
}

static bool are_members_still(const module_state *state, PyObject *record, Py_ssize_t place, PyObject *held)
{
    Py_ssize_t size = PyTuple_Size(record);
    Py_ssize_t at = 0;
    PyObject *key;
    PyObject *value;
    if (place + 2 * PyDict_Size(held) != size) {
        return false;
    }
    for (; place < size && PyDict_Next(held, &at, &key, &value); place += 2) {
        Py_INCREF(key);
        Py_INCREF(value);
        bool is_same = is_still(state, PyTuple_GetItem(record, place), key) &&
                       is_still(state, PyTuple_GetItem(record, place + 1), value);
        Py_DECREF(key);
        Py_DECREF(value);
        if (!is_same) {
            return false;
        }
    }
    return place == size;
}

/* Return true if freezing `value` would give `frozen`. Recurse no deeper than `frozen`. */
static bool is_still(const module_state *state, PyObject *frozen, PyObject *value)
{
    if (!PyTuple_CheckExact(frozen)) {
        if (frozen == value) {
            return frozen != Py_Ellipsis;
        }
        if (Py_TYPE(frozen) != Py_TYPE(value) || frozen == Py_Ellipsis) {
            return false;
        }
        /* Compare the bits, because zeros have signs and a NaN differs from itself. */
        if (PyFloat_CheckExact(value)) {
            double was = PyFloat_AsDouble(frozen);
            double is = PyFloat_AsDouble(value);
            return memcmp(&was, &is, sizeof was) == 0;
        }
        /* Both values have the same type, which is_leaf accepts, so no Python code runs. */
        int answer = PyObject_RichCompareBool(frozen, value, Py_EQ);
        if (answer < 0) {
            PyErr_Clear();
        }
        return answer == 1;
    }
    if (PyTuple_GetItem(frozen, 0) != (PyObject *)Py_TYPE(value)) {
        return false;
    }
    if (PyList_CheckExact(value) || PyTuple_CheckExact(value)) {
        return are_items_still(state, frozen, value);
    }
    if (PyDict_CheckExact(value)) {
        return are_members_still(state, frozen, 1, value);
    }
    PyObject *held;
    PyObject *extra;
    if (!open_model(state, value, &held, &extra)) {
        return false;
    }
    bool is_same = is_still(state, PyTuple_GetItem(frozen, 1), extra) && are_members_still(state, frozen, 2, held);
    Py_DECREF(held);
    Py_DECREF(extra);
    return is_same;
}

/* freeze_items(values, kinds, learn): return the frozen items of a list as a tuple. */
PyObject *sl_freeze_items(PyObject *module, PyObject *const *args, Py_ssize_t count)
{
    if (count != 3 || !PyList_CheckExact(args[0]) || !PyDict_CheckExact(args[1])) {
        PyErr_SetString(PyExc_TypeError, "freeze_items() takes a list, a dict and a function");
        return NULL;
    }
    freezing with = {PyModule_GetState(module), args[1], args[2], false};
    Py_ssize_t size = PyList_Size(args[0]);
    PyObject *made = PyTuple_New(size);
    for (Py_ssize_t i = 0; made != NULL && i < size; i++) {
        PyObject *item = shared(PyList_GetItem(args[0], i));
        with.is_deep = false;
        if (item == NULL || !freeze_member(&with, made, i, item, LEVELS_MAX)) {
            Py_CLEAR(made);
        }
        Py_XDECREF(item);
    }
    return made;
}

/* still_items(frozen, values): return the number of unchanged items at the beginning, and the number of unchanged
 * items at the end. */
PyObject *sl_still_items(PyObject *module, PyObject *const *args, Py_ssize_t count)
{
    if (count != 2 || !PyTuple_CheckExact(args[0]) || !PyList_CheckExact(args[1])) {
        PyErr_SetString(PyExc_TypeError, "still_items() takes a tuple and a list");
        return NULL;
    }
    const module_state *state = PyModule_GetState(module);
    PyObject *frozen = args[0];
    Py_ssize_t known = PyTuple_Size(frozen);
    Py_ssize_t size = PyList_Size(args[1]);
    Py_ssize_t shorter = known < size ? known : size;
    Py_ssize_t first = 0;
    Py_ssize_t last = 0;
    PyObject *values = PyList_GetSlice(args[1], 0, size); /* A copy, which no other code can change. */
    if (values == NULL) {
        return NULL;
    }
    while (first < shorter && is_still(state, PyTuple_GetItem(frozen, first), PyList_GetItem(values, first))) {
        first++;
    }
    while (last < shorter - first &&
           is_still(state, PyTuple_GetItem(frozen, known - 1 - last), PyList_GetItem(values, size - 1 - last))) {
        last++;
    }
    Py_DECREF(values);
    return Py_BuildValue("(nn)", first, last);
}
