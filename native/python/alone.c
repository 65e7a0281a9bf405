/* A commit alone, from what Python remembers of the last one into the journal (statelog/storage/commit/fast_path.py, D6).
 *
 * Why: what a small commit takes is half calls and marks. From the first look to the last mark, nothing here runs Python code
 * or lets go of the interpreter's lock: nobody sees it half-done, so it needs no mark, and takes a lock but to see that it
 * is free. What has to wait for somebody is left to Python; what has to wait for a flush, to flushed.c.
 *
 * Trust: see objects.h. Invariants: until the record is in the journal all that was changed is put back, or forgotten; from
 * then on keys that are there get other values, which cannot fail.
 */
#include "scene.h"

/* Put the record among what waits, and into the journal; return the size of its group, 0, and nothing was changed there, of
 * a failure. */
static size_t append(const scene *seen, const brought *all)
{
    PyObject *key;
    PyObject *value;
    PyObject *before[ROWS_MAX];
    Py_ssize_t at = 0;
    size_t entered = 0;
    bool is_in_rows = PyDict_Size(all->rows) <= ROWS_MAX;
    while (is_in_rows && PyDict_Next(all->rows, &at, &key, &value)) {
        before[entered] = shared(PyDict_GetItemWithError(seen->rows, key));
        is_in_rows = PyDict_SetItem(seen->rows, key, value) == 0;
        entered++;
    }
    bool is_in_records = is_in_rows && PyList_Append(seen->records, PyTuple_GetItem(all->made, MADE_RECORD)) == 0;
    size_t size = is_in_records ? sl_scene_write(seen, all) : 0;
    if (size == 0 && is_in_records) {
        Py_ssize_t count = PyList_Size(seen->records);
        (void)PyList_SetSlice(seen->records, count - 1, count, NULL);
    }
    at = 0;
    for (size_t i = 0; i < entered && PyDict_Next(all->rows, &at, &key, &value); i++) {
        if (size == 0) {
            (void)(before[i] == NULL ? PyDict_DelItem(seen->rows, key) : PyDict_SetItem(seen->rows, key, before[i]));
        }
        Py_XDECREF(before[i]);
    }
    return size;
}

/* commit_alone(parts, caller, direct) */
PyObject *sl_commit_alone(PyObject *module, PyObject *const *args, Py_ssize_t count)
{
    scene seen;
    brought all = {NULL, NULL, NULL};
    PyObject *made = NULL;
    if (!sl_scene_open(&seen, module, args, count, 3)) {
        sl_scene_close(&seen);
        return NULL;
    }
    int is_collecting = PyGC_Disable(); /* its finalizers would be Python code */
    if (sl_scene_look(&seen, false) && sl_scene_make(&seen, &all)) {
        size_t size = append(&seen, &all);
        if (size > 0) { /* else what was remembered may be half of it */
            sl_scene_describe(&seen, &all, size, false);
            seen.steady->flags[STEADY_IS_DIRTY] = true;
            sl_scene_note(&seen, &all, false);
            (void)PyObject_SetAttr(seen.caller, seen.state->names[NAME_LAST], seen.last);
            made = sl_scene_result(&seen, all.made);
        }
    }
    PyErr_Clear(); /* whatever it was, Python meets it, too */
    if (is_collecting) {
        (void)PyGC_Enable();
    }
    sl_brought_drop(&all);
    sl_scene_close(&seen);
    return made == NULL ? shared(Py_None) : made;
}
