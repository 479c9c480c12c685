/* cache_cpu_test.c: the cache with a real plugin and real processes: what one process compiled another loads from disk
 * and runs, also with another number of devices. The plugin: TORCHTPU_TEST_CPU_PLUGIN; skipped without one.
 */
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/alloc.h"
#include "check.h"
#include "compile/cache.h"
#include "temp.h"

static const char *plugin;
static char folder[TEMP_PATH];

static const char text[] =
    "module @m { func.func public @main(%a: tensor<4xf32>, %b: tensor<4xf32>) -> tensor<4xf32> {"
    " %0 = stablehlo.multiply %a, %b : tensor<4xf32> %1 = stablehlo.add %0, %b : tensor<4xf32>"
    " return %1 : tensor<4xf32> } }";

static ttpu_status_t *emit(void *ctx, const char **out_text, size_t *out_size) {
  (void)ctx;
  *out_text = text;
  *out_size = sizeof text - 1;
  return NULL;
}

static ttpu_buffer_t *put(ttpu_client_t *client, int device, float first) {
  const float data[4] = {first, first + 1, first + 2, first + 3};
  ttpu_buffer_t *buffer = NULL;
  CHECK_OK(ttpu_buffer_from_host(client, device, TTPU_F32, 1, (int64_t[]){4}, data, &buffer));
  return buffer;
}

static void run_on(ttpu_client_t *client, ttpu_executable_t *executable, int device) {
  ttpu_buffer_t *in[] = {put(client, device, 1), put(client, device, 10)}, *out = NULL;
  float back[4] = {0};
  if (CHECK_OK(ttpu_executable_run(executable, device, 2, in, 0, NULL, NULL, &out)))
    CHECK_OK(ttpu_buffer_to_host(out, back, sizeof back));
  for (int i = 0; i < 4; i++) CHECK_NEAR(back[i], (i + 1) * (i + 10) + i + 10, 0);
  ttpu_buffer_release(in[0]);
  ttpu_buffer_release(in[1]);
  ttpu_buffer_release(out);
}

/* A whole process with |devices| devices: its program must come from |expected|. */
static void live(int devices, ttpu_tier_e expected) {
  ttpu_client_t *client;
  if (!CHECK_OK(ttpu_client_create(plugin, devices, &client))) return;
  const ttpu_cache_options_t options = {.folder = folder, .disk_bytes = 64 << 20, .memory_programs = 10};
  ttpu_cache_t *cache = NULL;
  CHECK_OK(ttpu_cache_create(client, &options, &cache));
  for (int device = 0; device < devices; device++) {
    ttpu_executable_t *executable = NULL;
    ttpu_tier_e tier;
    if (CHECK_OK(ttpu_cache_get(cache, (ttpu_hash_t){1, 2}, device, "x", emit, NULL, &executable, &tier))) {
      if (device == 0) CHECK_INT(tier, expected);
      run_on(client, executable, device);
      ttpu_executable_release(executable);
    }
  }
  ttpu_cache_stats_t stats;
  ttpu_cache_stats(cache, &stats);
  CHECK_STR(stats.disk_status, "");
  CHECK_INT(stats.rejected_files + stats.disk_errors, 0);
  ttpu_cache_free(cache);
  ttpu_client_shutdown(client);
  ttpu_client_release(client);
}

static void in_process(int devices, ttpu_tier_e expected) {
  char devices_text[16], tier_text[16];
  snprintf(devices_text, sizeof devices_text, "%d", devices);
  snprintf(tier_text, sizeof tier_text, "%d", (int)expected);
  const pid_t pid = fork();
  if (!pid) {
    execl("/proc/self/exe", "cache_cpu_test", plugin, folder, devices_text, tier_text, NULL);
    _exit(99);
  }
  int status;
  waitpid(pid, &status, 0);
  CHECK_INT(WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status), 0);
}

int main(int argc, char **argv) {
  if (argc == 5) {
    plugin = argv[1];
    snprintf(folder, sizeof folder, "%.120s", argv[2]);
    live(atoi(argv[3]), (ttpu_tier_e)atoi(argv[4]));
    return check_failed_ != 0;
  }
  plugin = argc > 1 ? argv[1] : getenv("TORCHTPU_TEST_CPU_PLUGIN");
  if (!plugin || !*plugin) {
    puts("skipped: no CPU plugin");
    return CHECK_SKIPPED;
  }
  const int devices[][3] = {{1, 1, 3}, {3, 1, 2}};
  for (int i = 0; i < 2; i++) {
    temp_make(folder);
    in_process(devices[i][0], TTPU_TIER_COMPILED);
    in_process(devices[i][1], TTPU_TIER_DISK);
    in_process(devices[i][2], TTPU_TIER_DISK);
    CHECK_INT(temp_count(folder, ".program", NULL), 1);
    temp_remove(folder);
  }
  return check_end();
}
