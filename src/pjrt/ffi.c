/* ffi.c: see ffi.h. */
#include "pjrt/ffi.h"

#include <string.h>

#include "pjrt/objects.h"

static const PJRT_FFI_Extension *find_extension(const PJRT_Api *api) {
  for (const PJRT_Extension_Base *e = api->extension_start; e; e = e->next)
    if (e->type == PJRT_Extension_Type_FFI)
      return e->struct_size >= sizeof(PJRT_FFI_Extension) ? (const PJRT_FFI_Extension *)e : NULL;
  return NULL;
}

ttpu_status_t *ttpu_ffi_register(ttpu_client_t *client, const char *name, XLA_FFI_Handler handler) {
  const PJRT_FFI_Extension *extension = find_extension(&client->plugin->api);
  if (!extension || !extension->register_handler)
    return ttpu_plugin_missing(client->plugin, "the FFI extension");
  const char *platform = client->traits.is_host_memory ? "Host" : client->platform;
  PJRT_FFI_Register_Handler_Args args = {PJRT_SIZED(PJRT_FFI_Register_Handler_Args),
                                         .target_name = name,
                                         .target_name_size = strlen(name),
                                         .handler = (void *)handler,
                                         .platform_name = platform,
                                         .platform_name_size = strlen(platform)};
  return ttpu_status_annotate(ttpu_plugin_convert(client->plugin, extension->register_handler(&args)),
                              "the custom call %s", name);
}

bool ttpu_ffi_answer(XLA_FFI_CallFrame *frame) {
  for (XLA_FFI_Extension_Base *e = frame->extension_start; e; e = e->next) {
    if (e->type != XLA_FFI_Extension_Metadata) continue;
    /* The version must be the plugin's own; what we use has been in all of them. */
    XLA_FFI_Api_Version *version = &((XLA_FFI_Metadata_Extension *)e)->metadata->api_version;
    version->major_version = frame->api ? frame->api->api_version.major_version : XLA_FFI_API_MAJOR;
    version->minor_version = frame->api ? frame->api->api_version.minor_version : XLA_FFI_API_MINOR;
    return true;
  }
  return false;
}

XLA_FFI_Error *ttpu_ffi_error(const XLA_FFI_CallFrame *frame, ttpu_code_e code, const char *message) {
  XLA_FFI_Error_Create_Args args = {PJRT_SIZED(XLA_FFI_Error_Create_Args), .message = message, .errc = (uint32_t)code};
  return frame->api->XLA_FFI_Error_Create(&args);
}
