/* program.h: from a recorded graph to a compiled program, and its run.
 *
 * Programs are found by the graph's key, verified word by word. Parameters begin as constants; a graph of a known key
 * with other parameters makes exactly those that differ runtime inputs, from then on (and, through the cache's notes,
 * in later processes). A program serves every graph whose live results it returns. Bounded, least recently used first.
 * The runtime's lock guards it.
 */
#ifndef TTPU_RUNTIME_PROGRAM_H_
#define TTPU_RUNTIME_PROGRAM_H_

#include "compile/cache.h"
#include "graph/graph.h"

typedef struct ttpu_program ttpu_program_t;

typedef struct {
  ttpu_program_t **buckets;
  size_t bucket_count;
  ttpu_program_t *newest, *oldest; /* by use */
  int64_t count, bound, hits, misses, evictions;
  int64_t param_uploads;
} ttpu_programs_t;

TTPU_MUST_USE ttpu_status_t *ttpu_programs_init(ttpu_programs_t *programs, int64_t bound);
void ttpu_programs_deinit(ttpu_programs_t *programs);

/* Runs |graph| on |device| and gives each live result its buffer through |set_buffer|. |precision| joins the key. On
 * failure no result was resolved. */
TTPU_MUST_USE ttpu_status_t *ttpu_program_run(ttpu_programs_t *programs, ttpu_client_t *client, ttpu_cache_t *cache,
                                              ttpu_graph_t *graph, int device, int precision,
                                              void (*set_buffer)(ttpu_value_t *value, ttpu_buffer_t *buffer));
/* The dry run of one instance's lowering: its failure, if any. */
TTPU_MUST_USE ttpu_status_t *ttpu_program_check(const ttpu_inst_t *inst);

#endif /* TTPU_RUNTIME_PROGRAM_H_ */
