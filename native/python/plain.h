/* Plain values of Python's in msgpack (plain.c). */
#ifndef STATELOG_PLAIN_H
#define STATELOG_PLAIN_H

#include "objects.h"

enum { SL_PLAIN_SIZE_MAX = 16 * 1024 }; /* a larger text or value is not worked on under the interpreter's lock */

/* Put a text, a number, True or False, or a list or dict with texts for keys of such, and None, at its shortest; false of
 * anything else, of a text that is no UTF-8, of what nests too deep, and of what has no room. */
bool sl_put_plain(sl_writer *out, PyObject *value);

void sl_put_array_head(sl_writer *out, Py_ssize_t count);

/* Whether a value that takes so many bytes stands as one: of a list, whether its items are too small to be split. */
bool sl_is_whole(PyObject *value, size_t size, size_t split_size_min);

/* The item of a codec's value: its prefix, and its payload as a byte string. */
PyObject *sl_item_of(view prefix, const uint8_t *payload, size_t size);

#endif
