/* storage.h: what a PyTorch StorageImpl points to: the current value of a piece of device memory and its geometry.
 *
 * All tensors that alias share one storage. A storage owns its value; without one it reads as zeros. The value's dims
 * and strides (the geometry) are a permutation of a dense layout of all bytes; a dense overwrite in another geometry or
 * dtype re-bases it. Reading a view appends a read node unless the view is the base; writing replaces the value.
 * All functions need the core's lock, except the drop (a lock-free push).
 */
#ifndef TTPU_RUNTIME_STORAGE_H_
#define TTPU_RUNTIME_STORAGE_H_

#include "runtime/core.h"

enum { TTPU_STORAGE_FIXED_RANK = 6 };

struct ttpu_storage {
  ttpu_value_t *value; /* NULL: zeros */
  int32_t device;
  ttpu_geometry_t base; /* dims and strides point to |fixed| or to heap */
  int64_t bytes;
  uintptr_t address;
  uint64_t undo_epoch; /* the graph filling whose undo list names this storage */
  struct ttpu_storage *next; /* free list, or the list of dropped ones */
  int64_t fixed[2 * TTPU_STORAGE_FIXED_RANK];
};

TTPU_MUST_USE ttpu_status_t *ttpu_storage_make(int device, int64_t bytes, ttpu_storage_t **out_storage);
/* Takes over |value| (its reference) as the whole content with that geometry. On failure |value| is still the caller's. */
TTPU_MUST_USE ttpu_status_t *ttpu_storage_rebase(ttpu_storage_t *storage, ttpu_dtype_e dtype, int rank,
                                                 const int64_t *dims, const int64_t *strides, ttpu_value_t *value);
/* Frees what was dropped. */
void ttpu_storage_drain(void);
/* Ends the undo list of a recording. With |failed|, storages whose new value failed get their previous one back where its
 * buffer still exists. */
void ttpu_storage_settle(ttpu_device_t *device, bool failed);

/* Why a view is illegal (outside its storage, too many dims, unknown dtype), or NULL. */
TTPU_MUST_USE ttpu_status_t *ttpu_storage_check(const ttpu_view_t *view);
/* The view's elements as a value, dense in its sizes; a reference for the caller. May append nodes. */
TTPU_MUST_USE ttpu_status_t *ttpu_storage_read(ttpu_device_t *device, const ttpu_view_t *view, ttpu_value_t **out_value);
/* Replaces the view's elements by |value| of |shape| (cast and broadcast as needed). |value| stays the caller's. */
TTPU_MUST_USE ttpu_status_t *ttpu_storage_write(ttpu_device_t *device, const ttpu_view_t *view, ttpu_value_t *value,
                                                const ttpu_shape_t *shape);
/* The storage's value, made of zeros when there was none; borrowed. */
TTPU_MUST_USE ttpu_status_t *ttpu_storage_value(ttpu_device_t *device, ttpu_storage_t *storage, ttpu_value_t **out_value);

#endif /* TTPU_RUNTIME_STORAGE_H_ */
