/* How a checkpoint goes back, from what is remembered (log/lines.py says the same for all cases). Trust: objects.h. */
#include "objects.h"

outcome sl_read_jump(const module_state *state, PyObject *memory, PyObject *thread, PyObject *parent, uint64_t depth,
                     jump *found)
{
    uint64_t parent_depth;
    uint64_t version;
    uint64_t jumped_depth;
    if (!read_number_at(parent, EVENT_BRANCH, &found->branch) || !read_number_at(parent, EVENT_VERSION, &found->version) ||
        !read_number_at(parent, EVENT_DEPTH, &parent_depth)) {
        return FAILED;
    }
    found->depth = parent_depth;
    uint64_t wanted = sl_jump_depth(depth);
    PyObject *branch = PyTuple_GetItem(parent, EVENT_JUMP_BRANCH);
    PyObject *version_object = PyTuple_GetItem(parent, EVENT_JUMP_VERSION);
    if (branch == NULL || version_object == NULL) {
        return FAILED;
    }
    if (wanted >= parent_depth || branch == Py_None || version_object == Py_None) {
        return KNOWN;
    }
    if (!read_number(version_object, &version) || !read_number_at(parent, EVENT_JUMP_DEPTH, &jumped_depth)) {
        return FAILED;
    }
    if (version == jumped_depth) { /* of one branch: equal here, they are equal in all ancestors */
        PyObject *branches = PyObject_GetAttr(memory, state->one_branch);
        PyObject *is_one = branches == NULL ? NULL : PyDict_GetItemWithError(branches, thread);
        Py_XDECREF(branches);
        if (PyErr_Occurred()) {
            return FAILED;
        }
        if (is_one == Py_True) {
            *found = (jump){0, wanted, wanted};
            return read_number(branch, &found->branch) ? KNOWN : FAILED;
        }
    }
    PyObject *jumps = PyObject_GetAttr(memory, state->jumps);
    PyObject *key = PyTuple_Pack(3, thread, branch, version_object);
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
