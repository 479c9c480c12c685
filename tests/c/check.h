/* check.h: the whole test framework of the C tests. A test is a program: TEST functions, RUN in main, which returns
 * check_end(). A failed CHECK prints what it saw and goes on; the exit status tells. Exit status 77 means skipped.
 */
#ifndef TTPU_TESTS_CHECK_H_
#define TTPU_TESTS_CHECK_H_

#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "base/status.h"

enum { CHECK_SKIPPED = 77 };

static int check_passed_, check_failed_;

static inline bool check_(bool ok, const char *file, int line, const char *what) {
  if (ok) {
    check_passed_++;
  } else {
    check_failed_++;
    fprintf(stderr, "%s:%d: %s\n", file, line, what);
  }
  return ok;
}

/* Compares as numbers, text, or nearly equal numbers; yields whether they agree. */
#define CHECK(condition) check_((condition), __FILE__, __LINE__, #condition)
#define CHECK_INT(a, b)                                                                              \
  ({                                                                                                 \
    const long long a_ = (long long)(a), b_ = (long long)(b);                                        \
    char text_[256];                                                                                 \
    snprintf(text_, sizeof text_, "%s is %lld, not %s = %lld", #a, a_, #b, b_);                      \
    check_(a_ == b_, __FILE__, __LINE__, text_);                                                     \
  })
#define CHECK_STR(a, b)                                                                              \
  ({                                                                                                 \
    const char *a_ = (a), *b_ = (b);                                                                 \
    char text_[1024];                                                                                \
    snprintf(text_, sizeof text_, "%s is \"%s\", not \"%s\"", #a, a_ ? a_ : "NULL", b_ ? b_ : "NULL"); \
    check_(a_ && b_ && !strcmp(a_, b_), __FILE__, __LINE__, text_);                                  \
  })
#define CHECK_NEAR(a, b, tolerance)                                                                  \
  ({                                                                                                 \
    const double a_ = (double)(a), b_ = (double)(b);                                                 \
    char text_[256];                                                                                 \
    snprintf(text_, sizeof text_, "%s is %.17g, not %.17g", #a, a_, b_);                             \
    check_(a_ - b_ <= (tolerance) && b_ - a_ <= (tolerance), __FILE__, __LINE__, text_);             \
  })
/* A status that must be OK; frees it. */
#define CHECK_OK(expr)                                                                               \
  ({                                                                                                 \
    ttpu_status_t *status_ = (expr);                                                                 \
    char text_[1024];                                                                                \
    snprintf(text_, sizeof text_, "%s: %s", #expr, ttpu_status_message(status_));                    \
    const bool ok_ = check_(!status_, __FILE__, __LINE__, text_);                                    \
    ttpu_status_free(status_);                                                                       \
    ok_;                                                                                             \
  })
/* A status that must have |code|, and |part| in its message; frees it. */
#define CHECK_FAILS(expr, code, part)                                                                \
  ({                                                                                                 \
    ttpu_status_t *status_ = (expr);                                                                 \
    const char *message_ = ttpu_status_message(status_);                                             \
    char text_[1024];                                                                                \
    snprintf(text_, sizeof text_, "%s: code %d, message \"%s\"; expected code %d, \"%s\"", #expr,    \
             (int)ttpu_status_code(status_), message_, (int)(code), part);                           \
    const bool ok_ = check_(ttpu_status_code(status_) == (code) && strstr(message_, part), __FILE__, \
                            __LINE__, text_);                                                        \
    ttpu_status_free(status_);                                                                       \
    ok_;                                                                                             \
  })

#define TEST(name) static void name(void)
#define RUN(name)                                                                                    \
  do {                                                                                               \
    const int before_ = check_failed_;                                                               \
    name();                                                                                          \
    if (check_failed_ != before_) fprintf(stderr, "%s failed\n", #name);                             \
  } while (0)

static inline int check_end(void) {
  printf("%d passed, %d failed\n", check_passed_, check_failed_);
  return check_failed_ || !check_passed_;
}

#endif /* TTPU_TESTS_CHECK_H_ */
