/* api.c: the life of the core and what can be asked of it (ttpu.h). */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/str.h"
#include "ops/ops.h"
#include "runtime/core.h"
#include "runtime/settings.h"
#include "runtime/storage.h"

int ttpu_status_number(const ttpu_status_t *status) { return (int)ttpu_status_code(status); }
const char *ttpu_status_text(const ttpu_status_t *status) { return ttpu_status_message(status); }
void ttpu_status_drop(ttpu_status_t *status) { ttpu_status_free(status); }

/* --- life ---------------------------------------------------------------------------------------------------- */

static void drop_buffer(const ttpu_value_t *value) {
  ttpu_device_t *device = &ttpu_core.devices[value->device];
  atomic_fetch_sub_explicit(&device->bytes, value->bytes, memory_order_relaxed);
  atomic_fetch_add_explicit(&device->frees, 1, memory_order_relaxed);
  ttpu_buffer_release(value->buffer);
}

/* In a forked child: another thread of the parent may have held the lock. */
static void after_fork(void) {
  atomic_store(&ttpu_core.end, TTPU_FORKED);
  const pthread_mutex_t fresh = PTHREAD_MUTEX_INITIALIZER;
  memcpy(&ttpu_core.lock, &fresh, sizeof fresh);
}

static ttpu_status_t *init_with(const char *plugin_path, int device_count, ttpu_settings_t *settings) {
  if (device_count <= 0) device_count = settings->cpu_devices;
  settings->cache.folder = settings->cache_folder;
  ttpu_client_t *client;
  TTPU_TRY_CTX(ttpu_client_create(plugin_path, device_count, &client), "cannot start the plugin %s", plugin_path);
  ttpu_status_t *status = NULL;
  ttpu_core.device_count = ttpu_client_device_count(client);
  ttpu_core.devices = ttpu_alloc_zero((size_t)ttpu_core.device_count, sizeof *ttpu_core.devices);
  ttpu_core.plugin_path = ttpu_alloc_string(plugin_path);
  ttpu_core.values.drop_buffer = drop_buffer;
  ttpu_core.mode = settings->mode;
  ttpu_core.fused_nodes = settings->fused_nodes;
  if (!ttpu_core.devices || !ttpu_core.plugin_path) status = TTPU_OUT_OF_HOST_MEMORY();
  if (!status) status = ttpu_cache_create(client, &settings->cache, &ttpu_core.cache);
  if (!status) status = ttpu_inst_table_init(&ttpu_core.insts, settings->instances);
  if (!status) status = ttpu_programs_init(&ttpu_core.programs, settings->cache.memory_programs);
  if (status) {
    ttpu_inst_table_deinit(&ttpu_core.insts);
    ttpu_cache_free(ttpu_core.cache);
    ttpu_free(ttpu_core.devices);
    ttpu_free(ttpu_core.plugin_path);
    ttpu_client_release(client);
    ttpu_core.cache = NULL;
    ttpu_core.devices = NULL;
    ttpu_core.plugin_path = NULL;
    ttpu_core.device_count = 0;
    return status;
  }
  for (int i = 0; i < ttpu_core.device_count; i++) {
    ttpu_core.devices[i].index = i;
    ttpu_graph_init(&ttpu_core.devices[i].graph);
  }
  pthread_atfork(NULL, NULL, after_fork);
  ttpu_core.client = client;
  return NULL;
}

ttpu_status_t *ttpu_init(const char *plugin_path, int device_count) {
  ttpu_settings_t settings;
  TTPU_TRY(ttpu_core_check());
  ttpu_core_lock();
  ttpu_status_t *status = NULL;
  if (!ttpu_core.client) {
    status = ttpu_settings_read(&settings);
    if (!status) status = init_with(plugin_path, device_count, &settings);
    ttpu_settings_deinit(&settings);
  }
  ttpu_core_unlock();
  return status;
}

bool ttpu_is_initialized(void) { return ttpu_core.client != NULL; }

/* Tensors that Python still holds at exit keep their buffer objects; the client's shutdown waits for running work and
 * takes the device memory and programs away from under them, in an order the plugin survives. Pending work is dropped. */
void ttpu_shutdown(void) {
  if (atomic_load(&ttpu_core.end) != TTPU_ALIVE) return;
  ttpu_core_lock();
  if (ttpu_core.client) {
    ttpu_storage_drain();
    ttpu_programs_deinit(&ttpu_core.programs);
    ttpu_cache_free(ttpu_core.cache);
    ttpu_core.cache = NULL;
    ttpu_client_shutdown(ttpu_core.client);
    atomic_store(&ttpu_core.end, TTPU_ENDED); /* whatever still arrives is refused */
    ttpu_core.device_count = 0;
  }
  ttpu_core_unlock();
}

int ttpu_device_count(void) { return ttpu_core.device_count; }
const char *ttpu_platform(void) { return ttpu_core.client ? ttpu_client_platform(ttpu_core.client) : ""; }
const char *ttpu_platform_version(void) {
  return ttpu_core.client ? ttpu_client_platform_version(ttpu_core.client) : "";
}
const char *ttpu_plugin_path(void) { return ttpu_core.plugin_path ? ttpu_core.plugin_path : ""; }
const char *ttpu_device_kind(int device) {
  return device >= 0 && device < ttpu_core.device_count ? ttpu_client_device_kind(ttpu_core.client, device) : "";
}

/* --- modes --------------------------------------------------------------------------------------------------- */

static ttpu_status_t *check_device(int device) {
  if (device >= -1 && device < ttpu_core.device_count) return NULL;
  return TTPU_ERROR(INVALID_ARGUMENT, "tpu:%d does not exist; this process has %d tpu device%s", device,
                    ttpu_core.device_count, ttpu_core.device_count == 1 ? "" : "s");
}

static ttpu_status_t *flush_locked(int device) {
  ttpu_status_t *first = NULL;
  ttpu_storage_drain();
  for (int i = 0; i < ttpu_core.device_count; i++) {
    if (device >= 0 && i != device) continue;
    ttpu_status_t *status = ttpu_core_cut(&ttpu_core.devices[i]);
    if (first)
      ttpu_status_free(status);
    else
      first = status;
  }
  return first;
}

ttpu_status_t *ttpu_flush(int device) {
  TTPU_TRY(ttpu_core_check());
  TTPU_TRY(check_device(device));
  ttpu_core_lock();
  ttpu_status_t *status = flush_locked(device);
  ttpu_core_unlock();
  return status;
}

ttpu_status_t *ttpu_synchronize(int device) {
  TTPU_TRY(ttpu_core_check());
  TTPU_TRY(check_device(device));
  ttpu_core_lock();
  ttpu_status_t *first = flush_locked(device);
  for (int i = 0; i < ttpu_core.device_count; i++) {
    ttpu_value_t *last = ttpu_core.devices[i].last;
    if ((device >= 0 && i != device) || !last || !last->buffer) continue;
    ttpu_value_retain(last); /* not donated, not freed while we wait without the lock */
    ttpu_core_unlock();
    ttpu_status_t *status = ttpu_buffer_await(last->buffer);
    ttpu_core_lock();
    if (ttpu_core.devices[i].last == last) { /* done: nothing more to wait for, so its memory may go */
      ttpu_core.devices[i].last = NULL;
      ttpu_value_release(&ttpu_core.values, last);
    }
    ttpu_value_release(&ttpu_core.values, last);
    if (first)
      ttpu_status_free(status);
    else
      first = status;
  }
  ttpu_core_unlock();
  return first;
}

ttpu_status_t *ttpu_set_mode(int mode) {
  if (mode < TTPU_MODE_DEBUG || mode > TTPU_MODE_FUSED)
    return TTPU_ERROR(INVALID_ARGUMENT, "no eager mode %d; modes are 0 debug, 1 strict, 2 fused", mode);
  ttpu_core_lock();
  ttpu_status_t *status = mode == ttpu_core.mode ? NULL : flush_locked(-1);
  ttpu_core.mode = mode;
  ttpu_core_unlock();
  return status;
}

int ttpu_get_mode(void) { return ttpu_core.mode; }

void ttpu_set_matmul_precision(int precision) {
  ttpu_core_lock();
  if (precision != ttpu_core.precision) ttpu_status_free(flush_locked(-1)); /* what was recorded keeps its precision */
  ttpu_core.precision = precision;
  ttpu_core_unlock();
}

int ttpu_get_matmul_precision(void) { return ttpu_core.precision; }

/* --- rows ---------------------------------------------------------------------------------------------------- */

int ttpu_row_find(const char *aten, unsigned *out_flags, const char **out_writes) {
  const int row = op_find(aten);
  if (row >= 0 && out_flags) *out_flags = op_rows[row].flags;
  if (row >= 0 && out_writes) *out_writes = op_rows[row].writes;
  return row;
}

int ttpu_row_count(void) { return op_row_count; }
const char *ttpu_row_name(int row) { return row >= 0 && row < op_row_count ? op_rows[row].aten : NULL; }

/* --- statistics ----------------------------------------------------------------------------------------------- */

static void put_escaped(ttpu_str_t *out, const char *text) {
  ttpu_str_puts(out, "\"");
  for (; *text; text++) {
    if (*text == '"' || *text == '\\')
      ttpu_str_printf(out, "\\%c", *text);
    else if ((unsigned char)*text < 0x20)
      ttpu_str_printf(out, "\\u%04x", *text);
    else
      ttpu_str_append(out, text, 1);
  }
  ttpu_str_puts(out, "\"");
}

static void put_count(ttpu_str_t *out, const char *name, int64_t value) {
  ttpu_str_printf(out, "%s\"%s\":%" PRId64, out->data[out->size - 1] == '{' ? "" : ",", name, value);
}

ttpu_status_t *ttpu_stats_json(char **out_json) {
  *out_json = NULL;
  enum { RECENT = 64 };
  ttpu_cache_stats_t cache = {0};
  ttpu_cache_compile_t *recent = ttpu_alloc(RECENT * sizeof *recent);
  if (!recent) return TTPU_OUT_OF_HOST_MEMORY();
  ttpu_str_t out = {0};
  ttpu_str_puts(&out, "{");
  ttpu_core_lock();
  ttpu_storage_drain();
  int compiles = 0;
  if (ttpu_core.cache) {
    ttpu_cache_stats(ttpu_core.cache, &cache);
    compiles = ttpu_cache_compiles(ttpu_core.cache, recent, RECENT);
  }
  if (!out.failed) {
    put_count(&out, "ops_recorded", ttpu_core.ops_recorded);
    put_count(&out, "graphs_cut", ttpu_core.cuts);
    put_count(&out, "programs_run", ttpu_core.programs_run);
    put_count(&out, "programs_compiled", cache.compiles);
    put_count(&out, "program_hits", ttpu_core.programs.hits);
    put_count(&out, "program_misses", ttpu_core.programs.misses);
    put_count(&out, "program_evictions", ttpu_core.programs.evictions);
    put_count(&out, "programs_held", ttpu_core.programs.count);
    put_count(&out, "memory_hits", cache.memory_hits);
    put_count(&out, "disk_hits", cache.disk_hits);
    put_count(&out, "disk_files", cache.disk_files);
    put_count(&out, "disk_bytes", cache.disk_bytes);
    put_count(&out, "disk_errors", cache.disk_errors);
    put_count(&out, "rejected_files", cache.rejected_files);
    put_count(&out, "compile_nanoseconds", cache.compile_nanoseconds);
    put_count(&out, "load_nanoseconds", cache.load_nanoseconds);
    put_count(&out, "instances", ttpu_core.insts.count);
    put_count(&out, "instances_created", ttpu_core.insts.created);
    put_count(&out, "parameter_uploads", ttpu_core.programs.param_uploads);
    put_count(&out, "uploads", ttpu_core.uploads);
    put_count(&out, "upload_bytes", ttpu_core.upload_bytes);
    put_count(&out, "downloads", ttpu_core.downloads);
    put_count(&out, "download_bytes", ttpu_core.download_bytes);
    ttpu_str_puts(&out, ",\"disk_status\":");
    put_escaped(&out, cache.disk_status);
    ttpu_str_puts(&out, ",\"compiles\":[");
    for (int i = 0; i < compiles; i++) {
      ttpu_str_printf(&out, "%s{\"key\":\"%s\",\"milliseconds\":%.3f,\"why\":", i ? "," : "", recent[i].key,
                      recent[i].milliseconds);
      put_escaped(&out, recent[i].why);
      ttpu_str_puts(&out, "}");
    }
    ttpu_str_puts(&out, "]}");
  }
  ttpu_core_unlock();
  ttpu_free(recent);
  if (out.failed) {
    ttpu_str_deinit(&out);
    return TTPU_OUT_OF_HOST_MEMORY();
  }
  *out_json = out.data;
  return NULL;
}

void ttpu_free_string(char *text) { ttpu_free(text); }

ttpu_status_t *ttpu_memory_stats(int device, int64_t out_stats[8]) {
  memset(out_stats, 0, 8 * sizeof *out_stats);
  if (device < 0) return TTPU_ERROR(INVALID_ARGUMENT, "tpu:%d does not exist", device);
  TTPU_TRY(check_device(device));
  ttpu_core_lock();
  ttpu_storage_drain();
  ttpu_core_unlock();
  const ttpu_device_t *d = &ttpu_core.devices[device];
  int64_t used, peak, limit = -1;
  ttpu_status_t *status = ttpu_client_memory_stats(ttpu_core.client, device, &used, &peak, &limit);
  if (status) limit = -1; /* the plugin does not tell */
  ttpu_status_free(status);
  if (limit <= 0 && ttpu_client_traits(ttpu_core.client)->is_host_memory)
    limit = (int64_t)sysconf(_SC_PHYS_PAGES) * sysconf(_SC_PAGESIZE);
  out_stats[0] = atomic_load(&d->bytes);
  out_stats[1] = atomic_load(&d->peak_bytes);
  out_stats[2] = limit;
  out_stats[3] = atomic_load(&d->allocations);
  out_stats[4] = atomic_load(&d->frees);
  return NULL;
}

void ttpu_memory_reset_peak(int device) {
  if (device < 0 || device >= ttpu_core.device_count) return;
  ttpu_device_t *d = &ttpu_core.devices[device];
  atomic_store(&d->peak_bytes, atomic_load(&d->bytes));
}
