/* transfer.c: between host and device, and between devices. No lock is held while waiting for the device. */
#include <string.h>

#include "base/alloc.h"
#include "runtime/core.h"
#include "runtime/storage.h"
#include "runtime/strided_copy.h"

static int64_t view_numel(const ttpu_view_t *view) { return ttpu_dims_numel(view->rank, view->sizes); }

/* --- host to device ----------------------------------------------------------------------------------------- */

ttpu_status_t *ttpu_upload(const ttpu_view_t *view, const void *data) {
  const ttpu_dtype_e dtype = (ttpu_dtype_e)view->dtype;
  const int64_t bytes = view_numel(view) * ttpu_dtype_bytes(dtype);
  if (!bytes) return NULL;
  TTPU_TRY(ttpu_core_check());
  ttpu_buffer_t *buffer;
  const int index = view->storage->device;
  TTPU_TRY(ttpu_buffer_from_host(ttpu_core.client, index, dtype, view->rank, view->sizes, data, &buffer));
  ttpu_core_lock();
  ttpu_storage_drain();
  ttpu_core.uploads++;
  ttpu_core.upload_bytes += bytes;
  ttpu_device_t *device = &ttpu_core.devices[index];
  ttpu_value_t *value = ttpu_value_create(&ttpu_core.values, index, bytes);
  ttpu_status_t *status = NULL;
  if (!value) {
    ttpu_buffer_release(buffer);
    status = TTPU_OUT_OF_HOST_MEMORY();
  } else {
    ttpu_core_set_buffer(value, buffer);
    const int32_t nodes = device->graph.node_count;
    const ttpu_shape_t shape = {dtype, view->rank, view->sizes};
    status = ttpu_storage_write(device, view, value, &shape);
    ttpu_value_release(&ttpu_core.values, value);
    if (!status && device->graph.node_count != nodes) status = ttpu_core_recorded(device);
  }
  ttpu_core_unlock();
  return status;
}

/* --- device to host ------------------------------------------------------------------------------------------ */

/* Copies a ready value to |data| without the lock; the reference keeps it from being donated meanwhile. */
static ttpu_status_t *fetch(ttpu_value_t *value, void *data, int64_t bytes) {
  return value->error ? ttpu_status_clone(value->error) : ttpu_buffer_to_host(value->buffer, data, (size_t)bytes);
}

/* Cuts the view out of the whole base, on the host: nothing is compiled. */
static ttpu_status_t *fetch_and_cut(const ttpu_view_t *view, const ttpu_geometry_t *base, ttpu_value_t *value,
                                    int64_t base_bytes, void *data) {
  const int64_t unit = ttpu_dtype_bytes(base->dtype);
  char *memory = ttpu_alloc((size_t)base_bytes * 2);
  if (!memory) return TTPU_OUT_OF_HOST_MEMORY();
  char *rows = memory + base_bytes;
  ttpu_status_t *status = fetch(value, rows, base_bytes);
  if (!status) {
    int64_t contiguous[TTPU_MAX_RANK];
    ttpu_view_contiguous_strides(base->rank, base->dims, contiguous);
    ttpu_strided_copy(unit, base->rank, base->dims, memory, base->strides, rows, contiguous);
    const int64_t view_unit = ttpu_dtype_bytes((ttpu_dtype_e)view->dtype);
    ttpu_view_contiguous_strides(view->rank, view->sizes, contiguous);
    ttpu_strided_copy(view_unit, view->rank, view->sizes, data, contiguous, memory + view->offset * view_unit,
                      view->strides);
  }
  ttpu_free(memory);
  return status;
}

ttpu_status_t *ttpu_download(const ttpu_view_t *view, void *data) {
  const ttpu_dtype_e dtype = (ttpu_dtype_e)view->dtype;
  const int64_t numel = view_numel(view), bytes = numel * ttpu_dtype_bytes(dtype);
  if (!numel) return NULL;
  TTPU_TRY(ttpu_core_check());
  TTPU_TRY(ttpu_storage_check(view));
  enum { SMALL = 1 << 16 };
  ttpu_storage_t *storage = view->storage;
  ttpu_value_t *value = NULL;
  int64_t dims[TTPU_MAX_RANK], strides[TTPU_MAX_RANK];
  ttpu_core_lock();
  ttpu_storage_drain();
  ttpu_core.downloads++;
  ttpu_core.download_bytes += bytes;
  ttpu_device_t *device = &ttpu_core.devices[storage->device];
  const bool direct = dtype == storage->base.dtype &&
                      ttpu_view_is_base(&storage->base, view->rank, view->sizes, view->strides, view->offset);
  /* the whole base crosses when that is little more than the view, or little at all */
  const bool on_host = !direct && (storage->bytes <= SMALL || storage->bytes <= 4 * bytes);
  ttpu_status_t *status = NULL;
  if (direct || on_host) {
    status = ttpu_storage_value(device, storage, &value);
    if (!status) ttpu_value_retain(value);
  } else {
    status = ttpu_storage_read(device, view, &value);
  }
  if (!status && value->graph) {
    ttpu_status_free(ttpu_core_cut(device)); /* a failure is in the values it concerns */
    if (value->error) status = ttpu_status_clone(value->error);
  }
  ttpu_geometry_t base = storage->base;
  base.dims = memcpy(dims, base.dims, (size_t)base.rank * 8);
  base.strides = memcpy(strides, base.strides, (size_t)base.rank * 8);
  const int64_t base_bytes = ttpu_dims_numel(base.rank, base.dims) * ttpu_dtype_bytes(base.dtype);
  ttpu_core_unlock();

  if (!status) status = on_host ? fetch_and_cut(view, &base, value, base_bytes, data) : fetch(value, data, bytes);
  if (value) {
    ttpu_core_lock();
    ttpu_value_release(&ttpu_core.values, value);
    ttpu_core_unlock();
  }
  return status;
}

/* --- device to device ---------------------------------------------------------------------------------------- */

/* The source's elements, ready on the target's device. */
static ttpu_status_t *move(ttpu_device_t *from, int to, ttpu_value_t *value, ttpu_value_t **out_value) {
  *out_value = NULL;
  if (value->graph) TTPU_TRY(ttpu_core_cut(from));
  if (value->error) return ttpu_status_clone(value->error);
  ttpu_buffer_t *buffer;
  TTPU_TRY(ttpu_buffer_copy_to_device(value->buffer, to, &buffer));
  ttpu_value_t *moved = ttpu_value_create(&ttpu_core.values, to, value->bytes);
  if (!moved) {
    ttpu_buffer_release(buffer);
    return TTPU_OUT_OF_HOST_MEMORY();
  }
  ttpu_core_set_buffer(moved, buffer);
  *out_value = moved;
  return NULL;
}

ttpu_status_t *ttpu_copy(const ttpu_view_t *target, const ttpu_view_t *source) {
  if (!view_numel(target)) return NULL;
  TTPU_TRY(ttpu_core_check());
  ttpu_core_lock();
  ttpu_storage_drain();
  ttpu_device_t *to = &ttpu_core.devices[target->storage->device], *from = &ttpu_core.devices[source->storage->device];
  ttpu_value_t *value = NULL;
  ttpu_status_t *status = ttpu_storage_read(from, source, &value);
  if (!status && from != to) {
    ttpu_value_t *moved;
    status = move(from, to->index, value, &moved);
    ttpu_value_release(&ttpu_core.values, value);
    value = moved;
  }
  const ttpu_shape_t shape = {(ttpu_dtype_e)source->dtype, source->rank, source->sizes};
  const int32_t nodes = to->graph.node_count;
  if (!status) status = ttpu_storage_write(to, target, value, &shape);
  ttpu_value_release(&ttpu_core.values, value);
  if (!status && to->graph.node_count != nodes) status = ttpu_core_recorded(to);
  ttpu_core_unlock();
  return status;
}
