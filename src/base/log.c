/* log.c: see log.h. */
#include "base/log.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/env.h"

enum { UNREAD = TTPU_LOG_DEBUG + 1 };

int ttpu_log_level = UNREAD;

void ttpu_log_set_level(ttpu_log_level_e level) { __atomic_store_n(&ttpu_log_level, (int)level, __ATOMIC_RELAXED); }

bool ttpu_log_is_on(ttpu_log_level_e level) {
  int now = __atomic_load_n(&ttpu_log_level, __ATOMIC_RELAXED);
  if (now == UNREAD) {
    /* A value that is not legal is told by ttpu_env_check; here it means the default. */
    int position = TTPU_LOG_OFF;
    ttpu_status_t *status = ttpu_env_choice(TTPU_ENV_LOG, &position);
    int read = status ? (int)TTPU_LOG_OFF : position;
    ttpu_status_free(status);
    /* Lost to a level set meanwhile: that one counts. */
    if (__atomic_compare_exchange_n(&ttpu_log_level, &now, read, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED)) now = read;
  }
  return now >= (int)level;
}

static void write_all(const char *data, size_t size) {
  while (size) {
    const ssize_t n = write(STDERR_FILENO, data, size);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return;
    data += n;
    size -= (size_t)n;
  }
}

void ttpu_log_write(ttpu_log_level_e level, const char *file, int line, const char *fmt, ...) {
  const int kept = errno;
  if (!ttpu_log_is_on(level)) {
    errno = kept;
    return;
  }
  static const char *const names[] = {"", "error", "warning", "info", "debug"};
  struct timespec now;
  clock_gettime(CLOCK_REALTIME, &now);
  struct tm local;
  localtime_r(&now.tv_sec, &local);
  const char *slash = strrchr(file, '/');
  char fixed[1024], *text = fixed;
  const int head = snprintf(fixed, sizeof fixed, "torchtpu %02d:%02d:%02d.%06ld [%d] %s %.48s:%d: ", local.tm_hour,
                            local.tm_min, local.tm_sec, now.tv_nsec / 1000, (int)getpid(), names[level],
                            slash ? slash + 1 : file, line);
  va_list args, again;
  va_start(args, fmt);
  va_copy(again, args);
  errno = kept; /* for %m */
  const int body = vsnprintf(fixed + head, sizeof fixed - (size_t)head - 1, fmt, args);
  size_t size = (size_t)head + (body > 0 ? (size_t)body : 0);
  if (size > sizeof fixed - 2) {
    char *longer = ttpu_alloc(size + 2);
    if (longer) {
      memcpy(longer, fixed, (size_t)head);
      errno = kept;
      vsnprintf(longer + head, (size_t)body + 1, fmt, again);
      text = longer;
    } else {
      size = sizeof fixed - 2; /* its beginning is better than nothing */
    }
  }
  va_end(again);
  va_end(args);
  text[size] = '\n';
  write_all(text, size + 1);
  if (text != fixed) ttpu_free(text);
  errno = kept;
}
