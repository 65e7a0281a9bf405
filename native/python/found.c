/* The checkpoint that a look-up has found (lookup.c), as Python's event.
 *
 * Trust: see objects.h; the bytes are those that sl_version_find gives out, whose items were checked.
 */
#include "objects.h"

enum { ITEM_NULL = 0xF6, FOUND_SIZE_MAX = 4096 };

static PyObject *number_or_none(uint64_t number) { return number == UINT64_MAX ? shared(Py_None) : number_of(number); }

/* The id of an item: None, or a text; NULL without an error where it is neither. */
static PyObject *id_of(const uint8_t *item, size_t size)
{
    sl_item head;
    if (size == 1 && item[0] == ITEM_NULL) {
        return shared(Py_None);
    }
    if (!sl_item_whole(item, size, &head) || head.shape != SL_ITEM_TEXT) {
        return NULL;
    }
    return PyUnicode_DecodeUTF8((const char *)item + head.payload_at, (Py_ssize_t)head.argument, NULL);
}

static PyObject *event_of(const module_state *state, view bytes)
{
    sl_found_numbers at;
    size_t items_at = sizeof at + (size_t)3 * SL_DIGEST_SIZE;
    if (bytes.size >= items_at) {
        memcpy(&at, bytes.bytes, sizeof at);
    }
    if (state->event_type == NULL || bytes.size < items_at || at.metadata_at < items_at ||
        at.written_at < at.metadata_at || at.borrowed_at < at.written_at || bytes.size < at.borrowed_at) {
        PyErr_SetString(PyExc_ValueError, "what version_find() returns is taken, after bind_event()");
        return NULL;
    }
    const uint8_t *digests = bytes.bytes + sizeof at;
    const uint64_t *numbers = at.numbers;
    PyObject *id = id_of(bytes.bytes + items_at, (size_t)at.metadata_at - items_at);
    if (id == NULL) {
        return PyErr_Occurred() ? NULL : shared(Py_None);
    }
    PyObject *fields[EVENT_FIELDS] = {
        [EVENT_THREAD] = number_of(numbers[SL_NUMBER_THREAD]),
        [EVENT_BRANCH] = number_of(numbers[SL_NUMBER_BRANCH]),
        [EVENT_VERSION] = number_of(numbers[SL_NUMBER_VERSION]),
        [EVENT_PARENT_BRANCH] = number_or_none(numbers[SL_NUMBER_PARENT_BRANCH]),
        [EVENT_PARENT_VERSION] = number_or_none(numbers[SL_NUMBER_PARENT_VERSION]),
        [EVENT_PARENT_DIGEST] = at.has_parent ? bytes_of(digests, SL_DIGEST_SIZE) : shared(Py_None),
        [EVENT_JUMP_BRANCH] = number_or_none(numbers[SL_NUMBER_JUMP_BRANCH]),
        [EVENT_JUMP_VERSION] = number_or_none(numbers[SL_NUMBER_JUMP_VERSION]),
        [EVENT_DEPTH] = number_of(numbers[SL_NUMBER_DEPTH]),
        [EVENT_JUMP_DEPTH] = number_of(numbers[SL_NUMBER_JUMP_DEPTH]),
        [EVENT_ROOT_DIGEST] = bytes_of(digests + SL_DIGEST_SIZE, SL_DIGEST_SIZE),
        [EVENT_ROOT_LSN] = number_of(numbers[SL_NUMBER_ROOT_LSN] ? numbers[SL_NUMBER_ROOT_LSN] : at.lsn),
        [EVENT_ROOT_NODE] = number_of(numbers[SL_NUMBER_ROOT_NODE]),
        [EVENT_ID] = id,
        [EVENT_METADATA] = bytes_of(bytes.bytes + at.metadata_at, (size_t)(at.written_at - at.metadata_at)),
        [EVENT_WRITTEN] = bytes_of(bytes.bytes + at.written_at, (size_t)(at.borrowed_at - at.written_at)),
        [EVENT_BORROWED] = bytes_of(bytes.bytes + at.borrowed_at, bytes.size - (size_t)at.borrowed_at),
        [EVENT_TARGET] = number_of(numbers[SL_NUMBER_TARGET]),
        [EVENT_LSN] = number_of(at.lsn),
        [EVENT_TIME] = number_of(numbers[SL_NUMBER_TIME]),
    };
    PyObject *event = named(state->event_type, fields, EVENT_FIELDS);
    PyObject *digest = bytes_of(digests + (size_t)2 * SL_DIGEST_SIZE, SL_DIGEST_SIZE);
    PyObject *result = event == NULL || digest == NULL ? NULL : PyTuple_Pack(2, event, digest);
    Py_XDECREF(event);
    Py_XDECREF(digest);
    return result;
}

/* found_checkpoint(found): the event, and the checkpoint's digest; None if its id is none. */
PyObject *sl_found_checkpoint(PyObject *module, PyObject *found)
{
    view bytes;
    return read_bytes(found, &bytes) ? event_of(PyModule_GetState(module), bytes) : NULL;
}

/* Look up a version; false where there is none, it is larger than most, or there is an error. */
static bool find_version(PyObject *const *args, Py_ssize_t count, sl_output *found)
{
    uint64_t given[6];
    if (count != 6) {
        PyErr_SetString(PyExc_TypeError, "it takes 6 numbers");
        return false;
    }
    for (size_t i = 0; i < 6; i++) {
        if (!read_number(args[i], &given[i])) {
            return false;
        }
    }
    return given[4] <= UINT32_MAX && given[5] <= UINT32_MAX &&
           sl_version_find(given[0], (size_t)given[1], given[2], given[3], (uint32_t)given[4], (uint32_t)given[5],
                           found) == SL_OK;
}

/* version_checkpoint(address, page size, transaction, thread, branch, version): the same of what is looked up; None
 * where there is none, or it is larger than most. */
PyObject *sl_version_checkpoint(PyObject *module, PyObject *const *args, Py_ssize_t count)
{
    uint8_t buffer[FOUND_SIZE_MAX];
    sl_output found = {buffer, sizeof buffer, 0, 0};
    if (find_version(args, count, &found)) {
        return event_of(PyModule_GetState(module), (view){buffer, found.size});
    }
    return PyErr_Occurred() ? NULL : shared(Py_None);
}

/* version_found(...): what is looked up, as sl_version_find gives it out. */
PyObject *sl_version_found(PyObject *module, PyObject *const *args, Py_ssize_t count)
{
    (void)module;
    uint8_t buffer[FOUND_SIZE_MAX];
    sl_output found = {buffer, sizeof buffer, 0, 0};
    if (find_version(args, count, &found)) {
        return bytes_of(buffer, found.size);
    }
    return PyErr_Occurred() ? NULL : shared(Py_None);
}
