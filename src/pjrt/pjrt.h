/* pjrt.h: the plugin as the rest of the core sees it. Only src/pjrt knows PJRT structs (pjrt_api.h).
 *
 * Objects are counted where they are shared (client, buffer, executable) and thread-safe: PJRT itself is. All
 * failures are statuses made from PJRT errors in one place; nothing here prints or aborts.
 */
#ifndef TTPU_PJRT_PJRT_H_
#define TTPU_PJRT_PJRT_H_

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"
#include "graph/dtype.h"

typedef struct ttpu_client ttpu_client_t;
typedef struct ttpu_buffer ttpu_buffer_t;
typedef struct ttpu_executable ttpu_executable_t;
typedef struct ttpu_topology ttpu_topology_t;

/* --- client (client.c, plugin.c) ------------------------------------------------------------------------ */

/* Loads the plugin library at |path|, checks its API version (0.81 .. 0.117 and newer minors by struct_size),
 * initialises it once a process and creates a client. |device_count| > 0 asks for that many devices; else a CPU plugin
 * shows one and any other plugin all it has. */
TTPU_MUST_USE ttpu_status_t *ttpu_client_create(const char *path, int device_count, ttpu_client_t **out_client);
void ttpu_client_retain(ttpu_client_t *client);
void ttpu_client_release(ttpu_client_t *client);
/* For the end of the process: waits for what runs, then destroys buffers, executables and the client in that order,
 * although others still hold them. What they hold can then only be released; all else is FAILED_PRECONDITION. (Leaving
 * while the plugin's threads work aborts now and then.) No other thread may use the client meanwhile. */
void ttpu_client_shutdown(ttpu_client_t *client);
int ttpu_client_device_count(const ttpu_client_t *client); /* addressable */
const char *ttpu_client_plugin_path(const ttpu_client_t *client);
const char *ttpu_client_platform(const ttpu_client_t *client);         /* "cpu", "tpu" */
const char *ttpu_client_platform_version(const ttpu_client_t *client);
const char *ttpu_client_device_kind(const ttpu_client_t *client, int device);
void ttpu_client_api_version(const ttpu_client_t *client, int *out_major, int *out_minor);
/* bytes_in_use, peak and limit of a device; UNIMPLEMENTED where the plugin does not tell. -1 for a missing figure. */
TTPU_MUST_USE ttpu_status_t *ttpu_client_memory_stats(ttpu_client_t *client, int device, int64_t *out_used,
                                                      int64_t *out_peak, int64_t *out_limit);

/* --- buffers (buffer.c) --------------------------------------------------------------------------------- */

/* Copies |data| (dense, row-major) before returning. */
TTPU_MUST_USE ttpu_status_t *ttpu_buffer_from_host(ttpu_client_t *client, int device, ttpu_dtype_e dtype, int rank,
                                                   const int64_t *dims, const void *data, ttpu_buffer_t **out_buffer);
/* The same without a copy where the plugin can: |data| must stay valid and unchanged until |done(ctx)| is called (any
 * thread, perhaps before this returns; on host memory plugins when the buffer is destroyed). On failure |done| is never
 * called. */
TTPU_MUST_USE ttpu_status_t *ttpu_buffer_from_host_async(ttpu_client_t *client, int device, ttpu_dtype_e dtype,
                                                         int rank, const int64_t *dims, const void *data,
                                                         void (*done)(void *ctx), void *ctx,
                                                         ttpu_buffer_t **out_buffer);
/* Waits for the buffer and copies it, dense and row-major, to |data|. Nobody may donate it meanwhile. */
TTPU_MUST_USE ttpu_status_t *ttpu_buffer_to_host(ttpu_buffer_t *buffer, void *data, size_t size);
/* Waits until the buffer is computed; its error if it failed. */
TTPU_MUST_USE ttpu_status_t *ttpu_buffer_await(ttpu_buffer_t *buffer);
/* NULL and *out_ready, or the error the computation ended with; never blocks. */
TTPU_MUST_USE ttpu_status_t *ttpu_buffer_poll(ttpu_buffer_t *buffer, bool *out_ready);
TTPU_MUST_USE ttpu_status_t *ttpu_buffer_copy_to_device(ttpu_buffer_t *buffer, int device, ttpu_buffer_t **out_buffer);
/* Address of the device memory, for plugins that expose it. */
TTPU_MUST_USE ttpu_status_t *ttpu_buffer_pointer(ttpu_buffer_t *buffer, uintptr_t *out_pointer);
int64_t ttpu_buffer_bytes(const ttpu_buffer_t *buffer); /* element bytes x numel, as asked for */
bool ttpu_buffer_is_deleted(ttpu_buffer_t *buffer);     /* consumed by a donation */
void ttpu_buffer_retain(ttpu_buffer_t *buffer);
void ttpu_buffer_release(ttpu_buffer_t *buffer);        /* NULL is fine; any thread */

/* --- executables (executable.c) -------------------------------------------------------------------------- */

/* Compiles StableHLO text for one replica and partition, portable over the client's devices (or for |device| where the
 * plugin has no portable executables). |result_count| is what the program returns. */
TTPU_MUST_USE ttpu_status_t *ttpu_executable_compile(ttpu_client_t *client, int device, const char *text, size_t size,
                                                     ttpu_executable_t **out_executable);
/* A serialized form for the disk tier; |*out_data| is from ttpu_alloc, owned by the caller. */
TTPU_MUST_USE ttpu_status_t *ttpu_executable_serialize(ttpu_executable_t *executable, char **out_data,
                                                       size_t *out_size);
TTPU_MUST_USE ttpu_status_t *ttpu_executable_load(ttpu_client_t *client, int device, const char *data, size_t size,
                                                  ttpu_executable_t **out_executable);
int ttpu_executable_result_count(const ttpu_executable_t *executable);
/* Bytes of generated code, 0 where unknown: what the memory tier counts. */
int64_t ttpu_executable_code_bytes(const ttpu_executable_t *executable);
typedef struct {
  int64_t argument_bytes, output_bytes, temp_bytes, alias_bytes, peak_bytes, code_bytes; /* -1 unknown */
  double flops, bytes_accessed, transcendentals, optimal_seconds;                         /* -1 unknown */
} ttpu_cost_t;
TTPU_MUST_USE ttpu_status_t *ttpu_executable_cost(ttpu_executable_t *executable, ttpu_cost_t *out_cost);
void ttpu_executable_retain(ttpu_executable_t *executable);
void ttpu_executable_release(ttpu_executable_t *executable);

/* Starts the program on |device|. |keep| lists (ascending) the argument numbers that must survive although the program
 * was compiled to donate them. |out_buffers| gets result_count new references whose types the caller passes in
 * |result_bytes| (for ttpu_buffer_bytes; may be NULL). On failure no output is made; an input may have been consumed
 * (ttpu_buffer_is_deleted tells). */
TTPU_MUST_USE ttpu_status_t *ttpu_executable_run(ttpu_executable_t *executable, int device, int argument_count,
                                                 ttpu_buffer_t *const *arguments, int keep_count, const int64_t *keep,
                                                 const int64_t *result_bytes, ttpu_buffer_t **out_buffers);

/* --- platform table (platform.c): the only place that knows how platforms differ -------------------------- */

typedef struct {
  bool is_tpu;
  bool is_host_memory;        /* device memory is this process's memory */
  bool honours_keep;          /* non_donatable_input_indices works */
  bool portable_executables;  /* one executable runs on any device; else the device belongs in its key */
  bool has_cost_analysis;
  bool quadratic_thunks;      /* compile and load grow with the square of a program's thunks */
  int program_nodes;          /* how many nodes a program should hold at most */
  int lane, sublane, matrix_unit; /* tile sizes the device likes; 0: no preference */
} ttpu_platform_t;
const ttpu_platform_t *ttpu_client_traits(const ttpu_client_t *client);
/* Distinguishes hosts whose machine code differs (CPU plugin: model and feature flags); "" otherwise. */
const char *ttpu_client_host_features(const ttpu_client_t *client);

/* --- discovery (plugin.c) --------------------------------------------------------------------------------- */

/* True when a TPU is really attached: a PCI function of vendor 0x1ae0 that is no network card or disk, and a device
 * node (/dev/accelN or /dev/vfio/N). Creates no client. */
bool ttpu_plugin_has_tpu(void);

#endif /* TTPU_PJRT_PJRT_H_ */
