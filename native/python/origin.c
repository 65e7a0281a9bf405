/* What a checkpoint is made from: the head of its line, or one that it goes back to. Trust: objects.h. */
#include "objects.h"

static bool read_number_or_none_at(PyObject *tuple, Py_ssize_t index, uint64_t *found)
{
    *found = UINT64_MAX;
    return PyTuple_GetItem(tuple, index) == Py_None || read_number_at(tuple, index, found);
}

static bool read_found(PyObject *object, origin *read)
{
    view bytes;
    sl_found_numbers at;
    if (!read_bytes(object, &bytes)) {
        return false;
    }
    if (bytes.size < sizeof at + (size_t)3 * SL_DIGEST_SIZE) {
        PyErr_SetString(PyExc_ValueError, "what version_found() returns is taken");
        return false;
    }
    memcpy(&at, bytes.bytes, sizeof at);
    const uint8_t *digests = bytes.bytes + sizeof at;
    const uint64_t *numbers = at.numbers;
    *read = (origin){
        .lsn = at.lsn,
        .branch = numbers[SL_NUMBER_BRANCH],
        .version = numbers[SL_NUMBER_VERSION],
        .depth = numbers[SL_NUMBER_DEPTH],
        .jump_branch = numbers[SL_NUMBER_JUMP_BRANCH],
        .jump_version = numbers[SL_NUMBER_JUMP_VERSION],
        .jump_depth = numbers[SL_NUMBER_JUMP_DEPTH],
        .root_lsn = numbers[SL_NUMBER_ROOT_LSN] ? numbers[SL_NUMBER_ROOT_LSN] : at.lsn,
        .root_node = numbers[SL_NUMBER_ROOT_NODE],
    };
    memcpy(read->root_digest, digests + SL_DIGEST_SIZE, SL_DIGEST_SIZE);
    memcpy(read->digest, digests + (size_t)2 * SL_DIGEST_SIZE, SL_DIGEST_SIZE);
    return true;
}

bool sl_read_origin(PyObject *object, origin *read)
{
    const uint8_t *root_digest;
    const uint8_t *digest;
    if (PyBytes_CheckExact(object)) {
        return read_found(object, read);
    }
    PyObject *event = PyTuple_GetItem(object, HEAD_EVENT);
    if (event == NULL || !read_number_at(event, EVENT_LSN, &read->lsn) ||
        !read_number_at(event, EVENT_BRANCH, &read->branch) || !read_number_at(event, EVENT_VERSION, &read->version) ||
        !read_number_at(event, EVENT_DEPTH, &read->depth) ||
        !read_number_or_none_at(event, EVENT_JUMP_BRANCH, &read->jump_branch) ||
        !read_number_or_none_at(event, EVENT_JUMP_VERSION, &read->jump_version) ||
        !read_number_at(event, EVENT_JUMP_DEPTH, &read->jump_depth) ||
        !read_number_at(event, EVENT_ROOT_LSN, &read->root_lsn) ||
        !read_number_at(event, EVENT_ROOT_NODE, &read->root_node) ||
        !read_digest_at(event, EVENT_ROOT_DIGEST, &root_digest) || !read_digest_at(object, HEAD_DIGEST, &digest)) {
        return false;
    }
    memcpy(read->root_digest, root_digest, SL_DIGEST_SIZE);
    memcpy(read->digest, digest, SL_DIGEST_SIZE);
    return true;
}
