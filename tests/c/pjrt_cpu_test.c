/* pjrt_cpu_test.c: src/pjrt against a real plugin, what the fake one cannot tell: real numbers, donation, portable and
 * stored executables, zero copies. The plugin: first argument, else TORCHTPU_TEST_CPU_PLUGIN; skipped without one. */
#include <stdlib.h>
#include <unistd.h>

#include "base/alloc.h"
#include "check.h"
#include "pjrt/ffi.h"
#include "pjrt/pjrt.h"

static const char *plugin;
static ttpu_client_t *client; /* two devices */

static const char add_text[] =
    "module @add { func.func public @main(%a: tensor<4xf32> {tf.aliasing_output = 0 : i32}, %b: tensor<4xf32>)"
    " -> tensor<4xf32> { %0 = stablehlo.add %a, %b : tensor<4xf32> return %0 : tensor<4xf32> } }";

/* Results in the order that a transposition would give, were it not undone: row-major is what the host gets. */
static const char transpose_text[] =
    "module @t { func.func public @main(%a: tensor<2x3xi32>) -> tensor<3x2xi32> {"
    " %0 = stablehlo.transpose %a, dims = [1, 0] : (tensor<2x3xi32>) -> tensor<3x2xi32>"
    " return %0 : tensor<3x2xi32> } }";

static const int64_t four[] = {4};

static ttpu_executable_t *compile(const char *text) {
  ttpu_executable_t *executable = NULL;
  CHECK_OK(ttpu_executable_compile(client, 0, text, strlen(text), &executable));
  return executable;
}

static ttpu_buffer_t *put(int device, float first) {
  const float data[4] = {first, first + 1, first + 2, first + 3};
  ttpu_buffer_t *buffer = NULL;
  CHECK_OK(ttpu_buffer_from_host(client, device, TTPU_F32, 1, four, data, &buffer));
  return buffer;
}

static void expect(ttpu_buffer_t *buffer, float first, float step) {
  float back[4] = {0};
  CHECK_OK(ttpu_buffer_to_host(buffer, back, sizeof back));
  for (int i = 0; i < 4; i++) CHECK_NEAR(back[i], first + step * (float)i, 0);
}

static void add_on(ttpu_executable_t *add, int device) {
  ttpu_buffer_t *in[2] = {put(device, 1), put(device, 10)}, *kept, *out;
  const int64_t keep[] = {0};
  if (CHECK_OK(ttpu_executable_run(add, device, 2, in, 1, keep, NULL, &kept))) {
    CHECK(!ttpu_buffer_is_deleted(in[0]));
    expect(in[0], 1, 1); /* not overwritten either */
    expect(kept, 11, 2);
    CHECK_INT(ttpu_buffer_bytes(kept), 16);
    ttpu_buffer_release(kept);
  }
  if (CHECK_OK(ttpu_executable_run(add, device, 2, in, 0, NULL, NULL, &out))) {
    CHECK(ttpu_buffer_is_deleted(in[0]));
    CHECK(!ttpu_buffer_is_deleted(in[1]));
    expect(out, 11, 2);
    ttpu_buffer_t *again = NULL;
    CHECK_FAILS(ttpu_executable_run(add, device, 2, in, 0, NULL, NULL, &again), TTPU_INVALID_ARGUMENT, "donated");
    CHECK_FAILS(ttpu_buffer_await(in[0]), TTPU_INVALID_ARGUMENT, "donated");
    ttpu_buffer_release(out);
  }
  ttpu_buffer_release(in[0]);
  ttpu_buffer_release(in[1]);
}

TEST(test_client) {
  CHECK_INT(ttpu_client_device_count(client), 2);
  CHECK_STR(ttpu_client_platform(client), "cpu");
  CHECK(*ttpu_client_platform_version(client) && *ttpu_client_device_kind(client, 1));
  CHECK(*ttpu_client_host_features(client));
  ttpu_client_t *one = NULL;
  CHECK_OK(ttpu_client_create(plugin, 0, &one));
  CHECK_INT(ttpu_client_device_count(one), 1);
  ttpu_client_release(one);
}

TEST(test_compile_and_run_on_each_device) {
  ttpu_executable_t *add = compile(add_text);
  if (!add) return;
  CHECK_INT(ttpu_executable_result_count(add), 1);
  add_on(add, 0);
  add_on(add, 1);
  ttpu_cost_t cost;
  CHECK_OK(ttpu_executable_cost(add, &cost));
  CHECK_INT(cost.argument_bytes, 32);
  CHECK_INT(cost.output_bytes, 16);
  ttpu_executable_t *bad;
  ttpu_status_t *status = ttpu_executable_compile(client, 0, "module { oops }", 15, &bad);
  CHECK(status && strstr(ttpu_status_message(status), "oops")); /* plugins differ in the code */
  ttpu_status_free(status);
  ttpu_executable_release(add);
}

/* Loading must also say nothing on stderr, where the plugin likes to report machine features. */
TEST(test_store_and_load) {
  ttpu_executable_t *add = compile(add_text), *loaded = NULL;
  char *data = NULL;
  size_t size = 0;
  if (!add || !CHECK_OK(ttpu_executable_serialize(add, &data, &size))) return;
  ttpu_executable_release(add);
  fflush(stderr);
  FILE *file = tmpfile();
  const int saved = dup(STDERR_FILENO);
  dup2(fileno(file), STDERR_FILENO);
  ttpu_status_t *status = ttpu_executable_load(client, 1, data, size, &loaded);
  dup2(saved, STDERR_FILENO);
  close(saved);
  fseek(file, 0, SEEK_END);
  CHECK_INT(ftell(file), 0);
  fclose(file);
  if (CHECK_OK(status)) {
    add_on(loaded, 0);
    add_on(loaded, 1);
    ttpu_executable_release(loaded);
  }
  ttpu_free(data);
}

TEST(test_layout_is_row_major) {
  ttpu_executable_t *transpose = compile(transpose_text);
  if (!transpose) return;
  const int64_t dims[] = {2, 3};
  const int32_t data[] = {1, 2, 3, 4, 5, 6}, want[] = {1, 4, 2, 5, 3, 6};
  int32_t back[6] = {0};
  ttpu_buffer_t *in, *out;
  CHECK_OK(ttpu_buffer_from_host(client, 0, TTPU_I32, 2, dims, data, &in));
  CHECK_OK(ttpu_executable_run(transpose, 0, 1, &in, 0, NULL, NULL, &out));
  CHECK_OK(ttpu_buffer_to_host(out, back, sizeof back));
  CHECK(!memcmp(back, want, sizeof want));
  CHECK_INT(ttpu_buffer_bytes(out), 24);
  ttpu_buffer_release(in);
  ttpu_buffer_release(out);
  ttpu_executable_release(transpose);
}

TEST(test_every_dtype_round_trips) {
  char data[8 * 16], back[8 * 16];
  for (size_t i = 0; i < sizeof data; i++) data[i] = (char)(i % 2); /* valid booleans too */
  const int64_t dims[] = {2, 4};
  for (int d = TTPU_DTYPE_NONE + 1; d < TTPU_DTYPE_COUNT; d++) {
    const size_t size = (size_t)ttpu_dtype_bytes(d) * 8;
    ttpu_buffer_t *buffer = NULL;
    if (!CHECK_OK(ttpu_buffer_from_host(client, 0, d, 2, dims, data, &buffer))) continue;
    memset(back, 0xff, sizeof back);
    CHECK_OK(ttpu_buffer_to_host(buffer, back, size));
    if (!CHECK(!memcmp(data, back, size))) fprintf(stderr, "  for %s\n", ttpu_dtype_text(d));
    ttpu_buffer_release(buffer);
  }
}

TEST(test_copies_between_devices) {
  ttpu_buffer_t *a = put(0, 5), *b = NULL, *c = NULL;
  CHECK_OK(ttpu_buffer_copy_to_device(a, 1, &b));
  CHECK_OK(ttpu_buffer_copy_to_device(a, 0, &c)); /* also to where it is */
  ttpu_buffer_release(a);
  expect(b, 5, 1);
  expect(c, 5, 1);
  uintptr_t pointer = 0;
  CHECK_OK(ttpu_buffer_pointer(b, &pointer));
  CHECK_NEAR(((const float *)pointer)[3], 8, 0);
  ttpu_buffer_release(b);
  ttpu_buffer_release(c);
}

static void count_up(void *ctx) { ++*(volatile int *)ctx; }

/* A buffer that aliases host memory is never written to, not even when it is donated. */
TEST(test_zero_copy) {
  ttpu_executable_t *add = compile(add_text);
  float *data = aligned_alloc(64, 64);
  for (int i = 0; i < 4; i++) data[i] = (float)i;
  volatile int done = 0;
  ttpu_buffer_t *in[2] = {NULL, put(0, 1)}, *out;
  CHECK_OK(ttpu_buffer_from_host_async(client, 0, TTPU_F32, 1, four, data, count_up, (void *)&done, &in[0]));
  CHECK_OK(ttpu_executable_run(add, 0, 2, in, 0, NULL, NULL, &out));
  expect(out, 1, 2);
  for (int i = 0; i < 4; i++) CHECK_NEAR(data[i], i, 0);
  for (int i = 0; i < 3; i++) ttpu_buffer_release((ttpu_buffer_t *[]){in[0], in[1], out}[i]);
  CHECK_INT(done, 1);
  free(data);
  ttpu_executable_release(add);
}

static int scale_versions; /* minor of the interface, as the plugin told */

/* Multiplies by the attribute "by"; a negative factor is an error. */
static XLA_FFI_Error *scale(XLA_FFI_CallFrame *frame) {
  if (ttpu_ffi_answer(frame)) return NULL;
  if (frame->stage != XLA_FFI_ExecutionStage_EXECUTE) return NULL;
  scale_versions = frame->api->api_version.minor_version;
  const XLA_FFI_Buffer *in = frame->args.args[0], *out = frame->rets.rets[0];
  const XLA_FFI_Scalar *by = frame->attrs.attrs[0];
  if (frame->attrs.size != 1 || memcmp(frame->attrs.names[0]->ptr, "by", 2) || by->dtype != XLA_FFI_DataType_F32 ||
      in->dtype != XLA_FFI_DataType_F32 || in->rank != 1 || in->dims[0] != 4)
    return ttpu_ffi_error(frame, TTPU_INVALID_ARGUMENT, "not the frame that was expected");
  const float factor = *(const float *)by->value;
  if (factor < 0) return ttpu_ffi_error(frame, TTPU_OUT_OF_RANGE, "a negative factor");
  for (int i = 0; i < 4; i++) ((float *)out->data)[i] = factor * ((const float *)in->data)[i];
  return NULL;
}

TEST(test_custom_calls) {
  char text[512];
  static const char format[] =
      "module @s { func.func public @main(%%a: tensor<4xf32>) -> tensor<4xf32> {"
      " %%0 = stablehlo.custom_call @ttpu_test_scale(%%a) {api_version = 4 : i32, backend_config = {by = %.1f : f32}}"
      " : (tensor<4xf32>) -> tensor<4xf32> return %%0 : tensor<4xf32> } }";
  CHECK_OK(ttpu_ffi_register(client, "ttpu_test_scale", scale));
  ttpu_buffer_t *x = put(0, 1), *out = NULL;
  snprintf(text, sizeof text, format, 3.0);
  ttpu_executable_t *times3 = compile(text);
  if (times3 && CHECK_OK(ttpu_executable_run(times3, 0, 1, &x, 0, NULL, NULL, &out))) expect(out, 3, 3);
  CHECK(scale_versions >= XLA_FFI_API_MINOR);
  ttpu_buffer_release(out);
  ttpu_executable_release(times3);
  snprintf(text, sizeof text, format, -1.0);
  ttpu_executable_t *negative = compile(text);
  ttpu_status_t *status = ttpu_executable_run(negative, 0, 1, &x, 0, NULL, NULL, &out);
  if (!status) status = ttpu_buffer_await(out); /* the plugin is free to tell later */
  CHECK_FAILS(status, TTPU_OUT_OF_RANGE, "a negative factor");
  ttpu_buffer_release(out);
  ttpu_buffer_release(x);
  ttpu_executable_release(negative);
}

/* Leaves everything alive on purpose: what the end of a process finds. */
TEST(test_shutdown_with_work_in_flight) {
  ttpu_executable_t *add = compile(add_text);
  ttpu_buffer_t *x = put(0, 0), *y = put(0, 1), *next;
  for (int i = 0; i < 500; i++) {
    CHECK_OK(ttpu_executable_run(add, 0, 2, (ttpu_buffer_t *[]){x, y}, 0, NULL, NULL, &next));
    ttpu_buffer_release(x);
    x = next;
  }
  ttpu_client_shutdown(client);
  CHECK_FAILS(ttpu_buffer_await(x), TTPU_FAILED_PRECONDITION, "shut down");
  ttpu_executable_release(add);
  ttpu_buffer_release(x);
  ttpu_client_release(client);
  ttpu_buffer_release(y);
}

int main(int argc, char **argv) {
  plugin = argc > 1 ? argv[1] : getenv("TORCHTPU_TEST_CPU_PLUGIN");
  if (!plugin || !*plugin) {
    fprintf(stderr, "skipped: TORCHTPU_TEST_CPU_PLUGIN does not name a plugin\n");
    return CHECK_SKIPPED;
  }
  if (!CHECK_OK(ttpu_client_create(plugin, 2, &client))) return check_end();
  RUN(test_client);
  RUN(test_compile_and_run_on_each_device);
  RUN(test_store_and_load);
  RUN(test_layout_is_row_major);
  RUN(test_every_dtype_round_trips);
  RUN(test_copies_between_devices);
  RUN(test_zero_copy);
  RUN(test_custom_calls);
  RUN(test_shutdown_with_work_in_flight); /* last: ends the client */
  return check_end();
}
