/* A group of the journal with one record, as FORMAT.md section 8 draws it. */
#include "objects.h"

enum { CHECKSUM_SIZE = 8, HEAD_SIZE = SL_GROUP_OVERHEAD - CHECKSUM_SIZE };

size_t sl_write_group(uint8_t *to, const uint8_t *session, uint64_t epoch, uint64_t lsn, uint64_t flushed, view record)
{
    /* The checksum begins with the session: it is taken where that stands, then written over its end. */
    uint8_t *head = to + CHECKSUM_SIZE;
    uint8_t *checked = head - SL_SESSION_SIZE;
    size_t rest_size = HEAD_SIZE + record.size;
    memcpy(checked, session, SL_SESSION_SIZE);
    write_be(head, record.size + 4, 4);
    write_be(head + 4, 1, 4);
    write_be(head + 8, epoch, 8);
    write_be(head + 16, lsn, 8);
    write_be(head + 24, flushed, 8);
    write_be(head + 32, record.size, 4);
    memcpy(head + HEAD_SIZE, record.bytes, record.size);
    write_be(to, sl_checksum(checked, SL_SESSION_SIZE + rest_size), CHECKSUM_SIZE);
    return CHECKSUM_SIZE + rest_size;
}

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
    if (session.size != SL_SESSION_SIZE || record.size > UINT32_MAX - 4) {
        PyErr_SetString(PyExc_ValueError, "a session has 16 bytes, a record less than 4 GiB");
        return NULL;
    }
    uint8_t *bytes = PyMem_Malloc(SL_SESSION_SIZE + SL_GROUP_OVERHEAD + record.size);
    if (bytes == NULL) {
        return PyErr_NoMemory();
    }
    uint8_t *to = bytes + SL_SESSION_SIZE;
    PyObject *group = bytes_of(to, sl_write_group(to, session.bytes, epoch, lsn, flushed, record));
    PyMem_Free(bytes);
    return group;
}
