/* What the module of Python's objects shares: its state, and how it reads and writes them.
 *
 * Trust: the objects are the package's own (statelog/log/direct.py), and of the types it says; of another type is a
 * TypeError. The bytes in them are untrusted, as in every kernel.
 */
#ifndef STATELOG_OBJECTS_H
#define STATELOG_OBJECTS_H

#define Py_LIMITED_API 0x030B0000
#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include "internal.h"

enum { SL_ROOM_SIZE = 128 * 1024 }; /* above what rows and nodes of a step take, and metadata mostly */

/* Places in CheckpointEvent. */
enum {
    EVENT_THREAD, EVENT_BRANCH, EVENT_VERSION, EVENT_PARENT_BRANCH, EVENT_PARENT_VERSION, EVENT_PARENT_DIGEST,
    EVENT_JUMP_BRANCH, EVENT_JUMP_VERSION, EVENT_DEPTH, EVENT_JUMP_DEPTH, EVENT_ROOT_DIGEST, EVENT_ROOT_LSN,
    EVENT_ROOT_NODE, EVENT_ID, EVENT_METADATA, EVENT_WRITTEN, EVENT_BORROWED, EVENT_TARGET, EVENT_LSN, EVENT_TIME,
    EVENT_FIELDS
};

/* Places in Head. */
enum { HEAD_EVENT, HEAD_DIGEST, HEAD_PAGE, HEAD_STATE, HEAD_LISTS, HEAD_OPENS, HEAD_FIELDS };

/* A change, as statelog/kernels/step.py has it: its places, and operations. */
enum { CHANGE_OPERATION, CHANGE_KEY, CHANGE_PAYLOAD, CHANGE_COUNT, CHANGE_KIND, CHANGE_ROOT, CHANGE_OPENS };
enum { CHANGE_PUT = 1, CHANGE_ADD = 2, CHANGE_APPEND = 3, CHANGE_PUT_ONCE = 4, CHANGE_REMOVE = 5 };

/* Attributes that are read or set by name. */
#define SL_NAMES(DO) \
    DO(ACQUIRE, "acquire") DO(ADD, "add") DO(CHANNEL, "channel") DO(DISCARD, "discard") DO(END, "end") DO(GATE, "gate") \
    DO(GREATEST_IDS, "greatest_ids") DO(HEADS, "heads") DO(IS_FLUSHED, "is_flushed") DO(JUMPS, "jumps") DO(LAST, "last") \
    DO(NAME, "name") DO(ONE_BRANCH, "one_branch") DO(OPEN_THREADS, "open_threads") DO(POPLEFT, "popleft") \
    DO(RELEASE, "release") DO(SETTLE, "settle") DO(TAKE_OVER, "take_over") DO(TIME_NS, "time_ns")
#define SL_NAME_INDEX(NAME, TEXT) NAME_##NAME,
typedef enum { SL_NAMES(SL_NAME_INDEX) NAMES } name_index;

enum { SL_APPENDS_MAX = 32 };

typedef struct {
    uint64_t row;
    sl_step_place place;
} node_place;

/* Of a list that was appended to: its root, and those of its open levels that were made, too. */
typedef struct {
    node_place root;
    sl_step_place opens[SL_STEP_LEVELS];
} appended;

/* What one call at a time works in, under the interpreter's lock. */
typedef struct {
    sl_step step;
    appended places[SL_APPENDS_MAX];
    size_t appends;
    PyObject *asked; /* NULL, or the digests of the step's large leaves, which its caller was asked to look up */
    PyObject *changes; /* of that step */
    uint8_t output[SL_ROOM_SIZE];
} workroom;

/* Types of Python's objects with members that C looks at (marks.h). */
typedef enum {
    MARKS_COMMITTER, MARKS_DEFERRED, MARKS_ENVIRONMENT, MARKS_KEEPER, MARKS_LOOK, MARKS_STEADY, MARKS_TRANSACTION,
    MARKS_WAITING, MARKS_LAST, MARKS_CACHE, MARKS_TYPES
} marks_type;

typedef struct {
    workroom *room;
    PyObject *event_type;
    PyObject *head_type;
    PyObject *node_type;
    PyObject *end_type;
    PyObject *no_lists;
    PyObject *nothing_borrowed; /* as an item */
    PyObject *names[NAMES];
    PyObject *write_type;
    PyObject *operations; /* of a step, by a reducer's name: a dict */
    PyObject *no_node;
    PyObject *removal_type;
    PyObject *marks_types[MARKS_TYPES];
    uint64_t versions_max;
    Py_ssize_t heads_max;
    Py_ssize_t jumps_max;
} module_state;

typedef struct {
    const uint8_t *bytes;
    size_t size;
} view;

typedef struct {
    uint64_t branch;
    uint64_t version;
    uint64_t depth;
} jump;

/* What a checkpoint takes of the one it is made from. */
typedef struct {
    uint64_t lsn;
    uint64_t branch;
    uint64_t version;
    uint64_t depth;
    uint64_t jump_branch; /* these two UINT64_MAX where it jumps nowhere */
    uint64_t jump_version;
    uint64_t jump_depth;
    uint64_t root_lsn;
    uint64_t root_node;
    uint8_t root_digest[SL_DIGEST_SIZE];
    uint8_t digest[SL_DIGEST_SIZE];
} origin;

/* Unknown: Python must find out. Failed: there is an error. */
typedef enum { KNOWN, UNKNOWN, FAILED } outcome;

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

static inline bool read_bytes_at(PyObject *tuple, Py_ssize_t index, view *found)
{
    return read_bytes(PyTuple_GetItem(tuple, index), found);
}

static inline bool read_digest_at(PyObject *tuple, Py_ssize_t index, const uint8_t **found)
{
    view bytes;
    if (!read_bytes_at(tuple, index, &bytes)) {
        return false;
    }
    if (bytes.size != SL_DIGEST_SIZE) {
        PyErr_SetString(PyExc_ValueError, "a digest has 20 bytes");
        return false;
    }
    *found = bytes.bytes;
    return true;
}

static inline bool read_number(PyObject *object, uint64_t *found)
{
    *found = object == NULL ? 0 : PyLong_AsUnsignedLongLong(object);
    return !(*found == UINT64_MAX && PyErr_Occurred()) && object != NULL;
}

static inline bool read_number_at(PyObject *tuple, Py_ssize_t index, uint64_t *found)
{
    return read_number(PyTuple_GetItem(tuple, index), found);
}

static inline void write_be(uint8_t *to, uint64_t number, size_t size)
{
    for (size_t i = size; i-- > 0; number >>= 8) {
        to[i] = (uint8_t)number;
    }
}

/* --- writing Python's objects ------------------------------------------------------------------------- */

enum { SL_KEPT_TEXT_MAX = 256 }; /* characters; a text beyond ASCII keeps its bytes once asked for: not of large ones */

/* The UTF-8 of a text; `owned` is what holds it, if that is not the text. False, without an error, of a lone surrogate. */
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

/* Take over the references to the fields of a named tuple, and return it. */
static inline PyObject *named(PyObject *type, PyObject **fields, Py_ssize_t count)
{
    PyObject *made = PyType_GenericAlloc((PyTypeObject *)type, count); /* which is what a tuple's type does */
    bool is_whole = made != NULL;
    for (Py_ssize_t i = 0; i < count; i++) {
        if (fields[i] == NULL || made == NULL) {
            Py_XDECREF(fields[i]);
            is_whole = false;
        } else {
            (void)PyTuple_SetItem(made, i, fields[i]);
        }
    }
    if (!is_whole) {
        Py_XDECREF(made);
        return NULL;
    }
    return made;
}

static inline PyObject *number_of(uint64_t number) { return PyLong_FromUnsignedLongLong(number); }

static inline PyObject *shared(PyObject *object)
{
    Py_XINCREF(object);
    return object;
}

/* The item of a plain value that stands so deep in another; None where Python must encode it (encode.c). */
PyObject *sl_plain_item(const module_state *state, PyObject *value, unsigned depth);

/* Read the origin from a Head, or from the bytes that sl_version_found gives out (origin.c). */
bool sl_read_origin(PyObject *object, origin *read);

/* Where a child of `parent` at that depth jumps to (jump.c). */
outcome sl_read_jump(const module_state *state, PyObject *memory, PyObject *thread, const origin *parent,
                     uint64_t depth, jump *found);

/* Of a checkpoint's id: its UTF-8, nothing of None; whether it is new to its thread; its entry in the index, as a dict or
 * None; make it what is remembered (ids.c). */
enum { SL_ID_SIZE_MAX = 255 };
bool sl_id_read(PyObject *object, view *id);
outcome sl_id_look(const module_state *state, PyObject *memory, PyObject *thread, view id);
PyObject *sl_id_row(PyObject *object, PyObject *thread, uint64_t lsn);
bool sl_id_remember(const module_state *state, PyObject *memory, PyObject *thread, PyObject *object);

/* Write a group with one record behind `to - SL_SESSION_SIZE`, which may be written over; return its size (journal.c). */
enum { SL_SESSION_SIZE = 16, SL_GROUP_OVERHEAD = 8 + 4 + 4 + 8 + 8 + 8 + 4 };
size_t sl_write_group(uint8_t *to, const uint8_t *session, uint64_t epoch, uint64_t lsn, uint64_t flushed, view record);

/* A node among those of a record (lists.c). */
PyObject *sl_node_of(const module_state *state, view data, sl_step_place where, PyObject *lsn);
/* The open levels of a list or a state after a step (lists.c): those made, the others as they were `before`. */
PyObject *sl_opens_after(const module_state *state, view data, const sl_step_place *places, PyObject *before,
                         PyObject *lsn);
/* The lists that the next step may begin with (lists.c); `known`: those that the one before began with. Without rows it has
 * made none. */
PyObject *sl_lists_after(const module_state *state, PyObject *known, PyObject *changes, PyObject *rows, PyObject *data,
                         const appended *places, size_t appends, PyObject *lsn);

/* What the module is made of (module.c). */
PyObject *sl_checkpoint(PyObject *module, PyObject *const *args, Py_ssize_t count);
PyObject *sl_commit_alone(PyObject *module, PyObject *const *args, Py_ssize_t count);
PyObject *sl_commit_flushed(PyObject *module, PyObject *const *args, Py_ssize_t count);
PyObject *sl_encode_plain(PyObject *module, PyObject *const *args, Py_ssize_t count);
PyObject *sl_found_checkpoint(PyObject *module, PyObject *found);
PyObject *sl_group_of_one(PyObject *module, PyObject *const *args, Py_ssize_t count);
PyObject *sl_plain_commit(PyObject *module, PyObject *const *args, Py_ssize_t count);
PyObject *sl_plain_changes(PyObject *module, PyObject *const *args, Py_ssize_t count);
PyObject *sl_prepare_plain(PyObject *module, PyObject *const *args, Py_ssize_t count);
PyObject *sl_version_found(PyObject *module, PyObject *const *args, Py_ssize_t count);
PyObject *sl_version_checkpoint(PyObject *module, PyObject *const *args, Py_ssize_t count);
PyObject *sl_write_held(PyObject *module, PyObject *const *args, Py_ssize_t count);

#endif
