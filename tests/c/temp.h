/* temp.h: folders of their own for tests that write files. */
#ifndef TTPU_TESTS_TEMP_H_
#define TTPU_TESTS_TEMP_H_

#include <dirent.h>
#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { TEMP_PATH = 128 };

static inline void temp_make(char out_path[TEMP_PATH]) {
  const char *root = getenv("TMPDIR");
  snprintf(out_path, TEMP_PATH, "%.80s/ttpu_test_XXXXXX", root && *root ? root : "/tmp");
  if (!mkdtemp(out_path)) {
    perror(out_path);
    exit(2);
  }
}

static inline int temp_remove_one_(const char *path, const struct stat *info, int kind, struct FTW *where) {
  (void)info, (void)kind, (void)where;
  return remove(path);
}

static inline void temp_remove(const char *path) { nftw(path, temp_remove_one_, 16, FTW_DEPTH | FTW_PHYS); }

/* How many entries of |path| end in |ending|; the name of the last one seen in |out_name| if not NULL. */
static inline int temp_count(const char *path, const char *ending, char out_name[TEMP_PATH]) {
  DIR *dir = opendir(path);
  int count = 0;
  for (struct dirent *item; dir && (item = readdir(dir));) {
    const size_t n = strlen(item->d_name), m = strlen(ending);
    if (item->d_name[0] == '.' || n < m || strcmp(item->d_name + n - m, ending)) continue;
    if (out_name) snprintf(out_name, TEMP_PATH, "%.120s", item->d_name);
    count++;
  }
  if (dir) closedir(dir);
  return count;
}

#endif /* TTPU_TESTS_TEMP_H_ */
