/* fake.h: opens the fake plugin (fake_plugin.h) for a test. TORCHTPU_TEST_FAKE_PLUGIN names the library.
 *
 * A process initialises a plugin library once and keeps its function table, so a test of another table (version, slots)
 * needs a library of its own: fake_open copies the file each time, and the copy is a different library to the loader.
 */
#ifndef TTPU_TESTS_FAKE_H_
#define TTPU_TESTS_FAKE_H_

#include <dlfcn.h>
#include <stdlib.h>
#include <unistd.h>

#include "check.h"
#include "fake_plugin.h"

typedef struct {
  char path[128];
  fake_plugin_configure_t configure;
  fake_plugin_calls_t calls;
  fake_plugin_live_t live;
} fake_t;

static inline bool fake_copy_file(const char *from, const char *to) {
  FILE *in = fopen(from, "rb"), *out = fopen(to, "wb");
  char part[65536];
  bool ok = in && out;
  for (size_t n; ok && (n = fread(part, 1, sizeof part, in)) > 0;) ok = fwrite(part, 1, n, out) == n;
  if (in) fclose(in);
  if (out && fclose(out)) ok = false;
  return ok;
}

/* Ends the test program when the plugin cannot be opened: nothing could be tested. */
static inline fake_t fake_open(const char *config) {
  static int count;
  fake_t fake = {.path = ""};
  const char *from = getenv("TORCHTPU_TEST_FAKE_PLUGIN");
  if (!from || !*from) {
    fprintf(stderr, "TORCHTPU_TEST_FAKE_PLUGIN is not set\n");
    exit(CHECK_SKIPPED);
  }
  const char *temporary = getenv("TMPDIR");
  snprintf(fake.path, sizeof fake.path, "%.80s/fake_plugin_%d_%d.so", temporary ? temporary : "/tmp", (int)getpid(),
           count++);
  void *library = fake_copy_file(from, fake.path) ? dlopen(fake.path, RTLD_NOW | RTLD_LOCAL) : NULL;
  if (library) {
    fake.configure = (fake_plugin_configure_t)dlsym(library, "fake_plugin_configure");
    fake.calls = (fake_plugin_calls_t)dlsym(library, "fake_plugin_calls");
    fake.live = (fake_plugin_live_t)dlsym(library, "fake_plugin_live");
  }
  if (!fake.configure || !fake.calls || !fake.live || !fake.configure(config)) {
    fprintf(stderr, "the fake plugin %s does not open as \"%s\"\n", fake.path, config);
    exit(1);
  }
  return fake;
}

/* The file can go as soon as nothing opens it by name again. */
static inline void fake_close(fake_t *fake) { unlink(fake->path); }

#endif /* TTPU_TESTS_FAKE_H_ */
