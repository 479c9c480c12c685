/* cache.c: see cache.h. One lock guards the memory tier, the flights (programs being made) and the counters; it is
 * never held while a file is read or a program made, loaded or destroyed. A thread that finds its key in flight waits
 * for that flight; a process that finds its key being compiled elsewhere waits for the key's lock file.
 */
#include "compile/cache.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/log.h"
#include "base/str.h"
#include "compile/disk.h"
#include "compile/key.h"
#include "compile/memory.h"

enum { HISTORY = 256 };

/* A program being made. Lives until the last who waits has looked at the outcome. */
typedef struct flight {
  struct flight *next;
  ttpu_hash_t key;
  int holders;
  bool landed;
  ttpu_executable_t *executable; /* retained; NULL on failure */
  ttpu_status_t *status;
} flight_t;

struct ttpu_cache {
  ttpu_client_t *client;
  ttpu_disk_t *disk;
  char *dump_folder; /* or NULL */
  int device_count;
  ttpu_hash_t *salts; /* one a device */
  ttpu_hash_t note_salt;
  pthread_mutex_t lock;
  pthread_cond_t landed;
  ttpu_memory_t memory;
  flight_t *flights;
  bool cannot_serialize; /* the plugin said so: the disk tier is of no use to programs */
  int64_t memory_hits, disk_hits, compiles, compile_ns, load_ns, evictions;
  ttpu_cache_compile_t history[HISTORY]; /* a ring: entry compiles % HISTORY comes next */
};

/* What one miss is about. */
typedef struct {
  ttpu_hash_t key; /* with everything folded in */
  int device;
  const char *why;
  ttpu_cache_emit_t emit;
  void *ctx;
} request_t;

static int64_t now_ns(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return t.tv_sec * 1000000000ll + t.tv_nsec;
}

/* --- life -------------------------------------------------------------------------------------------------------- */

ttpu_status_t *ttpu_cache_create(ttpu_client_t *client, const ttpu_cache_options_t *options, ttpu_cache_t **out_cache) {
  *out_cache = NULL;
  const char *lowering = options->lowering ? options->lowering : "";
  ttpu_cache_t *cache = ttpu_alloc_zero(1, sizeof *cache);
  if (!cache) return TTPU_OUT_OF_HOST_MEMORY();
  ttpu_client_retain(client);
  cache->client = client;
  pthread_mutex_init(&cache->lock, NULL);
  pthread_cond_init(&cache->landed, NULL);
  ttpu_memory_init(&cache->memory, options->memory_programs);
  cache->device_count = ttpu_client_device_count(client);
  cache->salts = ttpu_alloc((size_t)cache->device_count * sizeof *cache->salts);
  const bool dumps = options->dump_folder && *options->dump_folder;
  if (dumps) cache->dump_folder = ttpu_alloc_string(options->dump_folder);
  const ttpu_disk_options_t disk = {
      .folder = options->folder, .bytes = options->disk_bytes, .trust = options->trust_folder};
  ttpu_status_t *status = ttpu_disk_create(&disk, &cache->disk);
  if (!status && (!cache->salts || (dumps && !cache->dump_folder))) status = TTPU_OUT_OF_HOST_MEMORY();
  if (status) {
    ttpu_cache_free(cache);
    return status;
  }
  for (int i = 0; i < cache->device_count; i++) cache->salts[i] = ttpu_key_salt(client, i, lowering);
  cache->note_salt = ttpu_key_join(ttpu_hash_bytes(lowering, strlen(lowering)),
                                   (ttpu_hash_t){TTPU_FILE_FORMAT, 0x6e6f7465});
  *out_cache = cache;
  return NULL;
}

void ttpu_cache_free(ttpu_cache_t *cache) {
  if (!cache) return;
  ttpu_memory_deinit(&cache->memory);
  ttpu_disk_free(cache->disk);
  ttpu_free(cache->salts);
  ttpu_free(cache->dump_folder);
  pthread_cond_destroy(&cache->landed);
  pthread_mutex_destroy(&cache->lock);
  ttpu_client_release(cache->client);
  ttpu_free(cache);
}

/* --- the disk tier ----------------------------------------------------------------------------------------------- */

static ttpu_executable_t *load(ttpu_cache_t *cache, const request_t *request, bool again) {
  char *data;
  ttpu_file_t file;
  const int64_t start = now_ns();
  if (!ttpu_disk_load(cache->disk, TTPU_FILE_PROGRAM, request->key, again, &data, &file)) return NULL;
  ttpu_executable_t *executable = NULL;
  ttpu_status_t *status =
      ttpu_executable_load(cache->client, request->device, file.payload, file.payload_size, &executable);
  ttpu_free(data);
  if (status) {
    /* Want of memory is not the file's fault. */
    if (!again && ttpu_status_code(status) != TTPU_RESOURCE_EXHAUSTED)
      ttpu_disk_reject(cache->disk, request->key, ttpu_status_message(status));
    ttpu_status_free(status);
    return NULL;
  }
  pthread_mutex_lock(&cache->lock);
  cache->disk_hits++;
  cache->load_ns += now_ns() - start;
  pthread_mutex_unlock(&cache->lock);
  return executable;
}

static bool can_store(ttpu_cache_t *cache) {
  pthread_mutex_lock(&cache->lock);
  const bool can = !cache->cannot_serialize;
  pthread_mutex_unlock(&cache->lock);
  return can && ttpu_disk_is_writable(cache->disk);
}

static void store(ttpu_cache_t *cache, const request_t *request, ttpu_executable_t *executable) {
  char *data = NULL;
  size_t size = 0;
  ttpu_status_t *status = ttpu_executable_serialize(executable, &data, &size);
  if (status) {
    TTPU_LOG(INFO, "cache: a program is not stored: %s", ttpu_status_message(status));
    if (ttpu_status_code(status) == TTPU_UNIMPLEMENTED) {
      pthread_mutex_lock(&cache->lock);
      cache->cannot_serialize = true;
      pthread_mutex_unlock(&cache->lock);
    }
    ttpu_status_free(status);
    return;
  }
  char label[TTPU_FILE_LABEL + 1];
  snprintf(label, sizeof label, "%s: %s", ttpu_client_device_kind(cache->client, request->device), request->why);
  const ttpu_file_t file = {TTPU_FILE_PROGRAM, request->key, label, strlen(label), data, size};
  ttpu_disk_store(cache->disk, &file);
  ttpu_free(data);
}

/* --- compiling --------------------------------------------------------------------------------------------------- */

/* Overwrites a file of the same key: the same program. A failure is only logged; dumps are for people who look. */
static void dump(const ttpu_cache_t *cache, ttpu_hash_t key, const char *text, size_t size) {
  char hex[TTPU_HASH_HEX];
  ttpu_hash_hex(key, hex);
  ttpu_str_t path = {0};
  ttpu_str_printf(&path, "%s/%s.mlir", cache->dump_folder, hex);
  if (!path.failed) {
    mkdir(cache->dump_folder, 0700);
    const int fd = open(path.data, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    ssize_t n = fd < 0 ? -1 : 0;
    for (size_t done = 0; n >= 0 && done < size; done += n > 0 ? (size_t)n : 0) n = write(fd, text + done, size - done);
    if (n < 0) TTPU_LOG(ERROR, "cannot write %s: %s", path.data, strerror(errno));
    if (fd >= 0) close(fd);
  }
  ttpu_str_deinit(&path);
}

static ttpu_status_t *compile(ttpu_cache_t *cache, const request_t *request, ttpu_executable_t **out_executable) {
  const char *text;
  size_t size;
  TTPU_TRY(request->emit(request->ctx, &text, &size));
  if (cache->dump_folder) dump(cache, request->key, text, size);
  const int64_t start = now_ns();
  TTPU_TRY(ttpu_executable_compile(cache->client, request->device, text, size, out_executable));
  const int64_t spent = now_ns() - start;
  pthread_mutex_lock(&cache->lock);
  ttpu_cache_compile_t *entry = &cache->history[cache->compiles++ % HISTORY];
  cache->compile_ns += spent;
  ttpu_hash_hex(request->key, entry->key);
  entry->milliseconds = (double)spent / 1e6;
  snprintf(entry->why, sizeof entry->why, "%s", request->why);
  TTPU_LOG(DEBUG, "cache: compiled %s in %.1f ms: %s", entry->key, entry->milliseconds, entry->why);
  pthread_mutex_unlock(&cache->lock);
  return NULL;
}

/* From the disk tier or the compiler. The second look, with the key's lock held, finds what another process stored
 * since the first one. */
static ttpu_status_t *make(ttpu_cache_t *cache, const request_t *request, ttpu_executable_t **out_executable,
                           ttpu_tier_e *out_tier) {
  *out_tier = TTPU_TIER_DISK;
  if ((*out_executable = load(cache, request, false))) return NULL;
  const int lock = can_store(cache) ? ttpu_disk_lock(cache->disk, request->key) : -1;
  ttpu_status_t *status = NULL;
  if (lock < 0 || !(*out_executable = load(cache, request, true))) {
    *out_tier = TTPU_TIER_COMPILED;
    status = compile(cache, request, out_executable);
    if (!status && can_store(cache)) store(cache, request, *out_executable);
  }
  ttpu_disk_unlock(cache->disk, request->key, lock);
  return status;
}

/* --- lookup ------------------------------------------------------------------------------------------------------ */

static flight_t *find_flight(const ttpu_cache_t *cache, ttpu_hash_t key) {
  flight_t *flight = cache->flights;
  while (flight && !ttpu_hash_equal(flight->key, key)) flight = flight->next;
  return flight;
}

static void unlink_flight(ttpu_cache_t *cache, const flight_t *flight) {
  flight_t **link = &cache->flights;
  while (*link != flight) link = &(*link)->next;
  *link = flight->next;
}

/* Takes what a landed flight brought; the last holder takes it apart. */
static ttpu_status_t *leave_flight(flight_t *flight, ttpu_executable_t **out_executable) {
  if (--flight->holders) {
    if (flight->executable) ttpu_executable_retain(flight->executable);
    *out_executable = flight->executable;
    return ttpu_status_clone(flight->status);
  }
  ttpu_status_t *status = flight->status;
  *out_executable = flight->executable;
  ttpu_free(flight);
  return status;
}

/* With the lock held, which is let go: waits for another thread's program. */
static ttpu_status_t *await_flight(ttpu_cache_t *cache, flight_t *flight, ttpu_executable_t **out_executable) {
  flight->holders++;
  while (!flight->landed) pthread_cond_wait(&cache->landed, &cache->lock);
  ttpu_status_t *status = leave_flight(flight, out_executable);
  if (!status) cache->memory_hits++;
  pthread_mutex_unlock(&cache->lock);
  return status;
}

ttpu_status_t *ttpu_cache_get(ttpu_cache_t *cache, ttpu_hash_t key, int device, const char *why,
                              ttpu_cache_emit_t emit, void *ctx, ttpu_executable_t **out_executable,
                              ttpu_tier_e *out_tier) {
  *out_executable = NULL;
  *out_tier = TTPU_TIER_MEMORY;
  if (device < 0 || device >= cache->device_count)
    return TTPU_ERROR(INVALID_ARGUMENT, "device %d does not exist; there are %d", device, cache->device_count);
  const request_t request = {ttpu_key_join(key, cache->salts[device]), device, why ? why : "", emit, ctx};

  pthread_mutex_lock(&cache->lock);
  ttpu_executable_t *found = ttpu_memory_find(&cache->memory, request.key);
  if (found) {
    ttpu_executable_retain(found);
    cache->memory_hits++;
    pthread_mutex_unlock(&cache->lock);
    *out_executable = found;
    return NULL;
  }
  flight_t *flight = find_flight(cache, request.key);
  if (flight) return await_flight(cache, flight, out_executable);
  if (!(flight = ttpu_alloc(sizeof *flight))) {
    pthread_mutex_unlock(&cache->lock);
    return TTPU_OUT_OF_HOST_MEMORY();
  }
  *flight = (flight_t){.next = cache->flights, .key = request.key, .holders = 1};
  cache->flights = flight;
  pthread_mutex_unlock(&cache->lock);

  ttpu_executable_t *made = NULL, *evicted = NULL;
  ttpu_status_t *status = make(cache, &request, &made, out_tier);

  pthread_mutex_lock(&cache->lock);
  unlink_flight(cache, flight);
  flight->landed = true;
  flight->executable = made;
  flight->status = status;
  if (made) {
    /* Without memory for an entry the program is not kept, but it is there. */
    ttpu_status_free(ttpu_memory_add(&cache->memory, request.key, made, &evicted));
    cache->evictions += evicted != NULL;
  }
  pthread_cond_broadcast(&cache->landed);
  status = leave_flight(flight, out_executable);
  pthread_mutex_unlock(&cache->lock);
  ttpu_executable_release(evicted);
  return status;
}

/* --- notes ------------------------------------------------------------------------------------------------------- */

/* Notes are about programs, not about machine code: the same on every platform, so that a pack serves others, too. */
static ttpu_hash_t note_key(const ttpu_cache_t *cache, ttpu_hash_t key) { return ttpu_key_join(key, cache->note_salt); }

ttpu_status_t *ttpu_cache_note_store(ttpu_cache_t *cache, ttpu_hash_t key, const void *data, size_t size) {
  const ttpu_file_t file = {TTPU_FILE_NOTE, note_key(cache, key), "note", 4, data, size};
  ttpu_disk_store(cache->disk, &file);
  return NULL;
}

ttpu_status_t *ttpu_cache_note_load(ttpu_cache_t *cache, ttpu_hash_t key, void **out_data, size_t *out_size) {
  char *data;
  ttpu_file_t file;
  *out_data = NULL;
  *out_size = 0;
  if (!ttpu_disk_load(cache->disk, TTPU_FILE_NOTE, note_key(cache, key), false, &data, &file))
    return TTPU_ERROR(NOT_FOUND, "no such note");
  memmove(data, file.payload, file.payload_size);
  *out_data = data;
  *out_size = file.payload_size;
  return NULL;
}

/* --- statistics -------------------------------------------------------------------------------------------------- */

void ttpu_cache_stats(ttpu_cache_t *cache, ttpu_cache_stats_t *out_stats) {
  ttpu_disk_stats_t disk;
  ttpu_disk_stats(cache->disk, &disk);
  pthread_mutex_lock(&cache->lock);
  *out_stats = (ttpu_cache_stats_t){.memory_hits = cache->memory_hits,
                                    .disk_hits = cache->disk_hits,
                                    .compiles = cache->compiles,
                                    .compile_nanoseconds = cache->compile_ns,
                                    .load_nanoseconds = cache->load_ns,
                                    .evictions = cache->evictions + disk.evicted,
                                    .memory_programs = ttpu_memory_count(&cache->memory),
                                    .disk_files = disk.files,
                                    .disk_bytes = disk.bytes,
                                    .disk_errors = disk.errors,
                                    .rejected_files = disk.rejected};
  if (!*disk.status && cache->cannot_serialize)
    snprintf(disk.status, sizeof disk.status, "the plugin cannot serialize programs");
  pthread_mutex_unlock(&cache->lock);
  memcpy(out_stats->disk_status, disk.status, sizeof out_stats->disk_status);
}

int ttpu_cache_compiles(ttpu_cache_t *cache, ttpu_cache_compile_t *out, int capacity) {
  pthread_mutex_lock(&cache->lock);
  int count = cache->compiles < HISTORY ? (int)cache->compiles : HISTORY;
  if (count > capacity) count = capacity;
  for (int i = 0; i < count; i++) out[i] = cache->history[(cache->compiles - 1 - i) % HISTORY];
  pthread_mutex_unlock(&cache->lock);
  return count < 0 ? 0 : count;
}
