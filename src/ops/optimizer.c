/* optimizer.c: the fused optimizer steps over lists of parameters, and gradient scaling.
 *
 * Results are the written lists, flattened in schema order. Scalars are computed in f64 as CPU PyTorch does (1 -
 * beta^step cancels in f32); the step counts of a list are raised to powers as one vector. A step with found_inf set
 * leaves everything as it was.
 */
#include <string.h>

#include "base/alloc.h"
#include "ops/nn.h"

/* Hands out results in order, list by list. */
typedef struct {
  const op_call_t *c;
  int next; /* number of the next result */
} writer_t;

/* Gives the results of list argument |arg| where the call wants them; |fresh| NULL: unchanged. */
static void write_list(hlo_t *h, writer_t *w, int arg, const hlo_val_t *fresh) {
  const int n = op_list_size(w->c, arg);
  for (int j = 0; j < n; j++, w->next++)
    if (w->next < op_result_count(w->c) && op_result_wanted(w->c, w->next))
      op_ret(h, w->c, w->next, fresh ? fresh[j] : op_list_tensor(h, w->c, arg, j));
}

/* What all optimizers read first. */
typedef struct {
  hlo_val_t inverse_scale; /* f64 rank 0, or 0 */
  hlo_val_t skip;          /* i1 rank 0, or 0 */
  bool maximize;
} common_t;

static hlo_val_t scalar_of(hlo_t *h, hlo_val_t x, ttpu_dtype_e dtype) {
  return hlo_reshape(h, hlo_convert(h, x, dtype), 0, NULL);
}

/* A float argument, or a tensor one of one element: f64. */
static hlo_val_t number(hlo_t *h, const op_call_t *c, int i, bool is_tensor) {
  return is_tensor ? scalar_of(h, op_tensor(h, c, i), TTPU_F64) : op_scalar(h, c, i, TTPU_F64);
}

static common_t read_common(hlo_t *h, const op_call_t *c, int maximize, int grad_scale, int found_inf) {
  common_t m = {.maximize = op_bool(c, maximize, false)};
  if (op_has(c, grad_scale)) m.inverse_scale = nn_reciprocal(h, scalar_of(h, op_tensor(h, c, grad_scale), TTPU_F64));
  if (op_has(c, found_inf)) {
    const hlo_val_t flag = scalar_of(h, op_tensor(h, c, found_inf), TTPU_F32);
    m.skip = hlo_eq(h, flag, hlo_like(h, flag, 1));
  }
  return m;
}

/* x times a rank-0 f64 value. */
static hlo_val_t times(hlo_t *h, hlo_val_t x, hlo_val_t factor) {
  return hlo_mul(h, x, hlo_convert(h, factor, hlo_dtype(h, x)));
}

/* |fresh| rounded to |old|'s dtype, or |old| when the step is skipped. */
static hlo_val_t unless_skipped(hlo_t *h, const common_t *m, hlo_val_t fresh, hlo_val_t old) {
  fresh = hlo_convert(h, fresh, hlo_dtype(h, old));
  return m->skip ? hlo_select(h, hlo_expand_like(h, m->skip, old), old, fresh) : fresh;
}

/* The gradient of member |j| in |type|: unscaled; *out_kept is what is written back to the list. */
static hlo_val_t gradient(hlo_t *h, const op_call_t *c, const common_t *m, int j, ttpu_dtype_e type,
                          hlo_val_t *out_kept) {
  const hlo_val_t raw = op_list_tensor(h, c, 1, j);
  hlo_val_t g = hlo_convert(h, raw, type);
  *out_kept = raw;
  if (m->inverse_scale) {
    g = times(h, g, m->inverse_scale);
    *out_kept = unless_skipped(h, m, g, raw);
  }
  return m->maximize ? hlo_neg(h, g) : g;
}

/* 1 - beta^step of every member: f64 [n]. */
static hlo_val_t bias_corrections(hlo_t *h, hlo_val_t steps, hlo_val_t beta) {
  return nn_from(h, 1, hlo_pow(h, hlo_expand_like(h, beta, steps), steps));
}

static hlo_val_t member(hlo_t *h, hlo_val_t v, int j) {
  return hlo_reshape(h, hlo_slice_dim(h, v, 0, j, j + 1, 1), 0, NULL);
}

/* The step counts of list |arg| as one f64 vector. */
static hlo_val_t all_steps(hlo_t *h, const op_call_t *c, int arg, int n, hlo_val_t *room) {
  const int64_t one = 1;
  for (int j = 0; j < n; j++) room[j] = hlo_reshape(h, hlo_convert(h, op_list_tensor(h, c, arg, j), TTPU_F64), 1, &one);
  return n == 1 ? room[0] : hlo_concat(h, n, room, 0);
}

static hlo_val_t *lists_of(hlo_t *h, int count, int n) {
  hlo_val_t *v = ttpu_alloc_zero((size_t)count * (size_t)(n > 0 ? n : 1), sizeof *v);
  if (!v) hlo_fail_code(h, TTPU_RESOURCE_EXHAUSTED, "the host is out of memory");
  return v;
}

/* self, grads, exp_avgs, exp_avg_sqs, max_exp_avg_sqs, state_steps, lr, beta1, beta2, weight_decay, eps, amsgrad,
 * maximize, grad_scale, found_inf */
static void adam(hlo_t *h, const op_call_t *c, bool lr_is_tensor, bool decoupled) {
  enum { P, G, M, V, TOP, STEP, LISTS };
  const int n = op_list_size(c, 0);
  if (n == 0) return;
  hlo_val_t *lists = lists_of(h, LISTS, n);
  if (!lists) return;
  const common_t m = read_common(h, c, 12, 13, 14);
  const bool amsgrad = op_bool(c, 11, false);
  const hlo_val_t lr = number(h, c, 6, lr_is_tensor), beta1 = number(h, c, 7, false), beta2 = number(h, c, 8, false);
  const hlo_val_t decay = number(h, c, 9, false), eps = number(h, c, 10, false);
  const hlo_val_t rest1 = nn_from(h, 1, beta1), rest2 = nn_from(h, 1, beta2);
  const hlo_val_t shrink = nn_from(h, 1, hlo_mul(h, lr, decay));
  const hlo_val_t steps = all_steps(h, c, 5, n, lists + STEP * n);
  const hlo_val_t rates = hlo_div(h, lr, bias_corrections(h, steps, beta1));
  const hlo_val_t roots = hlo_sqrt(h, bias_corrections(h, steps, beta2));
  for (int j = 0; j < n && !hlo_failed(h); j++) {
    const hlo_val_t p0 = op_list_tensor(h, c, 0, j), m0 = op_list_tensor(h, c, 2, j), v0 = op_list_tensor(h, c, 3, j);
    const ttpu_dtype_e type = ttpu_dtype_accumulate(hlo_dtype(h, p0));
    hlo_val_t p = hlo_convert(h, p0, type), g = gradient(h, c, &m, j, type, &lists[G * n + j]);
    if (decoupled)
      p = times(h, p, shrink);
    else
      g = hlo_add(h, g, times(h, p, decay));
    const hlo_val_t mean = hlo_convert(h, m0, type), square = times(h, hlo_convert(h, v0, type), beta2);
    const hlo_val_t average = hlo_add(h, mean, times(h, hlo_sub(h, g, mean), rest1));
    const hlo_val_t variance = hlo_add(h, square, times(h, nn_square(h, g), rest2));
    hlo_val_t top = variance;
    if (amsgrad) {
      const hlo_val_t top0 = op_list_tensor(h, c, 4, j);
      top = hlo_max(h, hlo_convert(h, top0, type), variance);
      lists[TOP * n + j] = unless_skipped(h, &m, top, top0);
    }
    const hlo_val_t root = hlo_convert(h, member(h, roots, j), type), small = hlo_convert(h, eps, type);
    const hlo_val_t divisor = hlo_add(h, hlo_div(h, hlo_sqrt(h, top), root), small);
    const hlo_val_t step = hlo_div(h, times(h, average, member(h, rates, j)), divisor);
    lists[P * n + j] = unless_skipped(h, &m, hlo_sub(h, p, step), p0);
    lists[M * n + j] = unless_skipped(h, &m, average, m0);
    lists[V * n + j] = unless_skipped(h, &m, variance, v0);
  }
  writer_t w = {.c = c};
  write_list(h, &w, 0, lists + P * n);
  write_list(h, &w, 1, lists + G * n);
  write_list(h, &w, 2, lists + M * n);
  write_list(h, &w, 3, lists + V * n);
  write_list(h, &w, 4, amsgrad ? lists + TOP * n : NULL);
  ttpu_free(lists);
}

static bool is_detail(const op_call_t *c, const char *text) { return op_detail(c) && strcmp(op_detail(c), text) == 0; }

/* The row's detail is "tensor" where the learning rate is one. */
void op_emit_fused_adam(hlo_t *h, const op_call_t *c) { adam(h, c, is_detail(c, "tensor"), false); }
void op_emit_fused_adamw(hlo_t *h, const op_call_t *c) { adam(h, c, is_detail(c, "tensor"), true); }

/* self, grads, momentum_buffer_list, weight_decay, momentum, lr, dampening, nesterov, maximize, is_first_step,
 * grad_scale, found_inf */
void op_emit_fused_sgd(hlo_t *h, const op_call_t *c) {
  enum { P, G, B, LISTS };
  const int n = op_list_size(c, 0);
  if (n == 0) return;
  hlo_val_t *lists = lists_of(h, LISTS, n);
  if (!lists) return;
  const common_t m = read_common(h, c, 8, 10, 11);
  const bool nesterov = op_bool(c, 7, false), first = op_bool(c, 9, false), has_buffer = op_list_size(c, 2) == n;
  const hlo_val_t decay = number(h, c, 3, false), momentum = number(h, c, 4, false);
  const hlo_val_t lr = number(h, c, 5, is_detail(c, "tensor")), fresh = nn_from(h, 1, number(h, c, 6, false));
  for (int j = 0; j < n && !hlo_failed(h); j++) {
    const hlo_val_t p0 = op_list_tensor(h, c, 0, j);
    const ttpu_dtype_e type = ttpu_dtype_accumulate(hlo_dtype(h, p0));
    const hlo_val_t p = hlo_convert(h, p0, type);
    hlo_val_t g = gradient(h, c, &m, j, type, &lists[G * n + j]);
    g = hlo_add(h, g, times(h, p, decay));
    if (has_buffer && op_list_has(c, 2, j)) {
      const hlo_val_t old = op_list_tensor(h, c, 2, j);
      hlo_val_t buffer = g;
      if (!first) {
        buffer = times(h, hlo_convert(h, old, type), momentum);
        buffer = hlo_add(h, buffer, times(h, g, fresh));
      }
      lists[B * n + j] = unless_skipped(h, &m, buffer, old);
      g = nesterov ? hlo_add(h, g, times(h, buffer, momentum)) : buffer;
    }
    lists[P * n + j] = unless_skipped(h, &m, hlo_sub(h, p, times(h, g, lr)), p0);
  }
  writer_t w = {.c = c};
  write_list(h, &w, 0, lists + P * n);
  write_list(h, &w, 1, lists + G * n);
  write_list(h, &w, 2, has_buffer ? lists + B * n : NULL);
  ttpu_free(lists);
}

/* self, grads, state_sums, state_steps, lr, lr_decay, weight_decay, eps, maximize, grad_scale, found_inf */
void op_emit_fused_adagrad(hlo_t *h, const op_call_t *c) {
  enum { P, G, S, STEP, LISTS };
  const int n = op_list_size(c, 0);
  if (n == 0) return;
  hlo_val_t *lists = lists_of(h, LISTS, n);
  if (!lists) return;
  const common_t m = read_common(h, c, 8, 9, 10);
  const hlo_val_t lr = number(h, c, 4, is_detail(c, "tensor")), lr_decay = number(h, c, 5, false);
  const hlo_val_t decay = number(h, c, 6, false), eps = number(h, c, 7, false);
  const hlo_val_t steps = nn_plus(h, all_steps(h, c, 3, n, lists + STEP * n), -1);
  const hlo_val_t rates = hlo_div(h, lr, nn_plus(h, hlo_mul(h, steps, lr_decay), 1));
  for (int j = 0; j < n && !hlo_failed(h); j++) {
    const hlo_val_t p0 = op_list_tensor(h, c, 0, j), s0 = op_list_tensor(h, c, 2, j);
    const ttpu_dtype_e type = ttpu_dtype_accumulate(hlo_dtype(h, p0));
    const hlo_val_t p = hlo_convert(h, p0, type);
    hlo_val_t g = gradient(h, c, &m, j, type, &lists[G * n + j]);
    g = hlo_add(h, g, times(h, p, decay));
    const hlo_val_t sum = hlo_add(h, hlo_convert(h, s0, type), nn_square(h, g)), root = hlo_sqrt(h, sum);
    const hlo_val_t divisor = hlo_add(h, root, hlo_convert(h, eps, type));
    const hlo_val_t step = hlo_div(h, times(h, g, member(h, rates, j)), divisor);
    lists[P * n + j] = unless_skipped(h, &m, hlo_sub(h, p, step), p0);
    lists[S * n + j] = unless_skipped(h, &m, sum, s0);
  }
  writer_t w = {.c = c};
  write_list(h, &w, 0, lists + P * n);
  write_list(h, &w, 1, lists + G * n);
  write_list(h, &w, 2, lists + S * n);
  write_list(h, &w, 3, NULL);
  ttpu_free(lists);
}

/* self list, found_inf, inv_scale: unscales in place; found_inf becomes 1 when a value is not finite. */
void op_emit_amp_unscale(hlo_t *h, const op_call_t *c) {
  const int n = op_list_size(c, 0);
  const hlo_val_t old = op_tensor(h, c, 1), inverse = scalar_of(h, op_tensor(h, c, 2), TTPU_F32);
  hlo_val_t bad = 0;
  for (int j = 0; j < n && !hlo_failed(h); j++) {
    const hlo_val_t raw = op_list_tensor(h, c, 0, j), x = nn_up(h, raw);
    const hlo_val_t here = hlo_reduce_all(h, "or", hlo_not(h, hlo_is_finite(h, raw)));
    bad = bad ? hlo_or(h, bad, here) : here;
    if (op_result_wanted(c, j)) op_ret(h, c, j, hlo_mul(h, x, hlo_convert(h, inverse, hlo_dtype(h, x))));
  }
  if (!op_result_wanted(c, n)) return;
  op_ret(h, c, n, bad ? hlo_select(h, hlo_expand_like(h, bad, old), hlo_full_like(h, old, 1), old) : old);
}

/* self (the scale), growth_tracker, found_inf, growth_factor, backoff_factor, growth_interval */
void op_emit_amp_update_scale(hlo_t *h, const op_call_t *c) {
  const hlo_val_t scale = op_tensor(h, c, 0), tracker = op_tensor(h, c, 1);
  const hlo_val_t found = scalar_of(h, op_tensor(h, c, 2), TTPU_F32), bad = hlo_ne(h, found, hlo_like(h, found, 0));
  const hlo_val_t growth = op_scalar(h, c, 3, hlo_dtype(h, scale)), backoff = op_scalar(h, c, 4, hlo_dtype(h, scale));
  const hlo_val_t count = nn_plus(h, tracker, 1), interval = hlo_const_int(h, hlo_dtype(h, tracker), op_int(c, 5, 1));
  const hlo_val_t due = hlo_eq(h, count, interval), grown = hlo_mul(h, scale, growth);
  const hlo_val_t is_due = hlo_reshape(h, due, 0, NULL), fits = hlo_reshape(h, hlo_is_finite(h, grown), 0, NULL);
  const hlo_val_t raise = hlo_and(h, is_due, fits);
  const hlo_val_t up = hlo_select(h, hlo_expand_like(h, raise, scale), grown, scale);
  op_ret(h, c, 0, hlo_select(h, hlo_expand_like(h, bad, scale), hlo_mul(h, scale, backoff), up));
  if (op_result_count(c) < 2 || !op_result_wanted(c, 1)) return;
  const hlo_val_t zero = hlo_full_like(h, tracker, 0), next = hlo_select(h, due, zero, count);
  op_ret(h, c, 1, hlo_select(h, hlo_expand_like(h, bad, tracker), zero, next));
}
