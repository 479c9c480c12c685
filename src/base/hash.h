/* hash.h: the 128-bit hash of instances, graphs and cache keys. The same on every machine and in every
 * process (little-endian words in, no seed): it names files of the disk cache. Not cryptographic.
 */
#ifndef TTPU_BASE_HASH_H_
#define TTPU_BASE_HASH_H_

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct {
  uint64_t lo, hi;
} ttpu_hash_t;

static inline uint64_t ttpu_hash_mix(uint64_t x) {
  x ^= x >> 32;
  x *= 0xd6e8feb86659fd93u;
  x ^= x >> 32;
  x *= 0xd6e8feb86659fd93u;
  x ^= x >> 32;
  return x;
}

/* Folds one word into a running hash. */
static inline ttpu_hash_t ttpu_hash_fold(ttpu_hash_t h, uint64_t word) {
  const unsigned __int128 p = (unsigned __int128)(h.lo ^ word) * 0x9e3779b97f4a7c15u;
  const uint64_t lo = (uint64_t)p ^ h.hi, hi = (uint64_t)(p >> 64) + (h.hi ^ word) * 0xc2b2ae3d27d4eb4fu;
  return (ttpu_hash_t){lo ^ (hi >> 29), hi ^ (lo << 21 | lo >> 43)};
}

static inline ttpu_hash_t ttpu_hash_words(const uint64_t *words, size_t count) {
  ttpu_hash_t h = {0x243f6a8885a308d3u ^ count, 0x13198a2e03707344u};
  for (size_t i = 0; i < count; i++) h = ttpu_hash_fold(h, words[i]);
  return (ttpu_hash_t){ttpu_hash_mix(h.lo), ttpu_hash_mix(h.hi ^ h.lo)};
}

ttpu_hash_t ttpu_hash_bytes(const void *data, size_t size);

/* 32 hexadecimal digits and a NUL. */
enum { TTPU_HASH_HEX = 33 };
void ttpu_hash_hex(ttpu_hash_t hash, char out_text[TTPU_HASH_HEX]);

static inline bool ttpu_hash_equal(ttpu_hash_t a, ttpu_hash_t b) { return a.lo == b.lo && a.hi == b.hi; }

#endif /* TTPU_BASE_HASH_H_ */
