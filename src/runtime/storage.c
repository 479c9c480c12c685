/* storage.c: see storage.h. The built-in nodes (ops/view.def) are appended here and nowhere else. */
#include "runtime/storage.h"

#include <string.h>

#include "base/alloc.h"
#include "ops/ops.h"
#include "ops/view.h"

/* --- life ------------------------------------------------------------------------------------------------- */

ttpu_status_t *ttpu_storage_make(int device, int64_t bytes, ttpu_storage_t **out_storage) {
  *out_storage = NULL;
  ttpu_storage_t *storage = ttpu_core.free_storages;
  uintptr_t address;
  TTPU_TRY(ttpu_address_take(&ttpu_core.addresses, bytes, &address));
  if (storage) {
    ttpu_core.free_storages = storage->next;
  } else if (!(storage = ttpu_alloc(sizeof *storage))) {
    ttpu_address_give(&ttpu_core.addresses, address, bytes);
    return TTPU_OUT_OF_HOST_MEMORY();
  }
  storage->value = NULL;
  storage->device = device;
  storage->bytes = bytes;
  storage->address = address;
  storage->undo_epoch = 0;
  storage->next = NULL;
  storage->base = (ttpu_geometry_t){TTPU_U8, 1, storage->fixed, storage->fixed + 1};
  storage->fixed[0] = bytes;
  storage->fixed[1] = 1;
  *out_storage = storage;
  return NULL;
}

static void free_geometry(ttpu_storage_t *storage) {
  if (storage->base.dims != storage->fixed) ttpu_free((void *)storage->base.dims);
}

static void destroy(ttpu_storage_t *storage) {
  ttpu_device_t *device = &ttpu_core.devices[storage->device];
  if (storage->undo_epoch == device->graph.epoch)
    for (int32_t i = 0; i < device->undo_count; i++)
      if (device->undo[i].storage == storage) device->undo[i].storage = NULL;
  ttpu_value_release(&ttpu_core.values, storage->value);
  free_geometry(storage);
  ttpu_address_give(&ttpu_core.addresses, storage->address, storage->bytes);
  storage->next = ttpu_core.free_storages;
  ttpu_core.free_storages = storage;
}

void ttpu_storage_drain(void) {
  if (!atomic_load_explicit(&ttpu_core.dropped, memory_order_relaxed)) return;
  if (atomic_load_explicit(&ttpu_core.end, memory_order_relaxed) == TTPU_FORKED) return; /* the buffers are the parent's */
  ttpu_storage_t *storage = atomic_exchange_explicit(&ttpu_core.dropped, NULL, memory_order_acquire);
  for (ttpu_storage_t *next; storage; storage = next) {
    next = storage->next;
    destroy(storage);
  }
}

void ttpu_storage_drop(void *pointer) {
  ttpu_storage_t *storage = pointer;
  if (!storage) return;
  ttpu_storage_t *head = atomic_load_explicit(&ttpu_core.dropped, memory_order_relaxed);
  do storage->next = head;
  while (!atomic_compare_exchange_weak_explicit(&ttpu_core.dropped, &head, storage, memory_order_release,
                                                memory_order_relaxed));
}

uintptr_t ttpu_storage_address(const ttpu_storage_t *storage) { return storage->address; }
int ttpu_storage_device(const ttpu_storage_t *storage) { return storage->device; }
int64_t ttpu_storage_bytes(const ttpu_storage_t *storage) { return storage->bytes; }

ttpu_status_t *ttpu_storage_rebase(ttpu_storage_t *storage, ttpu_dtype_e dtype, int rank, const int64_t *dims,
                                   const int64_t *strides, ttpu_value_t *value) {
  int64_t *array = storage->fixed, *heap = NULL;
  if (rank > TTPU_STORAGE_FIXED_RANK && !(array = heap = ttpu_alloc((size_t)rank * 16))) return TTPU_OUT_OF_HOST_MEMORY();
  int64_t kept[2 * TTPU_STORAGE_FIXED_RANK]; /* |dims| may point into |fixed| */
  int64_t *to = heap ? heap : kept;
  for (int i = 0; i < rank; i++) {
    to[i] = dims[i];
    to[rank + i] = strides[i];
  }
  free_geometry(storage);
  for (int i = 0; !heap && i < 2 * rank; i++) storage->fixed[i] = kept[i];
  storage->base = (ttpu_geometry_t){dtype, rank, array, array + rank};
  if (storage->value != value) {
    ttpu_value_release(&ttpu_core.values, storage->value);
    storage->value = value;
  }
  return NULL;
}

/* --- undo --------------------------------------------------------------------------------------------------- */

/* Notes the ready value that is about to be replaced. A note that finds no memory is left out: the replacement is then not
 * undone on failure, which is what would happen without the list. */
static void note_undo(ttpu_device_t *device, ttpu_storage_t *storage) {
  ttpu_value_t *value = storage->value;
  if (!value || !value->buffer || !device->graph.node_count) return;
  if (device->undo_count == device->undo_capacity) {
    const int32_t larger = device->undo_capacity ? device->undo_capacity * 2 : 64;
    ttpu_undo_t *undo = ttpu_alloc_resize(device->undo, (size_t)larger * sizeof *undo);
    if (!undo) return;
    device->undo = undo;
    device->undo_capacity = larger;
  }
  const size_t bytes = (size_t)storage->base.rank * 8;
  ttpu_undo_t undo = {.storage = storage, .value = value, .base = storage->base};
  undo.base.dims = ttpu_arena_copy(&device->graph.arena, storage->base.dims, bytes);
  undo.base.strides = ttpu_arena_copy(&device->graph.arena, storage->base.strides, bytes);
  if (!undo.base.dims || !undo.base.strides) return;
  undo.retained = value->input_epoch != device->graph.epoch;
  if (undo.retained) ttpu_value_retain(value);
  storage->undo_epoch = device->graph.epoch;
  device->undo[device->undo_count++] = undo;
}

void ttpu_storage_settle(ttpu_device_t *device, bool failed) {
  while (device->undo_count > 0) {
    ttpu_undo_t *undo = &device->undo[--device->undo_count];
    ttpu_storage_t *storage = undo->storage;
    if (failed && storage && storage->value && storage->value->error && !ttpu_buffer_is_deleted(undo->value->buffer)) {
      ttpu_value_retain(undo->value);
      ttpu_status_t *status = ttpu_storage_rebase(storage, undo->base.dtype, undo->base.rank, undo->base.dims,
                                                  undo->base.strides, undo->value);
      if (status) ttpu_value_release(&ttpu_core.values, undo->value);
      ttpu_status_free(status);
    }
    if (undo->retained) ttpu_value_release(&ttpu_core.values, undo->value);
  }
}

/* --- appending built-in nodes ------------------------------------------------------------------------------- */

/* One node of one result, watched; a reference for the caller. */
static ttpu_status_t *append_one(ttpu_device_t *device, const ttpu_inst_t *draft, ttpu_value_t *const *operands,
                                 const uint64_t *params, ttpu_value_t **out_value) {
  ttpu_inst_t *inst;
  int32_t first;
  TTPU_TRY(ttpu_core_intern(draft, &inst));
  TTPU_TRY(ttpu_core_append(device, inst, operands, params, &first));
  return ttpu_core_watch(device, inst, first, 0, out_value);
}

/* Words of a built-in instance: row, then each argument and shape. */
typedef struct {
  uint64_t data[16 * TTPU_MAX_RANK];
  int32_t count;
} words_t;

static void put(words_t *words, uint64_t word) { words->data[words->count++] = word; }

static void put_list(words_t *words, int count, const int64_t *values) {
  put(words, (uint64_t)count);
  for (int i = 0; i < count; i++) put(words, (uint64_t)values[i]);
}

static void put_shape(words_t *words, const ttpu_shape_t *shape) {
  put(words, (uint64_t)shape->dtype);
  put_list(words, shape->rank, shape->dims);
}

static const uint64_t builtin = 0x7474707500000000u; /* no ATen row has this first word */

/* A built-in of at most one tensor argument and one list argument. */
static ttpu_status_t *append_simple(ttpu_device_t *device, const char *name, const ttpu_shape_t *operand,
                                    ttpu_value_t *value, int list_count, const int64_t *list, const ttpu_shape_t *result,
                                    ttpu_value_t **out_value) {
  words_t words;
  words.count = 0;
  const int row = op_find(name);
  put(&words, builtin | (uint64_t)row);
  if (operand) put_shape(&words, operand);
  put_shape(&words, result);
  put_list(&words, list_count, list);
  const ttpu_arg_t args[] = {{.kind = operand ? TTPU_ARG_TENSOR : TTPU_ARG_NONE},
                             {.kind = TTPU_ARG_INTS, .count = list_count, .u.items = list}};
  const ttpu_result_t results[] = {{.shape = *result, .alias = -1}};
  const ttpu_inst_t draft = {.row = row,
                             .arg_count = 2,
                             .operand_count = operand != NULL,
                             .result_count = 1,
                             .word_count = words.count,
                             .args = args,
                             .operands = operand,
                             .results = results,
                             .words = words.data};
  return append_one(device, &draft, &value, NULL, out_value);
}

static ttpu_shape_t base_shape(const ttpu_storage_t *storage) {
  return (ttpu_shape_t){storage->base.dtype, storage->base.rank, storage->base.dims};
}

ttpu_status_t *ttpu_storage_value(ttpu_device_t *device, ttpu_storage_t *storage, ttpu_value_t **out_value) {
  if (!storage->value) {
    const ttpu_shape_t shape = base_shape(storage);
    TTPU_TRY(append_simple(device, "tpu::zeros", NULL, NULL, 0, NULL, &shape, &storage->value));
  }
  *out_value = storage->value;
  return NULL;
}

/* Re-bases a storage to flat |dtype| memory of |numel| elements (cut or zero-extended). */
static ttpu_status_t *flatten(ttpu_device_t *device, ttpu_storage_t *storage, ttpu_dtype_e dtype, int64_t bytes) {
  const int64_t one = 1, unit = ttpu_dtype_bytes(storage->base.dtype);
  if (!storage->value) {
    const int64_t numel = bytes / ttpu_dtype_bytes(dtype);
    return ttpu_storage_rebase(storage, dtype, 1, &numel, &one, NULL);
  }
  /* memory order, in the base's own dtype; bytes that are no whole element of it are rounded up and cut after the cast */
  int64_t order[TTPU_MAX_RANK];
  const int order_count = ttpu_view_memory_order(&storage->base, order) ? storage->base.rank : 0;
  const int64_t numel = (bytes + unit - 1) / unit;
  ttpu_shape_t from = base_shape(storage), flat = {storage->base.dtype, 1, &numel};
  ttpu_value_t *value;
  TTPU_TRY(append_simple(device, "tpu::resize", &from, storage->value, order_count, order, &flat, &value));
  const int64_t wanted = bytes / ttpu_dtype_bytes(dtype);
  if (dtype != storage->base.dtype) {
    const ttpu_shape_t to = {dtype, 1, &wanted};
    ttpu_value_t *cast;
    ttpu_status_t *status = append_simple(device, "tpu::as", &flat, value, 0, NULL, &to, &cast);
    ttpu_value_release(&ttpu_core.values, value);
    if (status) return status;
    value = cast;
  }
  note_undo(device, storage);
  ttpu_status_t *status = ttpu_storage_rebase(storage, dtype, 1, &wanted, &one, value);
  if (status) ttpu_value_release(&ttpu_core.values, value);
  return status;
}

/* --- views ------------------------------------------------------------------------------------------------ */

ttpu_status_t *ttpu_storage_check(const ttpu_view_t *view) {
  if (view->rank > TTPU_MAX_RANK)
    return TTPU_ERROR(INVALID_ARGUMENT, "tensors of more than %d dims are not supported, got %d", TTPU_MAX_RANK,
                      (int)view->rank);
  const int64_t unit = ttpu_dtype_bytes((ttpu_dtype_e)view->dtype);
  int64_t last = view->offset;
  for (int i = 0; i < view->rank; i++) {
    if (view->sizes[i] == 0) return NULL;
    last += (view->sizes[i] - 1) * view->strides[i];
  }
  if (view->offset < 0 || last < 0 || (last + 1) * unit > view->storage->bytes)
    return TTPU_ERROR(OUT_OF_RANGE, "a view that reaches element %lld (%s) is outside its storage of %lld bytes",
                      (long long)last, ttpu_dtype_text((ttpu_dtype_e)view->dtype), (long long)view->storage->bytes);
  return NULL;
}

static ttpu_status_t *access_view(ttpu_device_t *device, const ttpu_view_t *view, ttpu_value_t *written,
                                  ttpu_value_t **out_value) {
  ttpu_storage_t *storage = view->storage;
  const ttpu_geometry_t *base = &storage->base;
  ttpu_view_plan_t plan;
  ttpu_view_plan(base, view->rank, view->sizes, view->strides, view->offset, &plan);
  int64_t order[TTPU_MAX_RANK];
  const int order_count = ttpu_view_memory_order(base, order) ? base->rank : 0;
  const int count = plan.gather ? 0 : plan.factor_count;
  const bool reads_base = !written || !plan.whole;
  const int row = op_find(written ? "tpu::write" : "tpu::read");
  const ttpu_shape_t base_as = base_shape(storage), view_as = {base->dtype, view->rank, view->sizes};

  words_t words;
  words.count = 0;
  put(&words, builtin | (uint64_t)row);
  put_shape(&words, &base_as);
  put(&words, (uint64_t)plan.gather << 1 | (uint64_t)plan.whole);
  put_list(&words, order_count, order);
  put_list(&words, plan.factor_count, plan.factors);
  put_list(&words, count, plan.sizes);
  for (int i = 0; i < count; i++) put(&words, (uint64_t)plan.steps[i]);
  put_list(&words, plan.dim_count, plan.factor_of);
  for (int i = 0; i < plan.dim_count; i++) put(&words, (uint64_t)plan.view_dim[i]);
  put_list(&words, view->rank, view->sizes);
  if (plan.gather) put_list(&words, view->rank, view->strides);

#define LIST(n, values) {.kind = TTPU_ARG_INTS, .count = (n), .u.items = (values)}
#define FLAG(value) {.kind = TTPU_ARG_INT, .u.integer = (value)}
  const ttpu_arg_t args[VIEW_ARG_COUNT] = {
      [VIEW_BASE] = {.kind = reads_base ? TTPU_ARG_TENSOR : TTPU_ARG_NONE, .first = 0},
      [VIEW_VALUE] = {.kind = written ? TTPU_ARG_TENSOR : TTPU_ARG_NONE, .first = reads_base},
      [VIEW_GATHER] = FLAG(plan.gather),
      [VIEW_WHOLE] = FLAG(plan.whole),
      [VIEW_MEMORY_ORDER] = LIST(order_count, order),
      [VIEW_FACTORS] = LIST(plan.factor_count, plan.factors),
      [VIEW_LENGTHS] = LIST(count, plan.sizes),
      [VIEW_STEPS] = LIST(count, plan.steps),
      [VIEW_FACTOR_OF] = LIST(plan.dim_count, plan.factor_of),
      [VIEW_DIM] = LIST(plan.dim_count, plan.view_dim),
      [VIEW_SIZES] = LIST(view->rank, view->sizes),
      [VIEW_STRIDES] = LIST(plan.gather ? view->rank : 0, view->strides),
      [VIEW_STARTS] = {.kind = TTPU_ARG_SCALAR, .first = 0, .count = plan.factor_count, .dtype = TTPU_I64},
  };
  char kinds[TTPU_VIEW_MAX_FACTORS];
  memset(kinds, 'i', sizeof kinds);
  const ttpu_shape_t operands[2] = {reads_base ? base_as : view_as, view_as};
  const ttpu_result_t results[] = {{.shape = written ? base_as : view_as, .alias = -1}};
  const ttpu_inst_t draft = {.row = row,
                             .arg_count = VIEW_ARG_COUNT,
                             .operand_count = (written != NULL) + reads_base,
                             .result_count = 1,
                             .param_count = plan.factor_count,
                             .word_count = words.count,
                             .args = args,
                             .operands = operands,
                             .results = results,
                             .words = words.data,
                             .param_kinds = kinds};
  ttpu_value_t *values[2] = {written, written};
  if (reads_base) TTPU_TRY(ttpu_storage_value(device, storage, &values[0]));
  return append_one(device, &draft, values, (const uint64_t *)plan.starts, out_value);
}

ttpu_status_t *ttpu_storage_read(ttpu_device_t *device, const ttpu_view_t *view, ttpu_value_t **out_value) {
  ttpu_storage_t *storage = view->storage;
  const ttpu_dtype_e dtype = (ttpu_dtype_e)view->dtype;
  if (dtype == storage->base.dtype &&
      ttpu_view_is_base(&storage->base, view->rank, view->sizes, view->strides, view->offset)) {
    if (!storage->value) TTPU_TRY(ttpu_storage_value(device, storage, out_value));
    *out_value = storage->value;
    ttpu_value_retain(*out_value);
    return NULL;
  }
  const ttpu_shape_t shape = {dtype, view->rank, view->sizes};
  if (!ttpu_dims_numel(view->rank, view->sizes))
    return append_simple(device, "tpu::zeros", NULL, NULL, 0, NULL, &shape, out_value);
  TTPU_TRY(ttpu_storage_check(view));
  if (dtype != storage->base.dtype) TTPU_TRY(flatten(device, storage, dtype, storage->bytes));
  return access_view(device, view, NULL, out_value);
}

static bool same_dims(int rank, const int64_t *sizes, const ttpu_shape_t *shape) {
  return shape->rank == rank && !memcmp(sizes, shape->dims, (size_t)rank * sizeof *sizes);
}

ttpu_status_t *ttpu_storage_write(ttpu_device_t *device, const ttpu_view_t *view, ttpu_value_t *value,
                                  const ttpu_shape_t *shape) {
  ttpu_storage_t *storage = view->storage;
  const ttpu_dtype_e dtype = (ttpu_dtype_e)view->dtype;
  const int64_t numel = ttpu_dims_numel(view->rank, view->sizes);
  if (!numel) return NULL;
  ttpu_value_t *converted = NULL;
  if (dtype != shape->dtype || !same_dims(view->rank, view->sizes, shape)) {
    const ttpu_shape_t to = {dtype, view->rank, view->sizes};
    TTPU_TRY(append_simple(device, "tpu::cast", shape, value, 0, NULL, &to, &converted));
    value = converted;
  } else {
    ttpu_value_retain(value);
  }
  ttpu_status_t *status = NULL;
  if (dtype == storage->base.dtype &&
      ttpu_view_is_base(&storage->base, view->rank, view->sizes, view->strides, view->offset)) {
    note_undo(device, storage);
    ttpu_value_release(&ttpu_core.values, storage->value);
    storage->value = value;
    return NULL;
  }
  if (!view->offset && numel * ttpu_dtype_bytes(dtype) == storage->bytes &&
      ttpu_view_is_dense(view->rank, view->sizes, view->strides)) {
    note_undo(device, storage);
    status = ttpu_storage_rebase(storage, dtype, view->rank, view->sizes, view->strides, value);
    if (status) ttpu_value_release(&ttpu_core.values, value);
    return status;
  }
  ttpu_value_t *whole = NULL;
  status = ttpu_storage_check(view);
  if (!status && dtype != storage->base.dtype) status = flatten(device, storage, dtype, storage->bytes);
  if (!status) status = access_view(device, view, value, &whole);
  ttpu_value_release(&ttpu_core.values, value);
  if (status) return status;
  note_undo(device, storage);
  ttpu_value_release(&ttpu_core.values, storage->value);
  storage->value = whole;
  return NULL;
}

ttpu_status_t *ttpu_storage_resize(ttpu_storage_t *storage, int64_t bytes, ttpu_storage_t **out_storage) {
  *out_storage = NULL;
  ttpu_storage_t *fresh;
  ttpu_core_lock();
  ttpu_storage_drain();
  ttpu_device_t *device = &ttpu_core.devices[storage->device];
  ttpu_status_t *status = ttpu_storage_make(storage->device, bytes, &fresh);
  if (!status && storage->value && bytes > 0) {
    const int64_t unit = ttpu_dtype_bytes(storage->base.dtype);
    const ttpu_dtype_e dtype = bytes % unit ? TTPU_U8 : storage->base.dtype;
    status = flatten(device, storage, dtype, bytes);
    if (!status) {
      status = ttpu_storage_rebase(fresh, dtype, 1, storage->base.dims, storage->base.strides, storage->value);
      if (!status) {
        storage->value = NULL;
        status = ttpu_core_recorded(device);
      }
    }
  }
  if (status && fresh) ttpu_storage_drop(fresh);
  ttpu_core_unlock();
  if (!status) *out_storage = fresh;
  return status;
}

ttpu_status_t *ttpu_storage_create(int device, int64_t bytes, ttpu_storage_t **out_storage) {
  *out_storage = NULL;
  TTPU_TRY(ttpu_core_check());
  if (device < 0 || device >= ttpu_core.device_count)
    return TTPU_ERROR(INVALID_ARGUMENT, "tpu:%d does not exist; this process has %d tpu device%s", device,
                      ttpu_core.device_count, ttpu_core.device_count == 1 ? "" : "s");
  ttpu_core_lock();
  ttpu_storage_drain();
  ttpu_status_t *status = ttpu_storage_make(device, bytes, out_storage);
  ttpu_core_unlock();
  return status;
}
