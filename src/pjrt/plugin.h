/* plugin.h: finding a plugin library and loading it, once a process. Thread-safe. */
#ifndef TTPU_PJRT_PLUGIN_H_
#define TTPU_PJRT_PLUGIN_H_

#include "base/status.h"

/* Where the plugin is when nobody named one: TORCHTPU_PLUGIN, else libtpu where a TPU is attached (TPU_LIBRARY_PATH or
 * the loader's search path). |*out_path| is from ttpu_alloc, owned by the caller. NOT_FOUND when neither applies: the
 * installed CPU plugin packages are known to the Python side, which passes a path. */
TTPU_MUST_USE ttpu_status_t *ttpu_plugin_find(char **out_path);

/* ttpu_plugin_has_tpu with |root| in front of /sys and /dev, for tests. */
bool ttpu_plugin_has_tpu_under(const char *root);

#endif /* TTPU_PJRT_PLUGIN_H_ */
