/* status.c: see status.h. */
#include "base/status.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"

struct ttpu_status {
  ttpu_code_e code;
  bool is_static; /* not on the heap: made when a status could not be allocated */
  char where[48];
  char *message;
};

static ttpu_status_t out_of_memory = {TTPU_RESOURCE_EXHAUSTED, true, "status.c", NULL};

static char *format(const char *fmt, va_list args) {
  va_list copy;
  va_copy(copy, args);
  const int n = vsnprintf(NULL, 0, fmt, copy);
  va_end(copy);
  char *text = n < 0 ? NULL : ttpu_alloc((size_t)n + 1);
  if (text) vsnprintf(text, (size_t)n + 1, fmt, args);
  return text;
}

static ttpu_status_t *create(ttpu_code_e code, const char *where, char *message) {
  ttpu_status_t *status = message ? ttpu_alloc(sizeof *status) : NULL;
  if (!status) {
    ttpu_free(message);
    return &out_of_memory;
  }
  *status = (ttpu_status_t){.code = code, .message = message};
  snprintf(status->where, sizeof status->where, "%s", where);
  return status;
}

ttpu_status_t *ttpu_status_make(ttpu_code_e code, const char *file, int line, const char *fmt, ...) {
  if (code == TTPU_OK) return NULL;
  const char *slash = strrchr(file, '/');
  char where[48];
  snprintf(where, sizeof where, "%.36s:%d", slash ? slash + 1 : file, line);
  va_list args;
  va_start(args, fmt);
  char *message = format(fmt, args);
  va_end(args);
  return create(code, where, message);
}

ttpu_status_t *ttpu_status_annotate(ttpu_status_t *status, const char *fmt, ...) {
  if (!status || status->is_static) return status;
  va_list args;
  va_start(args, fmt);
  char *context = format(fmt, args);
  va_end(args);
  if (!context) return status;
  const size_t n = strlen(context), m = strlen(status->message);
  char *joined = ttpu_alloc(n + m + 3);
  if (joined) {
    memcpy(joined, context, n);
    memcpy(joined + n, ": ", 2);
    memcpy(joined + n + 2, status->message, m + 1);
    ttpu_free(status->message);
    status->message = joined;
  }
  ttpu_free(context);
  return status;
}

ttpu_status_t *ttpu_status_clone(const ttpu_status_t *status) {
  if (!status) return NULL;
  if (status->is_static) return &out_of_memory;
  return create(status->code, status->where, ttpu_alloc_string(status->message));
}

ttpu_code_e ttpu_status_code(const ttpu_status_t *status) { return status ? status->code : TTPU_OK; }

const char *ttpu_status_message(const ttpu_status_t *status) {
  if (!status) return "";
  return status->message ? status->message : "the host is out of memory";
}

const char *ttpu_status_where(const ttpu_status_t *status) { return status ? status->where : ""; }

const char *ttpu_code_text(ttpu_code_e code) {
  switch (code) {
#define STATUS(name, number, text) \
  case TTPU_##name:                \
    return text;
#include "base/status.def"
#undef STATUS
  }
  return "unknown";
}

void ttpu_status_free(ttpu_status_t *status) {
  if (!status || status->is_static) return;
  ttpu_free(status->message);
  ttpu_free(status);
}
