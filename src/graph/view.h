/* view.h: strided views resolved against a dense base.
 *
 * A storage's value has dims and strides that are a permutation of a dense layout (its geometry). A view (sizes,
 * strides, offset in elements of its dtype) is resolved into the shortest chain of
 *     transpose to memory order -> reshape to |factors| -> slice -> reshape/transpose -> broadcast,
 * or, where none fits, into explicit element indices (gather, scatter). Slice starts are runtime parameters: a loop
 * over x[i] makes one plan.  Reading follows the chain, writing its inverse. Pure functions.
 */
#ifndef TTPU_GRAPH_VIEW_H_
#define TTPU_GRAPH_VIEW_H_

#include <stdbool.h>
#include <stdint.h>

#include "graph/dtype.h"

typedef struct {
  ttpu_dtype_e dtype;
  int32_t rank;
  const int64_t *dims, *strides;
} ttpu_geometry_t;

enum { TTPU_VIEW_MAX_FACTORS = 2 * TTPU_MAX_RANK };

typedef struct {
  bool gather;         /* no chain fits: element indices from sizes, strides and starts[0] */
  bool whole;          /* the slice is everything: a write does not need the old value */
  int32_t factor_count;
  int64_t factors[TTPU_VIEW_MAX_FACTORS]; /* dims of the reshaped base, in memory order; product >= numel (zero padded) */
  int64_t starts[TTPU_VIEW_MAX_FACTORS];  /* parameters */
  int64_t sizes[TTPU_VIEW_MAX_FACTORS];   /* extent of the slice */
  int64_t steps[TTPU_VIEW_MAX_FACTORS];
  int32_t dim_count;                      /* view dims that are neither broadcast nor of size 1 */
  int64_t factor_of[TTPU_MAX_RANK];       /* such a dim -> its factor, in view order */
  int64_t view_dim[TTPU_MAX_RANK];        /* such a dim -> its place in the view */
} ttpu_view_plan_t;

/* Row-major strides of |dims| into |out|. */
void ttpu_view_contiguous_strides(int rank, const int64_t *dims, int64_t *out);
/* True when the view is exactly the base: same dims and, where a dim is not 1, the same strides. */
bool ttpu_view_is_base(const ttpu_geometry_t *base, int rank, const int64_t *sizes, const int64_t *strides,
                       int64_t offset);
/* True when |sizes| and |strides| cover numel elements without gaps or overlap (any order of dims). */
bool ttpu_view_is_dense(int rank, const int64_t *sizes, const int64_t *strides);
/* Order of dims by falling stride: |out[k]| is the base dim that is k-th in memory. False if that is the identity. */
bool ttpu_view_memory_order(const ttpu_geometry_t *base, int64_t *out);
/* Plans |sizes|, |strides|, |offset| over |base| (same dtype). The view must have elements. Elements outside the base are
 * the caller's error and must have been refused before. */
void ttpu_view_plan(const ttpu_geometry_t *base, int rank, const int64_t *sizes, const int64_t *strides, int64_t offset,
                    ttpu_view_plan_t *out_plan);

#endif /* TTPU_GRAPH_VIEW_H_ */
