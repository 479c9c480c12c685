/* inst_table.h: the table that interns op instances. Bounded: past the bound the least recently added half is
 * dropped (a node or a caller that still uses one keeps it alive). Not thread-safe: the runtime's lock guards it;
 * only ttpu_inst_release may be called by any thread.
 */
#ifndef TTPU_GRAPH_INST_TABLE_H_
#define TTPU_GRAPH_INST_TABLE_H_

#include "graph/inst.h"

typedef struct {
  ttpu_inst_t **buckets;
  size_t bucket_count; /* a power of two */
  int64_t count, bound;
  ttpu_inst_t *oldest, *newest; /* in order of insertion, through |age| */
  int64_t created, evicted;
} ttpu_inst_table_t;

TTPU_MUST_USE ttpu_status_t *ttpu_inst_table_init(ttpu_inst_table_t *table, int64_t bound);
void ttpu_inst_table_deinit(ttpu_inst_table_t *table);

/* The instance of exactly these words, borrowed; NULL when it was never seen. */
ttpu_inst_t *ttpu_inst_table_find(const ttpu_inst_table_t *table, ttpu_hash_t hash, const uint64_t *words,
                                  int32_t word_count);
/* Copies |draft| (all arrays, deep) unless the words are there already; computes the skeleton. Borrowed result. */
TTPU_MUST_USE ttpu_status_t *ttpu_inst_table_intern(ttpu_inst_table_t *table, const ttpu_inst_t *draft,
                                                    const char *row_name, ttpu_inst_t **out_inst);

void ttpu_inst_retain(ttpu_inst_t *inst);
void ttpu_inst_release(ttpu_inst_t *inst);

#endif /* TTPU_GRAPH_INST_TABLE_H_ */
