/* str_test.c: the growable string and its latched failure. */
#include "base/str.h"

#include "base/alloc.h"
#include "check.h"

TEST(appends) {
  ttpu_str_t str = {0};
  ttpu_str_append(&str, "", 0);
  CHECK_STR(str.data, "");
  ttpu_str_puts(&str, "a");
  ttpu_str_printf(&str, "%d-%s", 12, "b");
  ttpu_str_append(&str, "\0z", 2);
  CHECK_INT(str.size, 7);
  CHECK(!memcmp(str.data, "a12-b\0z", 8));
  ttpu_str_deinit(&str);
  CHECK(!str.data && !str.size);
}

TEST(grows) {
  ttpu_str_t str = {0};
  for (int i = 0; i < 5000; i++) ttpu_str_printf(&str, "%04d", i);
  CHECK_INT(str.size, 20000);
  bool same = true;
  for (int i = 0; i < 5000; i++) {
    char text[16];
    snprintf(text, sizeof text, "%04d", i);
    same &= !memcmp(str.data + 4 * i, text, 4);
  }
  CHECK(same && str.data[20000] == 0);
  ttpu_str_printf(&str, "%*d", 100000, 1); /* one append beyond double the size */
  CHECK(str.size == 120000 && !str.failed);
  ttpu_str_deinit(&str);
}

TEST(failure_latches) {
  ttpu_str_t str = {0};
  ttpu_str_puts(&str, "kept");
  ttpu_alloc_fail_at(0);
  ttpu_str_printf(&str, "%*d", 1000, 1);
  ttpu_alloc_fail_at(-1);
  CHECK(str.failed);
  ttpu_str_puts(&str, "dropped");
  CHECK_STR(str.data, "kept");
  ttpu_str_deinit(&str);
  CHECK(!str.failed);
}

int main(void) {
  RUN(appends);
  RUN(grows);
  RUN(failure_latches);
  return check_end();
}
