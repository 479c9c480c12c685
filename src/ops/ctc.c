/* ctc.c: connectionist temporal classification. States s of a target of length n are its 2n + 1 labels with blanks
 * between; a path stays, steps one on, or skips a blank between different labels. Forward and backward scores are loops
 * over time, in logarithms. The saved log_alpha is [batch, time, states]; beyond a sequence's length it means nothing.
 */
#include "ops/nn.h"

typedef struct {
  int64_t time, batch, classes, states;
  ttpu_dtype_e type;
  hlo_val_t log_probs;      /* [time, batch, classes] */
  hlo_val_t label;          /* [batch, states] i64, blanks included */
  hlo_val_t score;          /* [time, batch, states]: log probability of each state's label */
  hlo_val_t skips;          /* [batch, states] i1: may be reached from two states before */
  hlo_val_t last_time, end; /* [batch, 1] i64: length - 1, and number of the last state */
  hlo_val_t position;       /* [batch, states] i64 */
} ctc_t;

static hlo_val_t never(hlo_t *h, hlo_val_t like) { return hlo_full_like(h, like, -__builtin_inf()); }

/* Lengths of argument |i|, a list or a tensor: [batch, 1]. */
static hlo_val_t lengths(hlo_t *h, const op_call_t *c, int i, int64_t batch) {
  const int64_t column[2] = {batch, 1}, *values = NULL;
  const int n = op_ints(c, i, &values);
  if (n != batch && !op_has(c, i)) return hlo_fail(h, "%s: expected %lld lengths", op_name(c), (long long)batch);
  const hlo_val_t v = n == batch ? hlo_const_ints(h, TTPU_I64, n, values) : op_tensor_as(h, c, i, TTPU_I64);
  return hlo_reshape(h, v, 2, column);
}

/* Targets as [batch, most]: given so, or one after another. */
static hlo_val_t targets(hlo_t *h, const op_call_t *c, int i, hlo_val_t size, int64_t batch, int64_t most) {
  const hlo_val_t t = op_tensor_as(h, c, i, TTPU_I64);
  if (hlo_failed(h)) return 0;
  const int64_t dims[2] = {batch, most}, square[2] = {batch, batch};
  if (hlo_numel(h, t) == 0 || most == 0) return hlo_full(h, TTPU_I64, 2, dims, 0);
  if (hlo_rank(h, t) == 2) {
    const int64_t width = hlo_dim(h, t, 1);
    return width < most ? hlo_pad_dim(h, t, 0, 1, 0, most - width) : hlo_slice_dim(h, t, 1, 0, most, 1);
  }
  const hlo_val_t row = hlo_iota(h, TTPU_I64, 2, square, 0),
                  earlier = hlo_lt(h, row, hlo_iota(h, TTPU_I64, 2, square, 1));
  const hlo_val_t before = hlo_reduce_dim(h, "add", nn_keep(h, earlier, hlo_expand(h, size, 2, square)), 0);
  const hlo_val_t start = hlo_unsqueeze(h, before, 1);
  hlo_val_t at = hlo_add(h, start, hlo_iota(h, TTPU_I64, 2, dims, 1));
  at = hlo_min(h, at, hlo_const_int(h, TTPU_I64, hlo_numel(h, t) - 1));
  return hlo_reshape(h, hlo_index_select(h, t, hlo_flatten(h, at), 0), 2, dims);
}

/* log_probs, targets, input_lengths, target_lengths from argument |first| on; blank at |blank|. */
static bool read_ctc(hlo_t *h, const op_call_t *c, int first, int blank, int64_t states, ctc_t *k) {
  const hlo_val_t x = nn_tensor(h, c, first);
  if (hlo_failed(h)) return false;
  const bool batched = hlo_rank(h, x) == 3;
  *k = (ctc_t){.time = hlo_dim(h, x, 0),
               .batch = batched ? hlo_dim(h, x, 1) : 1,
               .classes = hlo_dim(h, x, -1),
               .states = states,
               .type = hlo_dtype(h, x)};
  const int64_t dims[3] = {k->time, k->batch, k->classes}, most = states / 2;
  k->log_probs = hlo_reshape(h, x, 3, dims);
  const hlo_val_t size = lengths(h, c, first + 3, k->batch);
  k->last_time = nn_plus(h, lengths(h, c, first + 2, k->batch), -1);
  k->end = nn_scale(h, size, 2);
  const int64_t pair[3] = {k->batch, most, 1}, line[2] = {k->batch, 2 * most}, one[2] = {k->batch, 1},
                all[2] = {k->batch, states};
  const hlo_val_t blanks = hlo_const_int(h, TTPU_I64, op_int(c, blank, 0));
  hlo_val_t parts[2];
  parts[0] = hlo_expand(h, blanks, 3, pair);
  parts[1] = hlo_reshape(h, targets(h, c, first + 1, size, k->batch, most), 3, pair);
  parts[0] = hlo_reshape(h, hlo_concat(h, 2, parts, 2), 2, line);
  parts[1] = hlo_expand(h, blanks, 2, one);
  k->label = hlo_concat(h, 2, parts, 1);
  const int64_t spread[3] = {k->time, k->batch, states};
  k->score = hlo_take_along(h, k->log_probs, hlo_expand(h, k->label, 3, spread), 2);
  const hlo_val_t two_before = hlo_slice_dim(h, hlo_pad_dim(h, k->label, 0, 1, 2, 0), 1, 0, states, 1);
  k->position = hlo_iota(h, TTPU_I64, 2, all, 1);
  const hlo_val_t far = hlo_ge(h, k->position, hlo_const_int(h, TTPU_I64, 2));
  k->skips = hlo_and(h, far, hlo_ne(h, k->label, two_before));
  return !hlo_failed(h);
}

/* |top|, 0 where it is |none|. */
static hlo_val_t or_zero(hlo_t *h, hlo_val_t top, hlo_val_t none) {
  const hlo_val_t blind = hlo_eq(h, top, none);
  return hlo_select(h, blind, hlo_full_like(h, top, 0), top);
}

/* log(exp(a) + exp(b) + exp(c)); -inf where all are. */
static hlo_val_t log_sum(hlo_t *h, hlo_val_t a, hlo_val_t b, hlo_val_t c) {
  const hlo_val_t top = hlo_max(h, hlo_max(h, a, b), c), none = never(h, top), base = or_zero(h, top, none);
  const hlo_val_t ea = hlo_exp(h, hlo_sub(h, a, base)), eb = hlo_exp(h, hlo_sub(h, b, base)),
                  ec = hlo_exp(h, hlo_sub(h, c, base));
  const hlo_val_t two = hlo_add(h, ea, eb);
  return hlo_add(h, base, hlo_log(h, hlo_add(h, two, ec)));
}

/* |x| [batch, states] moved by |by| states, -inf coming in. */
static hlo_val_t shifted(hlo_t *h, const ctc_t *k, hlo_val_t x, int by) {
  const hlo_val_t wide = hlo_pad_dim(h, x, -__builtin_inf(), 1, by > 0 ? by : 0, by < 0 ? -by : 0);
  const int64_t start = by < 0 ? -by : 0;
  return hlo_slice_dim(h, wide, 1, start, start + k->states, 1);
}

/* Time step |t| of [time, batch, x]: [batch, x]. */
static hlo_val_t at_time(hlo_t *h, hlo_val_t x, hlo_val_t t) {
  const hlo_val_t zero = hlo_const_int(h, TTPU_I64, 0), starts[3] = {t, zero, zero};
  const int64_t sizes[3] = {1, hlo_dim(h, x, 1), hlo_dim(h, x, 2)};
  return hlo_reshape(h, hlo_dynamic_slice(h, x, starts, sizes), 2, sizes + 1);
}

static hlo_val_t put_time(hlo_t *h, hlo_val_t x, hlo_val_t part, hlo_val_t t) {
  const hlo_val_t zero = hlo_const_int(h, TTPU_I64, 0), starts[3] = {t, zero, zero};
  return hlo_dynamic_update_slice(h, x, hlo_unsqueeze(h, part, 0), starts);
}

/* Carries alpha of the step before, and all of them. */
static void alpha_step(hlo_t *h, void *ctx, const hlo_val_t *args, hlo_val_t *results) {
  const ctc_t *k = ctx;
  const hlo_val_t t = args[0], score = at_time(h, k->score, t), old = args[1], none = never(h, old);
  const hlo_val_t jump = hlo_select(h, k->skips, shifted(h, k, old, 2), none);
  const hlo_val_t path = hlo_add(h, log_sum(h, old, shifted(h, k, old, 1), jump), score);
  const hlo_val_t early = hlo_le(h, k->position, hlo_const_int(h, TTPU_I64, 1));
  const hlo_val_t starts = hlo_and(h, early, hlo_le(h, k->position, k->end));
  const hlo_val_t first = hlo_expand_like(h, hlo_eq(h, t, hlo_const_int(h, TTPU_I64, 0)), starts);
  const hlo_val_t alpha =
      hlo_select(h, first, hlo_select(h, starts, score, none), path); /* step 0 has no step before */
  results[0] = alpha;
  results[1] = put_time(h, args[2], alpha, t);
}

/* Whether a state is one of the two last ones of its target. */
static hlo_val_t final_states(hlo_t *h, const ctc_t *k) {
  const hlo_val_t last = hlo_eq(h, k->position, k->end), before = hlo_eq(h, nn_plus(h, k->position, 1), k->end);
  return hlo_or(h, last, before);
}

/* log_probs, targets, input_lengths, target_lengths, blank, zero_infinity -> neg_log_likelihood, log_alpha */
void op_emit_ctc_loss(hlo_t *h, const op_call_t *c) {
  ctc_t k;
  if (!read_ctc(h, c, 0, 4, op_result_dims(c, 1)[op_result_rank(c, 1) - 1], &k)) return;
  const int64_t each[2] = {k.batch, k.states}, all[3] = {k.time, k.batch, k.states};
  hlo_val_t init[2], r[2] = {0};
  init[0] = hlo_full(h, k.type, 2, each, -__builtin_inf());
  init[1] = hlo_full(h, k.type, 3, all, -__builtin_inf());
  hlo_for(h, k.time, 2, init, alpha_step, &k, r);
  const hlo_val_t alphas = r[1];
  const hlo_val_t time = hlo_iota(h, TTPU_I64, 3, all, 0), now = hlo_eq(h, time, hlo_expand(h, k.last_time, 3, all));
  const hlo_val_t ends = hlo_and(h, now, hlo_expand(h, final_states(h, &k), 3, all));
  const hlo_val_t kept = hlo_select(h, ends, alphas, never(h, alphas)),
                  by_state = hlo_reduce_dim(h, "maximum", kept, 0);
  const hlo_val_t top = hlo_reduce_dim(h, "maximum", by_state, 1);
  const hlo_val_t base = or_zero(h, top, never(h, top));
  const hlo_val_t sum =
      hlo_reduce_dim(h, "add", hlo_exp(h, hlo_sub(h, by_state, nn_spread_dim(h, base, by_state, 1))), 1);
  hlo_val_t log = hlo_add(h, base, hlo_log(h, sum));
  /* no time at all: certain for an empty target, else impossible */
  const hlo_val_t no_time = hlo_lt(h, hlo_flatten(h, k.last_time), hlo_const_int(h, TTPU_I64, 0));
  const hlo_val_t no_target = hlo_eq(h, hlo_flatten(h, k.end), hlo_const_int(h, TTPU_I64, 0)),
                  certain = hlo_and(h, no_time, no_target);
  log = hlo_select(h, certain, hlo_full_like(h, log, 0), log);
  op_ret(h, c, 0, hlo_reshape(h, hlo_neg(h, log), op_result_rank(c, 0), op_result_dims(c, 0)));
  if (op_result_wanted(c, 1))
    op_ret(h, c, 1, hlo_reshape(h, hlo_swap(h, alphas, 0, 1), op_result_rank(c, 1), op_result_dims(c, 1)));
}

typedef struct {
  const ctc_t *k;
  hlo_val_t alphas, nll, one_hot; /* [time, batch, states], [batch, 1], [batch, states, classes] */
} gradient_t;

/* Carries beta of the step after and the gradient [time, batch, classes]; time runs backwards. */
static void beta_step(hlo_t *h, void *ctx, const hlo_val_t *args, hlo_val_t *results) {
  const gradient_t *g = ctx;
  const ctc_t *k = g->k;
  const hlo_val_t t = nn_from(h, (double)(k->time - 1), args[0]), old = args[1], none = never(h, old);
  const hlo_val_t score = at_time(h, k->score, t), log_probs = at_time(h, k->log_probs, t),
                  alpha = at_time(h, g->alphas, t);
  const hlo_val_t jump = shifted(h, k, hlo_select(h, k->skips, old, none), -2);
  const hlo_val_t path = hlo_add(h, log_sum(h, old, shifted(h, k, old, -1), jump), score);
  const hlo_val_t last = hlo_eq(h, k->last_time, t), start = hlo_select(h, final_states(h, k), score, none);
  const hlo_val_t beta = hlo_select(h, hlo_expand_like(h, last, path), start, path);
  const hlo_val_t both = hlo_add(h, alpha, beta), top = hlo_reduce_dim(h, "maximum", both, 1);
  const hlo_val_t base = or_zero(h, top, never(h, top));
  const hlo_val_t weight = hlo_exp(h, hlo_sub(h, both, nn_spread_dim(h, base, both, 1)));
  const int batch = 0, contract = 1;
  const hlo_val_t mass = hlo_dot_general(h, weight, g->one_hot, 1, &batch, &batch, 1, &contract, &contract, k->type);
  const hlo_val_t level = hlo_add(h, nn_spread_dim(h, base, mass, 1), g->nll),
                  odds = hlo_exp(h, hlo_sub(h, level, log_probs));
  const hlo_val_t empty = hlo_eq(h, mass, hlo_like(h, mass, 0));
  const hlo_val_t share = hlo_mul(h, mass, odds), expected = hlo_select(h, empty, hlo_full_like(h, mass, 0), share);
  const hlo_val_t slope = hlo_sub(h, hlo_exp(h, log_probs), expected);
  const hlo_val_t inside = hlo_expand_like(h, hlo_le(h, t, k->last_time), slope);
  results[0] = beta;
  results[1] = put_time(h, args[2], nn_keep(h, inside, slope), t);
}

/* grad, log_probs, targets, input_lengths, target_lengths, neg_log_likelihood, log_alpha, blank, zero_infinity */
void op_emit_ctc_loss_backward(hlo_t *h, const op_call_t *c) {
  ctc_t k;
  const hlo_val_t saved = nn_tensor(h, c, 6);
  if (hlo_failed(h) || !read_ctc(h, c, 1, 7, hlo_dim(h, saved, -1), &k)) return;
  const int64_t column[2] = {k.batch, 1}, by_batch[3] = {k.batch, k.time, k.states},
                all[3] = {k.time, k.batch, k.classes};
  const int64_t table[3] = {k.batch, k.states, k.classes}, each[2] = {k.batch, k.states};
  const int map[2] = {0, 1};
  gradient_t g = {.k = &k};
  g.alphas = hlo_swap(h, hlo_reshape(h, hlo_convert(h, saved, k.type), 3, by_batch), 0, 1);
  g.nll = hlo_reshape(h, op_tensor_as(h, c, 5, k.type), 2, column);
  const hlo_val_t class = hlo_iota(h, TTPU_I64, 3, table, 2),
                  hit = hlo_eq(h, class, hlo_broadcast_in(h, k.label, 3, table, map));
  g.one_hot = hlo_convert(h, hit, k.type);
  hlo_val_t init[2], r[2] = {0};
  init[0] = hlo_full(h, k.type, 2, each, -__builtin_inf());
  init[1] = hlo_full(h, k.type, 3, all, 0);
  hlo_for(h, k.time, 2, init, beta_step, &g, r);
  const hlo_val_t impossible = hlo_eq(h, g.nll, hlo_like(h, g.nll, __builtin_inf()));
  const hlo_val_t in_stead = hlo_full_like(h, r[1], op_bool(c, 8, false) ? 0 : __builtin_nan(""));
  const hlo_val_t slope = hlo_select(h, hlo_expand_like(h, impossible, r[1]), in_stead, r[1]);
  const hlo_val_t dx = hlo_mul(h, slope, hlo_reshape(h, op_tensor_as(h, c, 0, k.type), 2, column));
  op_ret(h, c, 0, hlo_reshape(h, dx, op_result_rank(c, 0), op_result_dims(c, 0)));
}
