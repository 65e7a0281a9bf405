/* The record of the common checkpoint, from what Python remembers of the last one (statelog/log/direct.py).
 *
 * Why beside the bindings that cffi makes: half of such a commit is the interpreter, taking numbers out of named tuples
 * for a kernel and putting its results into others. Here both are done in C, around the same kernels.
 *
 * Trust: see objects.h. Invariants: what is remembered changes in the last lines alone, which only a want of memory can cut
 * short (then all of it is forgotten: log/engine.py); between `sl_step_begin` and the last byte copied out of `room` nothing
 * is called that may run Python code.
 */
#include "objects.h"

enum {
    DIGESTS_SIZE = 3 * SL_DIGEST_SIZE,
    CHECKSUM_SIZE = 8,
    LOG_KEY_SIZE = 8,
    PAGE_KEY_SIZE = 1 + 8 + 4 + 4,
    VERSIONS_PER_PAGE = 32,
    ID_ITEM_SIZE_MAX = 2 + SL_ID_SIZE_MAX
};

/* --- what it changes -------------------------------------------------------------------------------- */

static bool read_node(PyObject *node, sl_node_view *found)
{
    view data;
    uint64_t content_size;
    if (node == NULL || !read_bytes_at(node, 0, &data) || !read_number_at(node, 1, &content_size) ||
        !read_number_at(node, 2, &found->lsn)) {
        return false;
    }
    found->bytes = data.bytes;
    found->size = data.size;
    found->content_size = (size_t)content_size;
    return true;
}

/* The nodes of open levels of a list or a state, empty where none is known. */
static bool read_opens(PyObject *opens, sl_node_view *found)
{
    Py_ssize_t count = opens == NULL ? -1 : PyTuple_Size(opens);
    memset(found, 0, SL_STEP_LEVELS * sizeof *found);
    for (Py_ssize_t i = 0; i < count && i < SL_STEP_LEVELS; i++) {
        if (!read_node(PyTuple_GetItem(opens, i), &found[i])) {
            return false;
        }
    }
    return count >= 0;
}

static outcome gather_one(sl_step *step, PyObject *change, const sl_node_view *state, appended *places, size_t *appends)
{
    uint64_t operation;
    view key;
    view payload;
    int status;
    if (!read_number_at(change, CHANGE_OPERATION, &operation) || !read_bytes_at(change, CHANGE_KEY, &key) ||
        !read_bytes_at(change, CHANGE_PAYLOAD, &payload)) {
        return FAILED;
    }
    if (operation == CHANGE_APPEND) {
        uint64_t count;
        uint64_t kind;
        sl_node_view root;
        sl_node_view opens[SL_STEP_LEVELS];
        if (!read_number_at(change, CHANGE_COUNT, &count) || !read_number_at(change, CHANGE_KIND, &kind) ||
            !read_node(PyTuple_GetItem(change, CHANGE_ROOT), &root) ||
            !read_opens(PyTuple_GetItem(change, CHANGE_OPENS), opens)) {
            return FAILED;
        }
        if (*appends == SL_APPENDS_MAX || kind > SL_KIND_KEYED) {
            return UNKNOWN;
        }
        status = sl_step_append(step, key.bytes, key.size, payload.bytes, payload.size, count, (int)kind, &root,
                                opens);
        appended *place = &places[(*appends)++];
        place->root = (node_place){step->row, {step->at, step->content_end, step->end}};
        memcpy(place->opens, step->opens, sizeof step->opens);
    } else if (operation == CHANGE_PUT) {
        status = sl_step_put(step, key.bytes, key.size, payload.bytes, payload.size);
    } else if (operation == CHANGE_REMOVE) {
        status = sl_step_remove(step, key.bytes, key.size);
    } else if (operation == CHANGE_ADD) {
        status = sl_step_add(step, key.bytes, key.size, payload.bytes, payload.size, state->bytes, state->size,
                             state->content_size);
    } else {
        status = sl_step_put_once(step, key.bytes, key.size, payload.bytes, payload.size, state->bytes, state->size,
                                  state->content_size);
    }
    return status == SL_OK ? KNOWN : UNKNOWN;
}

/* Forget what was asked, and what was gathered for it. */
static void forget(workroom *room)
{
    PyObject *kept[] = {room->asked, room->changes};
    room->asked = room->changes = NULL;
    for (size_t i = 0; i < sizeof kept / sizeof kept[0]; i++) {
        Py_XDECREF(kept[i]);
    }
}

static outcome gather(workroom *room, PyObject *changes, const sl_node_view *state)
{
    sl_step *step = &room->step;
    forget(room);
    room->appends = 0;
    bool is_list = PyList_Check(changes);
    Py_ssize_t count = PyObject_Length(changes);
    outcome result = count < 0 ? FAILED : KNOWN;
    sl_step_begin(step);
    for (Py_ssize_t i = 0; i < count && result == KNOWN; i++) {
        PyObject *change = is_list ? PyList_GetItem(changes, i) : PyTuple_GetItem(changes, i);
        result = change == NULL ? FAILED
                                : gather_one(step, change, state, room->places, &room->appends);
    }
    return result;
}

/* Whether the store has none of the step's large leaves: the caller says so of `asked`. If he has not been asked, he is. */
static outcome look_at_large(workroom *room, PyObject *changes, PyObject *asked)
{
    uint8_t digests[SL_STEP_ROWS_MAX * SL_DIGEST_SIZE];
    size_t size = 0;
    view given = {NULL, 0};
    for (uint64_t row = 0; row < room->step.row_count; row++) {
        if (sl_step_is_large(&room->step, row)) {
            memcpy(digests + size, sl_step_row_digest(&room->step, row), SL_DIGEST_SIZE);
            size += SL_DIGEST_SIZE;
        }
    }
    if (asked != Py_None && !read_bytes(asked, &given)) {
        return FAILED;
    }
    if (size == 0 || (given.size == size && memcmp(given.bytes, digests, size) == 0)) {
        return KNOWN;
    }
    room->asked = bytes_of(digests, size);
    room->changes = shared(changes);
    return room->asked == NULL ? FAILED : UNKNOWN;
}

/* --- the checkpoint ------------------------------------------------------------------------------------ */

/* What is made of one, in order of its fields as they are handed out or remembered. */
typedef struct {
    PyObject *digest, *chain, *root_digest, *record, *page, *page_value, *rows, *data;
    PyObject *root; /* node data of the state */
    uint64_t row_count;
    node_place root_place;
    sl_step_place opens[SL_STEP_LEVELS]; /* of the state */
} made;

static void drop(made *all)
{
    PyObject *objects[] = {all->digest, all->chain, all->root_digest, all->record, all->page,
                           all->page_value, all->rows, all->data, all->root};
    for (size_t i = 0; i < sizeof objects / sizeof objects[0]; i++) {
        Py_XDECREF(objects[i]);
    }
}

/* Copy all that a step has made out of the room: the record behind its checksum, the page before its own. */
static bool copy_out(const sl_step *step, const sl_output *out, const uint8_t *page_key, made *all)
{
    const uint8_t *rest = out->bytes + DIGESTS_SIZE;
    size_t rest_size = (size_t)step->record_end - DIGESTS_SIZE;
    const uint8_t *page = out->bytes + step->record_end;
    size_t page_size = out->size - (size_t)step->record_end;
    size_t rows_size = (size_t)step->row_count * SL_ROW_SIZE;
    uint8_t keyed[PAGE_KEY_SIZE + 8 + 16 * VERSIONS_PER_PAGE + CHECKSUM_SIZE];
    if (page_size > sizeof keyed - PAGE_KEY_SIZE - CHECKSUM_SIZE) {
        PyErr_SetString(PyExc_ValueError, "a version page has 32 entries at most");
        return false;
    }
    all->row_count = step->row_count;
    all->digest = bytes_of(out->bytes, SL_DIGEST_SIZE);
    all->chain = bytes_of(out->bytes + SL_DIGEST_SIZE, SL_DIGEST_SIZE);
    all->root_digest = bytes_of(out->bytes + (size_t)2 * SL_DIGEST_SIZE, SL_DIGEST_SIZE);
    all->record = bytes_of(NULL, CHECKSUM_SIZE + rest_size);
    all->page = bytes_of(page, page_size);
    memcpy(keyed, page_key, PAGE_KEY_SIZE);
    memcpy(keyed + PAGE_KEY_SIZE, page, page_size);
    write_be(keyed + PAGE_KEY_SIZE + page_size, sl_checksum(keyed, PAGE_KEY_SIZE + page_size), CHECKSUM_SIZE);
    all->page_value = bytes_of(keyed + PAGE_KEY_SIZE, page_size + CHECKSUM_SIZE);
    if (all->record != NULL) {
        uint8_t *record = (uint8_t *)PyBytes_AsString(all->record);
        write_be(record, sl_checksum(rest, rest_size), CHECKSUM_SIZE);
        memcpy(record + CHECKSUM_SIZE, rest, rest_size);
    }
    if (step->row_count > 0) {
        const uint8_t *nodes = out->bytes + step->nodes_at;
        all->root_place = (node_place){step->row, {step->at, step->content_end, step->end}};
        memcpy(all->opens, step->opens, sizeof step->opens);
        all->rows = bytes_of(nodes - rows_size, rows_size);
        all->data = bytes_of(nodes, (size_t)(step->record_end - step->nodes_at));
        all->root = bytes_of(nodes + step->at, (size_t)(step->end - step->at));
    }
    return all->digest && all->chain && all->root_digest && all->record && all->page && all->page_value &&
           (step->row_count == 0 || (all->rows && all->data && all->root));
}

/* checkpoint(memory, thread, branch, head, parent, state, opens, changes, is_rollback, metadata, written, now_us, asked, id) */
enum {
    MEMORY, THREAD, BRANCH, HEAD, PARENT, STATE, OPENS, CHANGES, IS_ROLLBACK, METADATA, WRITTEN, NOW, ASKED, ID, ARGUMENTS
};

/* The open levels of the state that was made. */
static PyObject *opens_of(const module_state *state, PyObject *const *args, const made *all, PyObject *lsn)
{
    view data;
    return read_bytes(all->data, &data) ? sl_opens_after(state, data, all->opens, args[OPENS], lsn) : NULL;
}

static PyObject *head_of(const module_state *state, PyObject *const *args, const origin *parent, const made *all,
                         const uint64_t *numbers, const appended *places, size_t appends, uint64_t lsn)
{
    PyObject *lsn_object = number_of(lsn);
    bool is_rollback = numbers[SL_NUMBER_TARGET] != 0;
    bool has_nodes = all->row_count > 0;
    if (lsn_object == NULL) {
        return NULL;
    }
    PyObject *event_fields[EVENT_FIELDS] = {
        [EVENT_THREAD] = shared(args[THREAD]),
        [EVENT_BRANCH] = shared(args[BRANCH]),
        [EVENT_VERSION] = number_of(numbers[SL_NUMBER_VERSION]),
        [EVENT_PARENT_BRANCH] = number_of(parent->branch),
        [EVENT_PARENT_VERSION] = number_of(parent->version),
        [EVENT_PARENT_DIGEST] = bytes_of(parent->digest, SL_DIGEST_SIZE),
        [EVENT_JUMP_BRANCH] = number_of(numbers[SL_NUMBER_JUMP_BRANCH]),
        [EVENT_JUMP_VERSION] = number_of(numbers[SL_NUMBER_JUMP_VERSION]),
        [EVENT_DEPTH] = number_of(numbers[SL_NUMBER_DEPTH]),
        [EVENT_JUMP_DEPTH] = number_of(numbers[SL_NUMBER_JUMP_DEPTH]),
        [EVENT_ROOT_DIGEST] = shared(all->root_digest),
        [EVENT_ROOT_LSN] = has_nodes ? shared(lsn_object) : number_of(parent->root_lsn),
        [EVENT_ROOT_NODE] = number_of(has_nodes ? all->root_place.row : parent->root_node),
        [EVENT_ID] = shared(args[ID]),
        [EVENT_METADATA] = shared(args[METADATA]),
        [EVENT_WRITTEN] = shared(args[WRITTEN]),
        [EVENT_BORROWED] = shared(state->nothing_borrowed),
        [EVENT_TARGET] = number_of(numbers[SL_NUMBER_TARGET]),
        [EVENT_LSN] = shared(lsn_object),
        [EVENT_TIME] = number_of(numbers[SL_NUMBER_TIME]),
    };
    PyObject *event = named(state->event_type, event_fields, EVENT_FIELDS);
    PyObject *node = NULL;
    if (has_nodes) {
        PyObject *node_fields[] = {shared(all->root), number_of(all->root_place.place.content_end - all->root_place.place.at),
                                   shared(lsn_object)};
        node = named(state->node_type, node_fields, 3);
    } else {
        node = shared(is_rollback ? Py_None : args[STATE]);
    }
    PyObject *lists = NULL;
    PyObject *opens = NULL;
    if (event != NULL && node != NULL) {
        opens = has_nodes ? opens_of(state, args, all, lsn_object) : shared(args[OPENS]);
        lists = is_rollback ? shared(state->no_lists)
                            : sl_lists_after(state, PyTuple_GetItem(args[HEAD], HEAD_LISTS), args[CHANGES], all->rows,
                                             all->data, places, appends, lsn_object);
    }
    PyObject *head_fields[HEAD_FIELDS] = {event, shared(all->digest), shared(all->page), node, lists, opens};
    Py_DECREF(lsn_object);
    return named(state->head_type, head_fields, HEAD_FIELDS);
}

/* Make the new head what is remembered. */
static bool remember(const module_state *state, PyObject *const *args, PyObject *head, const made *all,
                     const uint64_t *numbers, uint64_t lsn)
{
    PyObject *memory = args[MEMORY];
    PyObject *end_fields[] = {number_of(lsn), shared(all->chain), number_of(numbers[SL_NUMBER_TIME])};
    PyObject *end = named(state->end_type, end_fields, 3);
    PyObject *heads = PyObject_GetAttr(memory, state->names[NAME_HEADS]);
    PyObject *jumps = PyObject_GetAttr(memory, state->names[NAME_JUMPS]);
    PyObject *branches = PyObject_GetAttr(memory, state->names[NAME_ONE_BRANCH]);
    PyObject *key = PyTuple_Pack(2, args[THREAD], args[BRANCH]);
    PyObject *at = Py_BuildValue("OOK", args[THREAD], args[BRANCH], (unsigned long long)numbers[SL_NUMBER_VERSION]);
    PyObject *jumped = Py_BuildValue("KKK", (unsigned long long)numbers[SL_NUMBER_JUMP_BRANCH],
                                     (unsigned long long)numbers[SL_NUMBER_JUMP_VERSION],
                                     (unsigned long long)numbers[SL_NUMBER_JUMP_DEPTH]);
    bool is_done = end && heads && jumps && branches && key && at && jumped;
    PyObject *is_one = is_done ? PyDict_GetItemWithError(branches, args[THREAD]) : NULL;
    if (is_done && (PyDict_Size(heads) > state->heads_max || PyDict_Size(jumps) > state->jumps_max)) {
        PyDict_Clear(heads);
        PyDict_Clear(jumps);
    }
    is_done = is_done && PyDict_SetItem(heads, key, head) == 0;
    if (is_done && (numbers[SL_NUMBER_VERSION] != numbers[SL_NUMBER_DEPTH] || is_one != Py_True)) {
        is_done = PyDict_SetItem(jumps, at, jumped) == 0; /* elsewhere nobody asks: see jump.c */
    }
    is_done = is_done && sl_id_remember(state, memory, args[THREAD], args[ID]) &&
              PyObject_SetAttr(memory, state->names[NAME_END], end) == 0;
    Py_XDECREF(end);
    Py_XDECREF(heads);
    Py_XDECREF(jumps);
    Py_XDECREF(branches);
    Py_XDECREF(key);
    Py_XDECREF(at);
    Py_XDECREF(jumped);
    return is_done;
}

/* Numbers of the checkpoint as sl_checkpoint_encode takes them, but for its time. */
static outcome number(const module_state *state, PyObject *const *args, const origin *parent, uint64_t *numbers)
{
    PyObject *last = PyTuple_GetItem(args[HEAD], HEAD_EVENT);
    uint64_t version;
    jump to = {0, 0, 0};
    if (last == NULL || !read_number_at(last, EVENT_VERSION, &version) ||
        !read_number(args[THREAD], &numbers[SL_NUMBER_THREAD]) ||
        !read_number(args[BRANCH], &numbers[SL_NUMBER_BRANCH])) {
        return FAILED;
    }
    numbers[SL_NUMBER_PARENT_BRANCH] = parent->branch;
    numbers[SL_NUMBER_PARENT_VERSION] = parent->version;
    numbers[SL_NUMBER_ROOT_LSN] = parent->root_lsn;
    numbers[SL_NUMBER_ROOT_NODE] = parent->root_node;
    numbers[SL_NUMBER_TARGET] = args[IS_ROLLBACK] == Py_True ? parent->lsn : 0;
    numbers[SL_NUMBER_VERSION] = version + 1;
    numbers[SL_NUMBER_DEPTH] = parent->depth + 1;
    if (version + 1 > state->versions_max) {
        return UNKNOWN;
    }
    outcome found = sl_read_jump(state, args[MEMORY], args[THREAD], parent, numbers[SL_NUMBER_DEPTH], &to);
    numbers[SL_NUMBER_JUMP_BRANCH] = to.branch;
    numbers[SL_NUMBER_JUMP_VERSION] = to.version;
    numbers[SL_NUMBER_JUMP_DEPTH] = to.depth;
    return found;
}

static bool read_end(const module_state *state, PyObject *memory, uint64_t *lsn, uint8_t *chain, uint64_t *time_us)
{
    const uint8_t *digest = NULL;
    PyObject *end = PyObject_GetAttr(memory, state->names[NAME_END]);
    bool is_read = end != NULL && read_number_at(end, 0, lsn) && read_digest_at(end, 1, &digest) &&
                   read_number_at(end, 2, time_us);
    if (is_read) {
        memcpy(chain, digest, SL_DIGEST_SIZE);
    }
    Py_XDECREF(end);
    return is_read;
}

/* A clock may say a time before 1970. */
static bool read_time(PyObject *object, uint64_t *time_us)
{
    long long now = PyLong_AsLongLong(object);
    *time_us = now > 0 ? (uint64_t)now : 0;
    return !(now == -1 && PyErr_Occurred());
}

/* Fill the room with all that the checkpoint brings to the disk. */
static outcome make(const module_state *state, PyObject *const *args, origin *parent, uint64_t *numbers,
                    uint64_t *lsn, sl_output *out)
{
    uint8_t encoded[8 * SL_CHECKPOINT_NUMBERS];
    uint8_t chain[SL_DIGEST_SIZE];
    uint64_t time_us;
    sl_node_view root;
    sl_node_view opens[SL_STEP_LEVELS];
    view metadata;
    view written;
    view page;
    view id;
    uint8_t id_item[ID_ITEM_SIZE_MAX] = {0xF6};
    sl_writer id_writer = {id_item, sizeof id_item, 0, false};
    workroom *room = state->room;
    sl_step *step = &room->step;
    outcome found = sl_read_origin(args[PARENT], parent) ? number(state, args, parent, numbers) : FAILED;
    if (found != KNOWN) {
        return found;
    }
    if (!read_end(state, args[MEMORY], lsn, chain, &time_us) || !read_time(args[NOW], &numbers[SL_NUMBER_TIME]) ||
        !read_bytes_at(args[HEAD], HEAD_PAGE, &page) ||
        !read_node(args[STATE], &root) || !read_opens(args[OPENS], opens) || !read_bytes(args[METADATA], &metadata) ||
        !read_bytes(args[WRITTEN], &written) || !sl_id_read(args[ID], &id)) {
        return FAILED;
    }
    if (args[ID] != Py_None) {
        if ((found = sl_id_look(state, args[MEMORY], args[THREAD], id)) != KNOWN) {
            return found;
        }
        sl_put_head(&id_writer, 3, id.size);
        sl_put(&id_writer, id.bytes, id.size);
    }
    ++*lsn;
    if (numbers[SL_NUMBER_TIME] <= time_us) { /* a batch finds out which time the thread allows (L2) */
        return UNKNOWN;
    }
    for (size_t i = 0; i < SL_CHECKPOINT_NUMBERS; i++) {
        write_be(encoded + 8 * i, numbers[i], 8);
    }
    if (room->asked == NULL || room->asked != args[ASKED] || room->changes != args[CHANGES]) {
        found = gather(room, args[CHANGES], &root);
        if (found == KNOWN && step->large_count > 0) {
            found = look_at_large(room, args[CHANGES], args[ASKED]);
        }
        if (found != KNOWN) {
            return found;
        }
    }
    forget(room); /* it is used up */
    bool is_new_page = numbers[SL_NUMBER_VERSION] % VERSIONS_PER_PAGE == 0;
    int status = sl_step_record(step, &root, opens, parent->root_digest, encoded, parent->digest, id_item,
                                id_writer.at > 0 ? id_writer.at : 1, metadata.bytes, metadata.size, written.bytes,
                                written.size, *lsn, chain, page.bytes, is_new_page ? 0 : page.size, out);
    return status == SL_OK ? KNOWN : UNKNOWN;
}

PyObject *sl_checkpoint(PyObject *module, PyObject *const *args, Py_ssize_t count)
{
    const module_state *state = PyModule_GetState(module);
    uint64_t numbers[SL_CHECKPOINT_NUMBERS];
    uint64_t lsn = 0;
    origin parent;
    if (count != ARGUMENTS || state->event_type == NULL || state->head_type == NULL) {
        PyErr_SetString(PyExc_TypeError, "checkpoint() takes 14 arguments, after bind_checkpoint()");
        return NULL;
    }
    sl_output out = {state->room->output, SL_ROOM_SIZE, 0, 0};
    if (args[ASKED] == Py_None) {
        forget(state->room); /* what another was asked, and did not come back for */
    }
    outcome found = make(state, args, &parent, numbers, &lsn, &out);
    if (found == FAILED) {
        return NULL;
    }
    if (found == UNKNOWN) {
        return shared(args[ASKED] == Py_None && state->room->asked != NULL ? state->room->asked : Py_None);
    }
    appended places[SL_APPENDS_MAX]; /* a copy: from where a head is made on a finalizer may use the room */
    size_t appends = state->room->appends;
    memcpy(places, state->room->places, appends * sizeof *places);
    uint8_t log_key[LOG_KEY_SIZE];
    uint8_t page_key[PAGE_KEY_SIZE] = {'v'};
    write_be(log_key, lsn, 8);
    write_be(page_key + 1, numbers[SL_NUMBER_THREAD], 8);
    write_be(page_key + 9, numbers[SL_NUMBER_BRANCH], 4);
    write_be(page_key + 13, numbers[SL_NUMBER_VERSION] / VERSIONS_PER_PAGE, 4);
    made all = {0};
    PyObject *head = NULL;
    PyObject *result = NULL;
    if (copy_out(&state->room->step, &out, page_key, &all)) {
        head = head_of(state, args, &parent, &all, numbers, places, appends, lsn);
    }
    PyObject *more = head == NULL ? NULL : sl_id_row(args[ID], args[THREAD], lsn);
    if (more != NULL) {
        result = Py_BuildValue("OKy#Oy#OOOO", head, (unsigned long long)lsn, log_key, (Py_ssize_t)LOG_KEY_SIZE,
                               all.record, page_key, (Py_ssize_t)PAGE_KEY_SIZE, all.page_value,
                               all.rows ? all.rows : Py_None, all.data ? all.data : Py_None, more);
    }
    if (result != NULL && !remember(state, args, head, &all, numbers, lsn)) {
        Py_DECREF(result);
        result = NULL;
    }
    Py_XDECREF(head);
    Py_XDECREF(more);
    drop(&all);
    return result;
}
