/* plugin.c: see plugin.h and objects.h. Loads a PJRT plugin library, checks its API version, initialises it.
 *
 * The library is opened RTLD_LOCAL: two plugins each carry their own XLA, LLVM and protobuf, which must not meet.
 * The plugin's function table is copied into one of our size, so that "the slot is missing" is a NULL test everywhere.
 */
#include "pjrt/plugin.h"

#include <ctype.h>
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/alloc.h"
#include "pjrt/objects.h"

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static ttpu_plugin_t *plugins; /* of this process, never shrinks */

/* --- errors and events -------------------------------------------------------------------------------------- */

ttpu_status_t *ttpu_plugin_convert(const ttpu_plugin_t *plugin, PJRT_Error *error) {
  if (!error) return NULL;
  const PJRT_Api *api = &plugin->api;
  PJRT_Error_GetCode_Args code = {PJRT_SIZED(PJRT_Error_GetCode_Args), .error = error};
  if (api->PJRT_Error_GetCode) {
    PJRT_Error *nested = api->PJRT_Error_GetCode(&code);
    if (nested && api->PJRT_Error_Destroy)
      api->PJRT_Error_Destroy(&(PJRT_Error_Destroy_Args){PJRT_SIZED(PJRT_Error_Destroy_Args), .error = nested});
  }
  PJRT_Error_Message_Args message = {PJRT_SIZED(PJRT_Error_Message_Args), .error = error};
  if (api->PJRT_Error_Message) api->PJRT_Error_Message(&message);
  const bool known = code.code > TTPU_OK && code.code <= TTPU_UNAUTHENTICATED;
  ttpu_status_t *status = ttpu_status_make(known ? (ttpu_code_e)code.code : TTPU_UNKNOWN, __FILE__, __LINE__, "%.*s",
                                           message.message ? (int)message.message_size : 0,
                                           message.message ? message.message : "");
  if (api->PJRT_Error_Destroy)
    api->PJRT_Error_Destroy(&(PJRT_Error_Destroy_Args){PJRT_SIZED(PJRT_Error_Destroy_Args), .error = error});
  return status;
}

ttpu_status_t *ttpu_plugin_missing(const ttpu_plugin_t *plugin, const char *function) {
  return TTPU_ERROR(UNIMPLEMENTED, "the plugin %s (PJRT API %d.%d) does not implement %s", plugin->path,
                    plugin->api.pjrt_api_version.major_version, plugin->api.pjrt_api_version.minor_version, function);
}

void ttpu_plugin_drop_event(const ttpu_plugin_t *plugin, PJRT_Event *event) {
  if (!event) return;
  PJRT_Event_Destroy_Args args = {PJRT_SIZED(PJRT_Event_Destroy_Args), .event = event};
  PJRT_DROP(plugin, PJRT_Event_Destroy, &args);
}

ttpu_status_t *ttpu_plugin_await(const ttpu_plugin_t *plugin, PJRT_Event *event) {
  if (!event) return NULL;
  PJRT_Event_Await_Args args = {PJRT_SIZED(PJRT_Event_Await_Args), .event = event};
  ttpu_status_t *status = PJRT_CALL(plugin, PJRT_Event_Await, &args);
  ttpu_plugin_drop_event(plugin, event);
  return status;
}

/* --- loading ------------------------------------------------------------------------------------------------ */

/* Tells the common mistakes apart before the dynamic loader reports them all in its own words. */
static ttpu_status_t *check_file(const char *path) {
  if (!strchr(path, '/')) return NULL; /* a bare name is searched by the loader */
  struct stat info;
  if (stat(path, &info))
    return errno == ENOENT ? TTPU_ERROR(NOT_FOUND, "there is no plugin library at %s", path)
                           : TTPU_ERROR(NOT_FOUND, "the plugin library %s cannot be read: %s", path, strerror(errno));
  if (S_ISDIR(info.st_mode)) return TTPU_ERROR(INVALID_ARGUMENT, "%s is a folder, not a plugin library", path);
  const int fd = open(path, O_RDONLY | O_CLOEXEC);
  if (fd < 0) return TTPU_ERROR(PERMISSION_DENIED, "the plugin library %s cannot be read: %s", path, strerror(errno));
  char magic[4] = {0};
  const ssize_t n = read(fd, magic, sizeof magic);
  close(fd);
  if (n != sizeof magic || memcmp(magic, "\177ELF", sizeof magic))
    return TTPU_ERROR(INVALID_ARGUMENT, "%s is not a shared library", path);
  return NULL;
}

static ttpu_status_t *check_version(const char *path, const PJRT_Api *api) {
  const PJRT_Api_Version *v = &api->pjrt_api_version;
  if (api->struct_size < offsetof(PJRT_Api, pjrt_api_version) + sizeof *v)
    return TTPU_ERROR(FAILED_PRECONDITION, "the plugin %s has a function table of %zu bytes, too small for any version",
                      path, api->struct_size);
  if (v->major_version != PJRT_API_MAJOR || v->minor_version < PJRT_API_MINOR_OLDEST)
    return TTPU_ERROR(FAILED_PRECONDITION,
                      "the plugin %s speaks PJRT API %d.%d; this build needs %d.%d or a later %d.x", path,
                      v->major_version, v->minor_version, PJRT_API_MAJOR, PJRT_API_MINOR_OLDEST, PJRT_API_MAJOR);
  return NULL;
}

/* XLA reports to stderr on its own, among others two lines of machine features each time an executable is loaded.
 * Errors come back as statuses, so the default here is quiet; whoever sets the variable decides. The plugin reads it
 * while it initialises, so it is taken back: child processes and other libraries must not inherit it. */
static const char log_level[] = "TF_CPP_MIN_LOG_LEVEL";

static ttpu_status_t *initialise(const ttpu_plugin_t *plugin) {
  PJRT_Plugin_Initialize_Args args = {PJRT_SIZED(PJRT_Plugin_Initialize_Args)};
  return PJRT_CALL(plugin, PJRT_Plugin_Initialize, &args);
}

static ttpu_status_t *create(const char *path, void *library, ttpu_plugin_t **out_plugin) {
  const PJRT_Api *(*get_api)(void) = (const PJRT_Api *(*)(void))dlsym(library, "GetPjrtApi");
  if (!get_api)
    return TTPU_ERROR(INVALID_ARGUMENT, "%s is not a PJRT plugin: it has no function GetPjrtApi", path);
  const PJRT_Api *api = get_api();
  if (!api) return TTPU_ERROR(INTERNAL, "GetPjrtApi of the plugin %s returned nothing", path);
  TTPU_TRY(check_version(path, api));

  ttpu_plugin_t *plugin = ttpu_alloc_zero(1, sizeof *plugin);
  char *copy = ttpu_alloc_string(path);
  if (!plugin || !copy) {
    ttpu_free(plugin);
    ttpu_free(copy);
    return TTPU_OUT_OF_HOST_MEMORY();
  }
  memcpy(&plugin->api, api, api->struct_size < sizeof *api ? api->struct_size : sizeof *api);
  plugin->path = copy;
  plugin->library = library;
  ttpu_status_t *status = initialise(plugin);
  if (status) {
    status = ttpu_status_annotate(status, "the plugin %s does not initialise", path);
    ttpu_free(plugin->path);
    ttpu_free(plugin);
    return status;
  }
  *out_plugin = plugin;
  return NULL;
}

static ttpu_status_t *load_locked(const char *path, const ttpu_plugin_t **out_plugin) {
  void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  if (!library) {
    const char *reason = dlerror();
    return TTPU_ERROR(NOT_FOUND, "the plugin library %s does not load: %s", path, reason ? reason : "unknown reason");
  }
  ttpu_plugin_t *plugin = plugins;
  while (plugin && plugin->library != library) plugin = plugin->next;
  if (plugin) {
    dlclose(library); /* the same library again, perhaps by another path: one handle is held */
  } else {
    /* A library that turned out to be no plugin stays open: closing one that started threads would crash. */
    TTPU_TRY(create(path, library, &plugin));
    plugin->next = plugins;
    plugins = plugin;
  }
  *out_plugin = plugin;
  return NULL;
}

ttpu_status_t *ttpu_plugin_load(const char *path, const ttpu_plugin_t **out_plugin) {
  *out_plugin = NULL;
  TTPU_TRY(check_file(path));
  pthread_mutex_lock(&lock);
  const bool quiet = !getenv(log_level);
  if (quiet) setenv(log_level, "3", 0);
  ttpu_status_t *status = load_locked(path, out_plugin);
  if (quiet) unsetenv(log_level);
  pthread_mutex_unlock(&lock);
  return status;
}

/* --- discovery ---------------------------------------------------------------------------------------------- */

/* The number in a one-line file of sysfs such as "0x1ae0"; -1 when unreadable. */
static long read_number(const char *root, const char *device, const char *name) {
  char path[768], text[32] = "";
  snprintf(path, sizeof path, "%s/sys/bus/pci/devices/%s/%s", root, device, name);
  FILE *file = fopen(path, "re");
  if (!file) return -1;
  const bool got = fgets(text, sizeof text, file) != NULL;
  fclose(file);
  return got ? strtol(text, NULL, 0) : -1;
}

/* Google's vendor number alone is not enough: every Google Cloud machine has a network card (class 02) and may have a
 * disk controller (class 01) of that vendor. */
static bool has_tpu_on_pci(const char *root) {
  char folder[512];
  snprintf(folder, sizeof folder, "%s/sys/bus/pci/devices", root);
  DIR *dir = opendir(folder);
  if (!dir) return false;
  bool found = false;
  for (struct dirent *entry; !found && (entry = readdir(dir));) {
    if (entry->d_name[0] == '.' || read_number(root, entry->d_name, "vendor") != 0x1ae0) continue;
    const long class = read_number(root, entry->d_name, "class") >> 16;
    found = class != 1 && class != 2;
  }
  closedir(dir);
  return found;
}

/* /dev/accel0 ... or /dev/vfio/0 ...: the ways a TPU is handed to a process. (/dev/accel is a folder for other makers'
 * accelerators, /dev/vfio/vfio exists without any device.) */
static bool has_numbered(const char *root, const char *folder_name, const char *prefix) {
  char folder[512];
  snprintf(folder, sizeof folder, "%s%s", root, folder_name);
  DIR *dir = opendir(folder);
  if (!dir) return false;
  const size_t n = strlen(prefix);
  bool found = false;
  for (struct dirent *entry; !found && (entry = readdir(dir));)
    found = !strncmp(entry->d_name, prefix, n) && isdigit((unsigned char)entry->d_name[n]);
  closedir(dir);
  return found;
}

bool ttpu_plugin_has_tpu_under(const char *root) {
  return has_tpu_on_pci(root) && (has_numbered(root, "/dev", "accel") || has_numbered(root, "/dev/vfio", ""));
}

bool ttpu_plugin_has_tpu(void) { return ttpu_plugin_has_tpu_under(""); }

bool ttpu_plugin_is_libtpu(const char *path) {
  const char *slash = strrchr(path, '/');
  return !strncmp(slash ? slash + 1 : path, "libtpu", 6);
}

ttpu_status_t *ttpu_plugin_find(char **out_path) {
  *out_path = NULL;
  const char *path = getenv("TORCHTPU_PLUGIN");
  if (!path || !*path) {
    if (!ttpu_plugin_has_tpu())
      return TTPU_ERROR(NOT_FOUND, "no PJRT plugin: no TPU is attached and TORCHTPU_PLUGIN does not name a library");
    path = getenv("TPU_LIBRARY_PATH");
    if (!path || !*path) path = "libtpu.so";
  }
  *out_path = ttpu_alloc_string(path);
  return *out_path ? NULL : TTPU_OUT_OF_HOST_MEMORY();
}
