/* hlo_test.c: golden text, failure messages, constants' scope, an allocation sweep, speed. "--dump DIR" writes the text
 * of every case instead, for tests/py/test_hlo.py; "--golden DIR" renews the golden files.
 */
#include <stdlib.h>

#include "base/alloc.h"
#include "check.h"
#include "hlo/hlo.h"
#include "hlo/hlo_cases.h"

static const char *const golden[] = {"binary_bool", "constants_other", "shapes", "dots", "reduce_many",
                                     "loops",       "gathers",         "sorts",  "random_bits"};

static ttpu_status_t *emit(const hlo_case_t *which, hlo_t *h, const char **text, size_t *size) {
  hlo_val_t out[CASE_RESULTS];
  const int count = which->emit(h, out);
  return hlo_finish(h, count, out, text, size);
}

static const hlo_case_t *find(const char *name) {
  for (int i = 0; i < COUNT(hlo_cases); i++)
    if (!strcmp(hlo_cases[i].name, name)) return &hlo_cases[i];
  return NULL;
}

static bool write_case(const char *folder, const hlo_case_t *which) {
  hlo_t *h = hlo_create();
  const char *text;
  size_t size;
  bool ok = CHECK_OK(emit(which, h, &text, &size));
  char path[1024];
  snprintf(path, sizeof path, "%s/%s.mlir", folder, which->name);
  FILE *file = ok ? fopen(path, "wb") : NULL;
  ok = file && fwrite(text, 1, size, file) == size;
  if (file) fclose(file);
  hlo_free(h);
  if (!ok) fprintf(stderr, "cannot write %s\n", path);
  return ok;
}

TEST(golden_text) {
  const char *source = getenv("TORCHTPU_TEST_SOURCE");
  if (!source) source = ".";
  for (int i = 0; i < COUNT(golden); i++) {
    hlo_t *h = hlo_create();
    const char *text;
    size_t size;
    static char expected[1 << 16];
    char path[1024];
    snprintf(path, sizeof path, "%s/tests/c/golden/%s.mlir", source, golden[i]);
    FILE *file = fopen(path, "rb");
    if (CHECK(file)) {
      expected[fread(expected, 1, sizeof expected - 1, file)] = 0;
      fclose(file);
      if (CHECK_OK(emit(find(golden[i]), h, &text, &size)) && !CHECK(!strcmp(text, expected)))
        fprintf(stderr, "%s is now:\n%s", path, text);
    }
    hlo_free(h);
  }
}

/* --- failures --- */

#define FAILS(part, ...)                                                  \
  do {                                                                    \
    hlo_t *h = hlo_create();                                              \
    const hlo_val_t x = hlo_parameter(h, TTPU_F32, DIMS(2, 3), NULL);     \
    const hlo_val_t i = hlo_parameter(h, TTPU_I64, DIMS(4), NULL);        \
    const hlo_val_t z = hlo_parameter(h, TTPU_C64, DIMS(2), NULL);        \
    (void)x, (void)i, (void)z;                                            \
    const hlo_val_t bad = __VA_ARGS__;                                    \
    CHECK_INT(bad, 0);                                                    \
    CHECK(hlo_failed(h));                                                 \
    CHECK_INT(hlo_add(h, x, x), 0);                                       \
    const char *text;                                                     \
    size_t size;                                                          \
    CHECK_FAILS(hlo_finish(h, 1, &bad, &text, &size), TTPU_INVALID_ARGUMENT, part); \
    CHECK(!text);                                                         \
    hlo_free(h);                                                          \
  } while (0)

static void capture(hlo_t *h, void *ctx, const hlo_val_t *args, hlo_val_t *results) {
  results[0] = hlo_add(h, args[0], *(const hlo_val_t *)ctx);
}

static hlo_val_t reduce_with_capture(hlo_t *h, hlo_val_t x) {
  hlo_val_t sum = hlo_reduce_all(h, "add", x), init = hlo_like(h, x, 0), result;
  hlo_reduce_n(h, 1, &x, &init, 1, INTS(0), capture, &sum, &result);
  return result;
}

static void leak(hlo_t *h, void *ctx, const hlo_val_t *args, hlo_val_t *results) {
  results[0] = *(hlo_val_t *)ctx = hlo_neg(h, args[0]);
}

static hlo_val_t use_after_region(hlo_t *h, hlo_val_t x) {
  hlo_val_t leaked = x, value = hlo_const_int(h, TTPU_I64, 7);
  hlo_for(h, 2, 1, &value, leak, &leaked, &value);
  return hlo_neg(h, leaked);
}

TEST(failures) {
  FAILS("add of different dtypes: float32[2, 3] and int64[4]", hlo_add(h, x, i));
  FAILS("exponential is not defined for int64[4]", hlo_exp(h, i));
  FAILS("maximum is not defined for complex64[2]", hlo_max(h, z, z));
  FAILS("complex values have no order", hlo_lt(h, z, z));
  FAILS("complex64 values have no order", hlo_reduce_all(h, "maximum", z));
  FAILS("add: the sizes do not broadcast: float32[2, 3] and float32[2]", hlo_add(h, x, hlo_real(h, z)));
  FAILS("reshape of float32[2, 3] to [7]", hlo_reshape(h, x, DIMS(7)));
  FAILS("not a permutation", hlo_transpose(h, x, INTS(1, 1)));
  FAILS("dimension 2 of rank 2", hlo_reduce_dim(h, "add", x, 2));
  FAILS("dimension 1 is named twice", hlo_reduce(h, "add", x, 2, INTS(1, -1)));
  FAILS("slice 1:4:1 of dimension 1", hlo_slice_dim(h, x, 1, 1, 4, 1));
  FAILS("concatenate along dimension 0: float32[2, 3] and int64[4]", hlo_concat(h, 2, (hlo_val_t[]){x, i}, 0));
  FAILS("matmul of float32[2, 3] and int64[4]", hlo_matmul(h, x, i));
  FAILS("dot_general of float32[2, 3] and float32[2, 3]", hlo_matmul(h, x, x));
  FAILS("select by float32[2, 3], not bool", hlo_select(h, x, x, x));
  FAILS("an operand is missing", hlo_neg(h, 0));
  FAILS("an operand is missing", hlo_neg(h, 1000));
  FAILS("expand of float32[2, 3] to [3]", hlo_expand(h, x, DIMS(3)));
  FAILS("broadcast of float32[2, 3] to [2, 4]", hlo_expand(h, x, DIMS(2, 4)));
  FAILS("negative size: [-1]", hlo_full(h, TTPU_F32, DIMS(-1), 0));
  FAILS("cannot capture", reduce_with_capture(h, x));
  FAILS("a region that has ended", use_after_region(h, x));
  FAILS("IRFFT of complex64[2] with lengths [4]", hlo_fft(h, z, "IRFFT", 1, ARRAY(4)));
  FAILS("the third one", hlo_fail(h, "the %s one", "third"));
}

TEST(first_failure_wins) {
  hlo_t *h = hlo_create();
  hlo_fail_code(h, TTPU_UNIMPLEMENTED, "first");
  hlo_fail(h, "second");
  const char *text;
  size_t size;
  CHECK_FAILS(hlo_finish(h, 0, NULL, &text, &size), TTPU_UNIMPLEMENTED, "first");
  CHECK_FAILS(hlo_finish(h, 0, NULL, &text, &size), TTPU_FAILED_PRECONDITION, "before");
  CHECK_INT(hlo_rank(h, 0), 0);
  CHECK_INT(hlo_dims(h, 0)[hlo_rank(h, 0)], 0);
  hlo_free(h);
}

/* --- sharing --- */

TEST(constants_are_shared) {
  hlo_t *h = hlo_create();
  const hlo_val_t a = hlo_const(h, TTPU_F32, 0.5), b = hlo_const(h, TTPU_F32, 0.5);
  CHECK_INT(a, b);
  CHECK(hlo_const(h, TTPU_F64, 0.5) != a);
  CHECK(hlo_const(h, TTPU_F32, -0.0) != hlo_const(h, TTPU_F32, 0.0));
  CHECK_INT(hlo_const(h, TTPU_F32, NAN), hlo_const(h, TTPU_F32, -NAN));
  CHECK_INT(hlo_full(h, TTPU_F32, DIMS(3), 0.5), hlo_expand(h, a, DIMS(3)));
  CHECK_INT(hlo_const_int(h, TTPU_I8, 257), hlo_const_int(h, TTPU_I8, 1));
  CHECK_INT(hlo_const_ints(h, TTPU_I64, 2, ARRAY(4, 4)), hlo_full(h, TTPU_I64, DIMS(2), 4));
  hlo_free(h);
}

TEST(nothing_is_written_for_nothing) {
  hlo_t *h = hlo_create();
  const hlo_val_t x = hlo_parameter(h, TTPU_F32, DIMS(2, 3), NULL);
  CHECK_INT(hlo_reshape(h, x, DIMS(2, 3)), x);
  CHECK_INT(hlo_transpose(h, x, INTS(0, 1)), x);
  CHECK_INT(hlo_expand(h, x, DIMS(2, 3)), x);
  CHECK_INT(hlo_slice_dim(h, x, 0, 0, 2, 1), x);
  CHECK_INT(hlo_concat(h, 1, &x, 0), x);
  CHECK_INT(hlo_convert(h, x, TTPU_F32), x);
  CHECK_INT(hlo_reduce(h, "add", x, 0, NULL), x);
  CHECK_INT(hlo_real(h, x), x);
  hlo_free(h);
}

/* --- memory --- */

TEST(every_allocation_may_fail) {
  static const char *const names[] = {"loops", "sorts", "gathers", "constants_list", "convolutions"};
  for (int k = 0; k < COUNT(names); k++) {
    bool done = false;
    for (int64_t n = 0; n < 1000 && !done; n++) {
      ttpu_alloc_fail_at(n);
      hlo_t *h = hlo_create();
      const char *text = NULL;
      size_t size;
      ttpu_status_t *status = h ? emit(find(names[k]), h, &text, &size) : NULL;
      const bool worked = h && !status;
      const int64_t made = ttpu_alloc_count();
      ttpu_alloc_fail_at(-1);
      done = made <= n;
      CHECK(!done || worked); /* no request failed: it must have worked */
      if (worked) CHECK(text && size);
      if (status) CHECK_INT(ttpu_status_code(status), TTPU_RESOURCE_EXHAUSTED);
      ttpu_status_free(status);
      hlo_free(h);
    }
    CHECK(done);
  }
}

/* The text, not the clock: a request a line would be slow, and one that grew with the program slower yet. */
static int64_t requests_of(int loops) {
  ttpu_alloc_fail_at(INT64_MAX);
  hlo_t *h = hlo_create();
  hlo_val_t x = hlo_parameter(h, TTPU_F32, DIMS(32, 128, 64), NULL);
  for (int i = 0; i < loops; i++) {
    x = hlo_mul(h, x, hlo_like(h, x, i + 0.5));
    x = hlo_sub(h, x, hlo_spread(h, hlo_reduce_dim(h, "maximum", x, -1), x, 1, INTS(-1)));
  }
  const char *text;
  size_t size;
  CHECK_OK(hlo_finish(h, 1, &x, &text, &size));
  hlo_free(h);
  const int64_t made = ttpu_alloc_count();
  ttpu_alloc_fail_at(-1);
  return made;
}

TEST(a_thousand_lines_need_few_requests) {
  printf("1,500 lines in %d requests\n", (int)requests_of(250));
  CHECK(requests_of(250) < 100);
  CHECK(requests_of(500) < requests_of(250) + 20); /* buffers double */
}

int main(int argc, char **argv) {
  if (argc == 3 && !strcmp(argv[1], "--dump")) {
    for (int i = 0; i < COUNT(hlo_cases); i++)
      if (!write_case(argv[2], &hlo_cases[i])) return 1;
    return 0;
  }
  if (argc == 3 && !strcmp(argv[1], "--golden")) {
    for (int i = 0; i < COUNT(golden); i++)
      if (!write_case(argv[2], find(golden[i]))) return 1;
    return 0;
  }
  RUN(golden_text);
  RUN(failures);
  RUN(first_failure_wins);
  RUN(constants_are_shared);
  RUN(nothing_is_written_for_nothing);
  RUN(every_allocation_may_fail);
  RUN(a_thousand_lines_need_few_requests);
  return check_end();
}
