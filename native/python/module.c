/* statelog._objects: the part of the library that takes and makes Python's objects. */
#include "objects.h"

static void keep(PyObject **place, PyObject *given)
{
    PyObject *before = *place;
    *place = shared(given);
    Py_XDECREF(before);
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

static int module_exec(PyObject *module)
{
    module_state *state = PyModule_GetState(module);
    state->room = PyMem_Calloc(1, sizeof *state->room);
    if (state->room == NULL) {
        (void)PyErr_NoMemory();
        return -1;
    }
    return 0;
}

static void module_free(void *module)
{
    module_state *state = PyModule_GetState((PyObject *)module);
    if (state == NULL) {
        return;
    }
    PyObject *kept[] = {state->write_type, state->operations, state->no_node, state->removal_type};
    for (size_t i = 0; i < sizeof kept / sizeof kept[0]; i++) {
        Py_XDECREF(kept[i]);
    }
    PyMem_Free(state->room);
    state->room = NULL;
}

static PyMethodDef methods[] = {
    {"bind_writes", bind_writes, METH_VARARGS, "Say what prepared writes are: see statelog/reducers.py."},
    {"check_item", sl_check_item, METH_O,
     "Return None of one item of the profile, else where the innermost item that is wrong begins."},
    {"encode_plain", (PyCFunction)(void (*)(void))sl_encode_plain, METH_FASTCALL,
     "Return the item of a plain value; None where Python must encode it, or refuse it."},
    {"pack_array", (PyCFunction)(void (*)(void))sl_pack_array, METH_FASTCALL,
     "Return the item whose payload is a msgpack array; None where Python must make it."},
    {"plain_item", (PyCFunction)(void (*)(void))sl_plain_msgpack, METH_FASTCALL,
     "Return the item of a plain value in msgpack; None where Python must make it."},
    {"plain_values", (PyCFunction)(void (*)(void))sl_plain_values, METH_FASTCALL,
     "Return what a checkpoint of plain values writes; None where Python must find that out."},
    {"plain_writes", (PyCFunction)(void (*)(void))sl_plain_writes, METH_FASTCALL,
     "Return what stands in the header of a task's writes; None where Python must make it, or refuse it."},
    {"prepare_plain", (PyCFunction)(void (*)(void))sl_prepare_plain, METH_FASTCALL,
     "Return the writes of an update of plain values; None where Python must make them, or refuse it."},
    {"spell_digest", (PyCFunction)(void (*)(void))sl_spell_digest, METH_FASTCALL,
     "Return bytes and the digest of texts in digits that sort; None where a text is no UTF-8."},
    {"split_small", sl_split_small, METH_O,
     "Return the items of a msgpack array; None where it is none, False where it has too many."},
    {"uuid_time", sl_uuid_time, METH_O, "Return the first 48 bits of a UUID; zeros of what is none."},
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
