/* map.h: what the elementwise, reduction and matmul families share: compute types and the small idioms of formulas.
 *
 * Arithmetic on half types runs in f32 and is rounded once, by op_ret, as CPU PyTorch does. The helpers with a C
 * number (|k|) emit the constant themselves, so that a formula keeps to one emitting call an argument list.
 */
#ifndef TTPU_OPS_MAP_H_
#define TTPU_OPS_MAP_H_

#include <math.h>

#include "ops/ops.h"

#define EMIT(name) void op_emit_##name(hlo_t *h, const op_call_t *c)

/* The type in which values of |t| are computed: F32 for narrower floats, else |t|. */
static inline ttpu_dtype_e map_wide(ttpu_dtype_e t) {
  return ttpu_dtype_is_float(t) && ttpu_dtype_bytes(t) < 4 ? TTPU_F32 : t;
}

static inline bool map_is_inexact(ttpu_dtype_e t) { return ttpu_dtype_is_float(t) || ttpu_dtype_is_complex(t); }

/* The same for operations that leave the integers: those compute in the float type of the result. */
static inline ttpu_dtype_e map_float_of(const op_call_t *c, ttpu_dtype_e t) {
  if (map_is_inexact(t)) return map_wide(t);
  const ttpu_dtype_e r = op_result_dtype(c, 0);
  return map_is_inexact(r) ? map_wide(r) : TTPU_F32;
}

/* Argument |i| in its compute type, and in its float compute type. */
static inline hlo_val_t map_arg(hlo_t *h, const op_call_t *c, int i) {
  return op_tensor_as(h, c, i, map_wide(op_arg_dtype(c, i)));
}
static inline hlo_val_t map_float_arg(hlo_t *h, const op_call_t *c, int i) {
  return op_tensor_as(h, c, i, map_float_of(c, op_arg_dtype(c, i)));
}

/* torch.result_type of three arguments. */
static inline ttpu_dtype_e map_result_type3(const op_call_t *c, int i, int j, int k) {
  return ttpu_dtype_promote(op_result_type(c, i, j), op_result_type(c, i, k));
}

/* Arguments |i| and |j| in one type. */
static inline void map_pair(hlo_t *h, const op_call_t *c, int i, int j, ttpu_dtype_e t, hlo_val_t *a, hlo_val_t *b) {
  *a = op_tensor_as(h, c, i, t);
  *b = op_tensor_as(h, c, j, t);
}

static inline hlo_val_t map_add_k(hlo_t *h, hlo_val_t x, double k) { return hlo_add(h, x, hlo_like(h, x, k)); }
static inline hlo_val_t map_sub_k(hlo_t *h, hlo_val_t x, double k) { return hlo_sub(h, x, hlo_like(h, x, k)); }
static inline hlo_val_t map_k_sub(hlo_t *h, double k, hlo_val_t x) { return hlo_sub(h, hlo_like(h, x, k), x); }
static inline hlo_val_t map_mul_k(hlo_t *h, hlo_val_t x, double k) { return hlo_mul(h, x, hlo_like(h, x, k)); }
static inline hlo_val_t map_div_k(hlo_t *h, hlo_val_t x, double k) { return hlo_div(h, x, hlo_like(h, x, k)); }
static inline hlo_val_t map_k_div(hlo_t *h, double k, hlo_val_t x) { return hlo_div(h, hlo_like(h, x, k), x); }
static inline hlo_val_t map_max_k(hlo_t *h, hlo_val_t x, double k) { return hlo_max(h, x, hlo_like(h, x, k)); }
static inline hlo_val_t map_min_k(hlo_t *h, hlo_val_t x, double k) { return hlo_min(h, x, hlo_like(h, x, k)); }
static inline hlo_val_t map_cmp_k(hlo_t *h, const char *direction, hlo_val_t x, double k) {
  return hlo_cmp(h, direction, x, hlo_like(h, x, k));
}
/* pred ? x : k, and pred ? k : x. */
static inline hlo_val_t map_else_k(hlo_t *h, hlo_val_t pred, hlo_val_t x, double k) {
  return hlo_select(h, pred, x, hlo_like(h, x, k));
}
static inline hlo_val_t map_then_k(hlo_t *h, hlo_val_t pred, double k, hlo_val_t x) {
  return hlo_select(h, pred, hlo_like(h, x, k), x);
}

/* Spreads |x| over the dims of result 0, for primitives that do not broadcast. */
static inline hlo_val_t map_expand(hlo_t *h, const op_call_t *c, hlo_val_t x) {
  return hlo_expand(h, x, op_result_rank(c, 0), op_result_dims(c, 0));
}

/* Formulas used by more than one file (map.c, map_math.c). */
hlo_val_t map_floor_divide(hlo_t *h, hlo_val_t a, hlo_val_t b);
hlo_val_t map_truncate(hlo_t *h, hlo_val_t x);
hlo_val_t map_sigmoid(hlo_t *h, hlo_val_t x);
hlo_val_t map_sign_bit(hlo_t *h, hlo_val_t x);  /* floats and integers: i1 */
hlo_val_t map_is_inf(hlo_t *h, hlo_val_t x);    /* floats: i1 */
hlo_val_t map_copy_sign(hlo_t *h, hlo_val_t magnitude, hlo_val_t sign);
hlo_val_t map_digamma(hlo_t *h, hlo_val_t x);
hlo_val_t map_log_add_exp(hlo_t *h, hlo_val_t a, hlo_val_t b); /* floats and complex */
/* Maximum and minimum with NaN winning; or and and on bool. |op| is "maximum" or "minimum". */
hlo_val_t map_extremum(hlo_t *h, const char *op, hlo_val_t a, hlo_val_t b);

#endif /* TTPU_OPS_MAP_H_ */
