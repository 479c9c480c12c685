/* cache.h: compiled programs by key: a bounded memory tier, then the disk tier, then the compiler.
 *
 * Thread-safe. Concurrent requests for one key share one compile; N processes on one folder compile a key once.
 * A corrupt, foreign, truncated or newer file is a miss, never a failure. A failing disk (full, read-only, gone) turns
 * into a counter and a log line; the caller still gets its program.
 */
#ifndef TTPU_COMPILE_CACHE_H_
#define TTPU_COMPILE_CACHE_H_

#include "base/hash.h"
#include "base/status.h"
#include "pjrt/pjrt.h"

typedef struct ttpu_cache ttpu_cache_t;

typedef struct {
  const char *folder;      /* disk tier; NULL or "": none */
  int64_t disk_bytes;      /* bound of the disk tier; eviction is least recently used; 0: none */
  int64_t memory_programs; /* bound of the memory tier; 0: none */
  const char *lowering;    /* names the code that writes programs, "" for none: what another one wrote is a miss */
  bool trust_folder;       /* accept files of other owners and folders others can write */
  const char *dump_folder; /* gets the text of each program that is compiled, KEY.mlir; NULL or "": none */
} ttpu_cache_options_t;

/* Retains |client|. Makes the folder (0700) when missing. A folder that cannot be used is not an error: the disk tier
 * is off and ttpu_cache_stats tells why. */
TTPU_MUST_USE ttpu_status_t *ttpu_cache_create(ttpu_client_t *client, const ttpu_cache_options_t *options,
                                               ttpu_cache_t **out_cache);
void ttpu_cache_free(ttpu_cache_t *cache); /* no call may be under way */

/* Writes the program's StableHLO text; called only on a miss of both tiers, without any lock of the cache.
 * |*out_text| stays owned by the callee's |ctx| until the next call. */
typedef ttpu_status_t *(*ttpu_cache_emit_t)(void *ctx, const char **out_text, size_t *out_size);

typedef enum { TTPU_TIER_MEMORY, TTPU_TIER_DISK, TTPU_TIER_COMPILED } ttpu_tier_e;

/* Finds or makes the program of |key| (the caller's key; client, plugin, options, host, format and lowering are folded in here).
 * |device|: ordinal used where executables are not portable. The result is retained for the caller; who waited for
 * another thread's compile has TTPU_TIER_MEMORY, or that thread's failure. |why| is one line for the statistics ("first
 * sight", "parameter 3 of aten::mul became an input"), copied. */
TTPU_MUST_USE ttpu_status_t *ttpu_cache_get(ttpu_cache_t *cache, ttpu_hash_t key, int device, const char *why,
                                            ttpu_cache_emit_t emit, void *ctx, ttpu_executable_t **out_executable,
                                            ttpu_tier_e *out_tier);

/* Small named records beside the programs (which parameters of a skeleton are runtime inputs): atomic replace,
 * checksum. load: NOT_FOUND when absent, foreign or corrupt; |*out_data| is from ttpu_alloc. Without a disk tier
 * nothing is kept; a note that could not be written is counted, not a failure. */
TTPU_MUST_USE ttpu_status_t *ttpu_cache_note_store(ttpu_cache_t *cache, ttpu_hash_t key, const void *data, size_t size);
TTPU_MUST_USE ttpu_status_t *ttpu_cache_note_load(ttpu_cache_t *cache, ttpu_hash_t key, void **out_data,
                                                  size_t *out_size);

typedef struct {
  int64_t memory_hits, disk_hits, compiles, compile_nanoseconds, load_nanoseconds, evictions;
  int64_t memory_programs, disk_files, disk_bytes, disk_errors, rejected_files;
  char disk_status[256]; /* "" when the disk tier works, else why not */
} ttpu_cache_stats_t;
void ttpu_cache_stats(ttpu_cache_t *cache, ttpu_cache_stats_t *out_stats);
/* The last |capacity| compiles, newest first: key as hex, milliseconds, why. Returns how many were written. */
typedef struct {
  char key[33];
  double milliseconds;
  char why[160];
} ttpu_cache_compile_t;
int ttpu_cache_compiles(ttpu_cache_t *cache, ttpu_cache_compile_t *out, int capacity);

#endif /* TTPU_COMPILE_CACHE_H_ */
