/* statelog._objects: the part of the library that takes and makes Python's objects. */
#include "marks.h"

#define SL_NAME_TEXT(NAME, TEXT) TEXT,
static const char *const name_texts[] = {SL_NAMES(SL_NAME_TEXT)};

static void keep(PyObject **place, PyObject *given)
{
    PyObject *before = *place;
    *place = shared(given);
    Py_XDECREF(before);
}

static PyObject *bind(PyObject *module, PyObject *args)
{
    module_state *state = PyModule_GetState(module);
    PyObject *head_type, *node_type, *end_type, *no_lists, *nothing_borrowed;
    unsigned long long versions_max;
    Py_ssize_t heads_max, jumps_max;
    if (!PyArg_ParseTuple(args, "OOOOOKnn", &head_type, &node_type, &end_type, &no_lists,
                          &nothing_borrowed, &versions_max, &heads_max, &jumps_max)) {
        return NULL;
    }
    PyObject *given[] = {head_type, node_type, end_type, no_lists, nothing_borrowed};
    PyObject **kept[] = {&state->head_type, &state->node_type, &state->end_type, &state->no_lists,
                         &state->nothing_borrowed};
    for (size_t i = 0; i < sizeof given / sizeof given[0]; i++) {
        keep(kept[i], given[i]);
    }
    state->versions_max = versions_max;
    state->heads_max = heads_max;
    state->jumps_max = jumps_max;
    return shared(Py_None);
}

static PyObject *bind_writes(PyObject *module, PyObject *args)
{
    module_state *state = PyModule_GetState(module);
    PyObject *given[4];
    if (!PyArg_ParseTuple(args, "OO!OO", &given[0], &PyDict_Type, &given[1], &given[2], &given[3])) {
        return NULL;
    }
    PyObject **kept[] = {&state->write_type, &state->operations, &state->no_node, &state->removal_type};
    for (size_t i = 0; i < sizeof given / sizeof given[0]; i++) {
        keep(kept[i], given[i]);
    }
    return shared(Py_None);
}

static PyObject *bind_event(PyObject *module, PyObject *type)
{
    module_state *state = PyModule_GetState(module);
    keep(&state->event_type, type);
    return shared(Py_None);
}

static int module_exec(PyObject *module)
{
    module_state *state = PyModule_GetState(module);
    state->room = PyMem_Calloc(1, sizeof *state->room);
    bool is_whole = state->room != NULL;
    for (size_t i = 0; i < NAMES; i++) {
        state->names[i] = PyUnicode_InternFromString(name_texts[i]);
        is_whole = is_whole && state->names[i];
    }
    if (!is_whole && !PyErr_Occurred()) {
        (void)PyErr_NoMemory();
    }
    return is_whole && sl_marks_add(module, state) ? 0 : -1;
}

static void module_free(void *module)
{
    module_state *state = PyModule_GetState((PyObject *)module);
    if (state == NULL) {
        return;
    }
    PyObject *kept[] = {state->event_type, state->head_type, state->node_type, state->end_type, state->no_lists,
                        state->nothing_borrowed, state->write_type, state->operations, state->no_node,
                        state->removal_type};
    for (size_t i = 0; i < sizeof kept / sizeof kept[0]; i++) {
        Py_XDECREF(kept[i]);
    }
    for (size_t i = 0; i < NAMES; i++) {
        Py_XDECREF(state->names[i]);
    }
    for (size_t i = 0; i < MARKS_TYPES; i++) {
        Py_XDECREF(state->marks_types[i]);
    }
    if (state->room != NULL) {
        Py_XDECREF(state->room->asked);
        Py_XDECREF(state->room->changes);
    }
    PyMem_Free(state->room);
    state->room = NULL;
}

static PyMethodDef methods[] = {
    {"bind_event", bind_event, METH_O, "Say what a checkpoint's event is: see statelog/log/events.py."},
    {"bind_checkpoint", bind, METH_VARARGS, "Say what else is made of one: see statelog/log/direct.py."},
    {"bind_writes", bind_writes, METH_VARARGS, "Say what prepared writes are: see statelog/reducers.py."},
    {"checkpoint", (PyCFunction)(void (*)(void))sl_checkpoint, METH_FASTCALL,
     "Make a checkpoint behind a head, and remember it; None where a batch must."},
    {"commit_alone", (PyCFunction)(void (*)(void))sl_commit_alone, METH_FASTCALL,
     "Commit writes behind what waits, without a flush; None, and nothing was done, where Python must."},
    {"commit_flushed", (PyCFunction)(void (*)(void))sl_commit_flushed, METH_FASTCALL,
     "Commit writes behind what waits, and flush them; None, and nothing was done, where Python must."},
    {"encode_plain", (PyCFunction)(void (*)(void))sl_encode_plain, METH_FASTCALL,
     "Return the item of a plain value; None where Python must encode it, or refuse it."},
    {"found_checkpoint", sl_found_checkpoint, METH_O,
     "Return the event that a look-up has found, and the checkpoint's digest; None if its id is none."},
    {"group_of_one", (PyCFunction)(void (*)(void))sl_group_of_one, METH_FASTCALL,
     "Return one record as a group of the journal."},
    {"plain_changes", (PyCFunction)(void (*)(void))sl_plain_changes, METH_FASTCALL,
     "Return what writes change, channel by channel; None where Python must find that out."},
    {"plain_commit", (PyCFunction)(void (*)(void))sl_plain_commit, METH_FASTCALL,
     "Return the commit of an update of plain values; None where Python must make it, or refuse it."},
    {"prepare_plain", (PyCFunction)(void (*)(void))sl_prepare_plain, METH_FASTCALL,
     "Return the writes of an update of plain values; None where Python must make them, or refuse it."},
    {"version_checkpoint", (PyCFunction)(void (*)(void))sl_version_checkpoint, METH_FASTCALL,
     "Return the same of a version that a branch has itself; None where it must be looked up by its keys."},
    {"version_found", (PyCFunction)(void (*)(void))sl_version_found, METH_FASTCALL,
     "Return what that has found, to go back to."},
    {"write_held", (PyCFunction)(void (*)(void))sl_write_held, METH_FASTCALL,
     "Write bytes to a file, and return how many; raises OSError."},
    {NULL, NULL, 0, NULL},
};

static PyModuleDef_Slot slots[] = {{Py_mod_exec, (void *)module_exec}, {0, NULL}};

static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT,
    .m_name = "statelog._objects",
    .m_doc = "Kernels that take and make objects of Python's.",
    .m_size = sizeof(module_state),
    .m_methods = methods,
    .m_slots = slots,
    .m_free = module_free,
};

PyMODINIT_FUNC PyInit__objects(void);
PyMODINIT_FUNC PyInit__objects(void) { return PyModuleDef_Init(&definition); }
