/* Declares what the files of statelog._objects share: the module's state, and functions that read and make objects.
 *
 * Trust: none. Only objects of exactly the expected types are read, and two attributes of plain models. */
#ifndef STATELOG_OBJECTS_H
#define STATELOG_OBJECTS_H

#define Py_LIMITED_API 0x030B0000
#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include "internal.h"

enum { SL_ROOM_SIZE = 128 * 1024 }; /* A larger plain value is encoded by Python code. */

typedef struct {
    uint8_t *room; /* Working memory of one call at a time, protected by the interpreter's lock. */
    PyObject *held_name;  /* "__dict__" */
    PyObject *extra_name; /* "__pydantic_extra__" */
} module_state;

typedef struct {
    const uint8_t *bytes;
    size_t size;
} view;

/* --- reading Python's objects -------------------------------------------------------------------- */

static inline bool read_bytes(PyObject *object, view *found)
{
    char *bytes;
    Py_ssize_t size;
    if (object == NULL || PyBytes_AsStringAndSize(object, &bytes, &size) < 0) {
        return false;
    }
    *found = (view){(const uint8_t *)bytes, (size_t)size};
    return true;
}

static inline bool read_number(PyObject *object, uint64_t *found)
{
    *found = object == NULL ? 0 : PyLong_AsUnsignedLongLong(object);
    return !(*found == UINT64_MAX && PyErr_Occurred()) && object != NULL;
}

/* --- writing Python's objects ------------------------------------------------------------------------- */

/* The maximum length in characters of a str that may cache its UTF-8 bytes. A non-ASCII str caches them when
 * they are requested, which a large str should not do. */
enum { SL_KEPT_TEXT_MAX = 256 };

/* Get the UTF-8 bytes of a str. `owned` is a new object that contains the bytes, or NULL if the str itself does.
 * Return false, without an error, for a lone surrogate. */
static inline bool utf8_of(PyObject *text, view *bytes, PyObject **owned)
{
    Py_ssize_t size = 0;
    *owned = NULL;
    if (PyUnicode_GetLength(text) <= SL_KEPT_TEXT_MAX) {
        bytes->bytes = (const uint8_t *)PyUnicode_AsUTF8AndSize(text, &size);
        bytes->size = (size_t)size;
    } else {
        *owned = PyUnicode_AsUTF8String(text);
        if (!read_bytes(*owned, bytes)) {
            bytes->bytes = NULL;
        }
    }
    if (bytes->bytes == NULL) {
        PyErr_Clear();
        return false;
    }
    return true;
}

static inline PyObject *bytes_of(const uint8_t *from, size_t size)
{
    return PyBytes_FromStringAndSize((const char *)from, (Py_ssize_t)size);
}

static inline PyObject *shared(PyObject *object)
{
    Py_XINCREF(object);
    return object;
}

/* The functions of the module (module.c). */
PyObject *sl_encode_plain(PyObject *module, PyObject *const *args, Py_ssize_t count);
PyObject *sl_freeze_items(PyObject *module, PyObject *const *args, Py_ssize_t count);
PyObject *sl_join_texts(PyObject *module, PyObject *const *args, Py_ssize_t count);
PyObject *sl_copy_plain(PyObject *module, PyObject *const *args, Py_ssize_t count);
PyObject *sl_still_items(PyObject *module, PyObject *const *args, Py_ssize_t count);

#endif
