/* status.h: the one error type of the core.
 *
 * NULL is success. A status is owned by whoever holds it: return it, free it, or it leaks; ttpu_status_free
 * accepts NULL. A status that cannot be allocated is replaced by a static one, so an error is never lost.
 * The core neither prints nor aborts. Thread-safe as long as one thread at a time uses one status.
 */
#ifndef TTPU_BASE_STATUS_H_
#define TTPU_BASE_STATUS_H_

#include <stdbool.h>
#include <stdint.h>

typedef enum {
#define STATUS(name, number, text) TTPU_##name = (number),
#include "base/status.def"
#undef STATUS
} ttpu_code_e;

typedef struct ttpu_status ttpu_status_t;

#define TTPU_MUST_USE __attribute__((warn_unused_result))

/* Makes a status with a formatted message. Never returns NULL for a code other than TTPU_OK. */
TTPU_MUST_USE ttpu_status_t *ttpu_status_make(ttpu_code_e code, const char *file, int line, const char *fmt, ...)
    __attribute__((format(printf, 4, 5)));
/* Adds one line of context in front of the message; returns |status| itself. NULL stays NULL. */
TTPU_MUST_USE ttpu_status_t *ttpu_status_annotate(ttpu_status_t *status, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));
/* A second owned status of the same content; NULL for NULL. */
TTPU_MUST_USE ttpu_status_t *ttpu_status_clone(const ttpu_status_t *status);
ttpu_code_e ttpu_status_code(const ttpu_status_t *status);
/* The whole message, "" for NULL; lives as long as |status|. */
const char *ttpu_status_message(const ttpu_status_t *status);
/* "file.c:123" of where the status was made. */
const char *ttpu_status_where(const ttpu_status_t *status);
const char *ttpu_code_text(ttpu_code_e code);
void ttpu_status_free(ttpu_status_t *status);

#define TTPU_ERROR(code, ...) ttpu_status_make(TTPU_##code, __FILE__, __LINE__, __VA_ARGS__)
#define TTPU_OUT_OF_HOST_MEMORY() TTPU_ERROR(RESOURCE_EXHAUSTED, "the host is out of memory")

/* Returns from the calling function on failure. */
#define TTPU_TRY(expr)                             \
  do {                                             \
    ttpu_status_t *try_status_ = (expr);           \
    if (try_status_) return try_status_;           \
  } while (0)
#define TTPU_TRY_CTX(expr, ...)                                                \
  do {                                                                         \
    ttpu_status_t *try_status_ = (expr);                                       \
    if (try_status_) return ttpu_status_annotate(try_status_, __VA_ARGS__);    \
  } while (0)
/* Stores the status in |status| and jumps to the one cleanup label, which returns it. */
#define TTPU_TRY_GOTO(status, label, expr) \
  do {                                     \
    if (((status) = (expr))) goto label;   \
  } while (0)

#endif /* TTPU_BASE_STATUS_H_ */
