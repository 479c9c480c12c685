/* log.h: what the core tells on stderr, which is nothing unless TORCHTPU_LOG asks. The only place that writes there.
 *
 * A message below the level costs one load and one branch, its arguments are not evaluated. Lines reach stderr whole:
 * one write each, also from several threads. Never fails, keeps errno. Thread-safe.
 */
#ifndef TTPU_BASE_LOG_H_
#define TTPU_BASE_LOG_H_

#include <stdbool.h>

/* The positions of TORCHTPU_LOG's choices. */
typedef enum { TTPU_LOG_OFF, TTPU_LOG_ERROR, TTPU_LOG_WARN, TTPU_LOG_INFO, TTPU_LOG_DEBUG } ttpu_log_level_e;

/* Read by the macro; above TTPU_LOG_DEBUG until the first message has read the environment. */
extern int ttpu_log_level;

void ttpu_log_set_level(ttpu_log_level_e level);
/* True when a message of |level| is written: for text that is costly to make. */
bool ttpu_log_is_on(ttpu_log_level_e level);
void ttpu_log_write(ttpu_log_level_e level, const char *file, int line, const char *fmt, ...)
    __attribute__((format(printf, 4, 5)));

/* TTPU_LOG(WARN, "cache: %s", reason): one line, without its end. */
#define TTPU_LOG(level, ...)                                                                                 \
  do {                                                                                                       \
    if (__builtin_expect(__atomic_load_n(&ttpu_log_level, __ATOMIC_RELAXED) >= (int)TTPU_LOG_##level, 0))    \
      ttpu_log_write(TTPU_LOG_##level, __FILE__, __LINE__, __VA_ARGS__);                                     \
  } while (0)

#endif /* TTPU_BASE_LOG_H_ */
