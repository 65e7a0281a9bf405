/* Defines the extension module statelog._objects, whose functions take and return Python objects. */
#include "objects.h"

static int module_exec(PyObject *module)
{
    module_state *state = PyModule_GetState(module);
    state->room = PyMem_Calloc(1, SL_ROOM_SIZE);
    state->held_name = PyUnicode_InternFromString("__dict__");
    state->extra_name = PyUnicode_InternFromString("__pydantic_extra__");
    if (state->room == NULL) {
        (void)PyErr_NoMemory();
        return -1;
    }
    return state->held_name == NULL || state->extra_name == NULL ? -1 : 0;
}

static void module_free(void *module)
{
    module_state *state = PyModule_GetState((PyObject *)module);
    if (state == NULL) {
        return;
    }
    PyMem_Free(state->room);
    state->room = NULL;
    Py_CLEAR(state->held_name);
    Py_CLEAR(state->extra_name);
}

static PyMethodDef methods[] = {
    {"encode_plain", (PyCFunction)(void (*)(void))sl_encode_plain, METH_FASTCALL,
     "Return the item of a plain value; None where Python must encode it, or refuse it."},
    {"freeze_items", (PyCFunction)(void (*)(void))sl_freeze_items, METH_FASTCALL,
     "Return the items of a list, frozen."},
    {"join_texts", (PyCFunction)(void (*)(void))sl_join_texts, METH_FASTCALL,
     "Return a JSON array of the texts of a list's items."},
    {"copy_plain", (PyCFunction)(void (*)(void))sl_copy_plain, METH_FASTCALL,
     "Return a value with its lists and dicts made anew."},
    {"still_items", (PyCFunction)(void (*)(void))sl_still_items, METH_FASTCALL,
     "Return how many items are what they were from the beginning, and how many more from the end."},
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
