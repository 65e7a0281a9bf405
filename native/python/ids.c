/* Ids that callers give their checkpoints: read, looked for among those remembered, entered.
 *
 * Trust: objects.h. Invariant: what is remembered of a thread is the greatest id it ever had, so that one behind it is new.
 */
#include "objects.h"

enum {
    CHECKSUM_SIZE = 8,
    LSN_SIZE = 8,
    ID_AT = 1 + LSN_SIZE, /* behind its thread */
    ID_KEY_SIZE_MAX = ID_AT + SL_ID_SIZE_MAX
};

/* The UTF-8 of a checkpoint's id; nothing of None. */
bool sl_id_read(PyObject *object, view *id)
{
    Py_ssize_t size = 0;
    *id = (view){NULL, 0};
    if (object == Py_None) {
        return true;
    }
    id->bytes = (const uint8_t *)PyUnicode_AsUTF8AndSize(object, &size);
    id->size = (size_t)size;
    return id->bytes != NULL;
}

/* Enter a checkpoint by its id: return the entry of the index as a dict, None of a checkpoint without. */
PyObject *sl_id_row(PyObject *object, PyObject *thread_object, uint64_t lsn)
{
    uint8_t keyed[ID_KEY_SIZE_MAX + LSN_SIZE + CHECKSUM_SIZE] = {'i'};
    uint64_t thread;
    view id;
    if (object == Py_None) {
        return shared(Py_None);
    }
    if (!read_number(thread_object, &thread) || !sl_id_read(object, &id)) {
        return NULL;
    }
    size_t size = ID_AT + id.size;
    write_be(keyed + 1, thread, LSN_SIZE);
    memcpy(keyed + ID_AT, id.bytes, id.size); /* sl_id_look has refused longer ones */
    write_be(keyed + size, lsn, LSN_SIZE);
    write_be(keyed + size + LSN_SIZE, sl_checksum(keyed, size + LSN_SIZE), CHECKSUM_SIZE);
    PyObject *key = bytes_of(keyed, size);
    PyObject *value = bytes_of(keyed + size, LSN_SIZE + CHECKSUM_SIZE);
    PyObject *row = PyDict_New();
    bool is_made = key && value && row && PyDict_SetItem(row, key, value) == 0;
    Py_XDECREF(key);
    Py_XDECREF(value);
    if (!is_made) {
        Py_XDECREF(row);
        return NULL;
    }
    return row;
}

/* Whether a checkpoint's id is none of the thread's, as far as is remembered: it stands behind the greatest. */
outcome sl_id_look(const module_state *state, PyObject *memory, PyObject *thread, view id)
{
    view greatest;
    PyObject *ids = PyObject_GetAttr(memory, state->names[NAME_GREATEST_IDS]);
    PyObject *found = ids == NULL ? NULL : PyDict_GetItemWithError(ids, thread);
    Py_XDECREF(ids); /* the memory keeps it */
    if (found == NULL) {
        return PyErr_Occurred() ? FAILED : UNKNOWN;
    }
    if (!read_bytes(found, &greatest)) {
        return FAILED;
    }
    bool is_behind = id.size <= SL_ID_SIZE_MAX && sl_bytes_compare(id.bytes, id.size, greatest.bytes, greatest.size) > 0;
    return is_behind ? KNOWN : UNKNOWN;
}

/* Remember the greatest id of the thread. */
bool sl_id_remember(const module_state *state, PyObject *memory, PyObject *thread, PyObject *object)
{
    view id;
    if (object == Py_None) {
        return true;
    }
    PyObject *ids = PyObject_GetAttr(memory, state->names[NAME_GREATEST_IDS]);
    PyObject *greatest = sl_id_read(object, &id) ? bytes_of(id.bytes, id.size) : NULL;
    bool is_done = ids && greatest && PyDict_SetItem(ids, thread, greatest) == 0;
    Py_XDECREF(ids);
    Py_XDECREF(greatest);
    return is_done;
}
