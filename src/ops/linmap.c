#include "ops/linmap.h"

#include "base/alloc.h"
#include "ops/nn.h"

enum {
  MAX_RUNS = 8,          /* more pieces than this and one gather is cheaper than a concatenation */
  MAX_GATHERS = 4,       /* taps that are gathered one by one; above it a matrix product */
  MAX_LITERAL = 1 << 16, /* matrix entries written out as a constant */
};

ttpu_linmap_t *ttpu_linmap_create(int64_t in, int64_t out, int64_t taps, bool weighted) {
  ttpu_linmap_t *map = ttpu_alloc_zero(1, sizeof *map);
  if (!map) return NULL;
  *map = (ttpu_linmap_t){.in = in, .out = out, .taps = taps};
  const size_t count = (size_t)(out * taps) + 1;
  map->index = ttpu_alloc_zero(count, sizeof *map->index);
  if (weighted) map->weight = ttpu_alloc_zero(count, sizeof *map->weight);
  if (map->index && (map->weight || !weighted)) return map;
  ttpu_linmap_free(map);
  return NULL;
}

void ttpu_linmap_free(ttpu_linmap_t *map) {
  if (!map) return;
  ttpu_free(map->index);
  ttpu_free(map->weight);
  ttpu_free(map);
}

static hlo_val_t no_memory(hlo_t *h) { return hlo_fail_code(h, TTPU_RESOURCE_EXHAUSTED, "the host is out of memory"); }

static hlo_val_t zeros_with(hlo_t *h, hlo_val_t x, int dim, int64_t size) {
  int64_t dims[TTPU_MAX_RANK];
  const int rank = hlo_rank(h, x);
  for (int i = 0; i < rank; i++) dims[i] = i == dim ? size : hlo_dim(h, x, i);
  return hlo_full(h, hlo_dtype(h, x), rank, dims, 0);
}

/* --- runs: index sequences start, start + step, ... ---------------------------------------------------------- */

typedef struct {
  int64_t at, start, step, count;
} run_t;

/* Splits |index| into evenly stepped runs; returns how many, or MAX_RUNS + 1 when there are more. */
static int find_runs(const int64_t *index, int64_t n, int64_t pitch, run_t *runs) {
  int count = 0;
  for (int64_t o = 0; o < n;) {
    if (count == MAX_RUNS) return MAX_RUNS + 1;
    run_t r = {.at = o, .start = index[o * pitch], .count = 1};
    if (o + 1 < n) r.step = index[(o + 1) * pitch] - r.start;
    while (o + r.count < n && index[(o + r.count) * pitch] == r.start + r.step * r.count) r.count++;
    if (r.count == 1) r.step = 1;
    runs[count++] = r;
    o += r.count;
  }
  return count;
}

/* How often each input is repeated in a row (nearest upsampling by a whole factor); 0 when it is not so. */
static int64_t repeats(const int64_t *index, int64_t n, int64_t in) {
  if (in == 0 || n % in != 0 || n == in) return 0;
  const int64_t times = n / in;
  for (int64_t o = 0; o < n; o++)
    if (index[o] != o / times) return 0;
  return times;
}

static hlo_val_t read_run(hlo_t *h, hlo_val_t x, int dim, const run_t *r) {
  if (r->step == 0) {
    int64_t dims[TTPU_MAX_RANK];
    const int rank = hlo_rank(h, x);
    for (int i = 0; i < rank; i++) dims[i] = i == dim ? r->count : hlo_dim(h, x, i);
    return hlo_expand(h, hlo_slice_dim(h, x, dim, r->start, r->start + 1, 1), rank, dims);
  }
  if (r->step > 0) {
    if (r->start == 0 && r->step == 1 && r->count == hlo_dim(h, x, dim)) return x;
    return hlo_slice_dim(h, x, dim, r->start, r->start + (r->count - 1) * r->step + 1, r->step);
  }
  const int64_t low = r->start + (r->count - 1) * r->step;
  return hlo_reverse(h, hlo_slice_dim(h, x, dim, low, r->start + 1, -r->step), 1, &dim);
}

/* The adjoint of read_run: the part of |y| that the run wrote, added up where it was read. */
static hlo_val_t write_run(hlo_t *h, hlo_val_t y, int dim, const run_t *r, int64_t in) {
  const int rank = hlo_rank(h, y);
  int64_t low[TTPU_MAX_RANK] = {0}, high[TTPU_MAX_RANK] = {0}, inside[TTPU_MAX_RANK] = {0};
  hlo_val_t part = hlo_slice_dim(h, y, dim, r->at, r->at + r->count, 1);
  int64_t first = r->start, step = r->step, count = r->count;
  if (step == 0) {
    part = hlo_unsqueeze(h, hlo_reduce_dim(h, "add", part, dim), dim);
    count = 1, step = 1;
  } else if (step < 0) {
    part = hlo_reverse(h, part, 1, &dim);
    first += (count - 1) * step, step = -step;
  }
  if (hlo_failed(h) || rank == 0) return 0;
  low[dim] = first, inside[dim] = step - 1, high[dim] = in - first - ((count - 1) * step + 1);
  return hlo_pad(h, part, hlo_like(h, part, 0), low, high, inside);
}

static hlo_val_t select_strided(hlo_t *h, hlo_val_t x, int dim, int64_t count, const int64_t *index, int64_t pitch) {
  run_t runs[MAX_RUNS];
  hlo_val_t parts[MAX_RUNS];
  const int n = find_runs(index, count, pitch, runs);
  if (n <= MAX_RUNS) {
    for (int i = 0; i < n; i++) parts[i] = read_run(h, x, dim, &runs[i]);
    return n == 1 ? parts[0] : hlo_concat(h, n, parts, dim);
  }
  int64_t *column = ttpu_alloc((size_t)count * sizeof *column);
  if (!column) return no_memory(h);
  for (int64_t o = 0; o < count; o++) column[o] = index[o * pitch];
  const ttpu_dtype_e type = hlo_dim(h, x, dim) < INT32_MAX ? TTPU_I32 : TTPU_I64;
  const hlo_val_t at = hlo_const_ints(h, type, count, column);
  ttpu_free(column);
  return hlo_index_select(h, x, at, dim);
}

hlo_val_t ttpu_linmap_select(hlo_t *h, hlo_val_t x, int dim, int64_t count, const int64_t *index) {
  if (count == 0 || hlo_numel(h, x) == 0) return zeros_with(h, x, dim, count);
  return select_strided(h, x, dim, count, index, 1);
}

/* --- weighted maps --------------------------------------------------------------------------------------------- */

static hlo_val_t weight_column(hlo_t *h, const ttpu_linmap_t *map, ttpu_dtype_e dtype, int64_t k) {
  double *column = ttpu_alloc((size_t)(map->out + 1) * sizeof *column);
  if (!column) return no_memory(h);
  for (int64_t o = 0; o < map->out; o++) column[o] = map->weight[o * map->taps + k];
  const hlo_val_t w = hlo_const_doubles(h, ttpu_dtype_real(dtype), map->out, column);
  ttpu_free(column);
  return hlo_convert(h, w, dtype);
}

static hlo_val_t gather_taps(hlo_t *h, const ttpu_linmap_t *map, hlo_val_t x, int dim) {
  hlo_val_t sum = 0;
  for (int64_t k = 0; k < map->taps; k++) {
    const hlo_val_t w = weight_column(h, map, hlo_dtype(h, x), k);
    hlo_val_t part = select_strided(h, x, dim, map->out, map->index + k, map->taps);
    part = hlo_mul(h, part, nn_along(h, w, part, dim));
    sum = k ? hlo_add(h, sum, part) : part;
  }
  return sum;
}

/* The map as a matrix [out, in]: a literal when it is small, else computed from its rows on the device. */
static hlo_val_t matrix(hlo_t *h, const ttpu_linmap_t *map, ttpu_dtype_e dtype) {
  const int64_t dims[2] = {map->out, map->in};
  const ttpu_dtype_e real = ttpu_dtype_real(dtype);
  if (map->taps > 4 && map->out * map->in <= MAX_LITERAL) {
    double *entries = ttpu_alloc_zero((size_t)(map->out * map->in), sizeof *entries);
    if (!entries) return no_memory(h);
    for (int64_t o = 0; o < map->out; o++)
      for (int64_t k = 0; k < map->taps; k++)
        entries[o * map->in + map->index[o * map->taps + k]] += map->weight ? map->weight[o * map->taps + k] : 1;
    const hlo_val_t flat = hlo_const_doubles(h, real, map->out * map->in, entries);
    ttpu_free(entries);
    return hlo_convert(h, hlo_reshape(h, flat, 2, dims), dtype);
  }
  const hlo_val_t column = hlo_iota(h, TTPU_I64, 2, dims, 1);
  hlo_val_t sum = hlo_full(h, real, 2, dims, 0);
  const int row = 0;
  for (int64_t k = 0; k < map->taps; k++) {
    int64_t *index = ttpu_alloc((size_t)(map->out + 1) * sizeof *index);
    if (!index) return no_memory(h);
    for (int64_t o = 0; o < map->out; o++) index[o] = map->index[o * map->taps + k];
    const hlo_val_t at = hlo_const_ints(h, TTPU_I64, map->out, index);
    ttpu_free(index);
    const hlo_val_t hit = hlo_eq(h, column, hlo_broadcast_in(h, at, 2, dims, &row));
    const hlo_val_t w = map->weight ? weight_column(h, map, real, k) : hlo_full(h, real, 1, dims, 1);
    const hlo_val_t term = nn_keep(h, hit, hlo_broadcast_in(h, w, 2, dims, &row));
    sum = hlo_add(h, sum, term);
  }
  return hlo_convert(h, sum, dtype);
}

/* Contracts |dim| of |x| with dimension |side| of the matrix and puts the other one in its place. */
static hlo_val_t multiply(hlo_t *h, const ttpu_linmap_t *map, hlo_val_t x, int dim, int side) {
  const hlo_val_t m = matrix(h, map, hlo_dtype(h, x));
  const hlo_val_t y = hlo_dot_general(h, x, m, 0, NULL, NULL, 1, &dim, &side, hlo_dtype(h, x));
  const int rank = hlo_rank(h, x);
  if (dim == rank - 1) return y;
  int order[TTPU_MAX_RANK];
  for (int i = 0; i < rank; i++) order[i] = i < dim ? i : i == dim ? rank - 1 : i - 1;
  return hlo_transpose(h, y, order);
}

hlo_val_t ttpu_linmap_apply(hlo_t *h, const ttpu_linmap_t *map, hlo_val_t x, int dim) {
  if (!map) return no_memory(h);
  if (map->out == 0 || hlo_numel(h, x) == 0) return zeros_with(h, x, dim, map->out);
  if (map->weight) return map->taps <= MAX_GATHERS ? gather_taps(h, map, x, dim) : multiply(h, map, x, dim, 1);
  const int64_t times = repeats(map->index, map->out, map->in);
  if (!times) return select_strided(h, x, dim, map->out, map->index, 1);
  int64_t wide[TTPU_MAX_RANK], merged[TTPU_MAX_RANK];
  int from[TTPU_MAX_RANK];
  const int rank = hlo_rank(h, x);
  for (int i = 0; i < rank; i++) {
    from[i] = i + (i > dim);
    wide[from[i]] = hlo_dim(h, x, i);
    merged[i] = i == dim ? map->out : hlo_dim(h, x, i);
  }
  wide[dim + 1] = times;
  return hlo_reshape(h, hlo_broadcast_in(h, x, rank + 1, wide, from), rank, merged);
}

/* The transposed map in the same form: rows are inputs. Missing taps have weight 0 and repeat the row's last index. */
static ttpu_linmap_t *transpose(const ttpu_linmap_t *map) {
  int64_t *used = ttpu_alloc_zero((size_t)map->in + 1, sizeof *used), most = 1;
  if (!used) return NULL;
  for (int64_t i = 0; i < map->out * map->taps; i++)
    if (map->weight[i] != 0 && ++used[map->index[i]] > most) most = used[map->index[i]];
  ttpu_linmap_t *back = ttpu_linmap_create(map->out, map->in, most, true);
  for (int64_t i = 0; i < map->in; i++) used[i] = 0;
  for (int64_t o = 0; back && o < map->out; o++)
    for (int64_t k = 0; k < map->taps; k++) {
      const int64_t i = map->index[o * map->taps + k];
      if (map->weight[o * map->taps + k] == 0) continue;
      const int64_t slot = i * most + used[i]++;
      back->index[slot] = o;
      back->weight[slot] = map->weight[o * map->taps + k];
    }
  for (int64_t i = 0; back && i < map->in; i++)
    for (int64_t k = used[i]; k < most && k > 0; k++) back->index[i * most + k] = back->index[i * most + k - 1];
  ttpu_free(used);
  return back;
}

hlo_val_t ttpu_linmap_apply_back(hlo_t *h, const ttpu_linmap_t *map, hlo_val_t y, int dim) {
  if (!map) return no_memory(h);
  if (map->in == 0 || hlo_numel(h, y) == 0) return zeros_with(h, y, dim, map->in);
  if (map->weight) {
    ttpu_linmap_t *back = transpose(map);
    if (!back) return no_memory(h);
    const hlo_val_t x = back->taps <= MAX_GATHERS ? gather_taps(h, back, y, dim) : multiply(h, map, y, dim, 0);
    ttpu_linmap_free(back);
    return x;
  }
  const int rank = hlo_rank(h, y);
  const int64_t times = repeats(map->index, map->out, map->in);
  if (times) {
    int64_t split[TTPU_MAX_RANK];
    for (int i = 0; i < rank; i++) split[i + (i > dim)] = i == dim ? map->in : hlo_dim(h, y, i);
    split[dim + 1] = times;
    return hlo_reduce_dim(h, "add", hlo_reshape(h, y, rank + 1, split), dim + 1);
  }
  run_t runs[MAX_RUNS];
  const int n = find_runs(map->index, map->out, 1, runs);
  if (n > MAX_RUNS) return multiply(h, map, y, dim, 0);
  hlo_val_t sum = 0;
  for (int i = 0; i < n; i++) {
    const hlo_val_t part = write_run(h, y, dim, &runs[i], map->in);
    sum = i ? hlo_add(h, sum, part) : part;
  }
  return sum;
}
