/* Implements BLAKE2b (RFC 7693) with a personalisation. An unkeyed digest of 20 bytes identifies nodes, checkpoints and
 * records. A keyed digest is the MAC of an index row.
 *
 * Trust: none needed, because any bytes have a digest. tests/native compares this code with hashlib. */
#include "internal.h"

static const uint64_t IV[8] = {
    UINT64_C(0x6A09E667F3BCC908), UINT64_C(0xBB67AE8584CAA73B), UINT64_C(0x3C6EF372FE94F82B),
    UINT64_C(0xA54FF53A5F1D36F1), UINT64_C(0x510E527FADE682D1), UINT64_C(0x9B05688C2B3E6C1F),
    UINT64_C(0x1F83D9ABFB41BD6B), UINT64_C(0x5BE0CD19137E2179)};

/* Compilers turn these shifts into one load on little-endian machines. */
static inline uint64_t load_le(const uint8_t *from)
{
    return (uint64_t)from[0] | (uint64_t)from[1] << 8 | (uint64_t)from[2] << 16 | (uint64_t)from[3] << 24 |
           (uint64_t)from[4] << 32 | (uint64_t)from[5] << 40 | (uint64_t)from[6] << 48 | (uint64_t)from[7] << 56;
}

/* The state is in named variables, and every round names its words of the message. This is a third faster than a
 * state in an array. */
#define ROTATE(x, n) ((x) >> (n) | (x) << (64 - (n)))
#define MIX(a, b, c, d, x, y)        \
    do {                             \
        (a) += (b) + (x);            \
        (d) = ROTATE((d) ^ (a), 32); \
        (c) += (d);                  \
        (b) = ROTATE((b) ^ (c), 24); \
        (a) += (b) + (y);            \
        (d) = ROTATE((d) ^ (a), 16); \
        (c) += (d);                  \
        (b) = ROTATE((b) ^ (c), 63); \
    } while (0)
#define ROUND(a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p) \
    do {                                                      \
        MIX(v0, v4, v8, v12, w[a], w[b]);                     \
        MIX(v1, v5, v9, v13, w[c], w[d]);                     \
        MIX(v2, v6, v10, v14, w[e], w[f]);                    \
        MIX(v3, v7, v11, v15, w[g], w[h]);                    \
        MIX(v0, v5, v10, v15, w[i], w[j]);                    \
        MIX(v1, v6, v11, v12, w[k], w[l]);                    \
        MIX(v2, v7, v8, v13, w[m], w[n]);                     \
        MIX(v3, v4, v9, v14, w[o], w[p]);                     \
    } while (0)

/* Hash one block. `hashed` is the number of bytes up to the end of this block, which fits into 64 bits. */
static void compress(uint64_t h[8], const uint8_t *block, uint64_t hashed, bool is_last)
{
    uint64_t w[16];
    for (size_t i = 0; i < 16; i++) {
        w[i] = load_le(block + 8 * i);
    }
    uint64_t v0 = h[0], v1 = h[1], v2 = h[2], v3 = h[3], v4 = h[4], v5 = h[5], v6 = h[6], v7 = h[7];
    uint64_t v8 = IV[0], v9 = IV[1], v10 = IV[2], v11 = IV[3];
    uint64_t v12 = IV[4] ^ hashed, v13 = IV[5], v14 = is_last ? ~IV[6] : IV[6], v15 = IV[7];
    ROUND(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
    ROUND(14, 10, 4, 8, 9, 15, 13, 6, 1, 12, 0, 2, 11, 7, 5, 3);
    ROUND(11, 8, 12, 0, 5, 2, 15, 13, 10, 14, 3, 6, 7, 1, 9, 4);
    ROUND(7, 9, 3, 1, 13, 12, 11, 14, 2, 6, 5, 10, 4, 0, 15, 8);
    ROUND(9, 0, 5, 7, 2, 4, 10, 15, 14, 1, 11, 12, 6, 8, 3, 13);
    ROUND(2, 12, 6, 10, 0, 11, 8, 3, 4, 13, 7, 5, 15, 14, 1, 9);
    ROUND(12, 5, 1, 15, 14, 13, 4, 10, 0, 7, 6, 3, 9, 2, 8, 11);
    ROUND(13, 11, 7, 14, 12, 1, 3, 9, 5, 0, 15, 4, 8, 6, 2, 10);
    ROUND(6, 15, 14, 9, 11, 3, 0, 8, 12, 2, 13, 7, 1, 4, 10, 5);
    ROUND(10, 2, 8, 4, 7, 6, 1, 5, 15, 11, 9, 14, 3, 12, 13, 0);
    ROUND(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
    ROUND(14, 10, 4, 8, 9, 15, 13, 6, 1, 12, 0, 2, 11, 7, 5, 3);
    h[0] ^= v0 ^ v8, h[1] ^= v1 ^ v9, h[2] ^= v2 ^ v10, h[3] ^= v3 ^ v11;
    h[4] ^= v4 ^ v12, h[5] ^= v5 ^ v13, h[6] ^= v6 ^ v14, h[7] ^= v7 ^ v15;
}

static void begin(sl_hash *hash, const char personal[16], size_t key_size, size_t digest_size)
{
    memcpy(hash->h, IV, sizeof IV);
    /* The tree depth is 1, and the fan-out is 1. */
    hash->h[0] ^= UINT64_C(0x01010000) ^ key_size << 8 ^ digest_size;
    hash->h[6] ^= load_le((const uint8_t *)personal);
    hash->h[7] ^= load_le((const uint8_t *)personal + 8);
    hash->hashed = 0;
    hash->held = 0;
}

void sl_hash_begin(sl_hash *hash, const char personal[16]) { begin(hash, personal, 0, SL_DIGEST_SIZE); }

/* The key is the first block. The caller adds at least one byte, so this block is not the last one. */
void sl_hash_begin_keyed(sl_hash *hash, const char personal[16], const uint8_t key[SL_MAC_KEY_SIZE], size_t digest_size)
{
    begin(hash, personal, SL_MAC_KEY_SIZE, digest_size);
    memset(hash->block, 0, sizeof hash->block);
    memcpy(hash->block, key, SL_MAC_KEY_SIZE);
    hash->held = SL_HASH_BLOCK_SIZE;
}

/* The last block is compressed with a flag, so a full block stays in `block` until more bytes follow. */
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
