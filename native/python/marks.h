/* What commits look at and note, as members in C of Python's objects (marks.c): Python reads and sets them by name.
 *
 * Trust: an object is of the type that its place says, which who gives it out has checked (`sl_marks_are`).
 */
#ifndef STATELOG_MARKS_H
#define STATELOG_MARKS_H

#include "objects.h"

enum { MARKS_OBJECTS = 4, MARKS_NUMBERS = 7, MARKS_FLAGS = 2 };

/* Objects: owned, NULL reads as None. */
typedef struct {
    PyObject_HEAD
    PyObject *objects[MARKS_OBJECTS];
    long long numbers[MARKS_NUMBERS];
    double time_s;
    char flags[MARKS_FLAGS];
} marks;

/* Places in `objects`, `numbers` and `flags`, type by type. */
enum { COMMITTER_LEADER };
enum { COMMITTER_GROUPS, COMMITTER_COMMITS, COMMITTER_EXPECTED };

enum { DEFERRED_TRANSACTION, DEFERRED_WAITING, DEFERRED_JOURNALED, DEFERRED_APPLIED };
enum {
    DEFERRED_SETTLING_THREAD, DEFERRED_APART, DEFERRED_COMMITS, DEFERRED_SIZE_MAX, DEFERRED_PAGES_MAX, DEFERRED_RECORDS_MAX,
    DEFERRED_NUMBER
};
enum { DEFERRED_HAS_ROOM, DEFERRED_IS_ON };

enum { ENVIRONMENT_LOCKS, ENVIRONMENT_HANDLES };
enum { ENVIRONMENT_PROCESS_ID, ENVIRONMENT_WRITER_THREAD, ENVIRONMENT_MAP_ADDRESS };
enum { ENVIRONMENT_IS_SHUT };

enum { LOOK_DESCRIPTOR, LOOK_PLACE, LOOK_TURN_US };

enum { KEEPER_COMMITS };
enum { KEEPER_IS_AT_WORK, KEEPER_FLUSHES };

enum { STEADY_SESSION };
enum { STEADY_AT, STEADY_END, STEADY_LSN, STEADY_FLUSHED, STEADY_EPOCH, STEADY_DESCRIPTOR, STEADY_SIZE };
enum { STEADY_IS_BROKEN, STEADY_IS_DIRTY };

enum { TRANSACTION_APPENDED, TRANSACTION_ROWS, TRANSACTION_WAITING };
enum { TRANSACTION_CHANGES, TRANSACTION_FIRST_LSN, TRANSACTION_SIZE, TRANSACTION_NUMBER };
enum { TRANSACTION_IS_FLUSHED };

enum { WAITING_RECORDS, WAITING_ROWS, WAITING_LAST };
enum { WAITING_FIRST_LSN, WAITING_SIZE, WAITING_COUNT };

enum { LAST_TRANSACTION, LAST_MEMORY };
enum { LAST_CHANGES };

enum { CACHE_YOUNG };
enum { CACHE_SIZE, CACHE_HALF, CACHE_OVERHEAD };

/* Make the types, and add them to the module; false, and there is an error. */
bool sl_marks_add(PyObject *module, module_state *state);

static inline bool sl_marks_are(const module_state *state, PyObject *object, marks_type type)
{
    return object != NULL && state->marks_types[type] != NULL &&
           PyObject_TypeCheck(object, (PyTypeObject *)state->marks_types[type]);
}

static inline marks *marks_of(PyObject *object) { return (marks *)(void *)object; }

static inline bool is_none(const PyObject *object) { return object == NULL || object == Py_None; }

/* Set a member to an object, which is shared. What was there may be the last of its kind: it goes here. */
static inline void set_member(marks *of, size_t place, PyObject *object)
{
    PyObject *before = of->objects[place];
    of->objects[place] = shared(object);
    Py_XDECREF(before);
}

#endif
