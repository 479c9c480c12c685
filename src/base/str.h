/* str.h: a growable byte string. A failed allocation latches |failed|; later appends do nothing, so a writer
 * checks once at the end. One thread at a time. Zero-initialise, then deinit.
 */
#ifndef TTPU_BASE_STR_H_
#define TTPU_BASE_STR_H_

#include <stdbool.h>
#include <stddef.h>

typedef struct {
  char *data; /* NUL-terminated once something was appended */
  size_t size, capacity;
  bool failed;
} ttpu_str_t;

void ttpu_str_append(ttpu_str_t *str, const void *data, size_t size);
void ttpu_str_puts(ttpu_str_t *str, const char *text);
void ttpu_str_printf(ttpu_str_t *str, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
void ttpu_str_deinit(ttpu_str_t *str);

#endif /* TTPU_BASE_STR_H_ */
