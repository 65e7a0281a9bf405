/* How a checkpoint goes back, from what is remembered (log/lines.py says the same for all cases). Trust: objects.h. */
#include "objects.h"

outcome sl_read_jump(const module_state *state, PyObject *memory, PyObject *thread, const origin *parent,
                     uint64_t depth, jump *found)
{
    uint64_t wanted = sl_jump_depth(depth);
    *found = (jump){parent->branch, parent->version, parent->depth};
    if (wanted >= parent->depth || parent->jump_branch == UINT64_MAX || parent->jump_version == UINT64_MAX) {
        return KNOWN;
    }
    if (parent->jump_version == parent->jump_depth) { /* of one branch: equal here, they are equal in all ancestors */
        PyObject *branches = PyObject_GetAttr(memory, state->names[NAME_ONE_BRANCH]);
        PyObject *is_one = branches == NULL ? NULL : PyDict_GetItemWithError(branches, thread);
        Py_XDECREF(branches);
        if (PyErr_Occurred()) {
            return FAILED;
        }
        if (is_one == Py_True) {
            *found = (jump){parent->jump_branch, wanted, wanted};
            return KNOWN;
        }
    }
    PyObject *jumps = PyObject_GetAttr(memory, state->names[NAME_JUMPS]);
    PyObject *key = Py_BuildValue("OKK", thread, (unsigned long long)parent->jump_branch,
                                  (unsigned long long)parent->jump_version);
    PyObject *far = jumps == NULL || key == NULL ? NULL : PyDict_GetItemWithError(jumps, key);
    Py_XDECREF(jumps); /* the memory holds it, and with it what was found */
    Py_XDECREF(key);
    if (far == NULL) {
        return PyErr_Occurred() ? FAILED : UNKNOWN;
    }
    jump other = {0, 0, 0};
    PyObject *far_branch = PyTuple_GetItem(far, 0);
    if (far_branch == NULL || !read_number_at(far, 2, &other.depth)) {
        return FAILED;
    }
    if (far_branch != Py_None && other.depth == wanted) {
        if (!read_number(far_branch, &other.branch) || !read_number_at(far, 1, &other.version)) {
            return FAILED;
        }
        *found = other;
    }
    return KNOWN;
}
