/* log_test.c: silence by default, levels, whole lines. stderr is turned into a file and read back. */
#include "base/log.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/alloc.h"
#include "check.h"

static char text[1 << 20];

/* What |act| makes appear on stderr. */
static const char *captured(void (*act)(void)) {
  char path[] = "/tmp/ttpu_log_XXXXXX";
  const int file = mkstemp(path), kept = dup(STDERR_FILENO);
  unlink(path);
  fflush(stderr);
  dup2(file, STDERR_FILENO);
  act();
  dup2(kept, STDERR_FILENO);
  close(kept);
  const ssize_t n = pread(file, text, sizeof text - 1, 0);
  text[n > 0 ? n : 0] = 0;
  close(file);
  return text;
}

static int evaluated;
static int count_evaluation(void) { return ++evaluated; }

static void every_level(void) {
  TTPU_LOG(ERROR, "e%d", count_evaluation());
  TTPU_LOG(WARN, "w%d", count_evaluation());
  TTPU_LOG(INFO, "i%d", count_evaluation());
  TTPU_LOG(DEBUG, "d%d", count_evaluation());
}

static int lines(const char *p) {
  int n = 0;
  for (; *p; p++) n += *p == '\n';
  return n;
}

TEST(quiet_by_default) {
  unsetenv("TORCHTPU_LOG");
  ttpu_log_level = TTPU_LOG_DEBUG + 1; /* as at the start of a process */
  CHECK_STR(captured(every_level), "");
  CHECK_INT(ttpu_log_level, TTPU_LOG_OFF);
  evaluated = 0;
  CHECK_STR(captured(every_level), "");
  CHECK_INT(evaluated, 0);
}

TEST(the_environment_sets_the_level) {
  static const char *const names[] = {"off", "error", "warn", "info", "debug", "nonsense"};
  for (int i = 0; i < 6; i++) {
    setenv("TORCHTPU_LOG", names[i], 1);
    ttpu_log_level = TTPU_LOG_DEBUG + 1;
    CHECK_INT(lines(captured(every_level)), i % 5);
  }
  unsetenv("TORCHTPU_LOG");
}

TEST(a_line_tells_level_and_place) {
  ttpu_log_set_level(TTPU_LOG_WARN);
  const char *all = captured(every_level);
  CHECK(!strncmp(all, "torchtpu ", 9));
  CHECK(strstr(all, "warning log_test.c:") && strstr(all, ": w"));
  CHECK(ttpu_log_is_on(TTPU_LOG_WARN) && !ttpu_log_is_on(TTPU_LOG_INFO));
}

static void write_long(void) {
  static char big[5000];
  memset(big, 'x', sizeof big - 1);
  errno = ENOENT;
  TTPU_LOG(ERROR, "%s|", big);
}

TEST(long_lines) {
  ttpu_log_set_level(TTPU_LOG_ERROR);
  const char *all = captured(write_long);
  CHECK_INT(errno, ENOENT);
  CHECK(strlen(all) > 5000 && strstr(all, "x|\n"));
  ttpu_alloc_fail_at(0);
  all = captured(write_long); /* cut short, still a line */
  ttpu_alloc_fail_at(-1);
  CHECK(strlen(all) > 900 && strlen(all) < 1100 && lines(all) == 1 && all[strlen(all) - 1] == '\n');
}

static void *chatter(void *name) {
  for (int i = 0; i < 500; i++) TTPU_LOG(INFO, "%s%s%s", (char *)name, (char *)name, (char *)name);
  return NULL;
}

static void two_threads(void) {
  pthread_t a, b;
  pthread_create(&a, NULL, chatter, "aaaaaaaaaaaaaaaaaaaa");
  pthread_create(&b, NULL, chatter, "bbbbbbbbbbbbbbbbbbbb");
  pthread_join(a, NULL);
  pthread_join(b, NULL);
}

TEST(lines_stay_whole) {
  ttpu_log_set_level(TTPU_LOG_INFO);
  char *all = (char *)captured(two_threads);
  int whole = 0;
  for (char *line = strtok(all, "\n"); line; line = strtok(NULL, "\n")) {
    const char *body = strrchr(line, ' ');
    whole += body && strlen(body + 1) == 60 && strspn(body + 1, (char[]){body[1], 0}) == 60;
  }
  CHECK_INT(whole, 1000);
  ttpu_log_set_level(TTPU_LOG_OFF);
}

int main(void) {
  RUN(quiet_by_default);
  RUN(the_environment_sets_the_level);
  RUN(a_line_tells_level_and_place);
  RUN(long_lines);
  RUN(lines_stay_whole);
  return check_end();
}
