/* alloc_test.c: the allocator and the failures it makes on demand. */
#include "base/alloc.h"

#include "check.h"

TEST(sizes) {
  void *none = ttpu_alloc(0);
  CHECK(none);
  ttpu_free(none);
  unsigned char *zero = ttpu_alloc_zero(100, 3);
  bool clean = true;
  for (int i = 0; i < 300; i++) clean &= !zero[i];
  CHECK(clean);
  memset(zero, 7, 300);
  zero = ttpu_alloc_resize(zero, 3000);
  CHECK(zero && zero[0] == 7 && zero[299] == 7);
  ttpu_free(zero);
  char *text = ttpu_alloc_string("text");
  CHECK_STR(text, "text");
  ttpu_free(text);
  ttpu_free(NULL);
}

TEST(the_nth_request_fails_once) {
  ttpu_alloc_fail_at(2);
  void *a = ttpu_alloc(1), *b = ttpu_alloc_zero(1, 1), *c = ttpu_alloc(1), *d = ttpu_alloc(1);
  CHECK(a && b && !c && d);
  CHECK_INT(ttpu_alloc_count(), 4);
  CHECK_INT(ttpu_alloc_count(), 0);
  ttpu_alloc_fail_at(0);
  CHECK(!ttpu_alloc_resize(a, 100)); /* a stays valid */
  ttpu_alloc_fail_at(0);
  CHECK(!ttpu_alloc_string("x"));
  ttpu_alloc_fail_at(-1);
  ttpu_free(a);
  ttpu_free(b);
  ttpu_free(d);
  ttpu_free(ttpu_alloc(1));
  CHECK_INT(ttpu_alloc_count(), 0); /* not counted while off */
}

int main(void) {
  RUN(sizes);
  RUN(the_nth_request_fails_once);
  return check_end();
}
