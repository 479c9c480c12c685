/* alloc.h: the one way the core gets heap memory, so that a test can make the Nth request fail.
 * Thread-safe. All functions return NULL on failure and never abort.
 */
#ifndef TTPU_BASE_ALLOC_H_
#define TTPU_BASE_ALLOC_H_

#include <stddef.h>
#include <stdint.h>

void *ttpu_alloc(size_t bytes) __attribute__((malloc));
void *ttpu_alloc_zero(size_t count, size_t bytes) __attribute__((malloc));
/* Like realloc: on failure NULL is returned and |ptr| stays valid. */
void *ttpu_alloc_resize(void *ptr, size_t bytes);
char *ttpu_alloc_string(const char *text) __attribute__((malloc));
void ttpu_free(void *ptr);

/* Tests: after |n| more successful requests the next one fails, once; n < 0 turns it off.
 * ttpu_alloc_count tells how many requests were made since the last call, for a sweep over all of them. */
void ttpu_alloc_fail_at(int64_t n);
int64_t ttpu_alloc_count(void);

#endif /* TTPU_BASE_ALLOC_H_ */
