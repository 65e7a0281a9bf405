/* What a commit alone looks at, shared by the one that needs no flush (alone.c) and the one that does (flushed.c).
 *
 * Trust: objects.h. Invariant: between `sl_scene_look` and the last mark nothing runs Python code or lets go of the
 * interpreter's lock, but where flushed.c says so.
 */
#ifndef STATELOG_SCENE_H
#define STATELOG_SCENE_H

#include "marks.h"

enum {
    PART_COMMITTER, PART_DEFERRED, PART_ENVIRONMENT, PART_KEEPER, PART_STEADY, PART_WAKE, PART_TIME,
    PART_FIRST_LOCK, PART_SECOND_LOCK, PART_MUTEX, PART_QUEUE, PART_INSIDE, PART_ACTIVE, PART_PATH, PART_CHANNEL_KEYS, PART_CACHE,
    PARTS
};
enum {
    DIRECT_THREAD, DIRECT_BRANCH, DIRECT_WRITES, DIRECT_METADATA, DIRECT_WRITTEN, DIRECT_EXPECTED, DIRECT_IS_OPEN, DIRECT_ID,
    DIRECT_CHANGES, DIRECT_TIME, DIRECT_FIELDS
};
enum { ROLLBACK_TARGET = 2, ROLLBACK_METADATA = 4, ROLLBACK_EXPECTED, ROLLBACK_FIELDS }; /* thread and branch as above */
enum { END_TIME = 2 };
enum { HANDLES_PAGE_SIZE = 5 };
enum {
    MADE_HEAD, MADE_LSN, MADE_LOG_KEY, MADE_RECORD, MADE_PAGE_KEY, MADE_PAGE, MADE_NODE_ROWS, MADE_NODES, MADE_MORE
};
enum {
    ROWS_MAX = 2, /* of the index: its version page, and its id */
    GROUP_SIZE_MAX = 16 * 1024
};

/* One call: its arguments, borrowed, and what is taken out of Python's objects, owned. */
typedef struct {
    PyObject *module;
    const module_state *state;
    PyObject *parts[PARTS];
    marks *committer;
    marks *deferred;
    marks *environment;
    marks *keeper;
    marks *locks;
    marks *steady;
    marks *cache;
    PyObject *caller;
    PyObject *direct;
    bool is_rollback;
    bool is_first; /* nothing waits: what was put into LMDB last is gone on with */
    PyObject *now_us;
    PyObject *last;
    PyObject *waiting;
    PyObject *transaction;
    PyObject *memory;
    PyObject *records;
    PyObject *rows;
    PyObject *session;
    long long lsn;
    long long at;
} scene;

/* What a commit brings: what is handed out (statelog/log/direct.py); its record, in a list; its entries in the index. */
typedef struct {
    PyObject *made;
    PyObject *records;
    PyObject *rows;
} brought;

/* Begin with the arguments (parts, caller, direct, ...), so many; false, and there is an error. `sl_scene_close` follows. */
bool sl_scene_open(scene *seen, PyObject *module, PyObject *const *args, Py_ssize_t count, Py_ssize_t wanted);
void sl_scene_close(scene *seen);

/* Whether nobody is at work in the environment, nothing is due but a commit, and the caller's last is what waits last; or,
 * where nothing waits, what LMDB got last. */
bool sl_scene_look(scene *seen, bool is_flushed);

/* Make the checkpoint, after which the caller remembers nothing until it is in; false, and nothing was done, or what is
 * remembered may be half of it. `sl_brought_drop` follows. */
bool sl_scene_make(const scene *seen, brought *all);
void sl_brought_drop(brought *all);

/* Put the record into the journal, unflushed, under the interpreter's lock; return the size of its group, 0 of a failure. */
size_t sl_scene_write(const scene *seen, const brought *all);

/* Say of the transaction what it brings, and where the journal ends with its group. */
void sl_scene_describe(const scene *seen, const brought *all, size_t group_size, bool is_flushed);

/* Note that a commit, which is in the journal, waits for LMDB, and how much more may. `sl_scene_look` found all as it is. */
void sl_scene_note(const scene *seen, const brought *all, bool is_flushed);

/* Remember the nodes of a commit that is in, and return its checkpoint; or all that it is made of, where Python must. */
PyObject *sl_scene_result(const scene *seen, PyObject *made);

/* --- attributes ------------------------------------------------------------------------------------ */

static inline bool is_in(const module_state *state, PyObject *object, name_index name, const PyObject *wanted)
{
    PyObject *found = PyObject_GetAttr(object, state->names[name]);
    Py_XDECREF(found);
    return found == wanted;
}

/* Try to take a lock that is not to be waited for. */
static inline bool try_lock(const module_state *state, PyObject *lock)
{
    PyObject *taken = PyObject_CallMethodObjArgs(lock, state->names[NAME_ACQUIRE], Py_False, NULL);
    Py_XDECREF(taken);
    return taken == Py_True;
}

#endif
