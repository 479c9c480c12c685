/* linalg.h: what the factorisations share. Matrices are batches [B, m, n] inside; a lowering flattens its operands with
 * part_batched and shapes its results with part_as_result. Rounding-critical sums are elementwise products and reductions
 * or contractions at the highest precision, never a dot at the device's default one.
 */
#ifndef TTPU_OPS_LINALG_H_
#define TTPU_OPS_LINALG_H_

#include "ops/part.h"

hlo_val_t linalg_conj(hlo_t *h, hlo_val_t x);
hlo_val_t linalg_adjoint(hlo_t *h, hlo_val_t x); /* conjugate transpose of the last two dims */
/* |x| in its lower (or upper) triangle, 0 elsewhere. */
hlo_val_t linalg_lower(hlo_t *h, hlo_val_t x, int64_t diagonal);
hlo_val_t linalg_upper(hlo_t *h, hlo_val_t x, int64_t diagonal);
hlo_val_t linalg_identity(hlo_t *h, ttpu_dtype_e t, int64_t batch, int64_t m, int64_t n);
hlo_val_t linalg_diagonal(hlo_t *h, hlo_val_t x); /* [B, m, n] -> [B, min(m, n)] */
hlo_val_t linalg_matmul(hlo_t *h, hlo_val_t a, hlo_val_t b); /* [B, m, k] x [B, k, n], highest precision */
/* Tensor argument |i| as a batch of matrices; the batch is that of result |k| when |like| >= 0 (broadcast). */
hlo_val_t linalg_arg(hlo_t *h, const op_call_t *c, int i, int like);
/* Squared magnitude, real. */
hlo_val_t linalg_square(hlo_t *h, hlo_val_t x);
/* Column |i| of zeros and ones: positions of dimension |dim| compared with |i| ("EQ", "GT", ...): i1 of [1, n, 1] or so. */
hlo_val_t linalg_where(hlo_t *h, hlo_val_t like, int dim, const char *direction, hlo_val_t i);

/* Householder reflectors of a batch [B, m, n] (qr.c): LAPACK's geqrf. |packed| holds R above and the vectors below. */
void linalg_reflect(hlo_t *h, hlo_val_t a, hlo_val_t *packed, hlo_val_t *tau);
/* The product of the reflectors times |x|: H_1 ... H_k x, or its adjoint times x. */
hlo_val_t linalg_apply_reflectors(hlo_t *h, hlo_val_t packed, hlo_val_t tau, hlo_val_t x, bool adjoint);

#endif /* TTPU_OPS_LINALG_H_ */
