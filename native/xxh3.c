/* Computes XXH3-64 without a seed, the checksum of records and of sealed values (FORMAT.md 3 and 6).
 *
 * Trust: none needed, because any bytes have a checksum. A checksum is not an identity: collisions are easy to make.
 */
#include "internal.h"

enum { STRIPE_SIZE = 64, LANES = 8, SECRET_SIZE = 192, BLOCK_STRIPES = (SECRET_SIZE - STRIPE_SIZE) / 8 };
enum { SMALL_MAX = 16, MIDDLE_MAX = 128, LARGE_MAX = 240, LARGE_ROUNDS = 8 };
/* These are offsets in SECRET. */
enum { LAST_STRIPE_AT = SECRET_SIZE - STRIPE_SIZE - 7, LAST_PART_AT = 136 - 17, MERGE_AT = 11 };

#define PRIME32_1 UINT64_C(0x9E3779B1)
#define PRIME32_2 UINT64_C(0x85EBCA77)
#define PRIME32_3 UINT64_C(0xC2B2AE3D)
#define PRIME64_1 UINT64_C(0x9E3779B185EBCA87)
#define PRIME64_2 UINT64_C(0xC2B2AE3D27D4EB4F)
#define PRIME64_3 UINT64_C(0x165667B19E3779F9)
#define PRIME64_4 UINT64_C(0x85EBCA77C2B2AE63)
#define PRIME64_5 UINT64_C(0x27D4EB2F165667C5)
#define PRIME_MX1 UINT64_C(0x165667919E3779F9)
#define PRIME_MX2 UINT64_C(0x9FB21C651E98DF25)

static const uint8_t SECRET[SECRET_SIZE] = {
    0xb8, 0xfe, 0x6c, 0x39, 0x23, 0xa4, 0x4b, 0xbe, 0x7c, 0x01, 0x81, 0x2c, 0xf7, 0x21, 0xad, 0x1c, 0xde, 0xd4, 0x6d,
    0xe9, 0x83, 0x90, 0x97, 0xdb, 0x72, 0x40, 0xa4, 0xa4, 0xb7, 0xb3, 0x67, 0x1f, 0xcb, 0x79, 0xe6, 0x4e, 0xcc, 0xc0,
    0xe5, 0x78, 0x82, 0x5a, 0xd0, 0x7d, 0xcc, 0xff, 0x72, 0x21, 0xb8, 0x08, 0x46, 0x74, 0xf7, 0x43, 0x24, 0x8e, 0xe0,
    0x35, 0x90, 0xe6, 0x81, 0x3a, 0x26, 0x4c, 0x3c, 0x28, 0x52, 0xbb, 0x91, 0xc3, 0x00, 0xcb, 0x88, 0xd0, 0x65, 0x8b,
    0x1b, 0x53, 0x2e, 0xa3, 0x71, 0x64, 0x48, 0x97, 0xa2, 0x0d, 0xf9, 0x4e, 0x38, 0x19, 0xef, 0x46, 0xa9, 0xde, 0xac,
    0xd8, 0xa8, 0xfa, 0x76, 0x3f, 0xe3, 0x9c, 0x34, 0x3f, 0xf9, 0xdc, 0xbb, 0xc7, 0xc7, 0x0b, 0x4f, 0x1d, 0x8a, 0x51,
    0xe0, 0x4b, 0xcd, 0xb4, 0x59, 0x31, 0xc8, 0x9f, 0x7e, 0xc9, 0xd9, 0x78, 0x73, 0x64, 0xea, 0xc5, 0xac, 0x83, 0x34,
    0xd3, 0xeb, 0xc3, 0xc5, 0x81, 0xa0, 0xff, 0xfa, 0x13, 0x63, 0xeb, 0x17, 0x0d, 0xdd, 0x51, 0xb7, 0xf0, 0xda, 0x49,
    0xd3, 0x16, 0x55, 0x26, 0x29, 0xd4, 0x68, 0x9e, 0x2b, 0x16, 0xbe, 0x58, 0x7d, 0x47, 0xa1, 0xfc, 0x8f, 0xf8, 0xb8,
    0xd1, 0x7a, 0xd0, 0x31, 0xce, 0x45, 0xcb, 0x3a, 0x8f, 0x95, 0x16, 0x04, 0x28, 0xaf, 0xd7, 0xfb, 0xca, 0xbb, 0x4b,
    0x40, 0x7e};

/* Compilers turn these expressions into one load on little-endian machines. */
static inline uint64_t load_le32(const uint8_t *from)
{
    return (uint64_t)from[0] | (uint64_t)from[1] << 8 | (uint64_t)from[2] << 16 | (uint64_t)from[3] << 24;
}

static inline uint64_t load_le64(const uint8_t *from)
{
    return (uint64_t)from[0] | (uint64_t)from[1] << 8 | (uint64_t)from[2] << 16 | (uint64_t)from[3] << 24 |
           (uint64_t)from[4] << 32 | (uint64_t)from[5] << 40 | (uint64_t)from[6] << 48 | (uint64_t)from[7] << 56;
}

static uint64_t rotate(uint64_t value, unsigned bits) { return value << bits | value >> (64 - bits); }

static uint64_t reversed(uint64_t value)
{
    uint8_t bytes[8];
    sl_writer writer = {bytes, sizeof bytes, 0, false};
    sl_put_be(&writer, value, sizeof bytes);
    return load_le64(bytes);
}

/* Return the exclusive or of the upper and the lower half of the 128-bit product. */
#ifdef __SIZEOF_INT128__
__extension__ typedef unsigned __int128 product;

static uint64_t fold(uint64_t a, uint64_t b)
{
    product whole = (product)a * b;
    return (uint64_t)whole ^ (uint64_t)(whole >> 64);
}
#else
static uint64_t fold(uint64_t a, uint64_t b)
{
    uint64_t low_low = (a & UINT32_MAX) * (b & UINT32_MAX);
    uint64_t high_low = (a >> 32) * (b & UINT32_MAX);
    uint64_t low_high = (a & UINT32_MAX) * (b >> 32);
    uint64_t cross = (low_low >> 32) + (high_low & UINT32_MAX) + low_high;
    uint64_t upper = (high_low >> 32) + (cross >> 32) + (a >> 32) * (b >> 32);
    return upper ^ (cross << 32 | (low_low & UINT32_MAX));
}
#endif

static uint64_t mix(const uint8_t *data, size_t secret_at)
{
    const uint8_t *secret = SECRET + secret_at;
    return fold(load_le64(data) ^ load_le64(secret), load_le64(data + 8) ^ load_le64(secret + 8));
}

static uint64_t secret_pair(size_t at) { return load_le64(SECRET + at) ^ load_le64(SECRET + at + 8); }

static uint64_t avalanche(uint64_t hash)
{
    hash = (hash ^ hash >> 37) * PRIME_MX1;
    return hash ^ hash >> 32;
}

static uint64_t avalanche_of_xxh64(uint64_t hash)
{
    hash = (hash ^ hash >> 33) * PRIME64_2;
    hash = (hash ^ hash >> 29) * PRIME64_3;
    return hash ^ hash >> 32;
}

static uint64_t hash_small(const uint8_t *data, size_t size)
{
    if (size > 8) {
        uint64_t low = load_le64(data) ^ secret_pair(24);
        uint64_t high = load_le64(data + size - 8) ^ secret_pair(40);
        return avalanche(size + reversed(low) + high + fold(low, high));
    }
    if (size >= 4) {
        uint64_t hash = (load_le32(data + size - 4) + (load_le32(data) << 32)) ^ secret_pair(8);
        hash ^= rotate(hash, 49) ^ rotate(hash, 24);
        hash *= PRIME_MX2;
        hash ^= (hash >> 35) + size;
        hash *= PRIME_MX2;
        return hash ^ hash >> 28;
    }
    if (size > 0) {
        uint64_t joined = (uint64_t)data[0] << 16 | (uint64_t)data[size >> 1] << 24 | data[size - 1] | (uint64_t)size << 8;
        return avalanche_of_xxh64(joined ^ load_le32(SECRET) ^ load_le32(SECRET + 4));
    }
    return avalanche_of_xxh64(secret_pair(56));
}

/* Hash 17 to 128 bytes: mix blocks of 16 bytes in pairs, from the middle to both ends. */
static uint64_t hash_middle(const uint8_t *data, size_t size)
{
    uint64_t hash = size * PRIME64_1;
    for (size_t i = (size - 1) / 32 + 1; i-- > 0;) {
        hash += mix(data + 16 * i, 32 * i) + mix(data + size - 16 * (i + 1), 32 * i + 16);
    }
    return avalanche(hash);
}

static uint64_t hash_large(const uint8_t *data, size_t size)
{
    uint64_t hash = size * PRIME64_1;
    for (size_t i = 0; i < LARGE_ROUNDS; i++) {
        hash += mix(data + 16 * i, 16 * i);
    }
    hash = avalanche(hash);
    for (size_t i = LARGE_ROUNDS; i < size / 16; i++) {
        hash += mix(data + 16 * i, 16 * (i - LARGE_ROUNDS) + 3);
    }
    return avalanche(hash + mix(data + size - 16, LAST_PART_AT));
}

static uint64_t keyed_product(uint64_t value, const uint8_t *secret)
{
    uint64_t keyed = value ^ load_le64(secret);
    return (keyed & UINT32_MAX) * (keyed >> 32);
}

static void accumulate(uint64_t *lanes, const uint8_t *stripe, const uint8_t *secret)
{
    for (size_t i = 0; i < LANES; i += 2) {
        uint64_t even = load_le64(stripe + 8 * i);
        uint64_t odd = load_le64(stripe + 8 * i + 8);
        lanes[i] += odd + keyed_product(even, secret + 8 * i);
        lanes[i + 1] += even + keyed_product(odd, secret + 8 * i + 8);
    }
}

static uint64_t hash_long(const uint8_t *data, size_t size)
{
    uint64_t lanes[LANES] = {PRIME32_3, PRIME64_1, PRIME64_2, PRIME64_3, PRIME64_4, PRIME32_2, PRIME64_5, PRIME32_1};
    size_t stripes = (size - 1) / STRIPE_SIZE; /* The last stripe may overlap, and follows below. */
    for (size_t i = 0; i < stripes; i++) {
        accumulate(lanes, data + i * STRIPE_SIZE, SECRET + 8 * (i % BLOCK_STRIPES));
        if ((i + 1) % BLOCK_STRIPES == 0) {
            for (size_t lane = 0; lane < LANES; lane++) {
                uint64_t mixed = lanes[lane] ^ lanes[lane] >> 47 ^ load_le64(SECRET + SECRET_SIZE - STRIPE_SIZE + 8 * lane);
                lanes[lane] = mixed * PRIME32_1;
            }
        }
    }
    accumulate(lanes, data + size - STRIPE_SIZE, SECRET + LAST_STRIPE_AT);
    uint64_t hash = size * PRIME64_1;
    for (size_t i = 0; i < LANES; i += 2) {
        const uint8_t *secret = SECRET + MERGE_AT + 8 * i;
        hash += fold(lanes[i] ^ load_le64(secret), lanes[i + 1] ^ load_le64(secret + 8));
    }
    return avalanche(hash);
}

uint64_t sl_checksum(const uint8_t *data, size_t size)
{
    return size <= SMALL_MAX    ? hash_small(data, size)
           : size <= MIDDLE_MAX ? hash_middle(data, size)
           : size <= LARGE_MAX  ? hash_large(data, size)
                                : hash_long(data, size);
}
