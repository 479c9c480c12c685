/* settings.c: see settings.h. */
#include "runtime/settings.h"

#include "base/alloc.h"
#include "base/env.h"
#include "lowering_id.h"

ttpu_status_t *ttpu_settings_read(ttpu_settings_t *out) {
  *out = (ttpu_settings_t){0};
  int64_t devices, nodes;
  TTPU_TRY(ttpu_env_int(TTPU_ENV_CPU_DEVICES, &devices));
  TTPU_TRY(ttpu_env_choice(TTPU_ENV_EAGER_MODE, &out->mode));
  TTPU_TRY(ttpu_env_int(TTPU_ENV_FUSED_NODES, &nodes));
  TTPU_TRY(ttpu_env_int(TTPU_ENV_INSTANCES, &out->instances));
  TTPU_TRY(ttpu_env_int(TTPU_ENV_CACHE_PROGRAMS, &out->cache.memory_programs));
  TTPU_TRY(ttpu_env_int(TTPU_ENV_CACHE_BYTES, &out->cache.disk_bytes));
  TTPU_TRY(ttpu_env_bool(TTPU_ENV_CACHE_TRUST, &out->cache.trust_folder));
  out->cpu_devices = (int)devices;
  out->fused_nodes = (int)nodes;
  out->cache.lowering = TTPU_LOWERING_ID;
  return ttpu_env_cache_folder(&out->cache_folder);
}

void ttpu_settings_deinit(ttpu_settings_t *settings) {
  ttpu_free(settings->cache_folder);
  settings->cache_folder = NULL;
}
