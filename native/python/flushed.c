/* A commit alone that ends with a flush (statelog/storage/fast_path.py, D6).
 *
 * Why: beside its flush such a commit is what one without takes, and marks. Up to the flush, and from its end on, this runs
 * as alone.c does; during the flush others run, who find the locks held and the marks set that Python's way holds and sets.
 *
 * Trust: see objects.h. Invariants: nothing of a commit is to be found before it is flushed; no handler of a signal runs from
 * the first mark until the flush has ended; whatever comes then, the marks are taken away.
 */
#include "scene.h"

#if defined(__linux__)

#include <errno.h>
#include <sched.h>
#include <time.h>
#include <unistd.h>

/* --- calls of Python's -------------------------------------------------------------------------------- */

static bool call(const module_state *state, PyObject *object, name_index name, PyObject *first, PyObject *second)
{
    PyObject *result = PyObject_CallMethodObjArgs(object, state->names[name], first, second, NULL);
    Py_XDECREF(result);
    return result != NULL;
}

static bool set(const module_state *state, PyObject *object, name_index name, PyObject *value)
{
    return PyObject_SetAttr(object, state->names[name], value) == 0;
}

/* --- marks -------------------------------------------------------------------------------------------- */

/* Show that a commit is under way, as `FastPath` does. The write lock is held. */
static bool mark(const scene *seen, PyObject *request, PyObject *thread)
{
    const module_state *state = seen->state;
    PyObject *const *parts = seen->parts;
    return call(state, parts[PART_INSIDE], NAME_ADD, thread, NULL) &&
           call(state, parts[PART_ACTIVE], NAME_ADD, seen->transaction, NULL) &&
           set(state, parts[PART_ENVIRONMENT], NAME_WRITER_THREAD, thread) &&
           set(state, parts[PART_DEFERRED], NAME_TRANSACTION, seen->transaction) &&
           set(state, parts[PART_COMMITTER], NAME_LEADER, request);
}

/* Say of the transaction what it brings, and of the journal that its end is not known. */
static bool describe(const scene *seen, const brought *all, size_t group_size)
{
    const module_state *state = seen->state;
    PyObject *transaction = seen->transaction;
    PyObject *steady = seen->parts[PART_STEADY];
    add_to(state, transaction, NAME_CHANGES, 1 + PyDict_Size(all->rows));
    set_number(state, transaction, NAME_FIRST_LSN, seen->lsn);
    set_number(state, transaction, NAME_SIZE_BYTES, PyBytes_Size(PyTuple_GetItem(all->made, MADE_RECORD)));
    set_number(state, steady, NAME_END, seen->at + (long long)group_size);
    set_number(state, steady, NAME_LSN, -1);
    add_to(state, seen->parts[PART_KEEPER], NAME_COMMITS, 1);
    return set(state, transaction, NAME_APPENDED, all->records) && set(state, transaction, NAME_ROWS, all->rows) &&
           set(state, transaction, NAME_WAITING, seen->waiting) && set(state, transaction, NAME_IS_FLUSHED, Py_True) &&
           !PyErr_Occurred();
}

/* How many of those who queue wait for a flush, as `Committer.pass_on` counts; one at least. */
static long long count_flushed(const module_state *state, PyObject *queue)
{
    long long count = 1; /* the commit that has ended */
    PyObject *iterator = PyObject_GetIter(queue);
    PyObject *waiting = iterator == NULL ? NULL : PyIter_Next(iterator);
    while (waiting != NULL) {
        count += is_in(state, waiting, NAME_IS_FLUSHED, Py_True);
        Py_DECREF(waiting);
        waiting = PyIter_Next(iterator);
    }
    Py_XDECREF(iterator);
    return count;
}

/* Let the first who queues commit next, as `Committer.pass_on` does, but in no function of Python's, which a handler of a
 * signal could keep from its first line. */
static void pass_on(const scene *seen)
{
    const module_state *state = seen->state;
    PyObject *committer = seen->parts[PART_COMMITTER];
    PyObject *queue = seen->parts[PART_QUEUE];
    struct timespec now;
    while (!try_lock(state, seen->parts[PART_MUTEX])) { /* it is never held for long */
        PyErr_Clear();
        PyThreadState *thread = PyEval_SaveThread();
        (void)sched_yield();
        PyEval_RestoreThread(thread);
    }
    PyObject *next = Py_None;
    if (PyObject_Length(queue) > 0) {
        set_number(state, committer, NAME_EXPECTED, count_flushed(state, queue));
        (void)clock_gettime(CLOCK_MONOTONIC, &now);
        PyObject *now_s = PyFloat_FromDouble((double)now.tv_sec + 1e-9 * (double)now.tv_nsec);
        (void)set(state, committer, NAME_DELIVERED_AT_S, now_s);
        Py_XDECREF(now_s);
        next = PyObject_CallMethodObjArgs(queue, state->names[NAME_POPLEFT], NULL);
    } else {
        Py_INCREF(next);
    }
    (void)set(state, committer, NAME_LEADER, next);
    (void)call(state, seen->parts[PART_MUTEX], NAME_RELEASE, NULL, NULL);
    PyObject *gate = next == NULL || next == Py_None ? NULL : PyObject_GetAttr(next, state->names[NAME_GATE]);
    if (gate != NULL) {
        (void)call(state, gate, NAME_RELEASE, NULL, NULL);
        Py_DECREF(gate);
    }
    Py_XDECREF(next);
}

/* Take the marks away, and let the next commit. An error that there is stays. */
static void unmark(const scene *seen, PyObject *thread)
{
    const module_state *state = seen->state;
    PyObject *const *parts = seen->parts;
    PyObject *type;
    PyObject *value;
    PyObject *traceback;
    PyErr_Fetch(&type, &value, &traceback);
    (void)set(state, parts[PART_DEFERRED], NAME_TRANSACTION, Py_None);
    set_number(state, parts[PART_ENVIRONMENT], NAME_WRITER_THREAD, 0);
    (void)call(state, parts[PART_ACTIVE], NAME_DISCARD, seen->transaction, NULL);
    (void)call(state, parts[PART_FIRST_LOCK], NAME_RELEASE, NULL, NULL);
    PyErr_Clear();
    pass_on(seen);
    (void)call(state, parts[PART_INSIDE], NAME_DISCARD, thread, NULL);
    PyErr_Clear();
    PyErr_Restore(type, value, traceback);
}

/* --- the commit --------------------------------------------------------------------------------------- */

/* Flush the journal, others running meanwhile; return 0, or the error's number. */
static int flush(const scene *seen)
{
    int error = 0;
    PyThreadState *thread = PyEval_SaveThread();
    do {
        error = fdatasync((int)seen->descriptor) == 0 ? 0 : errno;
    } while (error == EINTR);
    PyEval_RestoreThread(thread);
    return error;
}

/* Let the commit, which is on the disk, wait for LMDB. */
static bool take_over(const scene *seen)
{
    const module_state *state = seen->state;
    PyObject *const *parts = seen->parts;
    PyObject *changes = PyObject_GetAttr(seen->transaction, state->names[NAME_CHANGES]);
    bool is_done = changes != NULL && set(state, parts[PART_STEADY], NAME_IS_DIRTY, Py_False) &&
                   set(state, parts[PART_DEFERRED], NAME_JOURNALED, seen->transaction) &&
                   call(state, parts[PART_DEFERRED], NAME_TAKE_OVER, NULL, NULL) &&
                   set(state, seen->last, NAME_CHANGES, changes) && set(state, seen->caller, NAME_LAST, seen->last);
    Py_XDECREF(changes);
    if (is_done) {
        add_to(state, parts[PART_COMMITTER], NAME_COMMITS, 1);
        add_to(state, parts[PART_COMMITTER], NAME_GROUPS, 1);
    }
    return is_done;
}

/* Have Python find out what became of a commit that failed; true if it is in. */
static bool settle(const scene *seen, int error)
{
    PyObject *type = NULL;
    PyObject *failure = NULL;
    PyObject *traceback = NULL;
    if (error != 0) {
        failure = PyLong_FromLong(error);
    } else {
        PyErr_Fetch(&type, &failure, &traceback);
        PyErr_NormalizeException(&type, &failure, &traceback);
    }
    bool is_in = false;
    if (failure != NULL) {
        PyObject *settled = PyObject_CallMethodObjArgs(seen->parts[PART_PATH], seen->state->names[NAME_SETTLE],
                                                       seen->parts[PART_COMMITTER], seen->transaction, failure, NULL);
        is_in = settled != NULL;
        Py_XDECREF(settled);
    }
    Py_XDECREF(type);
    Py_XDECREF(failure);
    Py_XDECREF(traceback);
    return is_in;
}

/* Commit with the marks set; NULL without an error, and nothing was done, where Python must. */
static PyObject *commit(const scene *seen, const brought *all, int is_collecting)
{
    size_t size = sl_scene_write(seen, all);
    bool is_begun = size > 0 && describe(seen, all, size);
    if (is_collecting) {
        (void)PyGC_Enable();
    }
    if (!is_begun) {
        PyErr_Clear();
        return NULL;
    }
    int error = flush(seen);
    bool is_in = (error == 0 && take_over(seen)) || settle(seen, error);
    return is_in ? shared(all->made) : NULL;
}

/* commit_flushed(parts, caller, direct, request) */
PyObject *sl_commit_flushed(PyObject *module, PyObject *const *args, Py_ssize_t count)
{
    scene seen;
    brought all = {NULL, NULL, NULL};
    PyObject *made = NULL;
    bool is_locked = false;
    PyObject *thread = PyLong_FromUnsignedLong(PyThread_get_thread_ident());
    if (!sl_scene_open(&seen, module, args, count, 4) || thread == NULL) {
        sl_scene_close(&seen);
        Py_XDECREF(thread);
        return NULL;
    }
    int is_collecting = PyGC_Disable(); /* up to the flush: its finalizers would be Python code */
    if (sl_scene_look(&seen, true) && sl_scene_make(&seen, &all)) {
        is_locked = try_lock(seen.state, seen.parts[PART_FIRST_LOCK]);
    }
    if (is_locked && mark(&seen, args[3], thread)) {
        made = commit(&seen, &all, is_collecting);
        is_collecting = 0;
    } else {
        PyErr_Clear(); /* whatever it was, Python meets it, too */
    }
    if (is_locked) {
        unmark(&seen, thread);
    }
    if (is_collecting) {
        (void)PyGC_Enable();
    }
    sl_brought_drop(&all);
    sl_scene_close(&seen);
    Py_DECREF(thread);
    if (PyErr_Occurred()) {
        Py_XDECREF(made);
        return NULL;
    }
    return made == NULL ? shared(Py_None) : made;
}

#else

PyObject *sl_commit_flushed(PyObject *module, PyObject *const *args, Py_ssize_t count)
{
    (void)module, (void)args, (void)count;
    return shared(Py_None);
}

#endif
