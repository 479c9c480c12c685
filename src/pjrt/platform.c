/* platform.c: how platforms differ, in one table. Nothing else in the core asks which platform it is on.
 *
 * Numbers of the "cpu" row are measured on the XLA CPU plugins (compile and load grow with the square of a program's
 * thunks). Tile sizes of the TPU rows are those of the hardware's vector registers and matrix units.
 */
#include <stdio.h>
#include <string.h>
#include <sys/utsname.h>

#include "base/alloc.h"
#include "base/hash.h"
#include "base/str.h"
#include "pjrt/objects.h"

#define TPU(unit)                                                                                              \
  {.is_tpu = true, .honours_keep = true, .program_nodes = 20000, .lane = 128, .sublane = 8, .matrix_unit = unit}

static const struct {
  const char *platform, *kind; /* |kind| is a prefix of the device kind, "" for any */
  ttpu_platform_t traits;
} table[] = {
    {"cpu", "",
     {.is_host_memory = true, .honours_keep = true, .portable_executables = true, .quadratic_thunks = true,
      .program_nodes = 1000}},
    {"tpu", "TPU v6", TPU(256)},
    {"tpu", "TPU7", TPU(256)},
    {"tpu", "", TPU(128)},
    {"", "", {.honours_keep = true, .program_nodes = 5000}},
};

static void read_traits(ttpu_client_t *client) {
  for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
    if (*table[i].platform && strcmp(table[i].platform, client->platform)) continue;
    if (strncmp(table[i].kind, client->device_kinds[0], strlen(table[i].kind))) continue;
    client->traits = table[i].traits;
    break;
  }
  client->traits.has_cost_analysis = client->plugin->api.PJRT_Executable_GetCostAnalysis != NULL;
}

/* The value of the first line "|name|\t: value" of /proc/cpuinfo; "" when absent. */
static void find_value(const char *text, const char *name, const char **out_value, size_t *out_size) {
  *out_value = "";
  *out_size = 0;
  const size_t n = strlen(name);
  for (const char *line = text; line && *line; line = strchr(line, '\n'), line += line != NULL) {
    if (strncmp(line, name, n) || (line[n] != '\t' && line[n] != ' ' && line[n] != ':')) continue;
    const char *colon = strchr(line, ':');
    if (!colon) return;
    colon += strspn(colon, ": \t");
    *out_value = colon;
    *out_size = strcspn(colon, "\n");
    return;
  }
}

/* Machine code for this host is good on another only when model and feature flags agree: LLVM compiles for both. */
static ttpu_status_t *read_host(ttpu_client_t *client) {
  ttpu_str_t text = {0}, out = {0};
  FILE *file = client->traits.is_host_memory ? fopen("/proc/cpuinfo", "re") : NULL;
  if (file) {
    char part[4096];
    /* The first processor's block is enough, and a machine has hundreds. */
    for (size_t n; text.size < 16384 && (n = fread(part, 1, sizeof part, file)) > 0;) ttpu_str_append(&text, part, n);
    fclose(file);
  }
  struct utsname machine;
  if (client->traits.is_host_memory && !uname(&machine)) {
    const char *info = text.data ? text.data : "", *model, *flags;
    size_t model_size, flags_size;
    find_value(info, "model name", &model, &model_size);
    find_value(info, "flags", &flags, &flags_size);
    if (!flags_size) find_value(info, "Features", &flags, &flags_size); /* Arm */
    if (!model_size) find_value(info, "CPU part", &model, &model_size);
    const ttpu_hash_t hash = ttpu_hash_bytes(flags, flags_size);
    ttpu_str_printf(&out, "%s, %.*s, flags %016llx", machine.machine, (int)model_size, model,
                    (unsigned long long)hash.lo);
  } else {
    ttpu_str_puts(&out, "");
  }
  const bool failed = text.failed || out.failed || !out.data;
  ttpu_str_deinit(&text);
  if (failed) {
    ttpu_str_deinit(&out);
    return TTPU_OUT_OF_HOST_MEMORY();
  }
  client->host_features = out.data; /* from ttpu_alloc: ttpu_str grows by it */
  return NULL;
}

ttpu_status_t *ttpu_platform_describe(ttpu_client_t *client) {
  read_traits(client);
  return read_host(client);
}
