/* matmul.c: matrix products. Half types accumulate in f32 and are rounded once; integers are exact in their own type.
 * The bias forms compute beta * input + alpha * product, and input is not read where beta is 0 (NaN there is ignored).
 */
#include "ops/map.h"

#include <string.h>

/* The type of a product of |t| before it is rounded to the result. */
static ttpu_dtype_e accumulation(const op_call_t *c, ttpu_dtype_e t) {
  const ttpu_dtype_e wide = map_wide(t);
  return wide == TTPU_I8 && op_result_dtype(c, 0) == TTPU_I32 ? TTPU_I32 : wide;
}

/* a[.., k] * b[k, ..], contracting a's last dimension with b's first behind the batch dimensions. */
static hlo_val_t product(hlo_t *h, const op_call_t *c, hlo_val_t a, hlo_val_t b, int batch) {
  static const int DIMS[] = {0};
  const int a_contract = hlo_rank(h, a) - 1;
  const ttpu_dtype_e out = accumulation(c, hlo_dtype(h, a));
  return hlo_dot_general(h, a, b, batch, DIMS, DIMS, 1, &a_contract, &batch, out);
}

/* beta * |input| + alpha * |x| with the numbers in arguments |at| and |at| + 1. */
static hlo_val_t with_bias(hlo_t *h, const op_call_t *c, int at, hlo_val_t x) {
  const ttpu_dtype_e t = hlo_dtype(h, x);
  const hlo_val_t input = op_tensor_as(h, c, 0, t);
  const hlo_val_t beta = op_scalar(h, c, at, t);
  const hlo_val_t alpha = op_scalar(h, c, at + 1, t);
  const hlo_val_t is_unread = map_cmp_k(h, "EQ", beta, 0);
  const hlo_val_t bias = map_then_k(h, is_unread, 0, hlo_mul(h, input, beta));
  return hlo_add(h, bias, hlo_mul(h, x, alpha));
}

/* --- plain products: mm, mv, dot (rank tells), and bmm ------------------------------------------------------- */

/* |detail|: the number of batch dimensions. Any dtype argument shows in the result's dtype alone. */
EMIT(mm) {
  const hlo_val_t a = op_tensor(h, c, 0);
  const hlo_val_t b = op_tensor(h, c, 1);
  op_ret(h, c, 0, product(h, c, a, b, op_detail(c)[0] - '0'));
}

EMIT(vdot) {
  hlo_val_t a = op_tensor(h, c, 0);
  const hlo_val_t b = op_tensor(h, c, 1);
  if (ttpu_dtype_is_complex(hlo_dtype(h, a))) {
    const hlo_val_t re = hlo_real(h, a);
    a = hlo_complex(h, re, hlo_neg(h, hlo_imag(h, a)));
  }
  op_ret(h, c, 0, product(h, c, a, b, 0));
}

/* --- products with a bias ------------------------------------------------------------------------------------ */

/* |detail|: batch dimensions, then the argument number of beta. */
EMIT(addmm) {
  const hlo_val_t a = op_tensor(h, c, 1);
  const hlo_val_t b = op_tensor(h, c, 2);
  const hlo_val_t x = product(h, c, a, b, op_detail(c)[0] - '0');
  op_ret(h, c, 0, with_bias(h, c, op_detail(c)[1] - '0', x));
}

/* The batch is summed: it is contracted with the inner dimension. */
EMIT(addbmm) {
  static const int A_CONTRACT[] = {0, 2}, B_CONTRACT[] = {0, 1};
  const hlo_val_t a = op_tensor(h, c, 1);
  const hlo_val_t b = op_tensor(h, c, 2);
  const ttpu_dtype_e out = accumulation(c, hlo_dtype(h, a));
  const hlo_val_t x = hlo_dot_general(h, a, b, 0, NULL, NULL, 2, A_CONTRACT, B_CONTRACT, out);
  op_ret(h, c, 0, with_bias(h, c, 3, x));
}

EMIT(addr) {
  const ttpu_dtype_e t = map_wide(map_result_type3(c, 0, 1, 2));
  const hlo_val_t column = hlo_unsqueeze(h, op_tensor_as(h, c, 1, t), 1);
  const hlo_val_t row = hlo_unsqueeze(h, op_tensor_as(h, c, 2, t), 0);
  if (t == TTPU_BOOL) {
    const hlo_val_t input = op_tensor(h, c, 0);
    const hlo_val_t kept = hlo_and(h, input, op_scalar(h, c, 3, t));
    const hlo_val_t outer = hlo_and(h, column, row);
    op_ret(h, c, 0, hlo_or(h, kept, hlo_and(h, outer, op_scalar(h, c, 4, t))));
  } else {
    op_ret(h, c, 0, with_bias(h, c, 3, hlo_mul(h, column, row)));
  }
}

/* addmm followed by relu, or by gelu when argument 5 says so. */
EMIT(addmm_activation) {
  const hlo_val_t a = op_tensor(h, c, 1);
  const hlo_val_t b = op_tensor(h, c, 2);
  const hlo_val_t x = with_bias(h, c, 3, product(h, c, a, b, 0));
  if (!op_bool(c, 5, false)) {
    op_ret(h, c, 0, map_max_k(h, x, 0));
    return;
  }
  const hlo_val_t z = map_mul_k(h, x, M_SQRT1_2);
  const hlo_val_t gate = map_add_k(h, hlo_chlo(h, "erf", 1, &z), 1);
  op_ret(h, c, 0, hlo_mul(h, map_mul_k(h, x, 0.5), gate));
}

/* --- cross product ------------------------------------------------------------------------------------------- */

/* x's components along |dim| turned by |by|: component i becomes i + by mod 3. */
static hlo_val_t turned(hlo_t *h, hlo_val_t x, int dim, int64_t by) {
  const hlo_val_t front = hlo_slice_dim(h, x, dim, 0, by, 1);
  const hlo_val_t parts[2] = {hlo_slice_dim(h, x, dim, by, 3, 1), front};
  return hlo_concat(h, 2, parts, dim);
}

EMIT(cross) {
  const ttpu_dtype_e t = op_result_type(c, 0, 1);
  hlo_val_t a, b;
  map_pair(h, c, 0, 1, t, &a, &b);
  a = map_expand(h, c, a);
  b = map_expand(h, c, b);
  const int dim = op_dim(c, 2, hlo_rank(h, a));
  const hlo_val_t a1 = turned(h, a, dim, 1);
  const hlo_val_t b2 = turned(h, b, dim, 2);
  const hlo_val_t a2 = turned(h, a, dim, 2);
  const hlo_val_t b1 = turned(h, b, dim, 1);
  const hlo_val_t first = hlo_mul(h, a1, b2);
  op_ret(h, c, 0, hlo_sub(h, first, hlo_mul(h, a2, b1)));
}
