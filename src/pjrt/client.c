/* client.c: see pjrt.h. A client: the devices of one plugin in this process, and the life of everything on them.
 *
 * A CPU plugin opens four devices unless asked otherwise; we ask for exactly what the caller wants, and where a plugin
 * does not know that option we show fewer devices than it has.
 */
#include <string.h>

#include "base/alloc.h"
#include "pjrt/objects.h"
#include "pjrt/plugin.h"

ttpu_status_t *ttpu_client_gone(void) {
  return TTPU_ERROR(FAILED_PRECONDITION, "the device client was shut down");
}

ttpu_status_t *ttpu_client_check_device(const ttpu_client_t *client, int device) {
  if (device < 0 || device >= client->device_count)
    return TTPU_ERROR(INVALID_ARGUMENT, "device %d does not exist, there %s %d", device,
                      client->device_count == 1 ? "is only" : "are", client->device_count);
  return client->handle ? NULL : ttpu_client_gone();
}

static char *copy_text(const char *text, size_t size) {
  char *copy = ttpu_alloc(size + 1);
  if (!copy) return NULL;
  if (size) memcpy(copy, text, size);
  copy[size] = 0;
  return copy;
}

/* --- creation ----------------------------------------------------------------------------------------------- */

static ttpu_status_t *open_client(ttpu_client_t *client, bool is_libtpu, int device_count) {
  const ttpu_plugin_t *plugin = client->plugin;
  PJRT_NamedValue option = {PJRT_SIZED(PJRT_NamedValue),
                            .name = "cpu_device_count",
                            .name_size = strlen("cpu_device_count"),
                            .type = PJRT_NamedValue_kInt64,
                            .int64_value = device_count > 0 ? device_count : 1,
                            .value_size = 1};
  PJRT_Client_Create_Args args = {PJRT_SIZED(PJRT_Client_Create_Args), .create_options = &option, .num_options = 1};
  if (is_libtpu) args.create_options = NULL, args.num_options = 0;
  ttpu_status_t *status = PJRT_CALL(plugin, PJRT_Client_Create, &args);
  if (status && !is_libtpu) {
    /* A plugin that does not know the option refuses it. */
    PJRT_Client_Create_Args plain = {PJRT_SIZED(PJRT_Client_Create_Args)};
    ttpu_status_t *again = PJRT_CALL(plugin, PJRT_Client_Create, &plain);
    if (again) {
      ttpu_status_free(again);
    } else {
      ttpu_status_free(status);
      status = NULL;
      args.client = plain.client;
    }
  }
  client->handle = args.client;
  return status;
}

static ttpu_status_t *read_platform(ttpu_client_t *client) {
  PJRT_Client_PlatformName_Args name = {PJRT_SIZED(PJRT_Client_PlatformName_Args), .client = client->handle};
  TTPU_TRY(PJRT_CALL(client->plugin, PJRT_Client_PlatformName, &name));
  PJRT_Client_PlatformVersion_Args version = {PJRT_SIZED(PJRT_Client_PlatformVersion_Args), .client = client->handle};
  TTPU_TRY(PJRT_CALL(client->plugin, PJRT_Client_PlatformVersion, &version));
  client->platform = copy_text(name.platform_name, name.platform_name_size);
  client->platform_version = copy_text(version.platform_version, version.platform_version_size);
  return client->platform && client->platform_version ? NULL : TTPU_OUT_OF_HOST_MEMORY();
}

static ttpu_status_t *read_device(ttpu_client_t *client, int i, PJRT_Device *device) {
  client->devices[i] = device;
  PJRT_Device_GetDescription_Args get = {PJRT_SIZED(PJRT_Device_GetDescription_Args), .device = device};
  TTPU_TRY(PJRT_CALL(client->plugin, PJRT_Device_GetDescription, &get));
  PJRT_DeviceDescription_Kind_Args kind = {PJRT_SIZED(PJRT_DeviceDescription_Kind_Args),
                                           .device_description = get.device_description};
  TTPU_TRY(PJRT_CALL(client->plugin, PJRT_DeviceDescription_Kind, &kind));
  PJRT_DeviceDescription_Id_Args id = {PJRT_SIZED(PJRT_DeviceDescription_Id_Args),
                                       .device_description = get.device_description};
  TTPU_TRY(PJRT_CALL(client->plugin, PJRT_DeviceDescription_Id, &id));
  client->device_ids[i] = id.id;
  client->device_kinds[i] = copy_text(kind.device_kind, kind.device_kind_size);
  return client->device_kinds[i] ? NULL : TTPU_OUT_OF_HOST_MEMORY();
}

static ttpu_status_t *read_devices(ttpu_client_t *client, int wanted) {
  PJRT_Client_AddressableDevices_Args args = {PJRT_SIZED(PJRT_Client_AddressableDevices_Args),
                                              .client = client->handle};
  TTPU_TRY(PJRT_CALL(client->plugin, PJRT_Client_AddressableDevices, &args));
  const int have = (int)args.num_addressable_devices;
  if (!have) return TTPU_ERROR(NOT_FOUND, "the plugin %s has no device", client->plugin->path);
  if (wanted > have)
    return TTPU_ERROR(INVALID_ARGUMENT, "%d devices were asked for, the plugin %s has %d", wanted, client->plugin->path,
                      have);
  if (wanted <= 0) wanted = strcmp(client->platform, "cpu") ? have : 1;
  client->devices = ttpu_alloc_zero((size_t)wanted, sizeof *client->devices);
  client->device_kinds = ttpu_alloc_zero((size_t)wanted, sizeof *client->device_kinds);
  client->device_ids = ttpu_alloc_zero((size_t)wanted, sizeof *client->device_ids);
  if (!client->devices || !client->device_kinds || !client->device_ids) return TTPU_OUT_OF_HOST_MEMORY();
  client->device_count = wanted;
  for (int i = 0; i < wanted; i++) TTPU_TRY(read_device(client, i, args.addressable_devices[i]));
  return NULL;
}

static void close_client(ttpu_client_t *client) {
  if (!client->handle) return;
  PJRT_Client_Destroy_Args args = {PJRT_SIZED(PJRT_Client_Destroy_Args), .client = client->handle};
  client->handle = NULL;
  PJRT_DROP(client->plugin, PJRT_Client_Destroy, &args);
}

static void destroy(ttpu_client_t *client) {
  close_client(client);
  for (ttpu_slab_t *slab = client->slabs, *next; slab; slab = next) {
    next = slab->next;
    ttpu_free(slab);
  }
  for (int i = 0; i < client->device_count; i++) ttpu_free(client->device_kinds[i]);
  ttpu_free(client->device_kinds);
  ttpu_free(client->device_ids);
  ttpu_free(client->devices);
  ttpu_free(client->platform);
  ttpu_free(client->platform_version);
  ttpu_free(client->host_features);
  pthread_mutex_destroy(&client->lock);
  ttpu_free(client);
}

ttpu_status_t *ttpu_client_create(const char *path, int device_count, ttpu_client_t **out_client) {
  *out_client = NULL;
  const bool is_libtpu = ttpu_plugin_is_libtpu(path);
  /* Without a TPU, libtpu retries for minutes and then ends the process. */
  if (is_libtpu && !ttpu_plugin_has_tpu())
    return TTPU_ERROR(FAILED_PRECONDITION, "%s needs a TPU and none is attached to this machine", path);
  const ttpu_plugin_t *plugin;
  TTPU_TRY(ttpu_plugin_load(path, &plugin));
  ttpu_client_t *client = ttpu_alloc_zero(1, sizeof *client);
  if (!client) return TTPU_OUT_OF_HOST_MEMORY();
  client->refs = 1;
  client->plugin = plugin;
  pthread_mutex_init(&client->lock, NULL);
  ttpu_status_t *status;
  TTPU_TRY_GOTO(status, failed, open_client(client, is_libtpu, device_count));
  TTPU_TRY_GOTO(status, failed, read_platform(client));
  TTPU_TRY_GOTO(status, failed, read_devices(client, device_count));
  TTPU_TRY_GOTO(status, failed, ttpu_platform_describe(client));
  *out_client = client;
  return NULL;
failed:
  destroy(client);
  return ttpu_status_annotate(status, "no client of the plugin %s", path);
}

/* --- life --------------------------------------------------------------------------------------------------- */

void ttpu_client_retain(ttpu_client_t *client) { atomic_fetch_add_explicit(&client->refs, 1, memory_order_relaxed); }

void ttpu_client_release(ttpu_client_t *client) {
  if (client && atomic_fetch_sub_explicit(&client->refs, 1, memory_order_acq_rel) == 1) destroy(client);
}

void ttpu_client_shutdown(ttpu_client_t *client) {
  if (!client->handle) return;
  /* First wait for all, then destroy: computations that run read buffers that nobody waits for. */
  for (int destroying = 0; destroying < 2; destroying++)
    for (ttpu_slab_t *slab = client->slabs; slab; slab = slab->next)
      for (int i = 0; i < TTPU_SLAB_BUFFERS; i++) {
        ttpu_buffer_t *buffer = &slab->buffers[i];
        if (!buffer->handle) continue;
        if (destroying)
          ttpu_buffer_abandon(buffer);
        else
          ttpu_status_free(ttpu_buffer_await(buffer));
      }
  pthread_mutex_lock(&client->lock);
  for (ttpu_executable_t *e = client->executables; e; e = e->next) ttpu_executable_abandon(e);
  pthread_mutex_unlock(&client->lock);
  close_client(client);
}

/* --- questions ---------------------------------------------------------------------------------------------- */

int ttpu_client_device_count(const ttpu_client_t *client) { return client->device_count; }
const char *ttpu_client_plugin_path(const ttpu_client_t *client) { return client->plugin->path; }
const char *ttpu_client_platform(const ttpu_client_t *client) { return client->platform; }
const char *ttpu_client_platform_version(const ttpu_client_t *client) { return client->platform_version; }
const ttpu_platform_t *ttpu_client_traits(const ttpu_client_t *client) { return &client->traits; }
const char *ttpu_client_host_features(const ttpu_client_t *client) { return client->host_features; }

const char *ttpu_client_device_kind(const ttpu_client_t *client, int device) {
  return device >= 0 && device < client->device_count ? client->device_kinds[device] : "";
}

void ttpu_client_api_version(const ttpu_client_t *client, int *out_major, int *out_minor) {
  *out_major = client->plugin->api.pjrt_api_version.major_version;
  *out_minor = client->plugin->api.pjrt_api_version.minor_version;
}

ttpu_status_t *ttpu_client_memory_stats(ttpu_client_t *client, int device, int64_t *out_used, int64_t *out_peak,
                                        int64_t *out_limit) {
  *out_used = *out_peak = *out_limit = -1;
  TTPU_TRY(ttpu_client_check_device(client, device));
  PJRT_Device_MemoryStats_Args args = {PJRT_SIZED(PJRT_Device_MemoryStats_Args), .device = client->devices[device]};
  TTPU_TRY(PJRT_CALL(client->plugin, PJRT_Device_MemoryStats, &args));
  *out_used = args.bytes_in_use;
  if (args.peak_bytes_in_use_is_set) *out_peak = args.peak_bytes_in_use;
  if (args.bytes_limit_is_set) *out_limit = args.bytes_limit;
  return NULL;
}
