/* Bytes written under the interpreter's lock.
 *
 * Why: cffi lets go of that lock around each call. Where several threads wait for it, that costs more than a small call
 * does, and mostly another thread goes on: of eight that write at once, each then waits for all the others.
 */
#include "objects.h"

#ifndef _WIN32
#include <unistd.h>
#endif

/* write_held(descriptor, data, at): how many bytes were written. */
PyObject *sl_write_held(PyObject *module, PyObject *const *args, Py_ssize_t count)
{
    view data;
    uint64_t descriptor;
    uint64_t at;
    (void)module;
    if (count != 3 || !read_number(args[0], &descriptor) || !read_bytes(args[1], &data) || !read_number(args[2], &at)) {
        if (!PyErr_Occurred()) {
            PyErr_SetString(PyExc_TypeError, "write_held() takes a descriptor, bytes and an offset");
        }
        return NULL;
    }
#ifdef _WIN32
    return PyLong_FromLong(0);
#else
    ssize_t written = pwrite((int)descriptor, data.bytes, data.size, (off_t)at);
    return written < 0 ? PyErr_SetFromErrno(PyExc_OSError) : PyLong_FromSsize_t((Py_ssize_t)written);
#endif
}
