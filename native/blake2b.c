/* BLAKE2b (RFC 7693), unkeyed, with a digest of 20 bytes and a personalisation: the identity of
 * nodes, checkpoints and records.
 *
 * Trust: none needed, any bytes have a digest. tests/native compares it with hashlib's.
 */
#include "internal.h"

enum { ROUNDS = 12 };

static const uint64_t IV[8] = {
    UINT64_C(0x6A09E667F3BCC908), UINT64_C(0xBB67AE8584CAA73B), UINT64_C(0x3C6EF372FE94F82B),
    UINT64_C(0xA54FF53A5F1D36F1), UINT64_C(0x510E527FADE682D1), UINT64_C(0x9B05688C2B3E6C1F),
    UINT64_C(0x1F83D9ABFB41BD6B), UINT64_C(0x5BE0CD19137E2179)};

static const uint8_t SIGMA[ROUNDS][16] = {
    {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15}, {14, 10, 4, 8, 9, 15, 13, 6, 1, 12, 0, 2, 11, 7, 5, 3},
    {11, 8, 12, 0, 5, 2, 15, 13, 10, 14, 3, 6, 7, 1, 9, 4}, {7, 9, 3, 1, 13, 12, 11, 14, 2, 6, 5, 10, 4, 0, 15, 8},
    {9, 0, 5, 7, 2, 4, 10, 15, 14, 1, 11, 12, 6, 8, 3, 13}, {2, 12, 6, 10, 0, 11, 8, 3, 4, 13, 7, 5, 15, 14, 1, 9},
    {12, 5, 1, 15, 14, 13, 4, 10, 0, 7, 6, 3, 9, 2, 8, 11}, {13, 11, 7, 14, 12, 1, 3, 9, 5, 0, 15, 4, 8, 6, 2, 10},
    {6, 15, 14, 9, 11, 3, 0, 8, 12, 2, 13, 7, 1, 4, 10, 5}, {10, 2, 8, 4, 7, 6, 1, 5, 15, 11, 9, 14, 3, 12, 13, 0},
    {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15}, {14, 10, 4, 8, 9, 15, 13, 6, 1, 12, 0, 2, 11, 7, 5, 3}};

static inline uint64_t load_le(const uint8_t *from)
{
    uint64_t value = 0;
    for (unsigned i = 0; i < 8; i++) { /* one load where the machine is little-endian */
        value |= (uint64_t)from[i] << (8 * i);
    }
    return value;
}

static inline uint64_t rotate_right(uint64_t word, unsigned bits) { return (word >> bits) | (word << (64 - bits)); }

#define MIX(a, b, c, d, x, y)               \
    do {                                    \
        v[a] += v[b] + (x);                 \
        v[d] = rotate_right(v[d] ^ v[a], 32); \
        v[c] += v[d];                       \
        v[b] = rotate_right(v[b] ^ v[c], 24); \
        v[a] += v[b] + (y);                 \
        v[d] = rotate_right(v[d] ^ v[a], 16); \
        v[c] += v[d];                       \
        v[b] = rotate_right(v[b] ^ v[c], 63); \
    } while (0)

/* Written out, so that the compiler knows which words of the message each line takes. */
#define WORD(r, i) m[SIGMA[r][i]]
#define ROUND(r)                                          \
    do {                                                  \
        MIX(0, 4, 8, 12, WORD(r, 0), WORD(r, 1));         \
        MIX(1, 5, 9, 13, WORD(r, 2), WORD(r, 3));         \
        MIX(2, 6, 10, 14, WORD(r, 4), WORD(r, 5));        \
        MIX(3, 7, 11, 15, WORD(r, 6), WORD(r, 7));        \
        MIX(0, 5, 10, 15, WORD(r, 8), WORD(r, 9));        \
        MIX(1, 6, 11, 12, WORD(r, 10), WORD(r, 11));      \
        MIX(2, 7, 8, 13, WORD(r, 12), WORD(r, 13));       \
        MIX(3, 4, 9, 14, WORD(r, 14), WORD(r, 15));       \
    } while (0)

/* `hashed`: bytes up to the end of this block, which fit 64 bits. */
static void compress(uint64_t h[8], const uint8_t *block, uint64_t hashed, bool is_last)
{
    uint64_t m[16];
    uint64_t v[16];
    for (size_t i = 0; i < 16; i++) {
        m[i] = load_le(block + 8 * i);
    }
    memcpy(v, h, 8 * sizeof *v);
    memcpy(v + 8, IV, sizeof IV);
    v[12] ^= hashed;
    v[14] = is_last ? ~v[14] : v[14];
    ROUND(0);
    ROUND(1);
    ROUND(2);
    ROUND(3);
    ROUND(4);
    ROUND(5);
    ROUND(6);
    ROUND(7);
    ROUND(8);
    ROUND(9);
    ROUND(10);
    ROUND(11);
    for (size_t i = 0; i < 8; i++) {
        h[i] ^= v[i] ^ v[i + 8];
    }
}

void sl_hash_begin(sl_hash *hash, const char personal[16])
{
    memcpy(hash->h, IV, sizeof IV);
    hash->h[0] ^= UINT64_C(0x01010000) ^ SL_DIGEST_SIZE; /* depth 1, fan-out 1, no key */
    hash->h[6] ^= load_le((const uint8_t *)personal);
    hash->h[7] ^= load_le((const uint8_t *)personal + 8);
    hash->hashed = 0;
    hash->held = 0;
}

/* The last block is marked as such, so a full one is held back until more follows it. */
void sl_hash_add(sl_hash *hash, const uint8_t *data, size_t size)
{
    while (size > 0) {
        if (hash->held == SL_HASH_BLOCK_SIZE) {
            hash->hashed += SL_HASH_BLOCK_SIZE;
            compress(hash->h, hash->block, hash->hashed, false);
            hash->held = 0;
        }
        while (hash->held == 0 && size > SL_HASH_BLOCK_SIZE) {
            hash->hashed += SL_HASH_BLOCK_SIZE;
            compress(hash->h, data, hash->hashed, false);
            data += SL_HASH_BLOCK_SIZE;
            size -= SL_HASH_BLOCK_SIZE;
        }
        size_t room = SL_HASH_BLOCK_SIZE - hash->held;
        size_t taken = size < room ? size : room;
        memcpy(hash->block + hash->held, data, taken);
        hash->held += taken;
        data += taken;
        size -= taken;
    }
}

void sl_hash_end(sl_hash *hash, uint8_t digest[SL_DIGEST_SIZE])
{
    memset(hash->block + hash->held, 0, SL_HASH_BLOCK_SIZE - hash->held);
    compress(hash->h, hash->block, hash->hashed + hash->held, true);
    for (size_t i = 0; i < SL_DIGEST_SIZE; i++) {
        digest[i] = (uint8_t)(hash->h[i / 8] >> (8 * (i % 8)));
    }
}
