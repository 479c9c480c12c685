/* core.h: the state of the process: client, cache, tables, and one recording a device, behind one lock.
 *
 * The lock is held while recording and cutting, never while PyTorch code runs (shape functions, decompositions, the
 * host fallback) and never while waiting for the device. Deleters do not take it: dropped storages are pushed on a
 * lock-free list that the next recording drains.
 */
#ifndef TTPU_RUNTIME_CORE_H_
#define TTPU_RUNTIME_CORE_H_

#include <pthread.h>
#include <stdatomic.h>

#include "compile/cache.h"
#include "graph/graph.h"
#include "graph/inst_table.h"
#include "graph/view.h"
#include "pjrt/pjrt.h"
#include "runtime/address.h"
#include "runtime/program.h"
#include "ttpu.h"

/* What a storage held before the recording overwrote it: put back if the new value fails. */
typedef struct {
  ttpu_storage_t *storage; /* NULL once destroyed */
  ttpu_value_t *value;     /* ready */
  bool retained;           /* else an input of the graph keeps it, so that it may be donated */
  ttpu_geometry_t base;    /* dims and strides in the graph's arena */
} ttpu_undo_t;

typedef struct {
  int index;
  ttpu_graph_t graph;
  ttpu_undo_t *undo;
  int32_t undo_count, undo_capacity;
  ttpu_value_t *last; /* the smallest result of the last program: awaited by synchronize */
  _Atomic int64_t bytes, peak_bytes, allocations, frees;
} ttpu_device_t;

/* Why the device cannot be used any more. After a fork the plugin's threads and locks are the parent's. */
typedef enum { TTPU_ALIVE = 0, TTPU_ENDED, TTPU_FORKED } ttpu_end_e;

typedef struct {
  pthread_mutex_t lock;
  _Atomic int end; /* ttpu_end_e */
  ttpu_client_t *client;
  ttpu_cache_t *cache;
  char *plugin_path;
  int device_count, mode, precision;
  int32_t fused_nodes; /* node budget of a fused graph */
  ttpu_device_t *devices;
  ttpu_inst_table_t insts;
  ttpu_values_t values;
  ttpu_programs_t programs;
  ttpu_addresses_t addresses;
  ttpu_storage_t *free_storages;
  _Atomic(ttpu_storage_t *) dropped;
  int64_t ops_recorded, programs_run, uploads, downloads, upload_bytes, download_bytes, cuts;
} ttpu_core_t;

/* The one core; its client is NULL before ttpu_init. */
extern ttpu_core_t ttpu_core;

static inline void ttpu_core_lock(void) { pthread_mutex_lock(&ttpu_core.lock); }
static inline void ttpu_core_unlock(void) { pthread_mutex_unlock(&ttpu_core.lock); }

/* FAILED_PRECONDITION after shutdown or in a forked child: the first line of every entry that uses the device. */
TTPU_MUST_USE ttpu_status_t *ttpu_core_end_status(void);
TTPU_MUST_USE static inline ttpu_status_t *ttpu_core_check(void) {
  return atomic_load_explicit(&ttpu_core.end, memory_order_relaxed) == TTPU_ALIVE ? NULL : ttpu_core_end_status();
}

/* --- with the lock held: --- */

/* Finds or makes the instance of |draft|, whose words are complete. */
TTPU_MUST_USE ttpu_status_t *ttpu_core_intern(const ttpu_inst_t *draft, ttpu_inst_t **out_inst);
/* Appends a node whose results nobody watches yet; failed operands fail it. */
TTPU_MUST_USE ttpu_status_t *ttpu_core_append(ttpu_device_t *device, ttpu_inst_t *inst, ttpu_value_t *const *operands,
                                              const uint64_t *params, int32_t *out_first_result);
/* A new value, pending as result |k| of the node that starts at |first_result|. */
TTPU_MUST_USE ttpu_status_t *ttpu_core_watch(ttpu_device_t *device, const ttpu_inst_t *inst, int32_t first_result, int k,
                                             ttpu_value_t **out_value);
/* Ends the recording: finds or compiles its program and starts it. Failures are kept in the values that depend on them
 * and also returned. */
TTPU_MUST_USE ttpu_status_t *ttpu_core_cut(ttpu_device_t *device);
/* After something was recorded: cuts when the mode says so. */
TTPU_MUST_USE ttpu_status_t *ttpu_core_recorded(ttpu_device_t *device);
void ttpu_core_set_buffer(ttpu_value_t *value, ttpu_buffer_t *buffer);

#endif /* TTPU_RUNTIME_CORE_H_ */
