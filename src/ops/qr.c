/* qr.c: Householder reflectors and the products they stand for, in LAPACK's packed form:
 * H_i = I - tau_i v_i v_i^H with v_i = (0 .. 0, 1, below column i of the packed matrix), A = H_1 ... H_k R.
 */
#include <string.h>

#include "ops/linalg.h"

/* v_i as [B, m, 1]. */
static hlo_val_t reflector(hlo_t *h, hlo_val_t packed, hlo_val_t i) {
  const hlo_val_t column = part_pick(h, packed, 2, i);
  const hlo_val_t is_below = linalg_where(h, packed, 1, "GT", i), is_row = linalg_where(h, packed, 1, "EQ", i);
  const hlo_val_t below = map_else_k(h, is_below, column, 0);
  return map_then_k(h, is_row, 1, below);
}

/* x - tau v (v^H x), x [B, m, n], v [B, m, 1], tau [B, 1, 1]. */
static hlo_val_t apply_one(hlo_t *h, hlo_val_t x, hlo_val_t v, hlo_val_t tau) {
  const hlo_val_t conjugate = linalg_conj(h, v);
  const hlo_val_t products = hlo_mul(h, conjugate, x);
  const hlo_val_t sums = hlo_reduce_dim(h, "add", products, 1);
  const hlo_val_t row = hlo_unsqueeze(h, sums, 1);
  const hlo_val_t scaled = hlo_mul(h, v, tau);
  const hlo_val_t change = hlo_mul(h, scaled, row);
  return hlo_sub(h, x, change);
}

/* --- factorisation ------------------------------------------------------------------------------------ */

static void reflect_step(hlo_t *h, void *ctx, const hlo_val_t *args, hlo_val_t *results) {
  (void)ctx;
  const hlo_val_t a = args[1], taus = args[2];
  if (hlo_failed(h)) return;
  const ttpu_dtype_e t = hlo_dtype(h, a);
  const bool is_complex = ttpu_dtype_is_complex(t);
  const hlo_val_t i = hlo_convert(h, args[0], TTPU_I32), zero = hlo_const_int(h, TTPU_I32, 0);
  const hlo_val_t column = part_pick(h, a, 2, i);
  const hlo_val_t alpha = part_pick(h, column, 1, i);
  const hlo_val_t is_below = linalg_where(h, a, 1, "GT", i), is_row = linalg_where(h, a, 1, "EQ", i);
  const hlo_val_t below = map_else_k(h, is_below, column, 0);
  const hlo_val_t squares = linalg_square(h, below), alpha_square = linalg_square(h, alpha);
  const hlo_val_t sum = hlo_reduce_dim(h, "add", squares, 1);
  const hlo_val_t rest = hlo_unsqueeze(h, sum, 1);
  const hlo_val_t total = hlo_add(h, rest, alpha_square);
  const hlo_val_t norm = hlo_sqrt(h, total);
  /* beta = -sign(re alpha) * norm; nothing to do where the column is already real and empty below. */
  const hlo_val_t re = is_complex ? hlo_real(h, alpha) : alpha;
  const hlo_val_t is_negative = map_cmp_k(h, "LT", re, 0);
  const hlo_val_t opposite = hlo_neg(h, norm);
  const hlo_val_t moved = hlo_select(h, is_negative, norm, opposite);
  hlo_val_t is_done = map_cmp_k(h, "EQ", rest, 0);
  if (is_complex) {
    const hlo_val_t im = hlo_imag(h, alpha);
    const hlo_val_t is_real = map_cmp_k(h, "EQ", im, 0);
    is_done = hlo_and(h, is_done, is_real);
  }
  const hlo_val_t beta_moved = hlo_convert(h, moved, t);
  const hlo_val_t safe_beta = map_then_k(h, is_done, 1, beta_moved);
  const hlo_val_t gap = hlo_sub(h, alpha, beta_moved);
  const hlo_val_t safe_gap = map_then_k(h, is_done, 1, gap);
  const hlo_val_t share = hlo_div(h, gap, safe_beta);
  const hlo_val_t negative = hlo_neg(h, share);
  const hlo_val_t tau = map_then_k(h, is_done, 0, negative);
  const hlo_val_t tail = hlo_div(h, below, safe_gap);
  const hlo_val_t tail_or_none = map_then_k(h, is_done, 0, tail);
  const hlo_val_t v = map_then_k(h, is_row, 1, tail_or_none);

  const hlo_val_t tau_adjoint = linalg_conj(h, tau);
  const hlo_val_t turned = apply_one(h, a, v, tau_adjoint);
  const hlo_val_t is_right = linalg_where(h, a, 2, "GT", i), is_column = linalg_where(h, a, 2, "EQ", i);
  const hlo_val_t trailing = hlo_select(h, is_right, turned, a);
  const hlo_val_t beta = hlo_select(h, is_done, alpha, beta_moved);
  const hlo_val_t with_beta = hlo_select(h, is_row, beta, tail_or_none);
  const hlo_val_t from_row = hlo_or(h, is_row, is_below);
  const hlo_val_t is_written = hlo_and(h, is_column, from_row);
  results[0] = hlo_select(h, is_written, with_beta, trailing);
  const hlo_val_t entry = hlo_squeeze(h, tau, 2);
  const hlo_val_t starts[] = {zero, i};
  results[1] = hlo_dynamic_update_slice(h, taus, entry, starts);
}

void linalg_reflect(hlo_t *h, hlo_val_t a, hlo_val_t *packed, hlo_val_t *tau) {
  *packed = *tau = 0;
  if (hlo_failed(h)) return;
  const int64_t m = hlo_dim(h, a, 1), n = hlo_dim(h, a, 2), k = m < n ? m : n, dims[] = {hlo_dim(h, a, 0), k};
  const hlo_val_t none = hlo_full(h, hlo_dtype(h, a), 2, dims, 0);
  const hlo_val_t init[] = {a, none};
  hlo_val_t out[2] = {a, none};
  if (hlo_numel(h, a) > 0) hlo_for(h, k, 2, init, reflect_step, NULL, out);
  *packed = out[0];
  *tau = out[1];
}

/* --- products ----------------------------------------------------------------------------------------- */

typedef struct {
  int64_t count;
  bool adjoint;
} product_t;

static void product_step(hlo_t *h, void *ctx, const hlo_val_t *args, hlo_val_t *results) {
  const product_t *p = ctx;
  const hlo_val_t x = args[1], packed = args[2], taus = args[3];
  const hlo_val_t trip = hlo_convert(h, args[0], TTPU_I32), last = hlo_const_int(h, TTPU_I32, p->count - 1);
  const hlo_val_t i = p->adjoint ? trip : hlo_sub(h, last, trip);
  const hlo_val_t v = reflector(h, packed, i), entry = part_pick(h, taus, 1, i);
  const hlo_val_t single = hlo_unsqueeze(h, entry, 2);
  const hlo_val_t tau = p->adjoint ? linalg_conj(h, single) : single;
  results[0] = apply_one(h, x, v, tau);
  results[1] = packed;
  results[2] = taus;
}

hlo_val_t linalg_apply_reflectors(hlo_t *h, hlo_val_t packed, hlo_val_t tau, hlo_val_t x, bool adjoint) {
  if (hlo_failed(h)) return 0;
  product_t p = {.count = hlo_dim(h, tau, 1), .adjoint = adjoint};
  if (p.count == 0 || hlo_numel(h, x) == 0) return x;
  const hlo_val_t init[] = {x, packed, tau};
  hlo_val_t out[3] = {0};
  hlo_for(h, p.count, 3, init, product_step, &p, out);
  return out[0];
}

/* --- lowerings ---------------------------------------------------------------------------------------- */

static void ret(hlo_t *h, const op_call_t *c, int k, hlo_val_t value) {
  if (!op_result_wanted(c, k)) return;
  const hlo_val_t shaped = part_as_result(h, c, k, value);
  op_ret(h, c, k, shaped);
}

EMIT(geqrf) {
  const hlo_val_t a = linalg_arg(h, c, 0, -1);
  hlo_val_t packed, tau;
  linalg_reflect(h, a, &packed, &tau);
  ret(h, c, 0, packed);
  ret(h, c, 1, tau);
}

EMIT(linalg_qr) {
  const hlo_val_t a = linalg_arg(h, c, 0, -1);
  if (hlo_failed(h)) return;
  const char *mode = op_string(c, 1);
  const bool is_complete = !strcmp(mode, "complete"), r_only = !strcmp(mode, "r");
  const int64_t m = hlo_dim(h, a, 1), n = hlo_dim(h, a, 2), k = is_complete || m < n ? m : n;
  hlo_val_t packed, tau;
  linalg_reflect(h, a, &packed, &tau);
  const hlo_val_t top = hlo_slice_dim(h, packed, 1, 0, k, 1);
  const hlo_val_t r = linalg_upper(h, top, 0);
  if (!r_only) {
    const hlo_val_t identity = linalg_identity(h, hlo_dtype(h, a), hlo_dim(h, a, 0), m, k);
    const hlo_val_t q = linalg_apply_reflectors(h, packed, tau, identity, false);
    ret(h, c, 0, q);
  } else if (op_result_wanted(c, 0)) {
    const hlo_val_t none = hlo_full(h, op_result_dtype(c, 0), op_result_rank(c, 0), op_result_dims(c, 0), 0);
    op_ret(h, c, 0, none);
  }
  ret(h, c, 1, r);
}

EMIT(linalg_householder_product) {
  if (part_ret_empty(h, c)) return;
  const hlo_val_t packed = linalg_arg(h, c, 0, -1), raw = op_tensor_as(h, c, 1, op_result_dtype(c, 0));
  const hlo_val_t tau = part_batched(h, raw, 1);
  if (hlo_failed(h)) return;
  const hlo_val_t identity = linalg_identity(h, hlo_dtype(h, packed), hlo_dim(h, packed, 0), hlo_dim(h, packed, 1),
                                             hlo_dim(h, packed, 2));
  const hlo_val_t q = linalg_apply_reflectors(h, packed, tau, identity, false);
  ret(h, c, 0, q);
}

/* Q x or Q^H x; from the right x Q = (Q^H x^H)^H. */
EMIT(ormqr) {
  if (part_ret_empty(h, c)) return;
  const hlo_val_t packed = linalg_arg(h, c, 0, -1), raw = op_tensor(h, c, 1), x = linalg_arg(h, c, 2, -1);
  const hlo_val_t tau = part_batched(h, raw, 1);
  const bool left = op_bool(c, 3, true), adjoint = op_bool(c, 4, false);
  const hlo_val_t given = left ? x : linalg_adjoint(h, x);
  const hlo_val_t product = linalg_apply_reflectors(h, packed, tau, given, left ? adjoint : !adjoint);
  const hlo_val_t y = left ? product : linalg_adjoint(h, product);
  ret(h, c, 0, y);
}
