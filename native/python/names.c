/* Names that are short, of one length, and stand in the order of what they begin with.
 *
 * Trust: objects.h.
 */
#include "objects.h"

enum { UUID_HEAD_SIZE = 14, TIME_SIZE = 6 };
enum { PERSONAL_SIZE = 16, HEAD_SIZE_MAX = 16, DIGEST_SIZE = 8, LENGTH_SIZE = 4, BITS = 6, GROUP = 3 };

/* Those of base 64, in the order of ASCII. */
static const char digits[] = "-0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ_abcdefghijklmnopqrstuvwxyz";

/* Hash a text: its length, and its UTF-8. False of a lone surrogate. */
static bool add_text(sl_hash *hash, PyObject *text)
{
    view bytes;
    PyObject *owned;
    uint8_t length[LENGTH_SIZE];
    bool is_text = PyUnicode_CheckExact(text) && utf8_of(text, &bytes, &owned);
    if (is_text) {
        write_be(length, (uint64_t)PyUnicode_GetLength(text), sizeof length);
        sl_hash_add(hash, length, sizeof length);
        sl_hash_add(hash, bytes.bytes, bytes.size);
        Py_XDECREF(owned);
    }
    return is_text;
}

static PyObject *spelled(const uint8_t *bytes, size_t size)
{
    char text[(HEAD_SIZE_MAX + DIGEST_SIZE) / GROUP * 4];
    size_t at = 0;
    for (size_t i = 0; i + GROUP <= size; i += GROUP) {
        uint32_t group = (uint32_t)sl_load_be(bytes + i, GROUP);
        for (int shift = 3 * BITS; shift >= 0; shift -= BITS) {
            text[at++] = digits[(group >> shift) & ((1U << BITS) - 1)];
        }
    }
    return PyUnicode_FromStringAndSize(text, (Py_ssize_t)at);
}

/* spell_digest(personal, head, texts): the head and 64 bits of the texts' BLAKE2b in digits, four of three bytes; None
 * where a text is no UTF-8. */
PyObject *sl_spell_digest(PyObject *module, PyObject *const *args, Py_ssize_t count)
{
    view personal, head;
    sl_hash hash;
    uint8_t bytes[HEAD_SIZE_MAX + SL_DIGEST_SIZE];
    (void)module;
    if (count != 3 || !PyTuple_CheckExact(args[2]) || !read_bytes(args[0], &personal) || !read_bytes(args[1], &head) ||
        personal.size != PERSONAL_SIZE || head.size > HEAD_SIZE_MAX || (head.size + DIGEST_SIZE) % GROUP != 0) {
        if (!PyErr_Occurred()) {
            PyErr_SetString(PyExc_TypeError, "spell_digest() takes 16 bytes, up to 16, and a tuple");
        }
        return NULL;
    }
    sl_hash_begin_sized(&hash, (const char *)personal.bytes, DIGEST_SIZE);
    for (Py_ssize_t i = 0; i < PyTuple_Size(args[2]); i++) {
        if (!add_text(&hash, PyTuple_GetItem(args[2], i))) {
            return shared(Py_None);
        }
    }
    memcpy(bytes, head.bytes, head.size);
    sl_hash_end(&hash, bytes + head.size);
    return spelled(bytes, head.size + DIGEST_SIZE);
}

/* What a hexadecimal digit, of small letters, stands for; above 15 of what is none. */
static unsigned digit_of(Py_UCS4 character)
{
    uint32_t number = character - (uint32_t)'0';
    uint32_t letter = character - (uint32_t)'a';
    return number <= 9 ? number : letter <= 5 ? letter + 10 : UINT8_MAX;
}

/* uuid_time(text): the first 48 bits of a UUID, in bytes; zeros of a text that does not begin as one. */
PyObject *sl_uuid_time(PyObject *module, PyObject *text)
{
    static const uint8_t dashes[] = {8, 13};
    uint8_t time[TIME_SIZE] = {0};
    (void)module;
    bool is_time = PyUnicode_CheckExact(text) && PyUnicode_GetLength(text) >= UUID_HEAD_SIZE;
    for (Py_ssize_t i = 0, at = 0; is_time && i < UUID_HEAD_SIZE; i++) {
        Py_UCS4 character = PyUnicode_ReadChar(text, i);
        if (i == dashes[0] || i == dashes[1]) {
            is_time = character == '-';
            continue;
        }
        unsigned digit = digit_of(character);
        is_time = digit < 16;
        time[at / 2] |= (uint8_t)(digit << (at % 2 ? 0 : 4));
        at++;
    }
    return is_time ? bytes_of(time, sizeof time) : bytes_of((const uint8_t[TIME_SIZE]){0}, TIME_SIZE);
}
