/* hash_test.c: the hash names files on disk, so its values are fixed; and it must scatter structured keys. */
#include "base/hash.h"

#include <stdlib.h>

#include "check.h"

static int compare(const void *a, const void *b) { return memcmp(a, b, sizeof(ttpu_hash_t)); }

/* All hashes differ, also in their low halves alone. */
static bool all_differ(ttpu_hash_t *hashes, int count) {
  qsort(hashes, (size_t)count, sizeof *hashes, compare);
  for (int i = 1; i < count; i++)
    if (hashes[i].lo == hashes[i - 1].lo) return false;
  return true;
}

/* These numbers may only change together with the cache's format number. */
TEST(fixed_values) {
  const uint64_t words[] = {1, 2, 3};
  const ttpu_hash_t a = ttpu_hash_words(words, 3), b = ttpu_hash_bytes("torchtpu", 8), c = ttpu_hash_bytes("abc", 3);
  CHECK(a.lo == 0x2d3f5d4d05c763bcu && a.hi == 0x10940fe22b3381c2u);
  CHECK(b.lo == 0x763c6a668319aa36u && b.hi == 0x21adc1b9698bdd11u);
  CHECK(c.lo == 0xf8cd04032d391d56u && c.hi == 0x11bc65954d78c7e0u);
}

TEST(as_text) {
  char text[TTPU_HASH_HEX];
  ttpu_hash_hex((ttpu_hash_t){0x0123456789abcdef, 0x1}, text);
  CHECK_STR(text, "00000000000000010123456789abcdef");
}

TEST(length_counts) {
  char zeros[64] = {0};
  ttpu_hash_t hashes[65];
  for (int i = 0; i <= 64; i++) hashes[i] = ttpu_hash_bytes(zeros, (size_t)i);
  CHECK(all_differ(hashes, 65));
  const uint64_t words[8] = {0};
  for (int i = 0; i <= 8; i++) hashes[i] = ttpu_hash_words(words, (size_t)i);
  CHECK(all_differ(hashes, 9));
}

/* Keys like ours: short strings of small numbers, one of them varying at a time, in each place. */
TEST(small_numbers_scatter) {
  enum { PER = 4096, PLACES = 12, COUNT = PER * PLACES };
  ttpu_hash_t *hashes = malloc(COUNT * sizeof *hashes);
  for (int place = 0; place < PLACES; place++)
    for (int i = 0; i < PER; i++) {
      uint64_t words[PLACES] = {0};
      words[place] = (uint64_t)i + 1;
      hashes[place * PER + i] = ttpu_hash_words(words, PLACES);
    }
  int buckets[256] = {0}, worst = 0;
  for (int i = 0; i < COUNT; i++) buckets[hashes[i].lo & 255]++;
  for (int i = 0; i < 256; i++) worst = buckets[i] > worst ? buckets[i] : worst;
  CHECK(worst < COUNT / 256 * 3 / 2);
  CHECK(all_differ(hashes, COUNT));
  free(hashes);
}

/* Each input bit reaches about half of the 128 output bits. */
TEST(every_bit_matters) {
  uint64_t words[4] = {5, 6, 7, 8};
  const ttpu_hash_t base = ttpu_hash_words(words, 4);
  int least = 128, most = 0;
  for (int bit = 0; bit < 256; bit++) {
    words[bit / 64] ^= 1ull << bit % 64;
    const ttpu_hash_t h = ttpu_hash_words(words, 4);
    words[bit / 64] ^= 1ull << bit % 64;
    const int changed = __builtin_popcountll(h.lo ^ base.lo) + __builtin_popcountll(h.hi ^ base.hi);
    if (changed < least) least = changed;
    if (changed > most) most = changed;
  }
  CHECK(least > 32 && most < 96);
}

int main(void) {
  RUN(fixed_values);
  RUN(as_text);
  RUN(length_counts);
  RUN(small_numbers_scatter);
  RUN(every_bit_matters);
  return check_end();
}
