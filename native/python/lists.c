/* The lists that the next step may begin with: what `lists_after` of statelog/log/step.py makes of the same.
 *
 * Trust: see objects.h. Invariant: nothing here runs Python code but finalizers of what is let go.
 */
#include "objects.h"

enum { LISTS_MAX = 8 };

PyObject *sl_node_of(const module_state *state, view data, sl_step_place where, PyObject *lsn)
{
    PyObject *fields[] = {bytes_of(data.bytes + where.at, (size_t)(where.end - where.at)),
                          number_of(where.content_end - where.at), shared(lsn)};
    return named(state->node_type, fields, 3);
}

PyObject *sl_opens_after(const module_state *state, view data, const sl_step_place *places, PyObject *before,
                         PyObject *lsn)
{
    Py_ssize_t known = PyTuple_Size(before);
    Py_ssize_t count = 0;
    for (Py_ssize_t i = 0; i < SL_STEP_LEVELS; i++) {
        count = places[i].end > 0 ? i + 1 : count;
    }
    if (known < 0 || count == 0) {
        return known < 0 ? NULL : shared(before);
    }
    PyObject *opens = PyTuple_New(count > known ? count : known);
    for (Py_ssize_t i = 0; opens != NULL && i < PyTuple_Size(opens); i++) {
        PyObject *node = i < SL_STEP_LEVELS && places[i].end > 0 ? sl_node_of(state, data, places[i], lsn)
                         : i < known                           ? shared(PyTuple_GetItem(before, i))
                                                               : shared(state->no_node);
        if (node == NULL || PyTuple_SetItem(opens, i, node) < 0) {
            Py_CLEAR(opens);
        }
    }
    return opens;
}

/* A list that was appended to, as it is remembered; `before`: its open levels before. */
static PyObject *list_at(const module_state *state, view rows, view data, const appended *where, PyObject *before,
                         PyObject *lsn)
{
    if (before == NULL) {
        return NULL;
    }
    PyObject *root = sl_node_of(state, data, where->root.place, lsn);
    PyObject *opens = sl_opens_after(state, data, where->opens, before, lsn);
    PyObject *digest = bytes_of(rows.bytes + where->root.row * SL_ROW_SIZE + 1, SL_DIGEST_SIZE);
    PyObject *list = root && opens && digest ? PyTuple_Pack(3, digest, root, opens) : NULL;
    Py_XDECREF(root);
    Py_XDECREF(opens);
    Py_XDECREF(digest);
    return list;
}

PyObject *sl_lists_after(const module_state *state, PyObject *known, PyObject *changes, PyObject *rows, PyObject *data,
                         const appended *places, size_t appends, PyObject *lsn)
{
    view row_bytes = {NULL, 0};
    view node_bytes = {NULL, 0};
    Py_ssize_t count = known == NULL ? -1 : PyObject_Length(known);
    if (count < 0) {
        return NULL;
    }
    if (rows == NULL || (count == 0 && appends == 0)) {
        return shared(known);
    }
    PyObject *lists = count > 0 && count < LISTS_MAX && PyDict_CheckExact(known) ? PyDict_Copy(known) : PyDict_New();
    bool is_list = PyList_CheckExact(changes);
    Py_ssize_t change_count = PyObject_Length(changes);
    bool is_whole = lists != NULL && change_count >= 0 && read_bytes(rows, &row_bytes) && read_bytes(data, &node_bytes);
    const appended *next = places;
    for (Py_ssize_t i = 0; i < change_count && is_whole; i++) {
        uint64_t operation;
        PyObject *change = is_list ? PyList_GetItem(changes, i) : PyTuple_GetItem(changes, i);
        PyObject *key = change == NULL ? NULL : PyTuple_GetItem(change, CHANGE_KEY);
        is_whole = key != NULL && read_number_at(change, CHANGE_OPERATION, &operation);
        if (is_whole && operation == CHANGE_APPEND) {
            PyObject *before = PyTuple_GetItem(change, CHANGE_OPENS);
            PyObject *list = list_at(state, row_bytes, node_bytes, next++, before, lsn);
            is_whole = list != NULL && PyDict_SetItem(lists, key, list) == 0;
            Py_XDECREF(list);
        } else if (is_whole && PyDict_GetItemWithError(lists, key) != NULL) {
            is_whole = PyDict_DelItem(lists, key) == 0;
        }
    }
    if (!is_whole || PyErr_Occurred()) {
        Py_XDECREF(lists);
        return NULL;
    }
    return lists;
}
