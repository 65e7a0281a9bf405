/* What a checkpoint of LangGraph writes, where all that is new in it is plain (statelog/adapters/langgraph/saver/putting.py says it
 * for all cases).
 *
 * Trust: objects.h; values are a user's. Invariants: versions are compared only where they are texts or numbers, values looked
 * into as in plain.c, and the collector is off: so nothing here runs Python code but the comparison of a key with one that is
 * no text, and over that what is looked at is kept.
 */
#include "plain.h"

enum { PREFIX, NONE_ITEM, SPLIT_SIZE_MIN, STORE_NAMES, REDUCER, VERSIONS, NEW_VERSIONS, VALUES, KNOWN_VERSIONS, HELD, ARGUMENTS };

typedef struct {
    const module_state *state;
    PyObject *const *args;
    PyObject *writes; /* a list */
    PyObject *after; /* what channels hold then, by name: a dict */
} saving;

/* The item of a value; NULL where Python must make it. */
static PyObject *item_of(const saving *all, PyObject *value)
{
    view prefix;
    sl_writer out = {all->state->room->output, SL_PLAIN_SIZE_MAX, 0, false};
    if (value == Py_None) {
        return shared(all->args[NONE_ITEM]);
    }
    bool is_made = read_bytes(all->args[PREFIX], &prefix) && sl_put_plain(&out, value) &&
                   sl_is_whole(value, out.at, (size_t)PyLong_AsLong(all->args[SPLIT_SIZE_MIN]));
    return is_made ? sl_item_of(prefix, out.bytes, out.at) : NULL;
}

static bool is_same_item(PyObject *before, PyObject *item)
{
    view a;
    view b;
    return before != NULL && PyBytes_CheckExact(before) && read_bytes(before, &a) && read_bytes(item, &b) &&
           a.size == b.size && memcmp(a.bytes, b.bytes, a.size) == 0;
}

/* Enter the write that sets a channel, if it is not what it was. */
static bool enter_write(const saving *all, PyObject *name, PyObject *before, PyObject *item)
{
    if (is_same_item(before, item)) {
        return true;
    }
    PyObject *fields[] = {shared(name), shared(all->args[REDUCER]), shared(item), shared(Py_False), shared(Py_None)};
    PyObject *write = named(all->state->write_type, fields, sizeof fields / sizeof fields[0]);
    bool is_entered = write != NULL && PyList_Append(all->writes, write) == 0;
    Py_XDECREF(write);
    return is_entered;
}

/* Whether two versions of a channel are equal; false also of others than texts and numbers. */
static bool is_same_version(PyObject *known, PyObject *version)
{
    if (known == version) {
        return true;
    }
    bool are_texts = known != NULL && PyUnicode_CheckExact(known) && PyUnicode_CheckExact(version);
    bool are_numbers = known != NULL && PyLong_CheckExact(known) && PyLong_CheckExact(version);
    return (are_texts || are_numbers) && PyObject_RichCompareBool(known, version, Py_EQ) == 1; /* of no code but Python's */
}

/* Go on with a channel of that name, which held `before`, or NULL; false where Python must say what becomes of it. */
static bool save_named(const saving *all, PyObject *channel, PyObject *version, PyObject *name, PyObject *before)
{
    int is_new = PyDict_Contains(all->args[NEW_VERSIONS], channel);
    if (is_new == 0) {
        return is_same_version(PyDict_GetItemWithError(all->args[KNOWN_VERSIONS], channel), version) &&
               (before == NULL || PyDict_SetItem(all->after, name, before) == 0);
    }
    PyObject *value = is_new < 0 ? NULL : PyDict_GetItemWithError(all->args[VALUES], channel);
    if (value == NULL) {
        return !PyErr_Occurred();
    }
    PyObject *item = item_of(all, value);
    bool is_saved = item != NULL && enter_write(all, name, before, item) && PyDict_SetItem(all->after, name, item) == 0;
    Py_XDECREF(item);
    return is_saved;
}

/* Go on with one channel; false where Python must say what becomes of it. */
static bool save_channel(const saving *all, PyObject *channel, PyObject *version)
{
    PyObject *name = PyUnicode_CheckExact(channel) ? shared(PyDict_GetItemWithError(all->args[STORE_NAMES], channel)) : NULL;
    PyObject *before = name == NULL ? NULL : shared(PyDict_GetItemWithError(all->args[HELD], name));
    bool is_saved = name != NULL && !PyErr_Occurred() && save_named(all, channel, version, name, before) && !PyErr_Occurred();
    Py_XDECREF(name);
    Py_XDECREF(before);
    return is_saved;
}

/* The channels that are held no more. */
static PyObject *left(const saving *all)
{
    PyObject *name;
    PyObject *held;
    Py_ssize_t at = 0;
    PyObject *found = PyList_New(0);
    while (found != NULL && PyDict_Next(all->args[HELD], &at, &name, &held)) {
        if (PyDict_Contains(all->after, name) != 1 && PyList_Append(found, name) != 0) {
            Py_CLEAR(found);
        }
    }
    return found;
}

static PyObject *save(const saving *all)
{
    PyObject *channel;
    PyObject *version;
    Py_ssize_t at = 0;
    while (PyDict_Next(all->args[VERSIONS], &at, &channel, &version)) {
        PyObject *kept = PyTuple_Pack(2, channel, version);
        bool is_saved = kept != NULL && save_channel(all, channel, version);
        Py_XDECREF(kept);
        if (!is_saved) {
            return NULL;
        }
    }
    PyObject *removed = left(all);
    PyObject *saved = removed == NULL ? NULL : PyTuple_Pack(3, all->writes, all->after, removed);
    Py_XDECREF(removed);
    return saved;
}

/* plain_values(prefix, none, split_size_min, names, reducer, versions, new_versions, values, known_versions, held) */
PyObject *sl_plain_values(PyObject *module, PyObject *const *args, Py_ssize_t count)
{
    saving all = {PyModule_GetState(module), args, NULL, NULL};
    bool is_whole = count == ARGUMENTS && PyBytes_CheckExact(args[PREFIX]) && PyBytes_CheckExact(args[NONE_ITEM]) &&
                    PyLong_CheckExact(args[SPLIT_SIZE_MIN]) && PyDict_CheckExact(args[STORE_NAMES]) &&
                    PyDict_CheckExact(args[HELD]) && PyDict_CheckExact(args[KNOWN_VERSIONS]) &&
                    all.state->write_type != NULL;
    if (!is_whole) {
        PyErr_SetString(PyExc_TypeError, "plain_values() takes two items, a number and seven more, after bind_writes()");
        return NULL;
    }
    if (!PyDict_CheckExact(args[VERSIONS]) || !PyDict_CheckExact(args[NEW_VERSIONS]) || !PyDict_CheckExact(args[VALUES])) {
        return shared(Py_None);
    }
    int is_collecting = PyGC_Disable();
    all.writes = PyList_New(0);
    all.after = PyDict_New();
    PyObject *saved = all.writes == NULL || all.after == NULL ? NULL : save(&all);
    if (saved == NULL) {
        PyErr_Clear(); /* whatever it was, Python meets it, too */
    }
    Py_XDECREF(all.writes);
    Py_XDECREF(all.after);
    if (is_collecting) {
        (void)PyGC_Enable();
    }
    return saved == NULL ? shared(Py_None) : saved;
}
