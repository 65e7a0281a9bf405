/* The types of the objects whose members commits look at (marks.h).
 *
 * Why: a look at an attribute of Python's takes as long as five at a member, cold or not, and a commit takes forty.
 *
 * Trust: Python sets members through descriptors, which check types. Invariant: objects made are zero, as Python's are made.
 */
#include "marks.h"

#include <stddef.h>
#include <structmember.h>

#define OBJECT(NAME, PLACE) {NAME, T_OBJECT, offsetof(marks, objects) + (PLACE) * sizeof(PyObject *), 0, NULL}
#define NUMBER(NAME, PLACE) {NAME, T_LONGLONG, offsetof(marks, numbers) + (PLACE) * sizeof(long long), 0, NULL}
#define FLAG(NAME, PLACE) {NAME, T_BOOL, offsetof(marks, flags) + (PLACE), 0, NULL}
#define TIME(NAME) {NAME, T_DOUBLE, offsetof(marks, time_s), 0, NULL}
#define END {NULL, 0, 0, 0, NULL}

static PyMemberDef committer_members[] = {
    OBJECT("leader", COMMITTER_LEADER), NUMBER("groups", COMMITTER_GROUPS), NUMBER("commits", COMMITTER_COMMITS),
    NUMBER("expected", COMMITTER_EXPECTED), TIME("_delivered_at_s"), END,
};
static PyMemberDef deferred_members[] = {
    OBJECT("transaction", DEFERRED_TRANSACTION), OBJECT("waiting", DEFERRED_WAITING),
    OBJECT("journaled", DEFERRED_JOURNALED), OBJECT("applied", DEFERRED_APPLIED),
    NUMBER("settling_thread", DEFERRED_SETTLING_THREAD),
    NUMBER("apart", DEFERRED_APART), NUMBER("commits", DEFERRED_COMMITS), NUMBER("_size_bytes_max", DEFERRED_SIZE_MAX),
    NUMBER("_pages_max", DEFERRED_PAGES_MAX), NUMBER("_records_max", DEFERRED_RECORDS_MAX),
    NUMBER("number", DEFERRED_NUMBER), FLAG("has_room", DEFERRED_HAS_ROOM), FLAG("is_on", DEFERRED_IS_ON), END,
};
static PyMemberDef environment_members[] = {
    OBJECT("locks", ENVIRONMENT_LOCKS), OBJECT("handles", ENVIRONMENT_HANDLES),
    NUMBER("map_address", ENVIRONMENT_MAP_ADDRESS), NUMBER("process_id", ENVIRONMENT_PROCESS_ID),
    NUMBER("writer_thread", ENVIRONMENT_WRITER_THREAD),
    FLAG("is_shut", ENVIRONMENT_IS_SHUT), END,
};
static PyMemberDef keeper_members[] = {
    NUMBER("commits", KEEPER_COMMITS), FLAG("is_at_work", KEEPER_IS_AT_WORK), FLAG("flushes", KEEPER_FLUSHES), END,
};
static PyMemberDef look_members[] = {
    NUMBER("descriptor", LOOK_DESCRIPTOR), NUMBER("place", LOOK_PLACE), NUMBER("turn_us", LOOK_TURN_US), TIME("look_at_s"), END,
};
static PyMemberDef steady_members[] = {
    OBJECT("_session", STEADY_SESSION), NUMBER("at", STEADY_AT), NUMBER("end", STEADY_END), NUMBER("lsn", STEADY_LSN),
    NUMBER("flushed", STEADY_FLUSHED), NUMBER("_epoch", STEADY_EPOCH), NUMBER("_descriptor", STEADY_DESCRIPTOR),
    NUMBER("_size_bytes", STEADY_SIZE), FLAG("is_broken", STEADY_IS_BROKEN), FLAG("is_dirty", STEADY_IS_DIRTY), END,
};
static PyMemberDef transaction_members[] = {
    OBJECT("appended", TRANSACTION_APPENDED), OBJECT("rows", TRANSACTION_ROWS), OBJECT("waiting", TRANSACTION_WAITING),
    NUMBER("changes", TRANSACTION_CHANGES), NUMBER("first_lsn", TRANSACTION_FIRST_LSN),
    NUMBER("size_bytes", TRANSACTION_SIZE), NUMBER("number", TRANSACTION_NUMBER),
    FLAG("is_flushed", TRANSACTION_IS_FLUSHED), END,
};
static PyMemberDef waiting_members[] = {
    OBJECT("records", WAITING_RECORDS), OBJECT("rows", WAITING_ROWS), OBJECT("last", WAITING_LAST),
    NUMBER("first_lsn", WAITING_FIRST_LSN), NUMBER("size_bytes", WAITING_SIZE), NUMBER("count", WAITING_COUNT), END,
};
static PyMemberDef last_members[] = {
    OBJECT("transaction", LAST_TRANSACTION), OBJECT("memory", LAST_MEMORY), NUMBER("changes", LAST_CHANGES), END,
};
static PyMemberDef cache_members[] = {
    OBJECT("_young", CACHE_YOUNG), NUMBER("_size", CACHE_SIZE), NUMBER("_half", CACHE_HALF),
    NUMBER("_overhead", CACHE_OVERHEAD), END,
};

static int traverse(PyObject *self, visitproc visit, void *arg)
{
    Py_VISIT(Py_TYPE(self));
    for (size_t i = 0; i < MARKS_OBJECTS; i++) {
        Py_VISIT(marks_of(self)->objects[i]);
    }
    return 0;
}

static int clear(PyObject *self)
{
    for (size_t i = 0; i < MARKS_OBJECTS; i++) {
        Py_CLEAR(marks_of(self)->objects[i]);
    }
    return 0;
}

static void dealloc(PyObject *self)
{
    PyTypeObject *type = Py_TYPE(self);
    PyObject_GC_UnTrack(self);
    (void)clear(self);
    freefunc free_object = (freefunc)PyType_GetSlot(type, Py_tp_free);
    free_object(self);
    Py_DECREF(type);
}

bool sl_marks_add(PyObject *module, module_state *state)
{
    static const struct {
        const char *name; /* behind it, that in the module */
        PyMemberDef *members;
    } types[MARKS_TYPES] = {
        [MARKS_COMMITTER] = {"statelog._objects.CommitterMarks", committer_members},
        [MARKS_DEFERRED] = {"statelog._objects.DeferredMarks", deferred_members},
        [MARKS_ENVIRONMENT] = {"statelog._objects.EnvironmentMarks", environment_members},
        [MARKS_KEEPER] = {"statelog._objects.KeeperMarks", keeper_members},
        [MARKS_LOOK] = {"statelog._objects.LookMarks", look_members},
        [MARKS_STEADY] = {"statelog._objects.SteadyMarks", steady_members},
        [MARKS_TRANSACTION] = {"statelog._objects.TransactionMarks", transaction_members},
        [MARKS_WAITING] = {"statelog._objects.WaitingMarks", waiting_members},
        [MARKS_LAST] = {"statelog._objects.LastMarks", last_members},
        [MARKS_CACHE] = {"statelog._objects.CacheMarks", cache_members},
    };
    for (size_t i = 0; i < MARKS_TYPES; i++) {
        PyType_Slot slots[] = {
            {Py_tp_members, types[i].members}, {Py_tp_traverse, (void *)traverse}, {Py_tp_clear, (void *)clear},
            {Py_tp_dealloc, (void *)dealloc}, {0, NULL},
        };
        PyType_Spec spec = {
            types[i].name, sizeof(marks), 0, Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE | Py_TPFLAGS_HAVE_GC, slots,
        };
        state->marks_types[i] = PyType_FromModuleAndSpec(module, &spec, NULL);
        if (state->marks_types[i] == NULL || PyModule_AddType(module, (PyTypeObject *)state->marks_types[i]) < 0) {
            return false;
        }
    }
    return true;
}
