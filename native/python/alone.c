/* A commit alone, from what Python remembers of the last one into the journal (statelog/storage/fast_path.py, D6).
 *
 * Why: what a small commit takes is half calls and marks. From the first look to the last mark, nothing here runs Python code
 * or lets go of the interpreter's lock: nobody sees it half-done, so it needs no mark, and takes a lock but to see that it
 * is free. What has to wait, for a flush or for somebody, is left to Python.
 *
 * Trust: see objects.h. Invariants: until the record is in the journal all that was changed is put back, or forgotten; from
 * then on keys that are there get other values, which cannot fail.
 */
#include "objects.h"

#ifndef _WIN32

#include <time.h>
#include <unistd.h>

enum {
    PART_COMMITTER, PART_DEFERRED, PART_ENVIRONMENT, PART_KEEPER, PART_LOCKS, PART_STEADY, PART_WAKE, PART_TIME,
    PART_FIRST_LOCK, PART_SECOND_LOCK, PART_CHANNEL_KEYS, PARTS
};
enum {
    DIRECT_THREAD, DIRECT_BRANCH, DIRECT_WRITES, DIRECT_METADATA, DIRECT_WRITTEN, DIRECT_EXPECTED, DIRECT_IS_OPEN, DIRECT_ID,
    DIRECT_CHANGES, DIRECT_TIME, DIRECT_FIELDS
};
enum { END_TIME = 2 };
enum {
    MADE_HEAD, MADE_LSN, MADE_LOG_KEY, MADE_RECORD, MADE_PAGE_KEY, MADE_PAGE, MADE_NODE_ROWS, MADE_NODES, MADE_MORE
};
enum {
    ROWS_MAX = 2, /* of the index: its version page, and its id */
    PAGES_OF_A_ROW = 2,
    PAGE_SIZE = 4096,
    PAYLOAD_SIZE_MAX = 8 * 1024,
    LARGE_SIZE_MIN = 4096,
    GROUP_SIZE_MAX = 16 * 1024,
    READERS_AFTER = 256 /* commits: then Python looks for dead ones */
};

/* What is looked at, taken out of Python's objects: owned. */
typedef struct {
    PyObject *last;
    PyObject *waiting;
    PyObject *transaction;
    PyObject *memory;
    PyObject *records;
    PyObject *rows;
    PyObject *session;
    long long lsn;
    long long at;
    long long flushed;
    long long epoch;
    long long descriptor;
} scene;

/* --- attributes ------------------------------------------------------------------------------------ */

static bool is_in(const module_state *state, PyObject *object, name_index name, const PyObject *wanted)
{
    PyObject *found = PyObject_GetAttr(object, state->names[name]);
    Py_XDECREF(found);
    return found == wanted;
}

/* -1, which none of these is, may be an error, too. */
static long long number_in(const module_state *state, PyObject *object, name_index name)
{
    PyObject *found = PyObject_GetAttr(object, state->names[name]);
    long long number = found == NULL ? -1 : PyLong_AsLongLong(found);
    Py_XDECREF(found);
    return number;
}

static bool is_later_in(const module_state *state, PyObject *object, double now_s)
{
    PyObject *found = PyObject_GetAttr(object, state->names[NAME_LOOK_AT_S]);
    double at_s = found == NULL ? -1 : PyFloat_AsDouble(found);
    Py_XDECREF(found);
    return at_s > now_s;
}

static void set_number(const module_state *state, PyObject *object, name_index name, long long number)
{
    PyObject *value = PyLong_FromLongLong(number);
    if (value != NULL) {
        (void)PyObject_SetAttr(object, state->names[name], value);
        Py_DECREF(value);
    }
}

static void add_to(const module_state *state, PyObject *object, name_index name, long long number)
{
    set_number(state, object, name, number_in(state, object, name) + number);
}

/* --- the looks ---------------------------------------------------------------------------------------- */

/* Whether nobody holds a lock that may be taken again by who has it. */
static bool is_free(const module_state *state, PyObject *lock)
{
    PyObject *taken = PyObject_CallMethodObjArgs(lock, state->names[NAME_ACQUIRE], Py_False, NULL);
    bool is_taken = taken == Py_True;
    Py_XDECREF(taken);
    if (is_taken) {
        PyObject *left = PyObject_CallMethodObjArgs(lock, state->names[NAME_RELEASE], NULL);
        Py_XDECREF(left);
    }
    return is_taken;
}

/* Whether this thread is in no commit already. */
static bool is_outside(const module_state *state, PyObject *committer)
{
    PyObject *inside = PyObject_GetAttr(committer, state->names[NAME_INSIDE]);
    PyObject *thread = PyLong_FromUnsignedLong(PyThread_get_thread_ident());
    bool is_outside = inside != NULL && thread != NULL && PySet_Contains(inside, thread) == 0;
    Py_XDECREF(inside);
    Py_XDECREF(thread);
    return is_outside;
}

/* Whether nobody is at work in the environment, and nothing is due but a commit. */
static bool is_quiet(const module_state *state, PyObject *const *parts)
{
    struct timespec now;
    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    double now_s = (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
    return is_outside(state, parts[PART_COMMITTER]) && is_in(state, parts[PART_COMMITTER], NAME_LEADER, Py_None) &&
           (number_in(state, parts[PART_COMMITTER], NAME_GROUPS) + 1) % READERS_AFTER != 0 &&
           is_later_in(state, parts[PART_LOCKS], now_s) && is_later_in(state, parts[PART_WAKE], now_s) &&
           number_in(state, parts[PART_ENVIRONMENT], NAME_PROCESS_ID) == getpid() &&
           number_in(state, parts[PART_ENVIRONMENT], NAME_WRITER_THREAD) == 0 &&
           is_in(state, parts[PART_ENVIRONMENT], NAME_IS_SHUT, Py_False) &&
           number_in(state, parts[PART_DEFERRED], NAME_SETTLING_THREAD) == 0 &&
           number_in(state, parts[PART_DEFERRED], NAME_APART) == 0 &&
           is_in(state, parts[PART_DEFERRED], NAME_HAS_ROOM, Py_True) &&
           is_in(state, parts[PART_DEFERRED], NAME_TRANSACTION, Py_None) &&
           is_in(state, parts[PART_KEEPER], NAME_IS_AT_WORK, Py_True) &&
           is_in(state, parts[PART_KEEPER], NAME_FLUSHES, Py_True) &&
           is_in(state, parts[PART_STEADY], NAME_IS_BROKEN, Py_False) && is_free(state, parts[PART_FIRST_LOCK]) &&
           is_free(state, parts[PART_SECOND_LOCK]);
}

/* Whether the caller's last commit is the one that waits last, and the journal has room behind it. */
static bool look(const module_state *state, PyObject *const *parts, PyObject *caller, scene *seen)
{
    PyObject *steady = parts[PART_STEADY];
    seen->last = PyObject_GetAttr(caller, state->names[NAME_LAST]);
    seen->waiting = PyObject_GetAttr(parts[PART_DEFERRED], state->names[NAME_WAITING]);
    if (seen->last == NULL || seen->last == Py_None || seen->waiting == NULL) {
        return false;
    }
    seen->transaction = PyObject_GetAttr(seen->waiting, state->names[NAME_LAST]);
    if (seen->transaction == NULL || seen->transaction == Py_None ||
        !is_in(state, seen->last, NAME_TRANSACTION, seen->transaction) ||
        number_in(state, seen->last, NAME_CHANGES) != number_in(state, seen->transaction, NAME_CHANGES) ||
        number_in(state, seen->transaction, NAME_NUMBER) <= 0) {
        return false;
    }
    seen->memory = PyObject_GetAttr(seen->last, state->names[NAME_MEMORY]);
    seen->records = PyObject_GetAttr(seen->waiting, state->names[NAME_RECORDS]);
    seen->rows = PyObject_GetAttr(seen->waiting, state->names[NAME_ROWS]);
    seen->session = PyObject_GetAttr(steady, state->names[NAME_SESSION]);
    seen->lsn = number_in(state, steady, NAME_LSN) + 1;
    seen->at = number_in(state, steady, NAME_AT);
    seen->flushed = number_in(state, steady, NAME_FLUSHED);
    seen->epoch = number_in(state, steady, NAME_EPOCH);
    seen->descriptor = number_in(state, steady, NAME_DESCRIPTOR);
    return seen->memory && seen->records && seen->rows && seen->session && PyList_CheckExact(seen->records) &&
           PyDict_CheckExact(seen->rows) && seen->lsn > 0 && seen->at >= 0 && seen->flushed >= 0 && seen->epoch >= 0 &&
           seen->descriptor >= 0 &&
           number_in(state, seen->waiting, NAME_FIRST_LSN) + PyList_Size(seen->records) == seen->lsn &&
           number_in(state, steady, NAME_SIZE_BYTES_OF_FILE) - seen->at >= GROUP_SIZE_MAX;
}

/* Whether the head is the one that the caller expects: None expects any. */
static bool is_expected(PyObject *expected, PyObject *event)
{
    uint64_t wanted;
    uint64_t version;
    if (expected == Py_None) {
        return true;
    }
    return PyLong_CheckExact(expected) && read_number(expected, &wanted) &&
           read_number_at(event, EVENT_VERSION, &version) && wanted == version;
}

/* The head that the commit follows, borrowed; NULL where what is remembered does not suffice. */
static PyObject *head_for(const module_state *state, PyObject *memory, PyObject *direct)
{
    PyObject *thread = PyTuple_GetItem(direct, DIRECT_THREAD);
    PyObject *branch = PyTuple_GetItem(direct, DIRECT_BRANCH);
    PyObject *heads = PyObject_GetAttr(memory, state->names[NAME_HEADS]);
    PyObject *key = PyTuple_Pack(2, thread, branch);
    PyObject *head = heads && key ? PyDict_GetItemWithError(heads, key) : NULL;
    Py_XDECREF(heads); /* the memory keeps it */
    Py_XDECREF(key);
    PyObject *event = head == NULL ? NULL : PyTuple_GetItem(head, HEAD_EVENT);
    PyObject *of_head = event == NULL ? NULL : PyTuple_GetItem(event, EVENT_BRANCH);
    if (of_head == NULL || PyTuple_GetItem(head, HEAD_PAGE) == Py_None || PyTuple_GetItem(head, HEAD_STATE) == Py_None ||
        PyLong_AsLongLong(of_head) != PyLong_AsLongLong(branch) ||
        !is_expected(PyTuple_GetItem(direct, DIRECT_EXPECTED), event)) {
        return NULL;
    }
    if (PyTuple_GetItem(direct, DIRECT_IS_OPEN) == Py_True) {
        PyObject *threads = PyObject_GetAttr(memory, state->names[NAME_OPEN_THREADS]);
        bool is_open = threads != NULL && PySet_Contains(threads, thread) == 1;
        Py_XDECREF(threads);
        return is_open ? head : NULL;
    }
    return head;
}

/* The size of a change's items; more than a commit may have for one that the store may have already. */
static size_t size_of(PyObject *change)
{
    uint64_t operation;
    uint64_t count;
    view items;
    if (!read_number_at(change, CHANGE_OPERATION, &operation) || !read_number_at(change, CHANGE_COUNT, &count) ||
        !read_bytes_at(change, CHANGE_PAYLOAD, &items)) {
        return PAYLOAD_SIZE_MAX + 1;
    }
    bool is_one = operation != CHANGE_APPEND || count == 1;
    return is_one && items.size >= LARGE_SIZE_MIN ? PAYLOAD_SIZE_MAX + 1 : items.size;
}

/* What the writes change; NULL where that is not plain, or much. */
static PyObject *changes_for(PyObject *module, PyObject *const *parts, PyObject *direct, PyObject *head)
{
    PyObject *const args[] = {PyTuple_GetItem(direct, DIRECT_WRITES), PyTuple_GetItem(head, HEAD_LISTS),
                              parts[PART_CHANNEL_KEYS]};
    PyObject *given = PyTuple_GetItem(direct, DIRECT_CHANGES);
    PyObject *changes = given == NULL || given == Py_None ? sl_plain_changes(module, args, sizeof args / sizeof args[0])
                                                          : shared(given);
    Py_ssize_t count = changes == NULL || changes == Py_None ? 0 : PyList_Size(changes);
    size_t size = 0;
    for (Py_ssize_t i = 0; i < count; i++) {
        size += size_of(PyList_GetItem(changes, i));
    }
    if (count == 0 || size > PAYLOAD_SIZE_MAX) {
        Py_XDECREF(changes);
        return NULL;
    }
    return changes;
}

/* --- the commit ----------------------------------------------------------------------------------------- */

/* Put a record's group into the journal, and it among what waits; false, and nothing was changed there, on a failure. */
static bool append(const module_state *state, const scene *seen, PyObject *made, PyObject *rows, size_t *group_size)
{
    view session;
    view record;
    PyObject *record_object = PyTuple_GetItem(made, MADE_RECORD);
    if (!read_bytes(seen->session, &session) || !read_bytes(record_object, &record) ||
        record.size > GROUP_SIZE_MAX - SL_GROUP_OVERHEAD || session.size != SL_SESSION_SIZE) {
        return false;
    }
    uint8_t *group = state->room->output + SL_SESSION_SIZE;
    *group_size = sl_write_group(group, session.bytes, (uint64_t)seen->epoch, (uint64_t)seen->lsn,
                                 (uint64_t)seen->flushed, record);
    PyObject *key;
    PyObject *value;
    PyObject *before[ROWS_MAX];
    Py_ssize_t at = 0;
    size_t entered = 0;
    bool is_in_rows = PyDict_Size(rows) <= ROWS_MAX;
    while (is_in_rows && PyDict_Next(rows, &at, &key, &value)) {
        before[entered] = shared(PyDict_GetItemWithError(seen->rows, key));
        is_in_rows = PyDict_SetItem(seen->rows, key, value) == 0;
        entered++;
    }
    bool is_in_records = is_in_rows && PyList_Append(seen->records, record_object) == 0;
    bool is_done = is_in_records && pwrite((int)seen->descriptor, group, *group_size, (off_t)seen->at) ==
                                        (ssize_t)*group_size;
    if (!is_done && is_in_records) {
        Py_ssize_t count = PyList_Size(seen->records);
        (void)PyList_SetSlice(seen->records, count - 1, count, NULL);
    }
    at = 0;
    for (size_t i = 0; i < entered && PyDict_Next(rows, &at, &key, &value); i++) {
        if (!is_done) {
            (void)(before[i] == NULL ? PyDict_DelItem(seen->rows, key) : PyDict_SetItem(seen->rows, key, before[i]));
        }
        Py_XDECREF(before[i]);
    }
    return is_done;
}

/* Note all that has changed with a commit that is in the journal, as `Deferred.take_over` does. */
static void take_over(const module_state *state, PyObject *const *parts, const scene *seen, PyObject *made,
                      PyObject *records, PyObject *rows, size_t group_size)
{
    PyObject *deferred = parts[PART_DEFERRED];
    PyObject *steady = parts[PART_STEADY];
    Py_ssize_t record_size = PyBytes_Size(PyTuple_GetItem(made, MADE_RECORD));
    long long changes = number_in(state, seen->transaction, NAME_CHANGES) + 1 + PyDict_Size(rows);
    long long size = number_in(state, seen->waiting, NAME_SIZE_BYTES) + record_size;
    set_number(state, steady, NAME_AT, seen->at + (long long)group_size);
    set_number(state, steady, NAME_END, seen->at + (long long)group_size);
    set_number(state, steady, NAME_LSN, seen->lsn);
    (void)PyObject_SetAttr(steady, state->names[NAME_IS_DIRTY], Py_True);
    set_number(state, seen->transaction, NAME_CHANGES, changes);
    set_number(state, seen->transaction, NAME_FIRST_LSN, seen->lsn);
    set_number(state, seen->transaction, NAME_SIZE_BYTES, record_size);
    (void)PyObject_SetAttr(seen->transaction, state->names[NAME_APPENDED], records);
    (void)PyObject_SetAttr(seen->transaction, state->names[NAME_ROWS], rows);
    (void)PyObject_SetAttr(seen->transaction, state->names[NAME_WAITING], seen->waiting);
    (void)PyObject_SetAttr(seen->transaction, state->names[NAME_IS_FLUSHED], Py_False);
    set_number(state, seen->last, NAME_CHANGES, changes);
    set_number(state, seen->waiting, NAME_SIZE_BYTES, size);
    add_to(state, seen->waiting, NAME_COUNT, 1);
    add_to(state, deferred, NAME_COMMITS, 1);
    add_to(state, parts[PART_KEEPER], NAME_COMMITS, 1);
    add_to(state, parts[PART_COMMITTER], NAME_COMMITS, 1);
    add_to(state, parts[PART_COMMITTER], NAME_GROUPS, 1);
    bool has_room = size <= number_in(state, deferred, NAME_SIZE_BYTES_MAX) &&
                    PAGES_OF_A_ROW * PyDict_Size(seen->rows) + size / PAGE_SIZE <=
                        number_in(state, deferred, NAME_PAGES_MAX) &&
                    PyList_Size(seen->records) < number_in(state, deferred, NAME_RECORDS_MAX);
    (void)PyObject_SetAttr(deferred, state->names[NAME_HAS_ROOM], has_room ? Py_True : Py_False);
}

/* Whether the time that a commit is to bear, if any, comes behind the last one's. */
static bool is_behind(const module_state *state, PyObject *memory, PyObject *direct)
{
    uint64_t last_us;
    uint64_t wanted_us;
    PyObject *wanted = PyTuple_GetItem(direct, DIRECT_TIME);
    if (wanted == Py_None) {
        return true;
    }
    PyObject *end = PyObject_GetAttr(memory, state->names[NAME_END]);
    bool is_behind = end != NULL && read_number_at(end, END_TIME, &last_us) && read_number(wanted, &wanted_us) &&
                     wanted_us > last_us;
    Py_XDECREF(end);
    return is_behind;
}

/* Make the commit, and return what is made; NULL, and nothing was done, where Python must. */
static PyObject *commit(PyObject *module, PyObject *const *parts, PyObject *caller, PyObject *direct,
                        PyObject *now_us, const scene *seen)
{
    const module_state *state = PyModule_GetState(module);
    PyObject *head = shared(head_for(state, seen->memory, direct)); /* the memory lets go of it */
    PyObject *changes = head == NULL ? NULL : changes_for(module, parts, direct, head);
    PyObject *records = PyList_New(1);
    PyObject *rows = PyDict_New();
    PyObject *made = NULL;
    if (changes != NULL && records != NULL && rows != NULL && is_behind(state, seen->memory, direct)) {
        PyObject *const args[] = {
            seen->memory, PyTuple_GetItem(direct, DIRECT_THREAD), PyTuple_GetItem(direct, DIRECT_BRANCH), head, head,
            PyTuple_GetItem(head, HEAD_STATE), changes, Py_False, PyTuple_GetItem(direct, DIRECT_METADATA),
            PyTuple_GetItem(direct, DIRECT_WRITTEN), now_us, Py_None, PyTuple_GetItem(direct, DIRECT_ID),
        };
        (void)PyObject_SetAttr(caller, state->names[NAME_LAST], Py_None); /* until all of it is in */
        made = sl_checkpoint(module, args, sizeof args / sizeof args[0]);
    }
    size_t group_size = 0;
    bool is_made = made != NULL && PyTuple_Check(made); /* else nothing was done, or there is an error */
    bool is_done = is_made &&
                   PyList_SetItem(records, 0, shared(PyTuple_GetItem(made, MADE_RECORD))) == 0 &&
                   PyDict_SetItem(rows, PyTuple_GetItem(made, MADE_PAGE_KEY), PyTuple_GetItem(made, MADE_PAGE)) == 0 &&
                   (PyTuple_GetItem(made, MADE_MORE) == Py_None ||
                    PyDict_Update(rows, PyTuple_GetItem(made, MADE_MORE)) == 0) &&
                   append(state, seen, made, rows, &group_size);
    if (is_done) {
        take_over(state, parts, seen, made, records, rows, group_size);
    }
    if (is_done || (made != NULL && !is_made)) { /* else what was remembered may be half of it */
        (void)PyObject_SetAttr(caller, state->names[NAME_LAST], seen->last);
    }
    Py_XDECREF(head);
    Py_XDECREF(changes);
    Py_XDECREF(records);
    Py_XDECREF(rows);
    if (!is_done) {
        Py_XDECREF(made);
        return NULL;
    }
    return made;
}

static PyObject *time_us(const module_state *state, PyObject *time)
{
    PyObject *now_ns = PyObject_CallMethodObjArgs(time, state->names[NAME_TIME_NS], NULL);
    long long ns = now_ns == NULL ? -1 : PyLong_AsLongLong(now_ns);
    Py_XDECREF(now_ns);
    return ns == -1 && PyErr_Occurred() ? NULL : PyLong_FromLongLong(ns / 1000);
}

/* commit_alone(parts, caller, direct) */
PyObject *sl_commit_alone(PyObject *module, PyObject *const *args, Py_ssize_t count)
{
    const module_state *state = PyModule_GetState(module);
    if (count != 3 || !PyTuple_CheckExact(args[0]) || PyTuple_Size(args[0]) != PARTS || !PyTuple_Check(args[2]) ||
        PyTuple_Size(args[2]) != DIRECT_FIELDS) {
        PyErr_SetString(PyExc_TypeError, "commit_alone() takes what an environment is made of, who commits, and what");
        return NULL;
    }
    PyObject *parts[PARTS];
    for (Py_ssize_t i = 0; i < PARTS; i++) {
        parts[i] = PyTuple_GetItem(args[0], i);
    }
    PyObject *given = PyTuple_GetItem(args[2], DIRECT_TIME);
    PyObject *now_us = given == Py_None ? time_us(state, parts[PART_TIME]) : shared(given); /* first: it may be Python code */
    if (now_us == NULL) {
        return NULL;
    }
    scene seen = {0};
    PyObject *made = NULL;
    int is_collecting = PyGC_Disable(); /* its finalizers would be Python code */
    if (is_quiet(state, parts) && look(state, parts, args[1], &seen)) {
        made = commit(module, parts, args[1], args[2], now_us, &seen);
    }
    PyErr_Clear(); /* whatever it was, Python meets it, too */
    if (is_collecting) {
        (void)PyGC_Enable();
    }
    PyObject *owned[] = {seen.last, seen.waiting, seen.transaction, seen.memory, seen.records, seen.rows, seen.session,
                         now_us};
    for (size_t i = 0; i < sizeof owned / sizeof owned[0]; i++) {
        Py_XDECREF(owned[i]);
    }
    return made == NULL ? shared(Py_None) : made;
}

#else

PyObject *sl_commit_alone(PyObject *module, PyObject *const *args, Py_ssize_t count)
{
    (void)module, (void)args, (void)count;
    return shared(Py_None);
}

#endif
