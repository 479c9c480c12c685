/* part.h: pieces that the shape, index, scatter, sort, random and linalg families share.
 *
 * All of them only emit; a failure is latched in |h|. Index arithmetic runs in i32 where the extent allows it, because
 * 64-bit integers are emulated on TPUs; what a caller gets back is said at each function.
 */
#ifndef TTPU_OPS_PART_H_
#define TTPU_OPS_PART_H_

#include "ops/map.h"

/* i32 when every position in |extent| fits, else i64. */
static inline ttpu_dtype_e part_index_dtype(int64_t extent) { return extent < INT32_MAX ? TTPU_I32 : TTPU_I64; }

/* Gives all results as zeros when result 0 has no elements; then the caller is done. */
bool part_ret_empty(hlo_t *h, const op_call_t *c);
/* A rank-0 value as one of rank 1 and size 1; others as they are. */
hlo_val_t part_at_least_1d(hlo_t *h, hlo_val_t x);
/* |x| reshaped to the dims of result |k|. */
hlo_val_t part_as_result(hlo_t *h, const op_call_t *c, int k, hlo_val_t x);
/* Dims [0, rank - 2) merged into one batch dimension: a matrix batch [B, m, n]. */
hlo_val_t part_batched(hlo_t *h, hlo_val_t x, int inner);

/* Legal positions of a dimension of |size| elements, negative ones counted from its end: i32 or i64. */
hlo_val_t part_wrap(hlo_t *h, hlo_val_t index, int64_t size);
/* Inclusive scan along |dim| with "add", "maximum" or "minimum". */
hlo_val_t part_prefix(hlo_t *h, const char *op, hlo_val_t x, int dim);
/* How many elements of a sorted row are < value, or <= value with |right|. |sorted| is [n], or [rows, n] with |values|
 * [rows, m]; the result has the dims of |values|, i32 or i64. NaN values go behind everything, as in PyTorch. */
hlo_val_t part_bisect(hlo_t *h, hlo_val_t sorted, hlo_val_t values, bool right);
/* The positions of the first |count| true elements of the flat |mask|; its size where there are fewer. */
hlo_val_t part_positions(hlo_t *h, hlo_val_t mask, int64_t count);
/* PyTorch's stable sort: NaN is the greatest, -0 equals 0. |indices| are i32 or i64. */
void part_sort(hlo_t *h, hlo_val_t x, int dim, bool descending, hlo_val_t *values, hlo_val_t *indices);
/* The first |k| of that order along |dim|; which of equal elements are taken is not said. */
void part_top(hlo_t *h, hlo_val_t x, int dim, int64_t k, bool largest, hlo_val_t *values, hlo_val_t *indices);

/* Element |at| of dimension |dim|, which is kept with size 1; |at| is rank 0. */
hlo_val_t part_pick(hlo_t *h, hlo_val_t x, int dim, hlo_val_t at);

/* True where row index + |diagonal| >= column index, of the last two of |dims| (the lower triangle): i1. */
hlo_val_t part_lower(hlo_t *h, int rank, const int64_t *dims, int64_t diagonal);

#endif /* TTPU_OPS_PART_H_ */
