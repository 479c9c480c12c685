/* disk.h: the disk tier: files by key in one folder that several processes and machines may share.
 *
 * A file appears whole (atomic rename) or not at all. What is read is believed only if it is ours: owned by this user,
 * not writable by others, checksum and key right; anything else is a miss. No function fails its caller: errors are
 * counted, logged and told by ttpu_disk_stats. Thread-safe, also across processes.
 */
#ifndef TTPU_COMPILE_DISK_H_
#define TTPU_COMPILE_DISK_H_

#include "base/status.h"
#include "compile/file.h"

typedef struct ttpu_disk ttpu_disk_t;

typedef struct {
  const char *folder;         /* NULL or "": the tier is off */
  int64_t bytes;              /* bound of all files together; <= 0: the tier is off */
  bool trust;                 /* accept other owners and writers; files are made readable for others */
  int64_t lock_wait_ms;       /* how long to wait for another process that compiles the same key; 0: ten minutes */
  int64_t write_pause_ms;     /* how long not to write after a write failed; 0: half a minute */
} ttpu_disk_options_t;

/* Fails only for want of memory. An unusable folder gives a tier that is off. */
TTPU_MUST_USE ttpu_status_t *ttpu_disk_create(const ttpu_disk_options_t *options, ttpu_disk_t **out_disk);
void ttpu_disk_free(ttpu_disk_t *disk);

/* False at once where storing is pointless: the tier is off, or a write failed just now. */
bool ttpu_disk_is_writable(ttpu_disk_t *disk);
/* True on a hit: |out_file| points into |*out_data|, which is from ttpu_alloc. Counts as a use. |again|: a second look
 * after a miss; the same bad file is not counted twice. */
bool ttpu_disk_load(ttpu_disk_t *disk, ttpu_file_kind_e kind, ttpu_hash_t key, bool again, char **out_data,
                    ttpu_file_t *out_file);
/* The payload of a file that was loaded turned out to be useless. */
void ttpu_disk_reject(ttpu_disk_t *disk, ttpu_hash_t key, const char *why);
/* Adds or replaces the file of |file->key|, then makes room. True when it is there. */
bool ttpu_disk_store(ttpu_disk_t *disk, const ttpu_file_t *file);

/* Waits until no other process or thread holds the lock of |key|; a dead holder's lock is free. Returns a descriptor
 * for ttpu_disk_unlock, or -1: no lock to be had (read-only, not supported, waited too long), go on without. */
int ttpu_disk_lock(ttpu_disk_t *disk, ttpu_hash_t key);
void ttpu_disk_unlock(ttpu_disk_t *disk, ttpu_hash_t key, int lock);

/* Deletes least recently used files until all take at most |bytes|, and what crashed processes left behind. */
void ttpu_disk_prune(ttpu_disk_t *disk, int64_t bytes);

typedef struct {
  int64_t files, bytes; /* at the last scan, and what this process changed since */
  int64_t errors, rejected, evicted;
  char status[256]; /* "" when the tier works, else why not */
} ttpu_disk_stats_t;
void ttpu_disk_stats(ttpu_disk_t *disk, ttpu_disk_stats_t *out_stats);

#endif /* TTPU_COMPILE_DISK_H_ */
