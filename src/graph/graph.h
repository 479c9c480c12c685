/* graph.h: values and the graph of recorded nodes.
 *
 * A value is one tensor-valued result: pending in a graph, ready (a device buffer) or failed (a status). Storages,
 * graph inputs and handles count references; the graph that will compute a value only points at it weakly, so a
 * pending value without references is dead and never leaves the device program.
 * The graph key is folded while nodes are appended: skeletons and wiring, where wiring numbers distinct values (one
 * buffer passed twice is one input). Parameters are kept apart.
 * Not thread-safe: the runtime's lock guards it.
 */
#ifndef TTPU_GRAPH_GRAPH_H_
#define TTPU_GRAPH_GRAPH_H_

#include "base/arena.h"
#include "graph/inst.h"

struct ttpu_buffer;
struct ttpu_graph;

typedef struct ttpu_value {
  int32_t refs;
  int32_t number;             /* of the result in |graph| while pending */
  struct ttpu_graph *graph;   /* the graph that will compute it; NULL once ready or failed */
  struct ttpu_buffer *buffer; /* ready */
  ttpu_status_t *error;       /* failed */
  int64_t bytes;
  uint64_t input_epoch;       /* the graph filling in which it is input |input| */
  int32_t input;
  int32_t device;
  struct ttpu_value *next;    /* free list */
} ttpu_value_t;

/* Recycled values of a runtime, and how a buffer is given back (the graph layer knows no plugin). */
typedef struct {
  ttpu_value_t *free;
  void (*drop_buffer)(const struct ttpu_value *value);
} ttpu_values_t;

ttpu_value_t *ttpu_value_create(ttpu_values_t *values, int device, int64_t bytes); /* NULL when memory is out */
static inline void ttpu_value_retain(ttpu_value_t *value) { value->refs++; }
void ttpu_value_release(ttpu_values_t *values, ttpu_value_t *value); /* NULL is fine */
void ttpu_values_deinit(ttpu_values_t *values);

typedef struct {
  ttpu_inst_t *inst;       /* retained */
  const int32_t *operands; /* codes: 2 * input, or 2 * result + 1 */
  int32_t first_result, first_param;
} ttpu_node_t;

typedef struct ttpu_graph {
  ttpu_arena_t arena; /* operand codes */
  ttpu_node_t *nodes;
  ttpu_value_t **inputs;             /* retained */
  const ttpu_shape_t **input_shapes; /* point into the instances of nodes */
  ttpu_value_t **results;            /* weak: NULL once dead */
  uint64_t *params;                  /* bits, node after node */
  uint64_t *key;                     /* words that |hash| was folded from */
  int32_t node_count, node_capacity, input_count, input_capacity, input_shape_capacity, result_count, result_capacity,
      param_count, param_capacity, key_count, key_capacity;
  ttpu_hash_t hash;
  uint64_t epoch; /* unique to this filling of any graph */
} ttpu_graph_t;

void ttpu_graph_init(ttpu_graph_t *graph);
void ttpu_graph_deinit(ttpu_graph_t *graph, ttpu_values_t *values);

/* Adds a node. |operands| are ready, or pending in this graph; |params| are inst->param_count words. On success the
 * node's results are numbered from *out_first_result and are not yet watched by any value (ttpu_graph_watch). On
 * failure nothing has changed. */
TTPU_MUST_USE ttpu_status_t *ttpu_graph_append(ttpu_graph_t *graph, ttpu_inst_t *inst, ttpu_value_t *const *operands,
                                               const uint64_t *params, int32_t *out_first_result);
/* Makes |value| the pending result |number|. */
void ttpu_graph_watch(ttpu_graph_t *graph, int32_t number, ttpu_value_t *value);
/* Which node computes result |number|. */
const ttpu_node_t *ttpu_graph_producer(const ttpu_graph_t *graph, int32_t number);
/* Releases inputs and instances and starts a new filling. Pending results must have been resolved before. */
void ttpu_graph_reset(ttpu_graph_t *graph, ttpu_values_t *values);

#endif /* TTPU_GRAPH_GRAPH_H_ */
