/* env.h: the environment variables of the core, one row each in env.def, read nowhere else.
 *
 * Getters read the environment when called; the runtime calls each once, when it starts. Reading is thread-safe as far
 * as nobody changes the environment meanwhile (as for getenv). A value that is not legal is INVALID_ARGUMENT with the
 * variable, the value and what is legal in its message.
 */
#ifndef TTPU_BASE_ENV_H_
#define TTPU_BASE_ENV_H_

#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"

typedef enum {
#define ENV(name, type, fallback, legal, help) TTPU_ENV_##name,
#include "base/env.def"
#undef ENV
  TTPU_ENV_COUNT
} ttpu_env_e;

typedef enum { TTPU_ENV_TEXT, TTPU_ENV_BOOL, TTPU_ENV_INT, TTPU_ENV_BYTES, TTPU_ENV_CHOICE } ttpu_env_type_e;

typedef struct {
  const char *name; /* "TORCHTPU_CPU_DEVICES" */
  ttpu_env_type_e type;
  const char *fallback, *legal, *help;
} ttpu_env_row_t;

/* The table, for a listing: row |i| describes variable |i|. */
extern const ttpu_env_row_t ttpu_env_rows[TTPU_ENV_COUNT];

/* The text as set, or the default. Never NULL; valid until the environment changes. */
const char *ttpu_env_text(ttpu_env_e variable);
bool ttpu_env_is_set(ttpu_env_e variable); /* to something other than "" */

TTPU_MUST_USE ttpu_status_t *ttpu_env_bool(ttpu_env_e variable, bool *out_value);
TTPU_MUST_USE ttpu_status_t *ttpu_env_int(ttpu_env_e variable, int64_t *out_value); /* INT and BYTES */
TTPU_MUST_USE ttpu_status_t *ttpu_env_choice(ttpu_env_e variable, int *out_position);
/* The folder of the disk cache, from ttpu_alloc: TORCHTPU_CACHE_DIR, else torchtpu below XDG_CACHE_HOME or ~/.cache.
 * "" (no cache) when TORCHTPU_CACHE_DIR is set to nothing or there is no home. */
TTPU_MUST_USE ttpu_status_t *ttpu_env_cache_folder(char **out_folder);

/* The first variable whose value is not legal, or NULL: called once at the start, so that a typing error in any of them
 * is told even where its value would not be used. */
TTPU_MUST_USE ttpu_status_t *ttpu_env_check(void);
/* The |n|th (from 0) setting "TORCHTPU_X=..." of the environment that no row knows, a misspelling for the log; NULL at
 * the end. TORCHTPU_TEST_* belongs to the tests. */
const char *ttpu_env_unknown(int n);

/* What |text| means for |variable|: a number, 0 or 1, the position of a choice; 0 for TEXT. A pure function. */
TTPU_MUST_USE ttpu_status_t *ttpu_env_parse(ttpu_env_e variable, const char *text, int64_t *out_value);

/* A variable of somebody else's that we honour (XLA_FLAGS, TPU_LIBRARY_PATH); "" when unset. */
const char *ttpu_env_foreign(const char *name);

#endif /* TTPU_BASE_ENV_H_ */
