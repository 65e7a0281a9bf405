/* A group of the journal with one record, as FORMAT.md section 8 draws it. */
#include "objects.h"

enum { SESSION_SIZE = 16, CHECKSUM_SIZE = 8, GROUP_HEAD_SIZE = 4 + 4 + 8 + 8 + 8 + 4 };

/* group_of_one(session, epoch, lsn, flushed, record) */
PyObject *sl_group_of_one(PyObject *module, PyObject *const *args, Py_ssize_t count)
{
    (void)module;
    view session;
    view record;
    uint64_t epoch;
    uint64_t lsn;
    uint64_t flushed;
    if (count != 5 || !read_bytes(args[0], &session) || !read_number(args[1], &epoch) || !read_number(args[2], &lsn) ||
        !read_number(args[3], &flushed) || !read_bytes(args[4], &record)) {
        if (!PyErr_Occurred()) {
            PyErr_SetString(PyExc_TypeError, "group_of_one() takes 5 arguments");
        }
        return NULL;
    }
    if (session.size != SESSION_SIZE || record.size > UINT32_MAX - 4) {
        PyErr_SetString(PyExc_ValueError, "a session has 16 bytes, a record less than 4 GiB");
        return NULL;
    }
    /* The checksum begins with the session: it is taken where that stands, then written over its end. */
    size_t rest_size = GROUP_HEAD_SIZE + record.size;
    uint8_t *bytes = PyMem_Malloc(SESSION_SIZE + rest_size);
    if (bytes == NULL) {
        return PyErr_NoMemory();
    }
    uint8_t *head = bytes + SESSION_SIZE;
    memcpy(bytes, session.bytes, SESSION_SIZE);
    write_be(head, record.size + 4, 4);
    write_be(head + 4, 1, 4);
    write_be(head + 8, epoch, 8);
    write_be(head + 16, lsn, 8);
    write_be(head + 24, flushed, 8);
    write_be(head + 32, record.size, 4);
    memcpy(head + GROUP_HEAD_SIZE, record.bytes, record.size);
    write_be(head - CHECKSUM_SIZE, sl_checksum(bytes, SESSION_SIZE + rest_size), CHECKSUM_SIZE);
    PyObject *group = bytes_of(head - CHECKSUM_SIZE, CHECKSUM_SIZE + rest_size);
    PyMem_Free(bytes);
    return group;
}
