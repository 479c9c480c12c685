/* ttpu.h: the public C interface of the core: a device that records PyTorch operators and runs them through a PJRT
 * plugin. The shim (C++) and the Python package (ctypes) use nothing else, apart from the instance draft
 * (graph/inst.h) that the shim fills on first sight of an operator call.
 *
 * All functions are thread-safe. A failing function returns a status the caller owns (ttpu_status_free).
 */
#ifndef TTPU_H_
#define TTPU_H_

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define TTPU_API __attribute__((visibility("default")))

typedef struct ttpu_status ttpu_status_t;
typedef struct ttpu_storage ttpu_storage_t;
typedef struct ttpu_inst ttpu_inst_t;

/* --- status ----------------------------------------------------------------------------------------------- */

TTPU_API int ttpu_status_number(const ttpu_status_t *status); /* PJRT's (absl's) code; 0 for NULL */
TTPU_API const char *ttpu_status_text(const ttpu_status_t *status);
TTPU_API void ttpu_status_drop(ttpu_status_t *status);

/* --- life ------------------------------------------------------------------------------------------------- */

/* Loads the plugin and makes its devices; once a process. |device_count| <= 0: TORCHTPU_CPU_DEVICES, or what the
 * plugin has. */
TTPU_API ttpu_status_t *ttpu_init(const char *plugin_path, int device_count);
TTPU_API bool ttpu_is_initialized(void);
/* Drops pending work, waits for running work and destroys programs and client. Called at interpreter exit. */
TTPU_API void ttpu_shutdown(void);
TTPU_API int ttpu_device_count(void); /* 0 before ttpu_init */
TTPU_API const char *ttpu_platform(void);
TTPU_API const char *ttpu_platform_version(void);
TTPU_API const char *ttpu_plugin_path(void);
TTPU_API const char *ttpu_device_kind(int device);

enum { TTPU_MODE_DEBUG = 0, TTPU_MODE_STRICT = 1, TTPU_MODE_FUSED = 2 };
/* Cuts what is recorded, then changes when later graphs are cut. */
TTPU_API ttpu_status_t *ttpu_set_mode(int mode);
TTPU_API int ttpu_get_mode(void);
/* 0: as the device likes, 1: high, 2: float32 products are float32 (default). */
TTPU_API void ttpu_set_matmul_precision(int precision);
TTPU_API int ttpu_get_matmul_precision(void);

/* Cuts and starts what is recorded on |device| (-1: all), without waiting. */
TTPU_API ttpu_status_t *ttpu_flush(int device);
/* The same, then waits until it has run; an error of running work is returned. */
TTPU_API ttpu_status_t *ttpu_synchronize(int device);

/* Statistics as one JSON object; free with ttpu_free_string. */
TTPU_API ttpu_status_t *ttpu_stats_json(char **out_json);
TTPU_API void ttpu_free_string(char *text);
/* current, peak, limit (-1 unknown), allocations, frees of |device|, in bytes and counts. */
TTPU_API ttpu_status_t *ttpu_memory_stats(int device, int64_t out_stats[8]);
TTPU_API void ttpu_memory_reset_peak(int device);

/* --- storage ---------------------------------------------------------------------------------------------- */

/* |bytes| of device memory that reads as zeros until written. Counted by the memory that is really used: nothing yet. */
TTPU_API ttpu_status_t *ttpu_storage_create(int device, int64_t bytes, ttpu_storage_t **out_storage);
/* May be called by any thread, from a finalizer, at exit: it only pushes on a list. Has the type of a deleter. */
TTPU_API void ttpu_storage_drop(void *storage);
/* A range of |bytes| addresses that no other living storage has; 0 for an empty storage. Never to be dereferenced. */
TTPU_API uintptr_t ttpu_storage_address(const ttpu_storage_t *storage);
TTPU_API int ttpu_storage_device(const ttpu_storage_t *storage);
TTPU_API int64_t ttpu_storage_bytes(const ttpu_storage_t *storage);
/* A new storage of |bytes| with the same leading memory; |storage| is left empty of data (its owner drops it). */
TTPU_API ttpu_status_t *ttpu_storage_resize(ttpu_storage_t *storage, int64_t bytes, ttpu_storage_t **out_storage);

/* A strided view: sizes and strides in elements of |dtype| (ttpu_dtype_e). */
typedef struct {
  ttpu_storage_t *storage;
  int32_t dtype, rank;
  int64_t offset;
  const int64_t *sizes, *strides;
} ttpu_view_t;

/* |data| is dense and row-major in the view's sizes and dtype; it is copied before the call returns. */
TTPU_API ttpu_status_t *ttpu_upload(const ttpu_view_t *view, const void *data);
/* Waits for the view's value and copies it, dense and row-major. */
TTPU_API ttpu_status_t *ttpu_download(const ttpu_view_t *view, void *data);
/* Copies |source| into |target|: cast, broadcast, and between devices. */
TTPU_API ttpu_status_t *ttpu_copy(const ttpu_view_t *target, const ttpu_view_t *source);

/* --- recording -------------------------------------------------------------------------------------------- */

/* Row of the functional overload |aten| ("add.Tensor"), or -1. Its flags are op_flags_e; |*out_writes| is the row's list
 * of mutated arguments, or NULL. */
TTPU_API int ttpu_row_find(const char *aten, unsigned *out_flags, const char **out_writes);
TTPU_API int ttpu_row_count(void);
TTPU_API const char *ttpu_row_name(int row);

typedef struct {
  int device;
  const uint64_t *words; /* everything about the call but data and parameters */
  int32_t word_count, operand_count, target_count, param_count;
  const ttpu_view_t *operands;
  const ttpu_view_t *targets; /* what results with an alias are written to */
  const uint64_t *params;
  /* filled when recorded: */
  ttpu_inst_t *inst;         /* retained; its results tell how the fresh tensors look */
  ttpu_storage_t **storages; /* room for one a result: a new storage for each fresh result, NULL for the others */
  int32_t storage_capacity;
} ttpu_record_t;

enum { TTPU_RECORDED = 0, TTPU_UNSEEN = 1, TTPU_FAILED = 2 };
/* UNSEEN: no instance of these words, make one with ttpu_inst_make and call again. FAILED: *out_status. */
TTPU_API int ttpu_record(ttpu_record_t *record, ttpu_status_t **out_status);
/* Interns a draft (deep copy) after a dry run of its lowering. UNIMPLEMENTED when the lowering refuses these types or
 * arguments; the caller then decomposes or runs on the host. */
TTPU_API ttpu_status_t *ttpu_inst_make(const ttpu_inst_t *draft);
TTPU_API void ttpu_inst_drop(ttpu_inst_t *inst);

#ifdef __cplusplus
}
#endif
#endif /* TTPU_H_ */
