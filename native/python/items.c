/* Small items checked and cut apart, and bytes written, under the interpreter's lock.
 *
 * Why: cffi lets go of that lock around each call. Where several threads wait for it, that costs more than a small call
 * does, and mostly another thread goes on: of eight that write at once, each then waits for all the others.
 *
 * Trust: the bytes are untrusted, as in every kernel.
 */
#include "objects.h"

#ifndef _WIN32
#include <unistd.h>
#endif

enum { ENDS_MAX = 512 };

/* check_item(data): None if it is one item of the profile, else where the innermost item that is wrong begins. */
PyObject *sl_check_item(PyObject *module, PyObject *data)
{
    view item;
    size_t error_at = 0;
    (void)module;
    if (!read_bytes(data, &item)) {
        return NULL;
    }
    return sl_cbor_check(item.bytes, item.size, &error_at) == SL_OK ? shared(Py_None) : number_of(error_at);
}

/* split_small(data): the items of a msgpack array, as a list; None where it is none, or not well-formed; False where it has
 * too many. */
PyObject *sl_split_small(PyObject *module, PyObject *data)
{
    view array;
    uint64_t first;
    uint64_t count;
    uint64_t ends[ENDS_MAX];
    (void)module;
    if (!read_bytes(data, &array)) {
        return NULL;
    }
    if (sl_msgpack_array(array.bytes, array.size, &first, &count) != SL_OK) {
        return shared(Py_None);
    }
    if (count > ENDS_MAX) {
        return shared(Py_False);
    }
    if (sl_msgpack_split(array.bytes, array.size, ends, (size_t)count) != SL_OK) {
        return shared(Py_None);
    }
    PyObject *items = PyList_New((Py_ssize_t)count);
    for (uint64_t i = 0; i < count && items != NULL; i++) {
        PyObject *item = bytes_of(array.bytes + first, (size_t)(ends[i] - first));
        if (item == NULL) {
            Py_DECREF(items);
            return NULL;
        }
        (void)PyList_SetItem(items, (Py_ssize_t)i, item);
        first = ends[i];
    }
    return items;
}
