/* hash.c: see hash.h. */
#include "base/hash.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

ttpu_hash_t ttpu_hash_bytes(const void *data, size_t size) {
  const char *p = data;
  ttpu_hash_t h = {0x452821e638d01377u ^ size, 0xbe5466cf34e90c6cu};
  for (; size >= 8; p += 8, size -= 8) {
    uint64_t word;
    memcpy(&word, p, 8);
    h = ttpu_hash_fold(h, word);
  }
  uint64_t tail = 0;
  memcpy(&tail, p, size);
  h = ttpu_hash_fold(h, tail);
  return (ttpu_hash_t){ttpu_hash_mix(h.lo), ttpu_hash_mix(h.hi ^ h.lo)};
}

void ttpu_hash_hex(ttpu_hash_t hash, char out_text[TTPU_HASH_HEX]) {
  snprintf(out_text, TTPU_HASH_HEX, "%016" PRIx64 "%016" PRIx64, hash.hi, hash.lo);
}
