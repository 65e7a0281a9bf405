/* What a commit alone looks at, and makes (scene.h). */
#include "scene.h"

#ifndef _WIN32

#include <time.h>
#include <unistd.h>

enum {
    PAYLOAD_SIZE_MAX = 8 * 1024,
    LARGE_SIZE_MIN = 4096,
    READERS_AFTER = 256 /* commits: then Python looks for dead ones */
};

/* --- the looks ---------------------------------------------------------------------------------------- */

static inline bool is_later_in(const module_state *state, PyObject *object, double now_s)
{
    PyObject *found = PyObject_GetAttr(object, state->names[NAME_LOOK_AT_S]);
    double at_s = found == NULL ? -1 : PyFloat_AsDouble(found);
    Py_XDECREF(found);
    return at_s > now_s;
}

/* Whether nobody holds a lock that may be taken again by who has it. */
static bool is_free(const module_state *state, PyObject *lock)
{
    bool is_taken = try_lock(state, lock);
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
static bool is_quiet(const module_state *state, PyObject *const *parts, bool is_flushed)
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
           (is_flushed ? is_free(state, parts[PART_MUTEX]) && number_in(state, parts[PART_COMMITTER], NAME_EXPECTED) == 1
                       : is_in(state, parts[PART_KEEPER], NAME_FLUSHES, Py_True)) &&
           is_in(state, parts[PART_STEADY], NAME_IS_BROKEN, Py_False) && is_free(state, parts[PART_FIRST_LOCK]) &&
           is_free(state, parts[PART_SECOND_LOCK]);
}

/* Whether the caller's last commit is the one that waits last, and the journal has room behind it. */
static bool look(scene *seen)
{
    const module_state *state = seen->state;
    PyObject *const *parts = seen->parts;
    PyObject *steady = parts[PART_STEADY];
    seen->last = PyObject_GetAttr(seen->caller, state->names[NAME_LAST]);
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

bool sl_scene_look(scene *seen, bool is_flushed) { return is_quiet(seen->state, seen->parts, is_flushed) && look(seen); }

/* --- the call ------------------------------------------------------------------------------------------- */

static PyObject *time_us(const module_state *state, PyObject *time)
{
    PyObject *now_ns = PyObject_CallMethodObjArgs(time, state->names[NAME_TIME_NS], NULL);
    long long ns = now_ns == NULL ? -1 : PyLong_AsLongLong(now_ns);
    Py_XDECREF(now_ns);
    return ns == -1 && PyErr_Occurred() ? NULL : PyLong_FromLongLong(ns / 1000);
}

bool sl_scene_open(scene *seen, PyObject *module, PyObject *const *args, Py_ssize_t count, Py_ssize_t wanted)
{
    *seen = (scene){.module = module, .state = PyModule_GetState(module)};
    if (count != wanted || !PyTuple_CheckExact(args[0]) || PyTuple_Size(args[0]) != PARTS || !PyTuple_Check(args[2]) ||
        PyTuple_Size(args[2]) != DIRECT_FIELDS) {
        PyErr_SetString(PyExc_TypeError, "a commit takes what an environment is made of, who commits, and what");
        return false;
    }
    for (Py_ssize_t i = 0; i < PARTS; i++) {
        seen->parts[i] = PyTuple_GetItem(args[0], i);
    }
    seen->caller = args[1];
    seen->direct = args[2];
    PyObject *given = PyTuple_GetItem(seen->direct, DIRECT_TIME);
    seen->now_us = given == Py_None ? time_us(seen->state, seen->parts[PART_TIME]) : shared(given); /* may be Python code */
    return seen->now_us != NULL;
}

void sl_scene_close(scene *seen)
{
    PyObject *owned[] = {seen->last, seen->waiting, seen->transaction, seen->memory, seen->records, seen->rows,
                         seen->session, seen->now_us};
    for (size_t i = 0; i < sizeof owned / sizeof owned[0]; i++) {
        Py_XDECREF(owned[i]);
    }
}

/* --- what is made --------------------------------------------------------------------------------------- */

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

bool sl_scene_make(const scene *seen, brought *all)
{
    const module_state *state = seen->state;
    PyObject *direct = seen->direct;
    PyObject *head = shared(head_for(state, seen->memory, direct)); /* the memory lets go of it */
    PyObject *changes = head == NULL ? NULL : changes_for(seen->module, seen->parts, direct, head);
    *all = (brought){NULL, PyList_New(1), PyDict_New()};
    if (changes != NULL && all->records != NULL && all->rows != NULL && is_behind(state, seen->memory, direct)) {
        PyObject *const args[] = {
            seen->memory, PyTuple_GetItem(direct, DIRECT_THREAD), PyTuple_GetItem(direct, DIRECT_BRANCH), head, head,
            PyTuple_GetItem(head, HEAD_STATE), changes, Py_False, PyTuple_GetItem(direct, DIRECT_METADATA),
            PyTuple_GetItem(direct, DIRECT_WRITTEN), seen->now_us, Py_None, PyTuple_GetItem(direct, DIRECT_ID),
        };
        (void)PyObject_SetAttr(seen->caller, state->names[NAME_LAST], Py_None); /* until all of it is in */
        all->made = sl_checkpoint(seen->module, args, sizeof args / sizeof args[0]);
        if (all->made != NULL && !PyTuple_Check(all->made)) { /* nothing was done */
            (void)PyObject_SetAttr(seen->caller, state->names[NAME_LAST], seen->last);
            Py_DECREF(all->made);
            all->made = NULL;
        }
    }
    Py_XDECREF(head);
    Py_XDECREF(changes);
    return all->made != NULL && PyList_SetItem(all->records, 0, shared(PyTuple_GetItem(all->made, MADE_RECORD))) == 0 &&
           PyDict_SetItem(all->rows, PyTuple_GetItem(all->made, MADE_PAGE_KEY), PyTuple_GetItem(all->made, MADE_PAGE)) == 0 &&
           (PyTuple_GetItem(all->made, MADE_MORE) == Py_None ||
            PyDict_Update(all->rows, PyTuple_GetItem(all->made, MADE_MORE)) == 0);
}

void sl_brought_drop(brought *all)
{
    Py_XDECREF(all->made);
    Py_XDECREF(all->records);
    Py_XDECREF(all->rows);
}

size_t sl_scene_write(const scene *seen, const brought *all)
{
    view session;
    view record;
    if (!read_bytes(seen->session, &session) || !read_bytes(PyTuple_GetItem(all->made, MADE_RECORD), &record) ||
        record.size > GROUP_SIZE_MAX - SL_GROUP_OVERHEAD || session.size != SL_SESSION_SIZE) {
        return 0;
    }
    uint8_t *group = seen->state->room->output + SL_SESSION_SIZE;
    size_t size = sl_write_group(group, session.bytes, (uint64_t)seen->epoch, (uint64_t)seen->lsn,
                                 (uint64_t)seen->flushed, record);
    return pwrite((int)seen->descriptor, group, size, (off_t)seen->at) == (ssize_t)size ? size : 0;
}

#else

bool sl_scene_open(scene *seen, PyObject *module, PyObject *const *args, Py_ssize_t count, Py_ssize_t wanted)
{
    (void)args, (void)count, (void)wanted;
    *seen = (scene){.module = module};
    return true;
}

void sl_scene_close(scene *seen) { (void)seen; }

bool sl_scene_look(scene *seen, bool is_flushed)
{
    (void)seen, (void)is_flushed;
    return false;
}

bool sl_scene_make(const scene *seen, brought *all)
{
    (void)seen, (void)all;
    return false;
}

void sl_brought_drop(brought *all) { (void)all; }

size_t sl_scene_write(const scene *seen, const brought *all)
{
    (void)seen, (void)all;
    return 0;
}

#endif
