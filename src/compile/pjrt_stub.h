/* pjrt_stub.h: as much of pjrt.h as the cache uses, for its tests: a "compiler" that copies the text, counts, waits and
 * fails on demand. Included by one test file a program; it stands in for src/pjrt, which is then not linked.
 */
#ifndef TTPU_COMPILE_PJRT_STUB_H_
#define TTPU_COMPILE_PJRT_STUB_H_

#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/alloc.h"
#include "pjrt/pjrt.h"

struct ttpu_client {
  int refs, device_count;
  const char *plugin_path, *platform, *platform_version, *device_kinds[2], *host_features;
  int major, minor;
  ttpu_platform_t traits;
};

struct ttpu_executable {
  _Atomic int refs;
  int device;
  size_t size;
  char text[];
};

static struct {
  _Atomic int live;         /* executables not yet destroyed */
  _Atomic int *compiles;    /* shared with forked children */
  int compile_ms;           /* how long a compile takes */
  int compile_failures;     /* so many compiles fail from now on */
  bool refuses_files;       /* the plugin takes none of its own files back */
  bool cannot_serialize;
  size_t padding;           /* bytes a serialized program is larger than its text */
} stub;

static inline void stub_init(void) {
  stub.compiles = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
}

static inline struct ttpu_client stub_client(void) {
  return (struct ttpu_client){.refs = 1,
                              .device_count = 2,
                              .plugin_path = "/nowhere",
                              .platform = "cpu",
                              .platform_version = "1",
                              .device_kinds = {"core", "core"},
                              .host_features = "sse",
                              .minor = 106,
                              .traits = {.portable_executables = true}};
}

void ttpu_client_retain(ttpu_client_t *client) { client->refs++; }
void ttpu_client_release(ttpu_client_t *client) { client->refs--; }
int ttpu_client_device_count(const ttpu_client_t *client) { return client->device_count; }
const char *ttpu_client_plugin_path(const ttpu_client_t *client) { return client->plugin_path; }
const char *ttpu_client_platform(const ttpu_client_t *client) { return client->platform; }
const char *ttpu_client_platform_version(const ttpu_client_t *client) { return client->platform_version; }
const char *ttpu_client_device_kind(const ttpu_client_t *client, int device) { return client->device_kinds[device]; }
const char *ttpu_client_host_features(const ttpu_client_t *client) { return client->host_features; }
const ttpu_platform_t *ttpu_client_traits(const ttpu_client_t *client) { return &client->traits; }
void ttpu_client_api_version(const ttpu_client_t *client, int *out_major, int *out_minor) {
  *out_major = client->major;
  *out_minor = client->minor;
}

static inline ttpu_status_t *stub_make(int device, const char *text, size_t size, ttpu_executable_t **out_executable) {
  ttpu_executable_t *executable = ttpu_alloc(sizeof *executable + size + 1);
  *out_executable = NULL;
  if (!executable) return TTPU_OUT_OF_HOST_MEMORY();
  executable->refs = 1;
  executable->device = device;
  executable->size = size;
  memcpy(executable->text, text, size);
  executable->text[size] = 0;
  stub.live++;
  *out_executable = executable;
  return NULL;
}

ttpu_status_t *ttpu_executable_compile(ttpu_client_t *client, int device, const char *text, size_t size,
                                       ttpu_executable_t **out_executable) {
  (void)client;
  ++*stub.compiles;
  *out_executable = NULL;
  if (stub.compile_ms) usleep((useconds_t)stub.compile_ms * 1000);
  if (stub.compile_failures > 0 && stub.compile_failures--) return TTPU_ERROR(INTERNAL, "the compiler stumbled");
  return stub_make(device, text, size, out_executable);
}

static const char stub_magic[8] = "EXECUTE";

ttpu_status_t *ttpu_executable_serialize(ttpu_executable_t *executable, char **out_data, size_t *out_size) {
  *out_data = NULL;
  *out_size = 0;
  if (stub.cannot_serialize) return TTPU_ERROR(UNIMPLEMENTED, "no serialization here");
  const size_t size = sizeof stub_magic + sizeof executable->size + executable->size + stub.padding;
  char *data = ttpu_alloc_zero(1, size);
  if (!data) return TTPU_OUT_OF_HOST_MEMORY();
  memcpy(data, stub_magic, sizeof stub_magic);
  memcpy(data + sizeof stub_magic, &executable->size, sizeof executable->size);
  memcpy(data + sizeof stub_magic + sizeof executable->size, executable->text, executable->size);
  *out_data = data;
  *out_size = size;
  return NULL;
}

ttpu_status_t *ttpu_executable_load(ttpu_client_t *client, int device, const char *data, size_t size,
                                    ttpu_executable_t **out_executable) {
  (void)client;
  *out_executable = NULL;
  size_t text_size;
  const size_t head = sizeof stub_magic + sizeof text_size;
  if (stub.refuses_files || size < head || memcmp(data, stub_magic, sizeof stub_magic))
    return TTPU_ERROR(INVALID_ARGUMENT, "not an executable of this plugin");
  memcpy(&text_size, data + sizeof stub_magic, sizeof text_size);
  return stub_make(device, data + head, text_size, out_executable);
}

void ttpu_executable_retain(ttpu_executable_t *executable) { executable->refs++; }
void ttpu_executable_release(ttpu_executable_t *executable) {
  if (!executable || --executable->refs) return;
  stub.live--;
  ttpu_free(executable);
}

#endif /* TTPU_COMPILE_PJRT_STUB_H_ */
