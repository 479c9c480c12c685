/* str.c: see str.h. */
#include "base/str.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"

static bool reserve(ttpu_str_t *str, size_t extra) {
  if (str->failed) return false;
  const size_t need = str->size + extra + 1;
  if (need <= str->capacity) return true;
  size_t capacity = str->capacity ? str->capacity * 2 : 256;
  while (capacity < need) capacity *= 2;
  char *data = ttpu_alloc_resize(str->data, capacity);
  if (!data) {
    str->failed = true;
    return false;
  }
  str->data = data;
  str->capacity = capacity;
  return true;
}

void ttpu_str_append(ttpu_str_t *str, const void *data, size_t size) {
  if (!reserve(str, size)) return;
  if (size) memcpy(str->data + str->size, data, size);
  str->size += size;
  str->data[str->size] = 0;
}

void ttpu_str_puts(ttpu_str_t *str, const char *text) { ttpu_str_append(str, text, strlen(text)); }

void ttpu_str_printf(ttpu_str_t *str, const char *fmt, ...) {
  va_list args;
  va_start(args, fmt);
  va_list copy;
  va_copy(copy, args);
  const int n = vsnprintf(NULL, 0, fmt, copy);
  va_end(copy);
  if (n >= 0 && reserve(str, (size_t)n)) {
    vsnprintf(str->data + str->size, (size_t)n + 1, fmt, args);
    str->size += (size_t)n;
  }
  va_end(args);
}

void ttpu_str_deinit(ttpu_str_t *str) {
  ttpu_free(str->data);
  *str = (ttpu_str_t){0};
}
