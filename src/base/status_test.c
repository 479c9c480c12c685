/* status_test.c: messages, context, copies, and what is left of them when memory runs out. */
#include "base/status.h"

#include <string.h>

#include "base/alloc.h"
#include "check.h"

TEST(codes_are_pjrts) {
  CHECK_INT(TTPU_OK, 0);
  CHECK_INT(TTPU_INVALID_ARGUMENT, 3);
  CHECK_INT(TTPU_RESOURCE_EXHAUSTED, 8);
  CHECK_INT(TTPU_UNAUTHENTICATED, 16);
  CHECK_STR(ttpu_code_text(TTPU_NOT_FOUND), "not found");
  CHECK_STR(ttpu_code_text((ttpu_code_e)99), "unknown");
}

TEST(null_is_success) {
  CHECK_INT(ttpu_status_code(NULL), TTPU_OK);
  CHECK_STR(ttpu_status_message(NULL), "");
  CHECK_STR(ttpu_status_where(NULL), "");
  CHECK(!ttpu_status_clone(NULL));
  CHECK(!ttpu_status_annotate(NULL, "context"));
  CHECK(!TTPU_ERROR(OK, "no error"));
  ttpu_status_free(NULL);
}

TEST(message_place_and_context) {
  const int line = __LINE__ + 1;
  ttpu_status_t *status = TTPU_ERROR(NOT_FOUND, "no %s at %d", "file", 7);
  char where[64];
  snprintf(where, sizeof where, "status_test.c:%d", line);
  CHECK_STR(ttpu_status_where(status), where);
  CHECK_STR(ttpu_status_message(status), "no file at 7");
  status = ttpu_status_annotate(status, "step %d", 2);
  status = ttpu_status_annotate(status, "run");
  ttpu_status_t *copy = ttpu_status_clone(status);
  ttpu_status_free(status);
  CHECK_STR(ttpu_status_where(copy), where);
  CHECK_FAILS(copy, TTPU_NOT_FOUND, "run: step 2: no file at 7");
}

static ttpu_status_t *inner(bool fail) { return fail ? TTPU_ERROR(ABORTED, "inner") : NULL; }
static ttpu_status_t *outer(bool fail) {
  TTPU_TRY(inner(false));
  TTPU_TRY_CTX(inner(fail), "outer %d", 1);
  return TTPU_ERROR(INTERNAL, "past the failure");
}

TEST(try_returns_the_first_failure) {
  CHECK_FAILS(outer(true), TTPU_ABORTED, "outer 1: inner");
  CHECK_FAILS(outer(false), TTPU_INTERNAL, "past");
}

/* Whatever allocation fails, the caller still holds an error: the wanted one or the one for memory. */
TEST(survives_failed_allocations) {
  for (int n = 0; n < 8; n++) {
    ttpu_alloc_fail_at(n);
    ttpu_status_t *status = ttpu_status_annotate(TTPU_ERROR(ABORTED, "message %d", n), "context");
    ttpu_status_t *copy = ttpu_status_clone(status);
    ttpu_alloc_fail_at(-1);
    const ttpu_code_e code = ttpu_status_code(status), copied = ttpu_status_code(copy);
    CHECK(code == TTPU_ABORTED || code == TTPU_RESOURCE_EXHAUSTED);
    CHECK(copied == TTPU_ABORTED || copied == TTPU_RESOURCE_EXHAUSTED);
    if (code == TTPU_RESOURCE_EXHAUSTED) CHECK_STR(ttpu_status_message(status), "the host is out of memory");
    if (code == TTPU_ABORTED) CHECK(strstr(ttpu_status_message(status), "message"));
    ttpu_status_free(status);
    ttpu_status_free(copy);
  }
}

int main(void) {
  RUN(codes_are_pjrts);
  RUN(null_is_success);
  RUN(message_place_and_context);
  RUN(try_returns_the_first_failure);
  RUN(survives_failed_allocations);
  return check_end();
}
