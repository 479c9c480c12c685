/* attention.c: scaled dot product attention and its gradient, as one operator each.
 *
 * softmax(q k^T * scale + bias) v, with a causal mask aligned to the upper left, dropout, grouped queries, and rows
 * that see nothing giving 0. Queries of one key head are rows of one product: everything is [batch, key heads, group,
 * row, x]. Short key lines are done whole. Long ones run as loops over blocks of queries and keys with a running
 * maximum and sum, so that memory grows with the length and not with its square; blocks above the diagonal are skipped.
 * The forward returns logsumexp and the random state of its dropout, from which the gradient rebuilds the weights.
 */
#include "ops/nn.h"
#include "ops/random.h"

/* Measured on the CPU plugin, (4, 8, 1024, 64) causal: blocks of 2^20 scores run 3 times as fast as the whole plane,
 * and blocks of 2^22 half as fast as these. */
enum {
  KEY_BLOCK = 256,
  MAX_WHOLE_LINE = 256,      /* keys that are handled in one piece */
  MAX_WHOLE_PLANE = 1 << 22, /* or fewer scores than this in all: they stay near the processor anyway */
  BLOCK_SCORES = 1 << 20,    /* scores of all heads in one block */
  MIN_ROW_BLOCK = 64,
};

typedef struct {
  int64_t batch, heads, group, rows, cols, depth, value_depth; /* heads: key heads; group: query heads a key head */
  int64_t row_block, col_block, row_blocks, col_blocks;
  ttpu_dtype_e type; /* of scores and sums */
  hlo_val_t q, k, v; /* [b, h, group, rows, depth], [b, h, cols, depth], [b, h, cols, value_depth]; padded to blocks */
  hlo_val_t bias;    /* 5 dims, each full (padded) or 1; 0: none */
  hlo_val_t state;   /* ui64[2] of the dropout */
  hlo_val_t dout, lse, delta; /* gradient only: [b, h, group, rows, value_depth] and twice [b, h, group, rows] */
  double scale, dropout;
  bool causal, wants_bias; /* wants_bias: the bias's gradient is asked for */
} attention_t;

/* --- geometry ----------------------------------------------------------------------------------------------------- */

static hlo_val_t with_dims(hlo_t *h, hlo_val_t x, int64_t a, int64_t b, int64_t c, int64_t d, int64_t e) {
  const int64_t dims[5] = {a, b, c, d, e};
  return hlo_reshape(h, x, 5, dims);
}

static hlo_val_t with_four(hlo_t *h, hlo_val_t x, int64_t a, int64_t b, int64_t c, int64_t d) {
  const int64_t dims[4] = {a, b, c, d};
  return hlo_reshape(h, x, 4, dims);
}

static hlo_val_t pad_with(hlo_t *h, hlo_val_t x, double value, int dim, int64_t size) {
  return hlo_dim(h, x, dim) < size ? hlo_pad_dim(h, x, value, dim, 0, size - hlo_dim(h, x, dim)) : x;
}

static hlo_val_t pad_to(hlo_t *h, hlo_val_t x, int dim, int64_t size) { return pad_with(h, x, 0, dim, size); }

/* Reads q, k, v and the bias from the arguments at |first| and picks the blocks. */
static bool read_attention(hlo_t *h, const op_call_t *c, int first, int bias_arg, int dropout_arg, int causal_arg,
                           int scale_arg, attention_t *a) {
  const hlo_val_t q = op_tensor(h, c, first), k = op_tensor(h, c, first + 1), v = op_tensor(h, c, first + 2);
  if (hlo_failed(h)) return false;
  const int rank = hlo_rank(h, q);
  if (rank < 3 || rank > 4 || hlo_rank(h, k) != rank || hlo_rank(h, v) != rank) {
    hlo_fail(h, "%s: query, key and value must have 3 or 4 dimensions each, the same number", op_name(c));
    return false;
  }
  *a = (attention_t){.batch = rank == 4 ? hlo_dim(h, q, 0) : 1,
                     .heads = hlo_dim(h, k, -3),
                     .rows = hlo_dim(h, q, -2),
                     .cols = hlo_dim(h, k, -2),
                     .depth = hlo_dim(h, q, -1),
                     .value_depth = hlo_dim(h, v, -1)};
  const int64_t query_heads = hlo_dim(h, q, -3);
  if (a->heads == 0 || query_heads % a->heads != 0 || hlo_dim(h, v, -3) != a->heads ||
      (rank == 4 && hlo_dim(h, k, 0) != a->batch) || (rank == 4 && hlo_dim(h, v, 0) != a->batch)) {
    hlo_fail(h,
             "%s: key and value need the query's batch and a number of heads that divides the query's (%lld and %lld)",
             op_name(c), (long long)a->heads, (long long)query_heads);
    return false;
  }
  a->group = query_heads / a->heads;
  a->type = ttpu_dtype_accumulate(hlo_dtype(h, q));
  a->causal = op_bool(c, causal_arg, false);
  a->dropout = op_number(h, c, dropout_arg, 0);
  a->scale = op_has(c, scale_arg) ? op_number(h, c, scale_arg, 0) : 1 / __builtin_sqrt((double)a->depth);
  a->row_block = a->rows, a->col_block = a->cols, a->row_blocks = a->col_blocks = 1;
  const int64_t lines = a->batch * query_heads;
  if (a->cols > MAX_WHOLE_LINE && lines * a->rows * a->cols >= MAX_WHOLE_PLANE) {
    a->col_block = KEY_BLOCK;
    if (a->rows > MIN_ROW_BLOCK) a->row_block = MIN_ROW_BLOCK;
    while (a->row_block * 2 <= a->rows && a->row_block * 2 * KEY_BLOCK * lines <= BLOCK_SCORES) a->row_block *= 2;
    a->row_blocks = (a->rows + a->row_block - 1) / a->row_block;
    a->col_blocks = (a->cols + a->col_block - 1) / a->col_block;
  }
  a->q = with_dims(h, q, a->batch, a->heads, a->group, a->rows, a->depth);
  a->k = with_four(h, k, a->batch, a->heads, a->cols, a->depth);
  a->v = with_four(h, v, a->batch, a->heads, a->cols, a->value_depth);
  const int64_t rows = a->row_blocks * a->row_block, cols = a->col_blocks * a->col_block;
  a->q = pad_to(h, a->q, 3, rows), a->k = pad_to(h, a->k, 2, cols), a->v = pad_to(h, a->v, 2, cols);
  if (!op_has(c, bias_arg)) return !hlo_failed(h);
  hlo_val_t bias = op_tensor(h, c, bias_arg);
  if (hlo_dtype(h, bias) == TTPU_BOOL) {
    const hlo_val_t hidden = hlo_lowest(h, a->type);
    bias = hlo_select(h, bias, hlo_const(h, a->type, 0), hidden);
  }
  bias = hlo_convert(h, bias, a->type);
  int64_t d[4] = {1, 1, 1, 1};
  const int bias_rank = hlo_rank(h, bias);
  for (int i = 0; i < bias_rank && i < 4; i++) d[4 - bias_rank + i] = hlo_dim(h, bias, i);
  const bool each = d[1] == query_heads && query_heads > 1;
  bias = with_dims(h, bias, d[0], each ? a->heads : 1, each ? a->group : 1, d[2], d[3]);
  if (d[2] > 1) bias = pad_to(h, bias, 3, rows);
  if (d[3] > 1) bias = pad_to(h, bias, 4, cols);
  a->bias = bias;
  return !hlo_failed(h);
}

/* --- one block ---------------------------------------------------------------------------------------------------- */

/* Where a block lies: rank-0 i64 block numbers, or 0 for "the only one". */
typedef struct {
  hlo_val_t row, col;
} block_t;

static hlo_val_t origin(hlo_t *h, hlo_val_t number, int64_t size) {
  return number ? nn_scale(h, number, (double)size) : hlo_const_int(h, TTPU_I64, 0);
}

/* Block |number| of |size| along |dim|; all of |x| when there is one block, or nothing to divide. */
static hlo_val_t block_of(hlo_t *h, hlo_val_t x, int dim, hlo_val_t number, int64_t size) {
  if (!number || hlo_dim(h, x, dim) == 1) return x;
  hlo_val_t starts[5];
  int64_t sizes[5];
  const int rank = hlo_rank(h, x);
  const hlo_val_t at = origin(h, number, size), zero = hlo_const_int(h, TTPU_I64, 0);
  if (hlo_failed(h)) return 0;
  for (int i = 0; i < rank; i++) starts[i] = i == dim ? at : zero, sizes[i] = i == dim ? size : hlo_dim(h, x, i);
  return hlo_dynamic_slice(h, x, starts, sizes);
}

static hlo_val_t put_block(hlo_t *h, hlo_val_t x, hlo_val_t part, int dim, hlo_val_t number, int64_t size) {
  if (!number) return part;
  hlo_val_t starts[5];
  const hlo_val_t at = origin(h, number, size), zero = hlo_const_int(h, TTPU_I64, 0);
  for (int i = 0; i < hlo_rank(h, x); i++) starts[i] = i == dim ? at : zero;
  return hlo_dynamic_update_slice(h, x, part, starts);
}

/* [b, h, group * rows, x] as [b, h, group, rows, x], and back. */
static hlo_val_t split_rows(hlo_t *h, const attention_t *a, hlo_val_t x) {
  return with_dims(h, x, a->batch, a->heads, a->group, a->row_block, hlo_dim(h, x, 3));
}
static hlo_val_t join_rows(hlo_t *h, const attention_t *a, hlo_val_t x) {
  return with_four(h, x, a->batch, a->heads, a->group * a->row_block, hlo_dim(h, x, 4));
}

/* Products with batch dims (batch, head): contracts dimension |i| of |x| with |j| of |y|, operands in y's type. */
static hlo_val_t product(hlo_t *h, const attention_t *a, hlo_val_t x, int i, hlo_val_t y, int j) {
  const int batch[2] = {0, 1};
  x = hlo_convert(h, x, hlo_dtype(h, y));
  return hlo_dot_general(h, x, y, 2, batch, batch, 1, &i, &j, a->type);
}

/* Positions of a block's rows (dim 3) or columns (dim 4), shaped to broadcast against scores. */
static hlo_val_t positions(hlo_t *h, const attention_t *a, const block_t *b, int dim) {
  const int64_t size = dim == 3 ? a->row_block : a->col_block;
  const int64_t dims[5] = {1, 1, 1, dim == 3 ? size : 1, dim == 4 ? size : 1};
  const hlo_val_t first = origin(h, dim == 3 ? b->row : b->col, size);
  return hlo_add(h, hlo_iota(h, TTPU_I64, 5, dims, dim), first);
}

/* Scores of a block, with bias and masks: [b, h, group, rows, cols]. */
static hlo_val_t scores(hlo_t *h, const attention_t *a, const block_t *b, hlo_val_t q, hlo_val_t k) {
  hlo_val_t s = split_rows(h, a, product(h, a, join_rows(h, a, q), 3, k, 3));
  s = nn_scale(h, s, a->scale);
  if (a->bias) {
    const hlo_val_t part = block_of(h, a->bias, 3, b->row, a->row_block);
    s = hlo_add(h, s, block_of(h, part, 4, b->col, a->col_block));
  }
  const bool overhang = a->cols % a->col_block != 0;
  if (!a->causal && !overhang) return s;
  const hlo_val_t col = positions(h, a, b, 4), hidden = hlo_lowest(h, a->type);
  hlo_val_t seen = 0;
  if (a->causal) seen = hlo_le(h, col, positions(h, a, b, 3));
  if (overhang) {
    const hlo_val_t inside = hlo_lt(h, col, hlo_const_int(h, TTPU_I64, a->cols));
    seen = seen ? hlo_and(h, seen, inside) : inside;
  }
  return hlo_select(h, hlo_expand_like(h, seen, s), s, hidden);
}

/* A row's maximum, 0 where it sees nothing: exp(-inf - 0) is then 0 and not NaN. */
static hlo_val_t finite_top(hlo_t *h, hlo_val_t top) {
  const hlo_val_t lowest = hlo_lowest(h, hlo_dtype(h, top)), blind = hlo_eq(h, top, lowest);
  return hlo_select(h, blind, hlo_full_like(h, top, 0), top);
}

static hlo_val_t spread_rows(hlo_t *h, hlo_val_t row, hlo_val_t like) { return nn_spread_dim(h, row, like, 4); }

/* Which weights dropout keeps, 0 when there is none; each block draws from a stream of its own. */
static hlo_val_t kept(hlo_t *h, const attention_t *a, const block_t *b, hlo_val_t p) {
  if (a->dropout <= 0) return 0;
  hlo_val_t state = a->state;
  if (b->row) {
    hlo_val_t number = nn_scale(h, b->row, (double)a->col_blocks);
    number = hlo_convert(h, hlo_add(h, number, b->col), TTPU_U64);
    state = random_stream_at(h, state, number);
  }
  const hlo_val_t u = random_half_open(h, state, TTPU_F32, 5, hlo_dims(h, p));
  return hlo_ge(h, u, hlo_like(h, u, a->dropout));
}

static hlo_val_t drop(hlo_t *h, const attention_t *a, hlo_val_t keep, hlo_val_t p) {
  return keep ? nn_scale(h, nn_keep(h, keep, p), a->dropout < 1 ? 1 / (1 - a->dropout) : 0) : p;
}

/* A row's sum as a divisor: 1 where the row sees nothing. */
static hlo_val_t divisor(hlo_t *h, hlo_val_t sum) {
  const hlo_val_t blind = hlo_eq(h, sum, hlo_like(h, sum, 0));
  return hlo_select(h, blind, hlo_full_like(h, sum, 1), sum);
}

/* --- forward ------------------------------------------------------------------------------------------------------ */

/* Running state of a block of rows: maximum, sum of weights, weighted sum of values. */
enum { TOP, SUM, VALUE, ROW_STATE };

static void see_block(hlo_t *h, const attention_t *a, const block_t *b, hlo_val_t q, hlo_val_t *r) {
  const hlo_val_t k = block_of(h, a->k, 2, b->col, a->col_block), v = block_of(h, a->v, 2, b->col, a->col_block);
  const hlo_val_t s = scores(h, a, b, q, k), here = nn_top(h, s, 4);
  const hlo_val_t top = r[TOP] ? hlo_max(h, r[TOP], here) : here, base = finite_top(h, top);
  const hlo_val_t p = hlo_exp(h, hlo_sub(h, s, spread_rows(h, base, s))), sum = hlo_reduce_dim(h, "add", p, 4);
  const hlo_val_t weights = join_rows(h, a, drop(h, a, kept(h, a, b, p), p)),
                  value = split_rows(h, a, product(h, a, weights, 3, v, 2));
  if (!r[TOP]) {
    r[SUM] = sum, r[VALUE] = value;
  } else {
    const hlo_val_t fade = hlo_exp(h, hlo_sub(h, r[TOP], base)), old = hlo_mul(h, r[SUM], fade);
    const hlo_val_t old_value = hlo_mul(h, r[VALUE], spread_rows(h, fade, r[VALUE]));
    r[SUM] = hlo_add(h, old, sum);
    r[VALUE] = hlo_add(h, old_value, value);
  }
  r[TOP] = top;
}

/* Output and logsumexp of a block of rows. */
static void finish_rows(hlo_t *h, const hlo_val_t *r, hlo_val_t *out, hlo_val_t *lse) {
  *out = hlo_div(h, r[VALUE], spread_rows(h, divisor(h, r[SUM]), r[VALUE]));
  const hlo_val_t log = hlo_log(h, r[SUM]);
  *lse = hlo_add(h, finite_top(h, r[TOP]), log);
}

/* Column blocks that a row block has to look at: up to the diagonal when causal. */
static hlo_val_t col_limit(hlo_t *h, const attention_t *a, hlo_val_t row) {
  const hlo_val_t all = hlo_const_int(h, TTPU_I64, a->col_blocks);
  if (!a->causal) return all;
  const hlo_val_t end = nn_plus(h, nn_scale(h, row, (double)a->row_block), (double)(a->row_block + a->col_block - 1));
  return hlo_min(h, hlo_div(h, end, hlo_like(h, end, (double)a->col_block)), all);
}

/* The loops carry (number, limit, ...): the limit is a value of the outer loop. */
static void below_limit(hlo_t *h, void *ctx, const hlo_val_t *args, hlo_val_t *results) {
  (void)ctx;
  results[0] = hlo_lt(h, args[0], args[1]);
}

typedef struct {
  const attention_t *a;
  block_t block;
  hlo_val_t q, k, v, dout, lse, delta; /* of the outer loop's block */
} loop_t;

static void forward_cols(hlo_t *h, void *ctx, const hlo_val_t *args, hlo_val_t *results) {
  loop_t *l = ctx;
  l->block.col = args[0];
  hlo_val_t r[ROW_STATE] = {args[2], args[3], args[4]};
  see_block(h, l->a, &l->block, l->q, r);
  results[0] = nn_plus(h, args[0], 1);
  results[1] = args[1];
  for (int i = 0; i < ROW_STATE; i++) results[2 + i] = r[i];
}

/* Carries the whole output and logsumexp. */
static void forward_rows(hlo_t *h, void *ctx, const hlo_val_t *args, hlo_val_t *results) {
  const attention_t *a = ctx;
  loop_t l = {.a = a, .block = {.row = args[0]}};
  l.q = block_of(h, a->q, 3, args[0], a->row_block);
  const int64_t dims[5] = {a->batch, a->heads, a->group, a->row_block, a->value_depth};
  hlo_val_t carried[2 + ROW_STATE], r[2 + ROW_STATE] = {0}, out, lse;
  carried[0] = hlo_const_int(h, TTPU_I64, 0);
  carried[1] = col_limit(h, a, args[0]);
  carried[2 + TOP] = hlo_full(h, a->type, 4, dims, -__builtin_inf());
  carried[2 + SUM] = hlo_full(h, a->type, 4, dims, 0);
  carried[2 + VALUE] = hlo_full(h, a->type, 5, dims, 0);
  hlo_while(h, 2 + ROW_STATE, carried, below_limit, forward_cols, &l, r);
  finish_rows(h, r + 2, &out, &lse);
  results[0] = put_block(h, args[1], hlo_convert(h, out, hlo_dtype(h, args[1])), 3, args[0], a->row_block);
  results[1] = put_block(h, args[2], lse, 3, args[0], a->row_block);
}

static hlo_val_t crop(hlo_t *h, hlo_val_t x, int dim, int64_t size) {
  return hlo_dim(h, x, dim) > size ? hlo_slice_dim(h, x, dim, 0, size, 1) : x;
}

static hlo_val_t as_result(hlo_t *h, const op_call_t *c, int k, hlo_val_t x) {
  return hlo_reshape(h, x, op_result_rank(c, k), op_result_dims(c, k));
}

/* Seed and offset are the last two integer results. */
static void ret_state(hlo_t *h, const op_call_t *c, hlo_val_t state) {
  int64_t word = 1;
  for (int k = op_result_count(c) - 1; k >= 2 && word >= 0; k--) {
    if (!op_result_wanted(c, k)) continue;
    const hlo_val_t v =
        state ? hlo_slice_dim(h, state, 0, word, word + 1, 1) : hlo_full(h, TTPU_U64, 1, (const int64_t[]){1}, 0);
    op_ret(h, c, k, as_result(h, c, k, hlo_convert(h, v, TTPU_I64)));
    word--;
  }
}

/* query, key, value, attn_bias, dropout_p, is_causal, return_debug_mask, scale */
void op_emit_attention(hlo_t *h, const op_call_t *c) {
  attention_t a;
  if (!read_attention(h, c, 0, 3, 4, 5, 7, &a)) return;
  if (a.dropout > 0) a.state = op_random_state(h, c);
  ret_state(h, c, a.state);
  if (ttpu_dims_numel(op_result_rank(c, 0), op_result_dims(c, 0)) == 0 || a.cols == 0) {
    nn_ret_full(h, c, 0, 0);
    if (op_result_wanted(c, 1)) nn_ret_full(h, c, 1, -__builtin_inf());
    return;
  }
  hlo_val_t out, lse;
  if (a.row_blocks * a.col_blocks == 1) {
    hlo_val_t r[ROW_STATE] = {0};
    const block_t only = {0};
    see_block(h, &a, &only, a.q, r);
    finish_rows(h, r, &out, &lse);
  } else {
    const int64_t dims[5] = {a.batch, a.heads, a.group, a.row_blocks * a.row_block, a.value_depth};
    hlo_val_t init[2], r[2] = {0};
    init[0] = hlo_full(h, op_result_dtype(c, 0), 5, dims, 0);
    init[1] = hlo_full(h, a.type, 4, dims, 0);
    hlo_for(h, a.row_blocks, 2, init, forward_rows, &a, r);
    out = crop(h, r[0], 3, a.rows), lse = crop(h, r[1], 3, a.rows);
  }
  op_ret(h, c, 0, as_result(h, c, 0, out));
  if (op_result_wanted(c, 1)) op_ret(h, c, 1, as_result(h, c, 1, lse));
}

/* --- gradient: with p = exp(s - lse), ds = p * (dropped(dout v^T) - delta), delta = sum(dout * out) --------------- */

enum { DQ, DK, DV, DS, GRADS };

static hlo_val_t row_lse(hlo_t *h, hlo_val_t s) {
  const hlo_val_t top = finite_top(h, nn_top(h, s, 4));
  const hlo_val_t sum = hlo_reduce_dim(h, "add", hlo_exp(h, hlo_sub(h, s, spread_rows(h, top, s))), 4);
  return hlo_add(h, top, hlo_log(h, sum));
}

/* The four gradients of one block: dq [b, h, group, rows, depth]; dk, dv [b, h, cols, x]; ds as scores. */
static void block_gradients(hlo_t *h, const loop_t *l, hlo_val_t *g) {
  const attention_t *a = l->a;
  const block_t *b = &l->block;
  const hlo_val_t s = scores(h, a, b, l->q, l->k), lse = l->lse ? l->lse : row_lse(h, s), base = finite_top(h, lse);
  const hlo_val_t p = hlo_exp(h, hlo_sub(h, s, spread_rows(h, base, s))), keep = kept(h, a, b, p);
  const hlo_val_t dout = join_rows(h, a, l->dout), weights = join_rows(h, a, drop(h, a, keep, p));
  g[DV] = product(h, a, weights, 2, dout, 2);
  hlo_val_t dp = split_rows(h, a, product(h, a, dout, 3, l->v, 3));
  dp = hlo_sub(h, drop(h, a, keep, dp), spread_rows(h, l->delta, dp));
  g[DS] = hlo_mul(h, p, dp);
  const hlo_val_t ds = join_rows(h, a, nn_scale(h, g[DS], a->scale));
  g[DQ] = split_rows(h, a, product(h, a, ds, 3, l->k, 2));
  g[DK] = product(h, a, ds, 2, join_rows(h, a, l->q), 2);
}

static void load_rows(hlo_t *h, loop_t *l, hlo_val_t row) {
  const attention_t *a = l->a;
  l->block.row = row;
  l->q = block_of(h, a->q, 3, row, a->row_block);
  l->dout = block_of(h, a->dout, 3, row, a->row_block);
  l->lse = block_of(h, a->lse, 3, row, a->row_block);
  l->delta = block_of(h, a->delta, 3, row, a->row_block);
}

/* ds summed to the bias's own shape. */
static hlo_val_t bias_gradient(hlo_t *h, const attention_t *a, hlo_val_t ds) {
  int dims[5], count = 0;
  int64_t shape[5];
  for (int i = 0; i < 5; i++) {
    const bool shared = hlo_dim(h, a->bias, i) == 1;
    if (shared) dims[count++] = i;
    shape[i] = shared ? 1 : hlo_dim(h, ds, i);
  }
  return count ? hlo_reshape(h, nn_sum(h, ds, count, dims), 5, shape) : ds;
}

/* Adds the gradient |part| of a block to its place in |all|, the gradient of the padded bias. */
static hlo_val_t add_bias_gradient(hlo_t *h, const attention_t *a, const block_t *b, hlo_val_t all, hlo_val_t part) {
  hlo_val_t line = block_of(h, all, 3, b->row, a->row_block);
  const hlo_val_t sum = hlo_add(h, block_of(h, line, 4, b->col, a->col_block), part);
  line = hlo_dim(h, all, 4) == 1 ? sum : put_block(h, line, sum, 4, b->col, a->col_block);
  return hlo_dim(h, all, 3) == 1 ? line : put_block(h, all, line, 3, b->row, a->row_block);
}

/* The loops of the gradient carry dq of all rows, dk and dv, and the bias's gradient where it is wanted. */
enum { BACK_STATE = 4 };

static int back_count(const attention_t *a) { return a->wants_bias ? 4 : 3; }

/* Carries (row block, limit, dq, dk and dv of the column block, dbias). */
static void backward_rows(hlo_t *h, void *ctx, const hlo_val_t *args, hlo_val_t *results) {
  loop_t *l = ctx;
  const attention_t *a = l->a;
  hlo_val_t g[GRADS];
  load_rows(h, l, args[0]);
  block_gradients(h, l, g);
  const hlo_val_t old = block_of(h, args[2 + DQ], 3, args[0], a->row_block);
  results[0] = nn_plus(h, args[0], 1);
  results[1] = args[1];
  results[2 + DQ] = put_block(h, args[2 + DQ], hlo_add(h, old, g[DQ]), 3, args[0], a->row_block);
  results[2 + DK] = hlo_add(h, args[2 + DK], g[DK]);
  results[2 + DV] = hlo_add(h, args[2 + DV], g[DV]);
  if (a->wants_bias) results[2 + DS] = add_bias_gradient(h, a, &l->block, args[2 + DS], bias_gradient(h, a, g[DS]));
}

/* Carries (column block), dq, dk, dv, dbias. */
static void backward_cols(hlo_t *h, void *ctx, const hlo_val_t *args, hlo_val_t *results) {
  const attention_t *a = ctx;
  const hlo_val_t col = args[0], *all = args + 1;
  loop_t l = {.a = a, .block = {.col = col}};
  l.k = block_of(h, a->k, 2, col, a->col_block);
  l.v = block_of(h, a->v, 2, col, a->col_block);
  const int64_t kd[4] = {a->batch, a->heads, a->col_block, a->depth},
                vd[4] = {a->batch, a->heads, a->col_block, a->value_depth};
  hlo_val_t carried[2 + BACK_STATE], r[2 + BACK_STATE] = {0};
  carried[0] = hlo_const_int(h, TTPU_I64, 0);
  if (a->causal) { /* rows above the column block see none of it */
    const hlo_val_t first = nn_scale(h, col, (double)a->col_block);
    carried[0] = hlo_div(h, first, hlo_like(h, first, (double)a->row_block));
  }
  carried[1] = hlo_const_int(h, TTPU_I64, a->row_blocks);
  carried[2 + DQ] = all[DQ];
  carried[2 + DK] = hlo_full(h, a->type, 4, kd, 0);
  carried[2 + DV] = hlo_full(h, a->type, 4, vd, 0);
  if (a->wants_bias) carried[2 + DS] = all[DS];
  hlo_while(h, 2 + back_count(a), carried, below_limit, backward_rows, &l, r);
  results[DQ] = r[2 + DQ];
  results[DK] = put_block(h, all[DK], hlo_convert(h, r[2 + DK], hlo_dtype(h, all[DK])), 2, col, a->col_block);
  results[DV] = put_block(h, all[DV], hlo_convert(h, r[2 + DV], hlo_dtype(h, all[DV])), 2, col, a->col_block);
  if (a->wants_bias) results[DS] = r[2 + DS];
}

/* grad_out, query, key, value, attn_bias, grad_input_mask, out, logsumexp, cum_seq_q, cum_seq_k, max_q, max_k,
 * dropout_p, is_causal, philox_seed, philox_offset, scale */
void op_emit_attention_backward(hlo_t *h, const op_call_t *c) {
  attention_t a;
  if (!read_attention(h, c, 1, 4, 12, 13, 16, &a)) return;
  if (hlo_numel(h, a.q) == 0 || hlo_numel(h, a.k) == 0 || a.value_depth == 0) {
    for (int k = 0; k < 4; k++)
      if (op_result_wanted(c, k)) nn_ret_full(h, c, k, 0);
    return;
  }
  if (a.dropout > 0) {
    const int64_t one = 1;
    hlo_val_t words[2];
    for (int i = 0; i < 2; i++) words[i] = hlo_convert(h, hlo_reshape(h, op_tensor(h, c, 14 + i), 1, &one), TTPU_U64);
    a.state = hlo_concat(h, 2, words, 0);
  }
  a.wants_bias = a.bias && op_result_wanted(c, 3);
  const int64_t rows = a.row_blocks * a.row_block, cols = a.col_blocks * a.col_block;
  const hlo_val_t dout = with_dims(h, op_tensor(h, c, 0), a.batch, a.heads, a.group, a.rows, a.value_depth);
  const hlo_val_t out = with_dims(h, op_tensor(h, c, 6), a.batch, a.heads, a.group, a.rows, a.value_depth);
  const hlo_val_t wide = hlo_convert(h, dout, a.type), both = hlo_mul(h, wide, hlo_convert(h, out, a.type));
  const hlo_val_t delta = hlo_reduce_dim(h, "add", both, 4);
  const hlo_val_t lse = with_four(h, op_tensor_as(h, c, 7, a.type), a.batch, a.heads, a.group, a.rows);
  a.dout = pad_to(h, dout, 3, rows), a.delta = pad_to(h, delta, 3, rows);
  a.lse = pad_with(h, lse, __builtin_inf(), 3, rows); /* rows that are not there weigh nothing */
  hlo_val_t g[GRADS] = {0};
  if (a.row_blocks * a.col_blocks == 1) {
    /* logsumexp is saved as f32: for doubles it is computed anew */
    const hlo_val_t saved = a.type == TTPU_F64 ? 0 : a.lse;
    const loop_t whole = {.a = &a, .q = a.q, .k = a.k, .v = a.v, .dout = a.dout, .lse = saved, .delta = a.delta};
    block_gradients(h, &whole, g);
    if (a.wants_bias) g[DS] = bias_gradient(h, &a, g[DS]);
  } else {
    const int64_t qd[5] = {a.batch, a.heads, a.group, rows, a.depth};
    const int64_t kd[4] = {a.batch, a.heads, cols, a.depth}, vd[4] = {a.batch, a.heads, cols, a.value_depth};
    hlo_val_t init[BACK_STATE];
    init[DQ] = hlo_full(h, a.type, 5, qd, 0);
    init[DK] = hlo_full(h, hlo_dtype(h, a.k), 4, kd, 0);
    init[DV] = hlo_full(h, hlo_dtype(h, a.v), 4, vd, 0);
    if (a.wants_bias) init[DS] = hlo_full_like(h, a.bias, 0);
    hlo_for(h, a.col_blocks, back_count(&a), init, backward_cols, &a, g);
    g[DQ] = crop(h, g[DQ], 3, a.rows), g[DK] = crop(h, g[DK], 2, a.cols), g[DV] = crop(h, g[DV], 2, a.cols);
    if (a.wants_bias) g[DS] = crop(h, crop(h, g[DS], 3, a.rows), 4, a.cols);
  }
  for (int k = DQ; k <= DV; k++)
    if (op_result_wanted(c, k)) op_ret(h, c, k, as_result(h, c, k, g[k]));
  if (a.wants_bias) op_ret(h, c, 3, as_result(h, c, 3, g[DS]));
}
