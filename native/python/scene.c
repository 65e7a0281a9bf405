/* What a commit or rollback alone looks at, and makes (scene.h). */
#define _GNU_SOURCE
#include "scene.h"

#ifndef _WIN32

#include <fcntl.h>
#include <time.h>
#include <unistd.h>

enum {
    PAYLOAD_SIZE_MAX = 8 * 1024,
    LARGE_SIZE_MIN = 4096,
    FOUND_SIZE_MAX = 4096,
    ENTRIES_MIN = 8, /* in a generation of the cache: a larger one is Python's */
    PAGES_OF_A_ROW = 2,
    PAGE_SIZE = 4096
};

/* --- the looks ---------------------------------------------------------------------------------------- */

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
static bool is_outside(const scene *seen)
{
    PyObject *thread = PyLong_FromUnsignedLong(PyThread_get_thread_ident());
    bool is_outside = thread != NULL && PySet_Contains(seen->parts[PART_INSIDE], thread) == 0;
    Py_XDECREF(thread);
    return is_outside;
}

/* Whether no other process waits to write, or to open the store, as `FileLocks.is_awaited` looks, once a turn. */
static bool is_awaited_by_none(marks *locks, double now_s)
{
    if (locks->time_s > now_s) {
        return true;
    }
#ifdef F_OFD_GETLK
    struct flock lock = {
        .l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = (off_t)locks->numbers[LOOK_PLACE], .l_len = 1,
    };
    if (locks->numbers[LOOK_TURN_US] > 0 && fcntl((int)locks->numbers[LOOK_DESCRIPTOR], F_OFD_GETLK, &lock) == 0 &&
        lock.l_type == F_UNLCK) {
        locks->time_s = now_s + 1e-6 * (double)locks->numbers[LOOK_TURN_US];
        return true;
    }
#endif
    return false;
}

/* Whether nobody is at work in the environment, and nothing is due but a commit. */
static bool is_quiet(const scene *seen, bool is_flushed)
{
    const module_state *state = seen->state;
    PyObject *const *parts = seen->parts;
    const marks *committer = seen->committer;
    const marks *environment = seen->environment;
    const marks *deferred = seen->deferred;
    const marks *keeper = seen->keeper;
    struct timespec now;
    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    double now_s = (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
    return is_none(committer->objects[COMMITTER_LEADER]) && is_awaited_by_none(seen->locks, now_s) &&
           marks_of(parts[PART_WAKE])->time_s > now_s &&
           environment->numbers[ENVIRONMENT_PROCESS_ID] == getpid() && environment->numbers[ENVIRONMENT_WRITER_THREAD] == 0 &&
           !environment->flags[ENVIRONMENT_IS_SHUT] && deferred->numbers[DEFERRED_SETTLING_THREAD] == 0 &&
           deferred->numbers[DEFERRED_APART] == 0 && deferred->flags[DEFERRED_HAS_ROOM] &&
           is_none(deferred->objects[DEFERRED_TRANSACTION]) && keeper->flags[KEEPER_IS_AT_WORK] &&
           !seen->steady->flags[STEADY_IS_BROKEN] && is_outside(seen) &&
           (is_flushed ? committer->numbers[COMMITTER_EXPECTED] == 1 && is_free(state, parts[PART_MUTEX])
                       : keeper->flags[KEEPER_FLUSHES] != 0 && is_free(state, parts[PART_FIRST_LOCK])) &&
           is_free(state, parts[PART_SECOND_LOCK]);
}

/* Find the transaction to go on with, and whether the log ends with it; false where Python must look. */
static bool find_transaction(scene *seen)
{
    const marks *waiting = marks_of(seen->waiting);
    const marks *deferred = seen->deferred;
    PyObject *last = waiting->objects[WAITING_LAST];
    seen->is_first = is_none(last);
    seen->transaction = shared(seen->is_first ? deferred->objects[DEFERRED_APPLIED] : last);
    seen->records = shared(waiting->objects[WAITING_RECORDS]);
    seen->rows = shared(waiting->objects[WAITING_ROWS]);
    if (!sl_marks_are(seen->state, seen->transaction, MARKS_TRANSACTION) || seen->records == NULL || seen->rows == NULL ||
        !PyList_CheckExact(seen->records) || !PyDict_CheckExact(seen->rows)) {
        return false;
    }
    if (!seen->is_first) {
        return waiting->numbers[WAITING_FIRST_LSN] + PyList_Size(seen->records) == seen->lsn;
    }
    const marks *transaction = marks_of(seen->transaction);
    PyObject *group = transaction->objects[TRANSACTION_APPENDED];
    return deferred->flags[DEFERRED_IS_ON] && transaction->numbers[TRANSACTION_NUMBER] == deferred->numbers[DEFERRED_NUMBER] &&
           !is_none(group) && PyList_CheckExact(group) &&
           transaction->numbers[TRANSACTION_FIRST_LSN] + PyList_Size(group) == seen->lsn &&
           PyList_Size(seen->records) == 0 && PyDict_Size(seen->rows) == 0;
}

/* Whether the caller's last commit is the one to go on with, and the journal has room behind it. */
static bool look(scene *seen)
{
    const module_state *state = seen->state;
    const marks *steady = seen->steady;
    seen->last = PyObject_GetAttr(seen->caller, state->names[NAME_LAST]);
    seen->waiting = shared(seen->deferred->objects[DEFERRED_WAITING]);
    if (!sl_marks_are(state, seen->last, MARKS_LAST) || !sl_marks_are(state, seen->waiting, MARKS_WAITING)) {
        return false;
    }
    const marks *last = marks_of(seen->last);
    seen->lsn = steady->numbers[STEADY_LSN] + 1;
    seen->at = steady->numbers[STEADY_AT];
    if (!find_transaction(seen) || last->objects[LAST_TRANSACTION] != seen->transaction ||
        last->numbers[LAST_CHANGES] != marks_of(seen->transaction)->numbers[TRANSACTION_CHANGES] ||
        marks_of(seen->transaction)->numbers[TRANSACTION_NUMBER] <= 0) {
        return false;
    }
    seen->memory = shared(last->objects[LAST_MEMORY]);
    seen->session = shared(steady->objects[STEADY_SESSION]);
    return seen->memory && seen->session && seen->lsn > 0 && seen->at >= 0 && steady->numbers[STEADY_FLUSHED] >= 0 &&
           steady->numbers[STEADY_EPOCH] >= 0 && steady->numbers[STEADY_DESCRIPTOR] >= 0 &&
           steady->numbers[STEADY_SIZE] - seen->at >= GROUP_SIZE_MAX;
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

/* The head that the commit or rollback follows, borrowed; NULL where what is remembered does not suffice. */
static PyObject *head_for(const scene *seen)
{
    const module_state *state = seen->state;
    PyObject *direct = seen->direct;
    PyObject *thread = PyTuple_GetItem(direct, DIRECT_THREAD);
    PyObject *branch = PyTuple_GetItem(direct, DIRECT_BRANCH);
    PyObject *heads = PyObject_GetAttr(seen->memory, state->names[NAME_HEADS]);
    PyObject *key = PyTuple_Pack(2, thread, branch);
    PyObject *head = heads && key ? PyDict_GetItemWithError(heads, key) : NULL;
    Py_XDECREF(heads); /* the memory keeps it */
    Py_XDECREF(key);
    PyObject *event = head == NULL ? NULL : PyTuple_GetItem(head, HEAD_EVENT);
    PyObject *of_head = event == NULL ? NULL : PyTuple_GetItem(event, EVENT_BRANCH);
    if (of_head == NULL || PyTuple_GetItem(head, HEAD_PAGE) == Py_None ||
        PyLong_AsLongLong(of_head) != PyLong_AsLongLong(branch) ||
        !is_expected(PyTuple_GetItem(direct, seen->is_rollback ? ROLLBACK_EXPECTED : DIRECT_EXPECTED), event)) {
        return NULL;
    }
    if (seen->is_rollback) {
        return head;
    }
    if (PyTuple_GetItem(head, HEAD_STATE) == Py_None) {
        return NULL;
    }
    if (PyTuple_GetItem(direct, DIRECT_IS_OPEN) == Py_True) {
        PyObject *threads = PyObject_GetAttr(seen->memory, state->names[NAME_OPEN_THREADS]);
        bool is_open = threads != NULL && PySet_Contains(threads, thread) == 1;
        Py_XDECREF(threads);
        return is_open ? head : NULL;
    }
    return head;
}

/* What a rollback goes back to, as sl_version_find gives it out; NULL where Python must look for it. Nobody writes to LMDB. */
static PyObject *target_for(const scene *seen, PyObject *head)
{
    uint8_t buffer[FOUND_SIZE_MAX];
    sl_output found = {buffer, sizeof buffer, 0, 0};
    uint64_t wanted;
    uint64_t last;
    uint64_t thread;
    uint64_t branch;
    uint64_t page_size;
    PyObject *named = PyTuple_GetItem(seen->direct, ROLLBACK_TARGET);
    PyObject *handles = seen->environment->objects[ENVIRONMENT_HANDLES];
    long long address = seen->environment->numbers[ENVIRONMENT_MAP_ADDRESS];
    bool is_number = named != NULL && PyLong_CheckExact(named) && read_number(named, &wanted) &&
                     read_number_at(PyTuple_GetItem(head, HEAD_EVENT), EVENT_VERSION, &last) && wanted <= last;
    if (!is_number || is_none(handles) || !PyTuple_Check(handles) || address == 0 ||
        !read_number_at(handles, HANDLES_PAGE_SIZE, &page_size) || !read_number_at(seen->direct, DIRECT_THREAD, &thread) ||
        !read_number_at(seen->direct, DIRECT_BRANCH, &branch) || branch > UINT32_MAX || wanted > UINT32_MAX) {
        return NULL;
    }
    int status = sl_version_find((uint64_t)address, (size_t)page_size, (uint64_t)seen->deferred->numbers[DEFERRED_NUMBER],
                                 thread, (uint32_t)branch, (uint32_t)wanted, &found);
    return status == SL_OK ? bytes_of(buffer, found.size) : NULL;
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
static PyObject *changes_for(const scene *seen, PyObject *head)
{
    PyObject *const args[] = {PyTuple_GetItem(seen->direct, DIRECT_WRITES), PyTuple_GetItem(head, HEAD_LISTS),
                              seen->parts[PART_CHANNEL_KEYS]};
    PyObject *given = PyTuple_GetItem(seen->direct, DIRECT_CHANGES);
    PyObject *changes = given == NULL || given == Py_None ? sl_plain_changes(seen->module, args, sizeof args / sizeof args[0])
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

bool sl_scene_look(scene *seen, bool is_flushed) { return is_quiet(seen, is_flushed) && look(seen); }

/* --- the call ------------------------------------------------------------------------------------------- */

static PyObject *time_us(const module_state *state, PyObject *time)
{
    PyObject *now_ns = PyObject_CallMethodObjArgs(time, state->names[NAME_TIME_NS], NULL);
    long long ns = now_ns == NULL ? -1 : PyLong_AsLongLong(now_ns);
    Py_XDECREF(now_ns);
    return ns == -1 && PyErr_Occurred() ? NULL : PyLong_FromLongLong(ns / 1000);
}

/* Find the parts whose members are looked at; false, and there is an error, if one is not what it should be. */
static bool find_parts(scene *seen)
{
    static const struct {
        size_t part;
        marks_type type;
    } wanted_parts[] = {
        {PART_COMMITTER, MARKS_COMMITTER}, {PART_DEFERRED, MARKS_DEFERRED}, {PART_ENVIRONMENT, MARKS_ENVIRONMENT},
        {PART_KEEPER, MARKS_KEEPER}, {PART_STEADY, MARKS_STEADY}, {PART_WAKE, MARKS_LOOK},
        {PART_CACHE, MARKS_CACHE},
    };
    for (size_t i = 0; i < sizeof wanted_parts / sizeof wanted_parts[0]; i++) {
        if (!sl_marks_are(seen->state, seen->parts[wanted_parts[i].part], wanted_parts[i].type)) {
            PyErr_SetString(PyExc_TypeError, "a part of the environment is none");
            return false;
        }
    }
    seen->committer = marks_of(seen->parts[PART_COMMITTER]);
    seen->deferred = marks_of(seen->parts[PART_DEFERRED]);
    seen->environment = marks_of(seen->parts[PART_ENVIRONMENT]);
    PyObject *locks = seen->environment->objects[ENVIRONMENT_LOCKS]; /* others after a compaction */
    if (!sl_marks_are(seen->state, locks, MARKS_LOOK)) {
        PyErr_SetString(PyExc_TypeError, "an environment's locks are none");
        return false;
    }
    seen->locks = marks_of(locks);
    seen->keeper = marks_of(seen->parts[PART_KEEPER]);
    seen->steady = marks_of(seen->parts[PART_STEADY]);
    seen->cache = marks_of(seen->parts[PART_CACHE]);
    return true;
}

bool sl_scene_open(scene *seen, PyObject *module, PyObject *const *args, Py_ssize_t count, Py_ssize_t wanted)
{
    *seen = (scene){.module = module, .state = PyModule_GetState(module)};
    Py_ssize_t fields = count == wanted && PyTuple_Check(args[2]) ? PyTuple_Size(args[2]) : 0;
    if ((fields != DIRECT_FIELDS && fields != ROLLBACK_FIELDS) || !PyTuple_CheckExact(args[0]) ||
        PyTuple_Size(args[0]) != PARTS) {
        PyErr_SetString(PyExc_TypeError, "a commit takes what an environment is made of, who commits, and what");
        return false;
    }
    for (Py_ssize_t i = 0; i < PARTS; i++) {
        seen->parts[i] = PyTuple_GetItem(args[0], i);
    }
    seen->caller = args[1];
    seen->direct = args[2];
    seen->is_rollback = fields == ROLLBACK_FIELDS;
    PyObject *given = seen->is_rollback ? Py_None : PyTuple_GetItem(seen->direct, DIRECT_TIME);
    seen->now_us = given == Py_None ? time_us(seen->state, seen->parts[PART_TIME]) : shared(given); /* may be Python code */
    return seen->now_us != NULL && find_parts(seen);
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
static bool is_behind(const scene *seen)
{
    uint64_t last_us;
    uint64_t wanted_us;
    PyObject *wanted = PyTuple_GetItem(seen->direct, DIRECT_TIME);
    if (wanted == Py_None) {
        return true;
    }
    PyObject *end = PyObject_GetAttr(seen->memory, seen->state->names[NAME_END]);
    bool is_behind = end != NULL && read_number_at(end, END_TIME, &last_us) && read_number(wanted, &wanted_us) &&
                     wanted_us > last_us;
    Py_XDECREF(end);
    return is_behind;
}

bool sl_scene_make(const scene *seen, brought *all)
{
    const module_state *state = seen->state;
    PyObject *direct = seen->direct;
    bool goes_back = seen->is_rollback;
    PyObject *head = shared(head_for(seen)); /* the memory lets go of it */
    PyObject *parent = head != NULL && goes_back ? target_for(seen, head) : shared(head);
    PyObject *changes = parent == NULL ? NULL : goes_back ? PyTuple_New(0) : changes_for(seen, head);
    *all = (brought){NULL, PyList_New(1), PyDict_New()};
    if (changes != NULL && all->records != NULL && all->rows != NULL && (goes_back || is_behind(seen))) {
        PyObject *const args[] = {
            seen->memory, PyTuple_GetItem(direct, DIRECT_THREAD), PyTuple_GetItem(direct, DIRECT_BRANCH), head, parent,
            goes_back ? state->no_node : PyTuple_GetItem(head, HEAD_STATE),
            goes_back ? changes : PyTuple_GetItem(head, HEAD_OPENS), changes, goes_back ? Py_True : Py_False,
            PyTuple_GetItem(direct, goes_back ? ROLLBACK_METADATA : DIRECT_METADATA),
            goes_back ? state->nothing_borrowed : PyTuple_GetItem(direct, DIRECT_WRITTEN), /* no names: the same item */
            seen->now_us, Py_None, goes_back ? Py_None : PyTuple_GetItem(direct, DIRECT_ID),
        };
        (void)PyObject_SetAttr(seen->caller, state->names[NAME_LAST], Py_None); /* until all of it is in */
        all->made = sl_checkpoint(seen->module, args, sizeof args / sizeof args[0]);
        if (all->made != NULL && !PyTuple_Check(all->made)) { /* nothing was done */
            (void)PyObject_SetAttr(seen->caller, state->names[NAME_LAST], seen->last);
            Py_DECREF(all->made);
            all->made = NULL;
        }
    }
    Py_XDECREF(parent);
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
    const long long *numbers = seen->steady->numbers;
    size_t size = sl_write_group(group, session.bytes, (uint64_t)numbers[STEADY_EPOCH], (uint64_t)seen->lsn,
                                 (uint64_t)numbers[STEADY_FLUSHED], record);
    return pwrite((int)numbers[STEADY_DESCRIPTOR], group, size, (off_t)seen->at) == (ssize_t)size ? size : 0;
}

void sl_scene_describe(const scene *seen, const brought *all, size_t group_size, bool is_flushed)
{
    marks *transaction = marks_of(seen->transaction);
    transaction->numbers[TRANSACTION_CHANGES] += 1 + PyDict_Size(all->rows);
    transaction->numbers[TRANSACTION_FIRST_LSN] = seen->lsn;
    transaction->numbers[TRANSACTION_SIZE] = PyBytes_Size(PyTuple_GetItem(all->made, MADE_RECORD));
    transaction->flags[TRANSACTION_IS_FLUSHED] = is_flushed;
    set_member(transaction, TRANSACTION_APPENDED, all->records);
    set_member(transaction, TRANSACTION_ROWS, all->rows);
    set_member(transaction, TRANSACTION_WAITING, seen->waiting);
    seen->steady->numbers[STEADY_END] = seen->at + (long long)group_size;
    seen->keeper->numbers[KEEPER_COMMITS]++;
}

void sl_scene_note(const scene *seen, const brought *all, bool is_flushed)
{
    marks *waiting = marks_of(seen->waiting);
    marks *deferred = seen->deferred;
    marks *steady = seen->steady;
    Py_ssize_t record_size = PyBytes_Size(PyTuple_GetItem(all->made, MADE_RECORD));
    long long size = waiting->numbers[WAITING_SIZE] + (long long)sl_log_share((uint64_t)record_size);
    steady->numbers[STEADY_AT] = steady->numbers[STEADY_END];
    steady->numbers[STEADY_LSN] = seen->lsn;
    if (is_flushed) {
        steady->numbers[STEADY_FLUSHED] = seen->lsn;
    }
    if (seen->is_first) {
        waiting->numbers[WAITING_FIRST_LSN] = seen->lsn;
        set_member(waiting, WAITING_LAST, seen->transaction);
    }
    waiting->numbers[WAITING_SIZE] = size;
    waiting->numbers[WAITING_COUNT]++;
    marks_of(seen->last)->numbers[LAST_CHANGES] = marks_of(seen->transaction)->numbers[TRANSACTION_CHANGES];
    deferred->numbers[DEFERRED_COMMITS]++;
    seen->committer->numbers[COMMITTER_COMMITS]++;
    seen->committer->numbers[COMMITTER_GROUPS]++;
    deferred->flags[DEFERRED_HAS_ROOM] =
        size <= deferred->numbers[DEFERRED_SIZE_MAX] &&
        PAGES_OF_A_ROW * PyDict_Size(seen->rows) + size / PAGE_SIZE <= deferred->numbers[DEFERRED_PAGES_MAX] &&
        PyList_Size(seen->records) < deferred->numbers[DEFERRED_RECORDS_MAX];
}

PyObject *sl_scene_result(const scene *seen, PyObject *made)
{
    PyObject *rows = PyTuple_GetItem(made, MADE_NODE_ROWS);
    PyObject *data = PyTuple_GetItem(made, MADE_NODES);
    PyObject *young = seen->cache->objects[CACHE_YOUNG];
    long long *numbers = seen->cache->numbers;
    bool is_all = rows == Py_None || data == Py_None;
    if (!is_all && young != NULL && PyDict_CheckExact(young)) {
        long long size = PyBytes_Size(rows) + PyBytes_Size(data) + numbers[CACHE_OVERHEAD];
        if (size <= numbers[CACHE_HALF] / ENTRIES_MIN && numbers[CACHE_SIZE] + size <= numbers[CACHE_HALF]) {
            PyObject *entry = PyTuple_Pack(2, rows, data);
            is_all = entry != NULL && PyDict_SetItem(young, PyTuple_GetItem(made, MADE_LSN), entry) == 0;
            Py_XDECREF(entry);
            PyErr_Clear();
            numbers[CACHE_SIZE] += is_all ? size : 0;
        }
    }
    return shared(is_all ? PyTuple_GetItem(made, MADE_HEAD) : made);
}

#else

PyObject *sl_scene_result(const scene *seen, PyObject *made)
{
    (void)seen;
    return shared(made);
}

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

void sl_scene_describe(const scene *seen, const brought *all, size_t group_size, bool is_flushed)
{
    (void)seen, (void)all, (void)group_size, (void)is_flushed;
}

void sl_scene_note(const scene *seen, const brought *all, bool is_flushed) { (void)seen, (void)all, (void)is_flushed; }

#endif
