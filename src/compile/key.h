/* key.h: what besides the program decides whether machine code is good, folded into the cache's keys. */
#ifndef TTPU_COMPILE_KEY_H_
#define TTPU_COMPILE_KEY_H_

#include "base/hash.h"
#include "pjrt/pjrt.h"

/* Platform, its version, the plugin library itself, API version, device kind, the host's features, the compiler flags
 * in the environment, our file format and the code that writes programs (|lowering|); and the device's number where
 * executables are not portable. The same in every process and on every machine for which machine code can be exchanged. */
ttpu_hash_t ttpu_key_salt(ttpu_client_t *client, int device, const char *lowering);
/* Identifies a library by its size and samples of its bytes, in well under a millisecond; of fixed value when it cannot
 * be read. CPU plugins tell no version of their own, and two builds of XLA must not read each other's programs. */
ttpu_hash_t ttpu_key_library(const char *path);

static inline ttpu_hash_t ttpu_key_join(ttpu_hash_t a, ttpu_hash_t b) {
  const uint64_t words[] = {a.lo, a.hi, b.lo, b.hi};
  return ttpu_hash_words(words, 4);
}

#endif /* TTPU_COMPILE_KEY_H_ */
