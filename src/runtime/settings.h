/* settings.h: the environment, read once when the core starts. */
#ifndef TTPU_RUNTIME_SETTINGS_H_
#define TTPU_RUNTIME_SETTINGS_H_

#include "compile/cache.h"

typedef struct {
  int cpu_devices, mode, fused_nodes;
  int64_t instances;
  char *cache_folder; /* owned; "" for no disk tier */
  ttpu_cache_options_t cache; /* its folder is not set: the caller points it at |cache_folder| */
} ttpu_settings_t;

TTPU_MUST_USE ttpu_status_t *ttpu_settings_read(ttpu_settings_t *out_settings);
void ttpu_settings_deinit(ttpu_settings_t *settings);

#endif /* TTPU_RUNTIME_SETTINGS_H_ */
