/* buffer.c: see pjrt.h. Device buffers: made from host memory, read back, copied, awaited.
 *
 * A buffer object is four words from a slab; making and releasing one costs a few nanoseconds over PJRT. A released
 * buffer whose computation is still running is fine: the plugin keeps the memory until the computation ends.
 */
#include <sched.h>
#include <string.h>

#include "base/alloc.h"
#include "pjrt/objects.h"

/* --- the pool ----------------------------------------------------------------------------------------------- */

static void pool_lock(ttpu_client_t *client) {
  for (int spins = 0; atomic_exchange_explicit(&client->pool_busy, true, memory_order_acquire); spins++)
    if (spins > 64) sched_yield(); /* the holder was preempted */
}

static void pool_unlock(ttpu_client_t *client) {
  atomic_store_explicit(&client->pool_busy, false, memory_order_release);
}

static ttpu_slab_t *make_slab(void) {
  ttpu_slab_t *slab = ttpu_alloc_zero(1, sizeof *slab);
  if (!slab) return NULL;
  for (int i = 0; i + 1 < TTPU_SLAB_BUFFERS; i++) slab->buffers[i].next_free = &slab->buffers[i + 1];
  return slab;
}

ttpu_status_t *ttpu_buffer_take(ttpu_client_t *client, int device, int count, ttpu_buffer_t **out_buffers) {
  pool_lock(client);
  for (int i = 0; i < count; i++) {
    if (__builtin_expect(!client->free_buffers, 0)) {
      pool_unlock(client); /* the allocator may block */
      ttpu_slab_t *slab = make_slab();
      if (!slab) {
        atomic_fetch_add_explicit(&client->refs, i, memory_order_relaxed);
        ttpu_buffer_give(client, i, out_buffers);
        return TTPU_OUT_OF_HOST_MEMORY();
      }
      pool_lock(client);
      slab->next = client->slabs;
      client->slabs = slab;
      slab->buffers[TTPU_SLAB_BUFFERS - 1].next_free = client->free_buffers;
      client->free_buffers = slab->buffers;
    }
    ttpu_buffer_t *buffer = client->free_buffers;
    client->free_buffers = buffer->next_free;
    atomic_store_explicit(&buffer->refs, 1, memory_order_relaxed);
    buffer->device = device;
    buffer->client = client;
    buffer->bytes = -1;
    out_buffers[i] = buffer;
  }
  pool_unlock(client);
  atomic_fetch_add_explicit(&client->refs, count, memory_order_relaxed);
  return NULL;
}

void ttpu_buffer_give(ttpu_client_t *client, int count, ttpu_buffer_t **buffers) {
  if (!count) return;
  pool_lock(client);
  for (int i = 0; i < count; i++) {
    buffers[i]->handle = NULL;
    buffers[i]->next_free = client->free_buffers;
    client->free_buffers = buffers[i];
    buffers[i] = NULL;
  }
  pool_unlock(client);
  /* Not the last references: the caller holds the client. */
  atomic_fetch_sub_explicit(&client->refs, count, memory_order_acq_rel);
}

static void drop_handle(const ttpu_plugin_t *plugin, PJRT_Buffer *handle) {
  PJRT_Buffer_Destroy_Args args = {PJRT_SIZED(PJRT_Buffer_Destroy_Args), .buffer = handle};
  PJRT_DROP(plugin, PJRT_Buffer_Destroy, &args);
}

void ttpu_buffer_abandon(ttpu_buffer_t *buffer) {
  PJRT_Buffer *handle = buffer->handle;
  buffer->handle = NULL;
  drop_handle(buffer->client->plugin, handle);
}

void ttpu_buffer_retain(ttpu_buffer_t *buffer) { atomic_fetch_add_explicit(&buffer->refs, 1, memory_order_relaxed); }

void ttpu_buffer_release(ttpu_buffer_t *buffer) {
  if (!buffer || atomic_fetch_sub_explicit(&buffer->refs, 1, memory_order_acq_rel) != 1) return;
  ttpu_client_t *client = buffer->client;
  if (buffer->handle) drop_handle(client->plugin, buffer->handle);
  pool_lock(client);
  buffer->handle = NULL;
  buffer->next_free = client->free_buffers;
  client->free_buffers = buffer;
  pool_unlock(client);
  ttpu_client_release(client);
}

/* --- from the host ------------------------------------------------------------------------------------------ */

/* Starts the transfer; |*out_event| is ready when the host memory is no longer needed. */
static ttpu_status_t *start_copy(ttpu_client_t *client, int device, ttpu_dtype_e dtype, int rank, const int64_t *dims,
                                 const void *data, PJRT_HostBufferSemantics semantics, ttpu_buffer_t **out_buffer,
                                 PJRT_Event **out_event) {
  TTPU_TRY(ttpu_client_check_device(client, device));
  if (dtype <= TTPU_DTYPE_NONE || dtype >= TTPU_DTYPE_COUNT || rank < 0 || rank > TTPU_MAX_RANK)
    return TTPU_ERROR(INVALID_ARGUMENT, "a buffer needs an element type and a rank up to %d, not %d and %d",
                      TTPU_MAX_RANK, (int)dtype, rank);
  ttpu_buffer_t *buffer;
  TTPU_TRY(ttpu_buffer_take(client, device, 1, &buffer));
  PJRT_Client_BufferFromHostBuffer_Args args = {PJRT_SIZED(PJRT_Client_BufferFromHostBuffer_Args),
                                                .client = client->handle,
                                                .data = data,
                                                .type = (uint32_t)ttpu_dtype_pjrt(dtype),
                                                .dims = dims,
                                                .num_dims = (size_t)rank,
                                                .host_buffer_semantics = semantics,
                                                .device = client->devices[device]};
  ttpu_status_t *status = PJRT_CALL(client->plugin, PJRT_Client_BufferFromHostBuffer, &args);
  if (status) {
    ttpu_buffer_give(client, 1, &buffer);
    return status;
  }
  buffer->bytes = ttpu_dtype_bytes(dtype) * ttpu_dims_numel(rank, dims);
  buffer->handle = args.buffer;
  *out_buffer = buffer;
  *out_event = args.done_with_host_buffer;
  return NULL;
}

ttpu_status_t *ttpu_buffer_from_host(ttpu_client_t *client, int device, ttpu_dtype_e dtype, int rank,
                                     const int64_t *dims, const void *data, ttpu_buffer_t **out_buffer) {
  *out_buffer = NULL;
  PJRT_Event *event = NULL;
  TTPU_TRY(start_copy(client, device, dtype, rank, dims, data, PJRT_HostBufferSemantics_kImmutableOnlyDuringCall,
                      out_buffer, &event));
  ttpu_plugin_drop_event(client->plugin, event);
  return NULL;
}

typedef struct {
  const ttpu_plugin_t *plugin;
  void (*done)(void *ctx);
  void *ctx;
} transfer_t;

static void transfer_ended(PJRT_Error *error, void *arg) {
  transfer_t *transfer = arg;
  /* A failed transfer shows in the buffer itself. */
  ttpu_status_free(ttpu_plugin_convert(transfer->plugin, error));
  transfer->done(transfer->ctx);
  ttpu_free(transfer);
}

ttpu_status_t *ttpu_buffer_from_host_async(ttpu_client_t *client, int device, ttpu_dtype_e dtype, int rank,
                                           const int64_t *dims, const void *data, void (*done)(void *ctx), void *ctx,
                                           ttpu_buffer_t **out_buffer) {
  *out_buffer = NULL;
  transfer_t *transfer = ttpu_alloc(sizeof *transfer);
  if (!transfer) return TTPU_OUT_OF_HOST_MEMORY();
  *transfer = (transfer_t){client->plugin, done, ctx};
  const PJRT_HostBufferSemantics semantics = client->traits.is_host_memory
                                                 ? PJRT_HostBufferSemantics_kImmutableZeroCopy
                                                 : PJRT_HostBufferSemantics_kImmutableUntilTransferCompletes;
  PJRT_Event *event = NULL;
  ttpu_status_t *status = start_copy(client, device, dtype, rank, dims, data, semantics, out_buffer, &event);
  if (status || !event) {
    if (!status) done(ctx); /* the plugin needed the memory only during the call */
    ttpu_free(transfer);
    return status;
  }
  PJRT_Event_OnReady_Args on_ready = {PJRT_SIZED(PJRT_Event_OnReady_Args),
                                      .event = event,
                                      .callback = transfer_ended,
                                      .user_arg = transfer};
  status = PJRT_CALL(client->plugin, PJRT_Event_OnReady, &on_ready);
  if (status) {
    /* No callback will come, so wait for it here: the memory must not be given back early. */
    ttpu_status_free(status);
    PJRT_Event_Await_Args await = {PJRT_SIZED(PJRT_Event_Await_Args), .event = event};
    PJRT_DROP(client->plugin, PJRT_Event_Await, &await);
    transfer_ended(NULL, transfer);
  }
  ttpu_plugin_drop_event(client->plugin, event);
  return NULL;
}

/* --- to the host and to other devices ------------------------------------------------------------------------ */

static ttpu_status_t *read_dims(ttpu_buffer_t *buffer, size_t *out_rank, const int64_t **out_dims) {
  PJRT_Buffer_Dimensions_Args args = {PJRT_SIZED(PJRT_Buffer_Dimensions_Args), .buffer = buffer->handle};
  TTPU_TRY(PJRT_CALL(buffer->client->plugin, PJRT_Buffer_Dimensions, &args));
  *out_rank = args.num_dims;
  *out_dims = args.dims;
  return NULL;
}

/* Lets the plugin copy, which hands the copy to a thread of its own and wakes this one: 5 to 40 us on a CPU plugin. */
static ttpu_status_t *transfer_to_host(ttpu_buffer_t *buffer, void *data, size_t size) {
  const ttpu_plugin_t *plugin = buffer->client->plugin;
  /* The plugin may lay out memory as it likes (a TPU tiles it), so row-major is said explicitly. */
  int64_t minor_to_major[TTPU_MAX_RANK];
  PJRT_Buffer_MemoryLayout layout = {
      PJRT_SIZED(PJRT_Buffer_MemoryLayout),
      .tiled = {PJRT_SIZED(PJRT_Buffer_MemoryLayout_Tiled), .minor_to_major = minor_to_major},
      .type = PJRT_Buffer_MemoryLayout_Type_Tiled};
  PJRT_Buffer_ToHostBuffer_Args args = {PJRT_SIZED(PJRT_Buffer_ToHostBuffer_Args),
                                        .src = buffer->handle,
                                        .host_layout = &layout,
                                        .dst = data,
                                        .dst_size = size};
  size_t rank;
  const int64_t *dims;
  TTPU_TRY(read_dims(buffer, &rank, &dims));
  if (rank > TTPU_MAX_RANK) return TTPU_ERROR(INVALID_ARGUMENT, "a buffer of rank %zu cannot be read", rank);
  for (size_t i = 0; i < rank; i++) minor_to_major[i] = (int64_t)(rank - 1 - i);
  layout.tiled.minor_to_major_size = rank;
  TTPU_TRY(PJRT_CALL(plugin, PJRT_Buffer_ToHostBuffer, &args));
  return ttpu_plugin_await(plugin, args.event);
}

ttpu_status_t *ttpu_buffer_to_host(ttpu_buffer_t *buffer, void *data, size_t size) {
  if (!buffer->handle) return ttpu_client_gone();
  const ttpu_client_t *client = buffer->client;
  if (!client->traits.is_host_memory || !client->plugin->api.PJRT_Buffer_UnsafePointer)
    return transfer_to_host(buffer, data, size);
  /* Device memory is ours to read, and dense row-major as the programs' results are: no thread is needed. */
  TTPU_TRY(ttpu_buffer_await(buffer));
  const int64_t bytes = ttpu_buffer_bytes(buffer);
  if (size < (size_t)bytes)
    return TTPU_ERROR(INVALID_ARGUMENT, "%zu bytes do not hold a buffer of %lld", size, (long long)bytes);
  uintptr_t pointer;
  TTPU_TRY(ttpu_buffer_pointer(buffer, &pointer));
  if (bytes) memcpy(data, (const void *)pointer, (size_t)bytes);
  return NULL;
}

ttpu_status_t *ttpu_buffer_copy_to_device(ttpu_buffer_t *buffer, int device, ttpu_buffer_t **out_buffer) {
  *out_buffer = NULL;
  ttpu_client_t *client = buffer->client;
  TTPU_TRY(ttpu_client_check_device(client, device));
  PJRT_Device_DefaultMemory_Args memory = {PJRT_SIZED(PJRT_Device_DefaultMemory_Args),
                                           .device = client->devices[device]};
  TTPU_TRY(PJRT_CALL(client->plugin, PJRT_Device_DefaultMemory, &memory));
  ttpu_buffer_t *copy;
  TTPU_TRY(ttpu_buffer_take(client, device, 1, &copy));
  /* CopyToDevice refuses the device that the buffer is on already; copying to that device's memory does not. */
  PJRT_Buffer_CopyToMemory_Args args = {PJRT_SIZED(PJRT_Buffer_CopyToMemory_Args),
                                        .buffer = buffer->handle,
                                        .dst_memory = memory.memory};
  ttpu_status_t *status = PJRT_CALL(client->plugin, PJRT_Buffer_CopyToMemory, &args);
  if (status) {
    ttpu_buffer_give(client, 1, &copy);
    return status;
  }
  copy->handle = args.dst_buffer;
  copy->bytes = buffer->bytes;
  *out_buffer = copy;
  return NULL;
}

/* --- state -------------------------------------------------------------------------------------------------- */

static ttpu_status_t *ready_event(ttpu_buffer_t *buffer, PJRT_Event **out_event) {
  *out_event = NULL;
  if (!buffer->handle) return ttpu_client_gone();
  PJRT_Buffer_ReadyEvent_Args args = {PJRT_SIZED(PJRT_Buffer_ReadyEvent_Args), .buffer = buffer->handle};
  TTPU_TRY(PJRT_CALL(buffer->client->plugin, PJRT_Buffer_ReadyEvent, &args));
  *out_event = args.event;
  return NULL;
}

ttpu_status_t *ttpu_buffer_await(ttpu_buffer_t *buffer) {
  PJRT_Event *event;
  TTPU_TRY(ready_event(buffer, &event));
  return ttpu_plugin_await(buffer->client->plugin, event);
}

ttpu_status_t *ttpu_buffer_poll(ttpu_buffer_t *buffer, bool *out_ready) {
  *out_ready = false;
  PJRT_Event *event;
  TTPU_TRY(ready_event(buffer, &event));
  const ttpu_plugin_t *plugin = buffer->client->plugin;
  PJRT_Event_IsReady_Args args = {PJRT_SIZED(PJRT_Event_IsReady_Args), .event = event};
  ttpu_status_t *status = PJRT_CALL(plugin, PJRT_Event_IsReady, &args);
  if (!status && args.is_ready) {
    PJRT_Event_Error_Args error = {PJRT_SIZED(PJRT_Event_Error_Args), .event = event};
    status = PJRT_CALL(plugin, PJRT_Event_Error, &error);
    *out_ready = !status;
  }
  ttpu_plugin_drop_event(plugin, event);
  return status;
}

ttpu_status_t *ttpu_buffer_pointer(ttpu_buffer_t *buffer, uintptr_t *out_pointer) {
  *out_pointer = 0;
  if (!buffer->handle) return ttpu_client_gone();
  PJRT_Buffer_UnsafePointer_Args args = {PJRT_SIZED(PJRT_Buffer_UnsafePointer_Args), .buffer = buffer->handle};
  TTPU_TRY(PJRT_CALL(buffer->client->plugin, PJRT_Buffer_UnsafePointer, &args));
  *out_pointer = args.buffer_pointer;
  return NULL;
}

/* Bytes of an element of a PJRT type; those without a dtype of ours (4-bit and so on) count one. */
static int64_t element_bytes(uint32_t type) {
  for (int d = TTPU_DTYPE_NONE + 1; d < TTPU_DTYPE_COUNT; d++)
    if ((uint32_t)ttpu_dtype_pjrt((ttpu_dtype_e)d) == type) return ttpu_dtype_bytes((ttpu_dtype_e)d);
  return 1;
}

int64_t ttpu_buffer_bytes(const ttpu_buffer_t *buffer) {
  if (buffer->bytes >= 0 || !buffer->handle) return buffer->bytes < 0 ? 0 : buffer->bytes;
  /* Nobody said at the execute that made it. Not stored: another thread may ask at the same time. */
  size_t rank = 0;
  const int64_t *dims = NULL;
  PJRT_Buffer_ElementType_Args args = {PJRT_SIZED(PJRT_Buffer_ElementType_Args), .buffer = buffer->handle};
  ttpu_status_t *status = PJRT_CALL(buffer->client->plugin, PJRT_Buffer_ElementType, &args);
  if (!status) status = read_dims((ttpu_buffer_t *)buffer, &rank, &dims);
  const int64_t bytes = status ? 0 : element_bytes(args.type) * ttpu_dims_numel((int)rank, dims);
  ttpu_status_free(status);
  return bytes;
}

bool ttpu_buffer_is_deleted(ttpu_buffer_t *buffer) {
  if (!buffer->handle) return true;
  PJRT_Buffer_IsDeleted_Args args = {PJRT_SIZED(PJRT_Buffer_IsDeleted_Args), .buffer = buffer->handle};
  ttpu_status_t *status = PJRT_CALL(buffer->client->plugin, PJRT_Buffer_IsDeleted, &args);
  const bool deleted = status ? false : args.is_deleted;
  ttpu_status_free(status);
  return deleted;
}
