/* fuzz_main.c: runs a libFuzzer target without libFuzzer: random and mutated inputs from a fixed seed, so that a run
 * repeats exactly. Files named on the command line are corpus: each is run as it is and then mutated.
 * usage: TARGET [-runs=N] [-seed=N] [FILE...]
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { MAX_SIZE = 4096, MAX_CORPUS = 64 };

static uint64_t state = 1;

static uint64_t next_random(void) { /* xorshift64* */
  state ^= state >> 12;
  state ^= state << 25;
  state ^= state >> 27;
  return state * 0x2545f4914f6cdd1du;
}

static size_t mutate(uint8_t *data, size_t size) {
  const int edits = 1 + (int)(next_random() % 8);
  for (int i = 0; i < edits; i++) {
    const uint64_t r = next_random();
    const size_t at = size ? (size_t)(r >> 16) % size : 0;
    switch (r % 6) {
      case 0: if (size) data[at] = (uint8_t)(r >> 8); break;
      case 1: if (size) data[at] ^= (uint8_t)(1u << (r >> 8 & 7)); break;
      case 2: size = at; break;
      case 3: if (size < MAX_SIZE) data[size++] = (uint8_t)(r >> 8); break;
      case 4: if (size) memset(data + at, r & 256 ? 0xff : 0, size - at < 8 ? size - at : 8); break;
      case 5: if (size > 1) memmove(data + at, data + size / 2, size - (at > size / 2 ? at : size / 2)); break;
    }
  }
  return size;
}

static size_t load(const char *path, uint8_t *data) {
  FILE *f = fopen(path, "rb");
  if (!f) {
    fprintf(stderr, "cannot read %s\n", path);
    exit(2);
  }
  const size_t size = fread(data, 1, MAX_SIZE, f);
  fclose(f);
  return size;
}

int main(int argc, char **argv) {
  static uint8_t corpus[MAX_CORPUS][MAX_SIZE], data[MAX_SIZE];
  size_t sizes[MAX_CORPUS];
  long runs = 20000, count = 0;
  for (int i = 1; i < argc; i++) {
    if (!strncmp(argv[i], "-runs=", 6))
      runs = strtol(argv[i] + 6, NULL, 10);
    else if (!strncmp(argv[i], "-seed=", 6))
      state = strtoull(argv[i] + 6, NULL, 10) | 1;
    else if (argv[i][0] != '-' && count < MAX_CORPUS) {
      sizes[count] = load(argv[i], corpus[count]);
      LLVMFuzzerTestOneInput(corpus[count], sizes[count]);
      count++;
    }
  }
  for (long run = 0; run < runs; run++) {
    size_t size;
    if (count && next_random() % 4) {
      const long pick = (long)(next_random() % (uint64_t)count);
      size = sizes[pick];
      memcpy(data, corpus[pick], size);
      size = mutate(data, size);
    } else {
      size = (size_t)(next_random() % (run < runs / 2 ? 64 : MAX_SIZE));
      for (size_t i = 0; i < size; i++) data[i] = (uint8_t)(next_random() >> 32);
    }
    /* An exact copy on the heap: the address sanitizer sees a read past the end. */
    uint8_t *exact = malloc(size ? size : 1);
    if (!exact) return 2;
    memcpy(exact, data, size);
    LLVMFuzzerTestOneInput(exact, size);
    free(exact);
  }
  printf("%ld runs passed\n", runs);
  return 0;
}
