/* A commit alone that ends with a flush (statelog/storage/commit/fast_path.py, D6).
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
    if (!call(state, seen->parts[PART_INSIDE], NAME_ADD, thread, NULL) ||
        !call(state, seen->parts[PART_ACTIVE], NAME_ADD, seen->transaction, NULL)) {
        return false;
    }
    seen->environment->numbers[ENVIRONMENT_WRITER_THREAD] = (long long)PyThread_get_thread_ident();
    set_member(seen->deferred, DEFERRED_TRANSACTION, seen->transaction);
    set_member(seen->committer, COMMITTER_LEADER, request);
    return true;
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
        seen->committer->numbers[COMMITTER_EXPECTED] = count_flushed(state, queue);
        (void)clock_gettime(CLOCK_MONOTONIC, &now);
        seen->committer->time_s = (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
        next = PyObject_CallMethodObjArgs(queue, state->names[NAME_POPLEFT], NULL);
    } else {
        Py_INCREF(next);
    }
    set_member(seen->committer, COMMITTER_LEADER, next);
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
    set_member(seen->deferred, DEFERRED_TRANSACTION, Py_None);
    seen->environment->numbers[ENVIRONMENT_WRITER_THREAD] = 0;
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
    int descriptor = (int)seen->steady->numbers[STEADY_DESCRIPTOR];
    PyThreadState *thread = PyEval_SaveThread();
    do {
        error = fdatasync(descriptor) == 0 ? 0 : errno;
    } while (error == EINTR);
    PyEval_RestoreThread(thread);
    return error;
}

/* Whether what waits is still what `sl_scene_look` found. */
static bool is_unchanged(const scene *seen)
{
    const marks *waiting = marks_of(seen->waiting);
    if (seen->is_first) {
        return is_none(waiting->objects[WAITING_LAST]) && PyList_Size(seen->records) == 0;
    }
    return waiting->objects[WAITING_LAST] == seen->transaction &&
           waiting->numbers[WAITING_FIRST_LSN] + PyList_Size(seen->records) == seen->lsn;
}

/* Put it among what waits, if that is what it was before the flush; false: Python is to do it, from the beginning. The lock
 * comes before the looks: to take it may run a finalizer, which may have all that waits put into LMDB. */
static bool enter(const scene *seen, const brought *all)
{
    bool is_in = false;
    int is_collecting = PyGC_Disable();
    bool is_locked = try_lock(seen->state, seen->parts[PART_SECOND_LOCK]);
    if (is_locked && seen->deferred->objects[DEFERRED_WAITING] == seen->waiting && is_unchanged(seen)) {
        is_in = PyDict_Update(seen->rows, all->rows) == 0 &&
                PyList_Append(seen->records, PyTuple_GetItem(all->made, MADE_RECORD)) == 0;
    }
    if (is_in) {
        sl_scene_note(seen, all, true);
    }
    PyErr_Clear();
    if (is_locked) {
        (void)call(seen->state, seen->parts[PART_SECOND_LOCK], NAME_RELEASE, NULL, NULL);
        PyErr_Clear();
    }
    if (is_collecting) {
        (void)PyGC_Enable();
    }
    return is_in;
}

/* Let the commit, which is on the disk, wait for LMDB. */
static bool take_over(const scene *seen, const brought *all)
{
    const module_state *state = seen->state;
    seen->steady->flags[STEADY_IS_DIRTY] = false;
    if (!enter(seen, all)) {
        long long changes = marks_of(seen->transaction)->numbers[TRANSACTION_CHANGES];
        set_member(seen->deferred, DEFERRED_JOURNALED, seen->transaction);
        if (!call(state, seen->parts[PART_DEFERRED], NAME_TAKE_OVER, NULL, NULL)) {
            return false;
        }
        marks_of(seen->last)->numbers[LAST_CHANGES] = changes;
        seen->committer->numbers[COMMITTER_COMMITS]++;
        seen->committer->numbers[COMMITTER_GROUPS]++;
    }
    return set(state, seen->caller, NAME_LAST, seen->last);
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
    if (size > 0) {
        sl_scene_describe(seen, all, size, true);
        seen->steady->numbers[STEADY_LSN] = -1; /* until it is flushed nobody knows the journal's end */
    }
    if (is_collecting) {
        (void)PyGC_Enable();
    }
    if (size == 0) {
        PyErr_Clear();
        return NULL;
    }
    int error = flush(seen);
    bool is_in = (error == 0 && take_over(seen, all)) || settle(seen, error);
    return is_in ? shared(all->made) : NULL;
}

/* commit_flushed(parts, caller, direct, request) */
PyObject *sl_commit_flushed(PyObject *module, PyObject *const *args, Py_ssize_t count)
{
    scene seen;
    brought all = {NULL, NULL, NULL};
    PyObject *made = NULL;
    PyObject *thread = PyLong_FromUnsignedLong(PyThread_get_thread_ident());
    if (!sl_scene_open(&seen, module, args, count, 4) || thread == NULL) {
        sl_scene_close(&seen);
        Py_XDECREF(thread);
        return NULL;
    }
    int is_collecting = PyGC_Disable(); /* up to the flush: its finalizers would be Python code */
    bool is_locked = sl_scene_look(&seen, true) && try_lock(seen.state, seen.parts[PART_FIRST_LOCK]); /* who waits has it else */
    if (is_locked && sl_scene_make(&seen, &all) && mark(&seen, args[3], thread)) {
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
    PyObject *result = made == NULL ? shared(Py_None) : PyErr_Occurred() ? NULL : sl_scene_result(&seen, made);
    Py_XDECREF(made);
    sl_brought_drop(&all);
    sl_scene_close(&seen);
    Py_DECREF(thread);
    if (PyErr_Occurred()) {
        Py_XDECREF(result);
        return NULL;
    }
    return result;
}

#else

PyObject *sl_commit_flushed(PyObject *module, PyObject *const *args, Py_ssize_t count)
{
    (void)module, (void)args, (void)count;
    return shared(Py_None);
}

#endif
