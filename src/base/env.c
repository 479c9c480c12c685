/* env.c: see env.h. The legal column of env.def is both what is checked and what the message says. */
#include "base/env.h"

#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/alloc.h"
#include "base/str.h"

extern char **environ;

#define PREFIX "TORCHTPU_"

const ttpu_env_row_t ttpu_env_rows[TTPU_ENV_COUNT] = {
#define ENV(name, type, fallback, legal, help) {PREFIX #name, TTPU_ENV_##type, fallback, legal, help},
#include "base/env.def"
#undef ENV
};

/* --- values ---------------------------------------------------------------------------------------------------- */

/* Reads decimal digits and, if |suffixes|, one of K, M, G, T. Returns the end; NULL: no number, or too large. */
static const char *read_number(const char *text, bool suffixes, int64_t *out_value) {
  int64_t value = 0;
  const char *p = text;
  for (; *p >= '0' && *p <= '9'; p++)
    if (__builtin_mul_overflow(value, 10, &value) || __builtin_add_overflow(value, *p - '0', &value)) return NULL;
  if (p == text) return NULL;
  static const char units[] = "KMGT";
  const char *unit = suffixes ? memchr(units, *p & ~0x20, sizeof units - 1) : NULL;
  if (unit) {
    if (__builtin_mul_overflow(value, (int64_t)1 << 10 * (unit - units + 1), &value)) return NULL;
    p++;
  }
  *out_value = value;
  return p;
}

static bool parse_number(const char *text, bool suffixes, const char *legal, int64_t *out_value) {
  int64_t low = 0, high = 0;
  const char *dots = read_number(legal, true, &low);
  read_number(dots + 2, true, &high);
  const char *end = read_number(text, suffixes, out_value);
  return end && !*end && *out_value >= low && *out_value <= high;
}

/* The position of |text| in the '|' list |legal|, or -1. */
static int64_t parse_choice(const char *text, const char *legal) {
  const size_t n = strlen(text);
  for (int64_t position = 0;; position++) {
    const size_t size = strcspn(legal, "|");
    if (n == size && !strncasecmp(text, legal, n)) return position;
    if (!legal[size]) return -1;
    legal += size + 1;
  }
}

static int64_t parse_bool(const char *text) {
  const int64_t position = parse_choice(text, "0|1|off|on|false|true|no|yes");
  return position < 0 ? -1 : position % 2;
}

ttpu_status_t *ttpu_env_parse(ttpu_env_e variable, const char *text, int64_t *out_value) {
  const ttpu_env_row_t *row = &ttpu_env_rows[variable];
  bool legal = true;
  *out_value = 0;
  switch (row->type) {
    case TTPU_ENV_TEXT:
      break;
    case TTPU_ENV_BOOL:
      legal = (*out_value = parse_bool(text)) >= 0;
      break;
    case TTPU_ENV_INT:
    case TTPU_ENV_BYTES:
      legal = parse_number(text, row->type == TTPU_ENV_BYTES, row->legal, out_value);
      break;
    case TTPU_ENV_CHOICE:
      legal = (*out_value = parse_choice(text, row->legal)) >= 0;
      break;
  }
  if (legal) return NULL;
  return TTPU_ERROR(INVALID_ARGUMENT, "%s is \"%.64s\"; legal: %s (default %s)", row->name, text, row->legal,
                    row->fallback);
}

/* --- the environment ------------------------------------------------------------------------------------------- */

const char *ttpu_env_foreign(const char *name) {
  const char *text = getenv(name);
  return text ? text : "";
}

bool ttpu_env_is_set(ttpu_env_e variable) { return *ttpu_env_foreign(ttpu_env_rows[variable].name) != 0; }

const char *ttpu_env_text(ttpu_env_e variable) {
  const ttpu_env_row_t *row = &ttpu_env_rows[variable];
  const char *text = ttpu_env_foreign(row->name);
  return *text ? text : row->fallback;
}

ttpu_status_t *ttpu_env_int(ttpu_env_e variable, int64_t *out_value) {
  return ttpu_env_parse(variable, ttpu_env_text(variable), out_value);
}

ttpu_status_t *ttpu_env_bool(ttpu_env_e variable, bool *out_value) {
  int64_t value;
  ttpu_status_t *status = ttpu_env_int(variable, &value);
  *out_value = value == 1;
  return status;
}

ttpu_status_t *ttpu_env_choice(ttpu_env_e variable, int *out_position) {
  int64_t value;
  ttpu_status_t *status = ttpu_env_int(variable, &value);
  *out_position = (int)value;
  return status;
}

ttpu_status_t *ttpu_env_cache_folder(char **out_folder) {
  const char *folder = getenv(ttpu_env_rows[TTPU_ENV_CACHE_DIR].name);
  const char *cache = ttpu_env_foreign("XDG_CACHE_HOME"), *home = ttpu_env_foreign("HOME");
  ttpu_str_t path = {0};
  if (folder)
    ttpu_str_puts(&path, folder);
  else if (*cache == '/') /* the XDG rules: a relative path is to be ignored */
    ttpu_str_printf(&path, "%s/torchtpu", cache);
  else if (*home)
    ttpu_str_printf(&path, "%s/.cache/torchtpu", home);
  else
    ttpu_str_puts(&path, "");
  *out_folder = path.data; /* from ttpu_alloc: ttpu_str grows by it */
  if (!path.failed) return NULL;
  ttpu_str_deinit(&path);
  *out_folder = NULL;
  return TTPU_OUT_OF_HOST_MEMORY();
}

ttpu_status_t *ttpu_env_check(void) {
  for (int i = 0; i < TTPU_ENV_COUNT; i++) {
    int64_t value;
    TTPU_TRY(ttpu_env_int((ttpu_env_e)i, &value));
  }
  return NULL;
}

static bool is_known(const char *setting) {
  if (!strncmp(setting, PREFIX "TEST_", sizeof PREFIX "TEST_" - 1)) return true;
  const size_t size = strcspn(setting, "=");
  for (int i = 0; i < TTPU_ENV_COUNT; i++)
    if (strlen(ttpu_env_rows[i].name) == size && !strncmp(setting, ttpu_env_rows[i].name, size)) return true;
  return false;
}

const char *ttpu_env_unknown(int n) {
  for (char **setting = environ; setting && *setting; setting++)
    if (!strncmp(*setting, PREFIX, sizeof PREFIX - 1) && !is_known(*setting) && n-- == 0) return *setting;
  return NULL;
}
