/* objects.h: what the files of this folder share: the objects behind pjrt.h and how a PJRT call is made.
 *
 * Lifetime: plugins live until the process ends (XLA cannot be unloaded). A buffer and an executable each hold one
 * reference to their client, so PJRT objects always die before their client. A NULL PJRT handle means that
 * ttpu_client_shutdown took it: such an object can only be released.
 */
#ifndef TTPU_PJRT_OBJECTS_H_
#define TTPU_PJRT_OBJECTS_H_

#include <pthread.h>
#include <stdatomic.h>

#include "pjrt/pjrt.h"
#include "pjrt/pjrt_api.h"

typedef struct ttpu_plugin {
  PJRT_Api api; /* a copy of the plugin's table; slots that it does not have are NULL */
  char *path;
  void *library;
  struct ttpu_plugin *next;
} ttpu_plugin_t;

TTPU_MUST_USE ttpu_status_t *ttpu_plugin_load(const char *path, const ttpu_plugin_t **out_plugin);
/* True when the file at |path| is libtpu by its name. */
bool ttpu_plugin_is_libtpu(const char *path);
/* The one place where a PJRT error becomes a status; destroys |error|, which may be NULL. */
TTPU_MUST_USE ttpu_status_t *ttpu_plugin_convert(const ttpu_plugin_t *plugin, PJRT_Error *error);
TTPU_MUST_USE ttpu_status_t *ttpu_plugin_missing(const ttpu_plugin_t *plugin, const char *function);

/* Calls a PJRT function: a status, UNIMPLEMENTED where the plugin lacks the slot. |args| is a pointer. */
#define PJRT_CALL(plugin, function, args)                                      \
  (__builtin_expect((plugin)->api.function != NULL, 1)                         \
       ? ttpu_plugin_status((plugin), (plugin)->api.function(args))            \
       : ttpu_plugin_missing((plugin), #function))
/* The same where a failure has no one to tell: destructors. */
#define PJRT_DROP(plugin, function, args) ttpu_status_free(PJRT_CALL(plugin, function, args))
/* Begins a designated initialiser of an argument struct. */
#define PJRT_SIZED(type) .struct_size = sizeof(type)

static inline ttpu_status_t *ttpu_plugin_status(const ttpu_plugin_t *plugin, PJRT_Error *error) {
  return __builtin_expect(error == NULL, 1) ? NULL : ttpu_plugin_convert(plugin, error);
}

/* Waits for |event| and destroys it; NULL is fine. */
TTPU_MUST_USE ttpu_status_t *ttpu_plugin_await(const ttpu_plugin_t *plugin, PJRT_Event *event);
void ttpu_plugin_drop_event(const ttpu_plugin_t *plugin, PJRT_Event *event);

enum { TTPU_SLAB_BUFFERS = 128 };

struct ttpu_buffer {
  _Atomic int32_t refs;
  int32_t device;
  ttpu_client_t *client;
  PJRT_Buffer *handle;
  union {
    int64_t bytes;            /* in use: -1 until someone asks */
    ttpu_buffer_t *next_free; /* in the free list */
  };
};

/* Buffer objects are so frequent that they come from slabs with a free list; the slabs also tell which are alive. */
typedef struct ttpu_slab {
  struct ttpu_slab *next;
  ttpu_buffer_t buffers[TTPU_SLAB_BUFFERS];
} ttpu_slab_t;

struct ttpu_client {
  _Atomic int64_t refs;
  const ttpu_plugin_t *plugin;
  PJRT_Client *handle;
  int device_count;
  PJRT_Device **devices;
  char **device_kinds;
  int *device_ids; /* global ids, for device assignments */
  char *platform, *platform_version, *host_features;
  ttpu_platform_t traits;

  _Atomic bool pool_busy; /* spin lock of the next two, held for a few instructions */
  ttpu_buffer_t *free_buffers;
  ttpu_slab_t *slabs;

  pthread_mutex_t lock; /* of the list of executables */
  ttpu_executable_t *executables;
};

struct ttpu_executable {
  _Atomic int64_t refs;
  ttpu_client_t *client;
  PJRT_LoadedExecutable *handle;
  PJRT_Executable *description; /* what cost and size questions go to */
  int result_count;
  int device; /* where it is bound to run, -1: portable */
  int64_t code_bytes;
  ttpu_executable_t *previous, *next; /* of the same client */
};

/* Takes |count| buffer objects, each with one reference and no handle, holding the client. All or none. */
TTPU_MUST_USE ttpu_status_t *ttpu_buffer_take(ttpu_client_t *client, int device, int count,
                                              ttpu_buffer_t **out_buffers);
/* Gives back objects that never got a handle. */
void ttpu_buffer_give(ttpu_client_t *client, int count, ttpu_buffer_t **buffers);
/* Drops the PJRT handles of an object whose client shuts down. */
void ttpu_buffer_abandon(ttpu_buffer_t *buffer);
void ttpu_executable_abandon(ttpu_executable_t *executable);

/* Fills |client->traits| and |client->host_features| from platform, device kind and API. */
TTPU_MUST_USE ttpu_status_t *ttpu_platform_describe(ttpu_client_t *client);

TTPU_MUST_USE ttpu_status_t *ttpu_client_gone(void);
TTPU_MUST_USE ttpu_status_t *ttpu_client_check_device(const ttpu_client_t *client, int device);

#endif /* TTPU_PJRT_OBJECTS_H_ */
