/* env_test.c: what each kind of variable accepts, and how it refuses the rest. */
#include "base/env.h"

#include <ctype.h>
#include <stdlib.h>

#include "base/alloc.h"
#include "check.h"

static void clear(void) {
  for (int i = 0; i < TTPU_ENV_COUNT; i++) unsetenv(ttpu_env_rows[i].name);
}

static int64_t parsed(ttpu_env_e variable, const char *text) {
  int64_t value = -1;
  ttpu_status_t *status = ttpu_env_parse(variable, text, &value);
  if (status) value = -1;
  ttpu_status_free(status);
  return value;
}

/* Names are unique and upper case, defaults legal, help said. */
TEST(the_table_is_sound) {
  for (int i = 0; i < TTPU_ENV_COUNT; i++) {
    const ttpu_env_row_t *row = &ttpu_env_rows[i];
    CHECK(!strncmp(row->name, "TORCHTPU_", 9));
    for (const char *p = row->name; *p; p++) CHECK(isupper((unsigned char)*p) || *p == '_');
    CHECK(*row->legal && *row->help && !strchr(row->help, '\n'));
    for (int k = 0; k < i; k++) CHECK(strcmp(row->name, ttpu_env_rows[k].name));
    int64_t value;
    CHECK_OK(ttpu_env_parse((ttpu_env_e)i, row->fallback, &value));
  }
}

TEST(defaults) {
  clear();
  int64_t number;
  int position;
  bool flag = true;
  CHECK_OK(ttpu_env_check());
  CHECK_OK(ttpu_env_int(TTPU_ENV_CPU_DEVICES, &number));
  CHECK_INT(number, 1);
  CHECK_OK(ttpu_env_int(TTPU_ENV_CACHE_BYTES, &number));
  CHECK_INT(number, 4ll << 30);
  CHECK_OK(ttpu_env_choice(TTPU_ENV_EAGER_MODE, &position));
  CHECK_INT(position, 1);
  CHECK_OK(ttpu_env_bool(TTPU_ENV_CACHE_TRUST, &flag));
  CHECK(!flag);
  CHECK_STR(ttpu_env_text(TTPU_ENV_PLUGIN), "");
  setenv("TORCHTPU_CPU_DEVICES", "", 1); /* as if unset */
  CHECK(!ttpu_env_is_set(TTPU_ENV_CPU_DEVICES));
  CHECK_OK(ttpu_env_int(TTPU_ENV_CPU_DEVICES, &number));
  CHECK_INT(number, 1);
}

TEST(set_values) {
  clear();
  int64_t number;
  int position;
  bool flag = false;
  setenv("TORCHTPU_CPU_DEVICES", "8", 1);
  setenv("TORCHTPU_EAGER_MODE", "Fused", 1);
  setenv("TORCHTPU_CACHE_TRUST", "yes", 1);
  setenv("TORCHTPU_PLUGIN", "/some/where.so", 1);
  CHECK(ttpu_env_is_set(TTPU_ENV_CPU_DEVICES));
  CHECK_OK(ttpu_env_int(TTPU_ENV_CPU_DEVICES, &number));
  CHECK_INT(number, 8);
  CHECK_OK(ttpu_env_choice(TTPU_ENV_EAGER_MODE, &position));
  CHECK_INT(position, 2);
  CHECK_OK(ttpu_env_bool(TTPU_ENV_CACHE_TRUST, &flag));
  CHECK(flag);
  CHECK_STR(ttpu_env_text(TTPU_ENV_PLUGIN), "/some/where.so");
}

TEST(numbers) {
  CHECK_INT(parsed(TTPU_ENV_CPU_DEVICES, "1"), 1);
  CHECK_INT(parsed(TTPU_ENV_CPU_DEVICES, "1024"), 1024);
  CHECK_INT(parsed(TTPU_ENV_CACHE_BYTES, "0"), 0);
  CHECK_INT(parsed(TTPU_ENV_CACHE_BYTES, "3k"), 3072);
  CHECK_INT(parsed(TTPU_ENV_CACHE_BYTES, "2M"), 2 << 20);
  CHECK_INT(parsed(TTPU_ENV_CACHE_BYTES, "64T"), 64ll << 40);
  static const char *const bad[] = {"",   " ",   "0",    "1025", "-1",  "+1",  "1.5", "1k",  "0x10", "1 ",
                                    " 1", "one", "1\n",  "99999999999999999999", "18446744073709551617"};
  for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) CHECK_INT(parsed(TTPU_ENV_CPU_DEVICES, bad[i]), -1);
  static const char *const bad_bytes[] = {"", "K", "1 ", "1 K", "1KB", "1KK", "65T",
                                          "9223372036854775807T", "1P", "-1"};
  for (size_t i = 0; i < sizeof bad_bytes / sizeof *bad_bytes; i++)
    CHECK_INT(parsed(TTPU_ENV_CACHE_BYTES, bad_bytes[i]), -1);
}

TEST(choices_and_flags) {
  CHECK_INT(parsed(TTPU_ENV_FALLBACK, "warn"), 0);
  CHECK_INT(parsed(TTPU_ENV_FALLBACK, "silent"), 2);
  CHECK_INT(parsed(TTPU_ENV_LOG, "off"), 0);
  CHECK_INT(parsed(TTPU_ENV_LOG, "debug"), 4);
  CHECK_INT(parsed(TTPU_ENV_LOG, "deb"), -1);
  CHECK_INT(parsed(TTPU_ENV_LOG, "debugg"), -1);
  CHECK_INT(parsed(TTPU_ENV_LOG, "off|error"), -1);
  CHECK_INT(parsed(TTPU_ENV_LOG, ""), -1);
  static const char *const yes[] = {"1", "on", "True", "YES"}, *const no[] = {"0", "off", "FALSE", "no"};
  for (int i = 0; i < 4; i++) {
    CHECK_INT(parsed(TTPU_ENV_CACHE_TRUST, yes[i]), 1);
    CHECK_INT(parsed(TTPU_ENV_CACHE_TRUST, no[i]), 0);
  }
  CHECK_INT(parsed(TTPU_ENV_CACHE_TRUST, "2"), -1);
  CHECK_INT(parsed(TTPU_ENV_CACHE_TRUST, "y"), -1);
}

TEST(a_bad_value_is_told_in_full) {
  clear();
  setenv("TORCHTPU_EAGER_MODE", "fast", 1);
  int position;
  CHECK_FAILS(ttpu_env_choice(TTPU_ENV_EAGER_MODE, &position), TTPU_INVALID_ARGUMENT,
              "TORCHTPU_EAGER_MODE is \"fast\"; legal: debug|strict|fused (default strict)");
  CHECK_FAILS(ttpu_env_check(), TTPU_INVALID_ARGUMENT, "TORCHTPU_EAGER_MODE");
  clear();
  setenv("TORCHTPU_CPU_DEVICES", "many", 1);
  CHECK_FAILS(ttpu_env_check(), TTPU_INVALID_ARGUMENT, "TORCHTPU_CPU_DEVICES is \"many\"; legal: 1..1024");
}

TEST(misspelt_names_are_found) {
  clear();
  CHECK(!ttpu_env_unknown(0));
  setenv("TORCHTPU_CACHE_DIRS", "x", 1);
  setenv("TORCHTPU_CACHE", "y", 1);
  setenv("TORCHTPU_TEST_SOMETHING", "z", 1);
  const char *first = ttpu_env_unknown(0), *second = ttpu_env_unknown(1);
  CHECK(first && second && !ttpu_env_unknown(2));
  CHECK(first && second && strcmp(first, second) && strstr("TORCHTPU_CACHE_DIRS=x TORCHTPU_CACHE=y", first));
  unsetenv("TORCHTPU_CACHE_DIRS");
  CHECK_STR(ttpu_env_unknown(0), "TORCHTPU_CACHE=y");
  unsetenv("TORCHTPU_CACHE");
  unsetenv("TORCHTPU_TEST_SOMETHING");
}

static void folder_is(const char *expected) {
  char *folder = NULL;
  if (CHECK_OK(ttpu_env_cache_folder(&folder))) CHECK_STR(folder, expected);
  ttpu_free(folder);
}

TEST(cache_folder) {
  clear();
  setenv("HOME", "/home/x", 1);
  unsetenv("XDG_CACHE_HOME");
  folder_is("/home/x/.cache/torchtpu");
  setenv("XDG_CACHE_HOME", "/var/c", 1);
  folder_is("/var/c/torchtpu");
  setenv("XDG_CACHE_HOME", "relative", 1);
  folder_is("/home/x/.cache/torchtpu");
  setenv("TORCHTPU_CACHE_DIR", "/mine", 1);
  folder_is("/mine");
  setenv("TORCHTPU_CACHE_DIR", "", 1); /* set to nothing: no cache, unlike unset */
  folder_is("");
  unsetenv("TORCHTPU_CACHE_DIR");
  unsetenv("XDG_CACHE_HOME");
  unsetenv("HOME");
  folder_is("");
  setenv("HOME", "/home/x", 1);
  ttpu_alloc_fail_at(0);
  char *folder;
  CHECK_FAILS(ttpu_env_cache_folder(&folder), TTPU_RESOURCE_EXHAUSTED, "memory");
  ttpu_alloc_fail_at(-1);
  CHECK(!folder);
}

int main(void) {
  RUN(the_table_is_sound);
  RUN(defaults);
  RUN(set_values);
  RUN(numbers);
  RUN(choices_and_flags);
  RUN(a_bad_value_is_told_in_full);
  RUN(misspelt_names_are_found);
  RUN(cache_folder);
  return check_end();
}
