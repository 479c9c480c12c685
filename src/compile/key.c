/* key.c: see key.h. */
#include "compile/key.h"

#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/env.h"
#include "compile/file.h"

enum { SAMPLES = 64, SAMPLE_BYTES = 4096 };

ttpu_hash_t ttpu_key_library(const char *path) {
  ttpu_hash_t hash = {0, 0};
  struct stat info;
  const int fd = open(path, O_RDONLY | O_CLOEXEC);
  if (fd < 0) return hash;
  if (!fstat(fd, &info) && S_ISREG(info.st_mode)) {
    const off_t span = info.st_size > SAMPLE_BYTES ? info.st_size - SAMPLE_BYTES : 0;
    hash = ttpu_hash_fold(hash, (uint64_t)info.st_size);
    for (int i = 0; i < SAMPLES; i++) { /* the first is the file's start, the last its end */
      unsigned char bytes[SAMPLE_BYTES] = {0};
      const ssize_t n = pread(fd, bytes, sizeof bytes, i < SAMPLES - 1 ? span / (SAMPLES - 1) * i : span);
      hash = ttpu_key_join(hash, ttpu_hash_bytes(bytes, n > 0 ? (size_t)n : 0));
    }
  }
  close(fd);
  return hash;
}

static ttpu_hash_t add_text(ttpu_hash_t hash, const char *text) {
  return ttpu_key_join(hash, ttpu_hash_bytes(text, strlen(text)));
}

ttpu_hash_t ttpu_key_salt(ttpu_client_t *client, int device, const char *lowering) {
  int major, minor;
  ttpu_client_api_version(client, &major, &minor);
  const uint64_t numbers[] = {TTPU_FILE_FORMAT, (uint64_t)major, (uint64_t)minor,
                              ttpu_client_traits(client)->portable_executables ? 0 : (uint64_t)device + 1};
  ttpu_hash_t hash = ttpu_hash_words(numbers, 4);
  hash = add_text(hash, ttpu_client_platform(client));
  hash = add_text(hash, ttpu_client_platform_version(client));
  hash = add_text(hash, ttpu_client_device_kind(client, device));
  hash = add_text(hash, ttpu_client_host_features(client));
  hash = add_text(hash, lowering);
  hash = add_text(hash, ttpu_env_foreign("XLA_FLAGS"));
  hash = add_text(hash, ttpu_env_foreign("LIBTPU_INIT_ARGS"));
  return ttpu_key_join(hash, ttpu_key_library(ttpu_client_plugin_path(client)));
}
