/* pjrt_test.c: src/pjrt against the fake plugin: every wrapper, every failure of every plugin function, every failed
 * allocation, old and crippled plugins, donation, shutdown, threads. */
#include "pjrt/pjrt.h"

#include <pthread.h>
#include <stdatomic.h>
#include <sys/stat.h>
#include <time.h>

#include "base/alloc.h"
#include "fake.h"
#include "pjrt/ffi.h"
#include "pjrt/plugin.h"

static fake_t fake; /* the usual one: four CPU devices */

static const char add_text[] =
    "module @m { func.func public @main(%a: tensor<4xf32> {tf.aliasing_output = 0 : i32}, %b: tensor<4xf32>)"
    " -> (tensor<4xf32> {jax.result_info = \"x -> {y}\"}) {\n"
    " %0 = stablehlo.add %a, %b : tensor<4xf32>\n return %0 : tensor<4xf32> } }";

static const int64_t four[] = {4};

static ttpu_client_t *open_client(const char *config, int devices) {
  ttpu_client_t *client = NULL;
  CHECK(fake.configure(config));
  CHECK_OK(ttpu_client_create(fake.path, devices, &client));
  return client;
}

static ttpu_buffer_t *put(ttpu_client_t *client, int device) {
  const float data[4] = {1, 2, 3, 4};
  ttpu_buffer_t *buffer = NULL;
  CHECK_OK(ttpu_buffer_from_host(client, device, TTPU_F32, 1, four, data, &buffer));
  return buffer;
}

static ttpu_executable_t *compile(ttpu_client_t *client, int device, const char *text) {
  ttpu_executable_t *executable = NULL;
  CHECK_OK(ttpu_executable_compile(client, device, text, strlen(text), &executable));
  return executable;
}

/* --- loading ------------------------------------------------------------------------------------------------ */

static void expect_no_client(const char *path, ttpu_code_e code, const char *part) {
  ttpu_client_t *client = (ttpu_client_t *)1;
  CHECK_FAILS(ttpu_client_create(path, 0, &client), code, part);
  CHECK(!client);
}

TEST(test_wrong_files) {
  char path[160];
  expect_no_client("/nowhere/plugin.so", TTPU_NOT_FOUND, "no plugin library at /nowhere/plugin.so");
  expect_no_client("/tmp", TTPU_INVALID_ARGUMENT, "is a folder");
  snprintf(path, sizeof path, "%s.txt", fake.path);
  FILE *file = fopen(path, "w");
  fputs("not a library\n", file);
  fclose(file);
  expect_no_client(path, TTPU_INVALID_ARGUMENT, "is not a shared library");
  file = fopen(path, "w");
  fputs("\177ELF and nothing more", file);
  fclose(file);
  expect_no_client(path, TTPU_NOT_FOUND, "does not load");
  unlink(path);
  expect_no_client("libm.so.6", TTPU_INVALID_ARGUMENT, "no function GetPjrtApi");
  expect_no_client("/nowhere/libtpu.so", ttpu_plugin_has_tpu() ? TTPU_NOT_FOUND : TTPU_FAILED_PRECONDITION, "libtpu");
}

TEST(test_versions) {
  static const struct {
    const char *config, *part;
    ttpu_code_e code;
  } cases[] = {
      {"major=1", "speaks PJRT API 1.114", TTPU_FAILED_PRECONDITION},
      {"minor=80", "speaks PJRT API 0.80", TTPU_FAILED_PRECONDITION},
      {"slots=3", "does not implement PJRT_Plugin_Initialize", TTPU_UNIMPLEMENTED},
      {"slots=10", "does not implement PJRT_Client_Create", TTPU_UNIMPLEMENTED},
      {"omit=PJRT_Client_AddressableDevices", "PJRT_Client_AddressableDevices", TTPU_UNIMPLEMENTED},
      {"fail=PJRT_Plugin_Initialize@1:9", "does not initialise", TTPU_FAILED_PRECONDITION},
      /* An error that cannot be read is still an error. */
      {"fail=PJRT_Client_Create@1+;omit=PJRT_Error_GetCode,PJRT_Error_Message", "", TTPU_UNKNOWN},
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    fake_t other = fake_open(cases[i].config);
    expect_no_client(other.path, cases[i].code, cases[i].part);
    fake_close(&other);
  }
}

/* A plugin whose table ends early (what 0.81 and later always have, and no more) does all that we need. */
TEST(test_short_table) {
  fake_t other = fake_open("minor=81;slots=97");
  ttpu_client_t *client = NULL;
  int major, minor;
  if (CHECK_OK(ttpu_client_create(other.path, 1, &client))) {
    ttpu_client_api_version(client, &major, &minor);
    CHECK_INT(major, 0);
    CHECK_INT(minor, 81);
    ttpu_executable_t *executable = compile(client, 0, add_text);
    ttpu_executable_release(executable);
  }
  ttpu_client_release(client);
  CHECK_INT(other.live(), 0);
  fake_close(&other);
}

TEST(test_missing_optional_slots) {
  fake_t other = fake_open("omit=PJRT_Device_MemoryStats,PJRT_Executable_GetCostAnalysis,PJRT_Buffer_UnsafePointer,"
                           "PJRT_Executable_GetCompiledMemoryStats,PJRT_Executable_SizeOfGeneratedCodeInBytes");
  ttpu_client_t *client = NULL;
  if (!CHECK_OK(ttpu_client_create(other.path, 1, &client))) return;
  int64_t used, peak, limit;
  ttpu_cost_t cost;
  uintptr_t pointer;
  CHECK_FAILS(ttpu_client_memory_stats(client, 0, &used, &peak, &limit), TTPU_UNIMPLEMENTED, "PJRT_Device_MemoryStats");
  CHECK(!ttpu_client_traits(client)->has_cost_analysis);
  ttpu_executable_t *executable = compile(client, 0, add_text);
  CHECK_FAILS(ttpu_executable_cost(executable, &cost), TTPU_UNIMPLEMENTED, "does not implement");
  CHECK_INT(ttpu_executable_code_bytes(executable), 0);
  CHECK_FAILS(ttpu_ffi_register(client, "f", NULL), TTPU_UNIMPLEMENTED, "FFI extension");
  ttpu_buffer_t *buffer = put(client, 0);
  CHECK_FAILS(ttpu_buffer_pointer(buffer, &pointer), TTPU_UNIMPLEMENTED, "PJRT_Buffer_UnsafePointer");
  ttpu_buffer_release(buffer);
  ttpu_executable_release(executable);
  ttpu_client_release(client);
  CHECK_INT(other.live(), 0);
  fake_close(&other);
}

TEST(test_initialised_once) {
  fake_t other = fake_open("");
  ttpu_client_t *a, *b;
  CHECK_OK(ttpu_client_create(other.path, 1, &a));
  CHECK_OK(ttpu_client_create(other.path, 2, &b));
  CHECK_INT(other.calls("PJRT_Plugin_Initialize"), 1);
  CHECK_INT(ttpu_client_device_count(b), 2);
  ttpu_client_release(a);
  ttpu_client_release(b);
  CHECK(!getenv("TF_CPP_MIN_LOG_LEVEL")); /* set for the plugin only */
  fake_close(&other);
}

/* --- client ------------------------------------------------------------------------------------------------- */

TEST(test_devices) {
  ttpu_client_t *client = open_client("", 0);
  CHECK_INT(ttpu_client_device_count(client), 1);
  CHECK_STR(ttpu_client_platform(client), "cpu");
  CHECK_STR(ttpu_client_platform_version(client), "fake 1");
  CHECK_STR(ttpu_client_device_kind(client, 0), "fake");
  CHECK_STR(ttpu_client_device_kind(client, 1), "");
  CHECK(*ttpu_client_host_features(client));
  CHECK(ttpu_client_traits(client)->is_host_memory && !ttpu_client_traits(client)->is_tpu);
  ttpu_client_retain(client);
  ttpu_client_release(client);
  CHECK_INT(fake.live(), 1);
  ttpu_client_release(client);
  CHECK_INT(fake.live(), 0);

  client = open_client("options=0", 3); /* a plugin that does not know the option has four */
  CHECK_INT(ttpu_client_device_count(client), 3);
  ttpu_client_release(client);
  CHECK_FAILS(ttpu_client_create(fake.path, 5, &client), TTPU_INVALID_ARGUMENT, "5 devices were asked for");

  client = open_client("platform=tpu;kind=TPU v5 lite;devices=4;options=0;memory=1000", 0);
  CHECK_INT(ttpu_client_device_count(client), 4);
  CHECK_STR(ttpu_client_device_kind(client, 3), "TPU v5 lite");
  CHECK_STR(ttpu_client_host_features(client), "");
  const ttpu_platform_t *traits = ttpu_client_traits(client);
  CHECK(traits->is_tpu && !traits->is_host_memory);
  CHECK_INT(traits->matrix_unit, 128);
  int64_t used, peak, limit;
  ttpu_buffer_t *buffer = put(client, 2);
  CHECK_OK(ttpu_client_memory_stats(client, 2, &used, &peak, &limit));
  CHECK_INT(used, 16);
  CHECK_INT(limit, 1000);
  ttpu_buffer_release(buffer);
  CHECK_OK(ttpu_client_memory_stats(client, 2, &used, &peak, &limit));
  CHECK_INT(used, 0);
  CHECK_INT(peak, 16);
  CHECK_FAILS(ttpu_client_memory_stats(client, 4, &used, &peak, &limit), TTPU_INVALID_ARGUMENT, "device 4 does not");
  ttpu_client_release(client);
  client = open_client("platform=tpu;kind=TPU v6 lite", 1);
  CHECK_INT(ttpu_client_traits(client)->matrix_unit, 256);
  ttpu_client_release(client);
  CHECK_INT(fake.live(), 0);
}

static void make_file(const char *root, const char *path, const char *text) {
  char whole[256];
  snprintf(whole, sizeof whole, "%s%s", root, path);
  for (char *slash = whole + 1; (slash = strchr(slash, '/')); *slash++ = '/') {
    *slash = 0;
    mkdir(whole, 0700);
  }
  FILE *file = fopen(whole, "w");
  fputs(text, file);
  fclose(file);
}

TEST(test_tpu_detection) {
  char root[] = "/tmp/ttpu_sysfs_XXXXXX", command[64];
  CHECK(mkdtemp(root));
  CHECK(!ttpu_plugin_has_tpu_under(root));
  make_file(root, "/sys/bus/pci/devices/0000:00:04.0/vendor", "0x1ae0\n");
  make_file(root, "/sys/bus/pci/devices/0000:00:04.0/class", "0x020000\n"); /* a cloud machine's network card */
  make_file(root, "/dev/vfio/vfio", "");
  CHECK(!ttpu_plugin_has_tpu_under(root));
  make_file(root, "/dev/vfio/0", "");
  CHECK(!ttpu_plugin_has_tpu_under(root));
  make_file(root, "/sys/bus/pci/devices/0000:00:05.0/vendor", "0x1ae0\n");
  make_file(root, "/sys/bus/pci/devices/0000:00:05.0/class", "0x088000\n");
  CHECK(ttpu_plugin_has_tpu_under(root));
  snprintf(command, sizeof command, "%s/dev/vfio/0", root);
  unlink(command);
  CHECK(!ttpu_plugin_has_tpu_under(root)); /* on the bus, but not handed to this process */
  make_file(root, "/dev/accel0", "");
  CHECK(ttpu_plugin_has_tpu_under(root));
  snprintf(command, sizeof command, "rm -r %s", root);
  CHECK_INT(system(command), 0);

  char *path;
  setenv("TORCHTPU_PLUGIN", "/some/plugin.so", 1);
  CHECK_OK(ttpu_plugin_find(&path));
  CHECK_STR(path, "/some/plugin.so");
  ttpu_free(path);
  unsetenv("TORCHTPU_PLUGIN");
  if (!ttpu_plugin_has_tpu()) CHECK_FAILS(ttpu_plugin_find(&path), TTPU_NOT_FOUND, "TORCHTPU_PLUGIN");
}

/* --- buffers ------------------------------------------------------------------------------------------------ */

static void count_up(void *ctx) { atomic_fetch_add((_Atomic int *)ctx, 1); }

TEST(test_buffers) {
  ttpu_client_t *client = open_client("", 2);
  int64_t dims[] = {2, 3, 4};
  int16_t data[24], back[24] = {0};
  for (int i = 0; i < 24; i++) data[i] = (int16_t)(i * 7);
  ttpu_buffer_t *buffer, *copy, *scalar, *empty;
  CHECK_OK(ttpu_buffer_from_host(client, 1, TTPU_I16, 3, dims, data, &buffer));
  CHECK_INT(ttpu_buffer_bytes(buffer), 48);
  CHECK_OK(ttpu_buffer_await(buffer));
  CHECK_OK(ttpu_buffer_to_host(buffer, back, sizeof back));
  CHECK(!memcmp(data, back, sizeof data));
  CHECK_FAILS(ttpu_buffer_to_host(buffer, back, 10), TTPU_INVALID_ARGUMENT, "do not hold");
  uintptr_t pointer;
  CHECK_OK(ttpu_buffer_pointer(buffer, &pointer));
  CHECK(!memcmp((void *)pointer, data, sizeof data));
  CHECK_OK(ttpu_buffer_copy_to_device(buffer, 0, &copy));
  memset(back, 0, sizeof back);
  CHECK_OK(ttpu_buffer_to_host(copy, back, sizeof back));
  CHECK(!memcmp(data, back, sizeof data));
  CHECK_INT(ttpu_buffer_bytes(copy), 48);
  CHECK(!ttpu_buffer_is_deleted(copy));
  ttpu_buffer_retain(copy);
  ttpu_buffer_release(copy);
  CHECK_OK(ttpu_buffer_await(copy));
  ttpu_buffer_release(copy);

  const double pi = 3.25;
  double read = 0;
  CHECK_OK(ttpu_buffer_from_host(client, 0, TTPU_F64, 0, NULL, &pi, &scalar));
  CHECK_OK(ttpu_buffer_to_host(scalar, &read, sizeof read));
  CHECK_NEAR(read, 3.25, 0);
  int64_t none[] = {0, 5};
  CHECK_OK(ttpu_buffer_from_host(client, 0, TTPU_F32, 2, none, &pi, &empty));
  CHECK_INT(ttpu_buffer_bytes(empty), 0);
  ttpu_buffer_release(scalar);
  ttpu_buffer_release(empty);
  ttpu_buffer_release(buffer);
  ttpu_buffer_release(NULL);

  buffer = (ttpu_buffer_t *)1;
  CHECK_FAILS(ttpu_buffer_from_host(client, 2, TTPU_F32, 1, four, data, &buffer), TTPU_INVALID_ARGUMENT, "device 2");
  CHECK(!buffer);
  CHECK_FAILS(ttpu_buffer_from_host(client, 0, TTPU_DTYPE_NONE, 1, four, data, &buffer), TTPU_INVALID_ARGUMENT,
              "element type");
  ttpu_client_release(client);
  CHECK_INT(fake.live(), 0);
}

TEST(test_asynchrony) {
  ttpu_client_t *client = open_client("delay_us=40000", 1);
  const float data[4] = {0};
  _Atomic int done = 0;
  ttpu_buffer_t *buffer;
  bool ready = true;
  CHECK_OK(ttpu_buffer_from_host_async(client, 0, TTPU_F32, 1, four, data, count_up, (void *)&done, &buffer));
  CHECK_INT(done, 0);
  CHECK_OK(ttpu_buffer_poll(buffer, &ready));
  CHECK(!ready);
  CHECK_OK(ttpu_buffer_await(buffer));
  CHECK_OK(ttpu_buffer_poll(buffer, &ready));
  CHECK(ready);
  for (int i = 0; i < 200 && !done; i++) nanosleep(&(struct timespec){0, 5000000}, NULL);
  CHECK_INT(done, 1);
  ttpu_buffer_release(buffer);
  /* When no callback can be had, it is awaited. */
  CHECK(fake.configure("delay_us=2000;fail=PJRT_Event_OnReady@1"));
  CHECK_OK(ttpu_buffer_from_host_async(client, 0, TTPU_F32, 1, four, data, count_up, (void *)&done, &buffer));
  CHECK_INT(done, 2);
  ttpu_buffer_release(buffer);
  CHECK(fake.configure("fail=PJRT_Client_BufferFromHostBuffer@1:8"));
  CHECK_FAILS(ttpu_buffer_from_host_async(client, 0, TTPU_F32, 1, four, data, count_up, (void *)&done, &buffer),
              TTPU_RESOURCE_EXHAUSTED, "injected");
  CHECK_INT(done, 2);
  ttpu_client_release(client);
  CHECK_INT(fake.live(), 0);
}

/* --- executables -------------------------------------------------------------------------------------------- */

TEST(test_run_and_donation) {
  ttpu_client_t *client = open_client("", 2);
  ttpu_executable_t *add = compile(client, 0, add_text);
  CHECK_INT(ttpu_executable_result_count(add), 1);
  CHECK(ttpu_executable_code_bytes(add) > 0);
  for (int device = 0; device < 2; device++) { /* portable: compiled for 0, runs on both */
    ttpu_buffer_t *in[2] = {put(client, device), put(client, device)}, *out;
    const int64_t keep[] = {0}, bytes[] = {16};
    CHECK_OK(ttpu_executable_run(add, device, 2, in, 1, keep, NULL, &out));
    CHECK(!ttpu_buffer_is_deleted(in[0]));
    CHECK_INT(ttpu_buffer_bytes(out), 16); /* asked from the plugin */
    ttpu_buffer_release(out);
    CHECK_OK(ttpu_executable_run(add, device, 2, in, 0, NULL, bytes, &out));
    CHECK(ttpu_buffer_is_deleted(in[0]));
    CHECK(!ttpu_buffer_is_deleted(in[1]));
    CHECK_INT(ttpu_buffer_bytes(out), 16);
    float back[4] = {9, 9, 9, 9};
    CHECK_OK(ttpu_buffer_to_host(out, back, sizeof back));
    CHECK_NEAR(back[3], 0, 0);
    ttpu_buffer_release(out);
    out = (ttpu_buffer_t *)1;
    CHECK_FAILS(ttpu_executable_run(add, device, 2, in, 0, NULL, NULL, &out), TTPU_INVALID_ARGUMENT,
                "argument 0 was deleted");
    CHECK(!out);
    CHECK_FAILS(ttpu_buffer_await(in[0]), TTPU_INVALID_ARGUMENT, "deleted");
    CHECK_FAILS(ttpu_executable_run(add, device, 1, in + 1, 0, NULL, NULL, &out), TTPU_INVALID_ARGUMENT,
                "takes 2 arguments");
    CHECK_FAILS(ttpu_executable_run(add, 2, 2, in, 0, NULL, NULL, &out), TTPU_INVALID_ARGUMENT, "device 2");
    ttpu_buffer_release(in[0]);
    ttpu_buffer_release(in[1]);
  }
  ttpu_cost_t cost;
  CHECK_OK(ttpu_executable_cost(add, &cost));
  CHECK_INT(cost.argument_bytes, 32);
  CHECK_INT(cost.output_bytes, 16);
  CHECK_NEAR(cost.flops, 1000, 0);
  CHECK_NEAR(cost.optimal_seconds, 0.5, 0);
  CHECK_NEAR(cost.transcendentals, -1, 0); /* the plugin does not say */
  ttpu_executable_t *bad;
  CHECK_FAILS(ttpu_executable_compile(client, 0, "nonsense", 8, &bad), TTPU_INVALID_ARGUMENT, "no function @main");
  CHECK(!bad);
  ttpu_executable_release(add);
  ttpu_executable_release(NULL);
  ttpu_client_release(client);
  CHECK_INT(fake.live(), 0);
}

TEST(test_many_arguments) {
  enum { N = 200 };
  char text[16384];
  size_t n = (size_t)sprintf(text, "func.func public @main(");
  for (int i = 0; i < N; i++) n += (size_t)sprintf(text + n, "%s%%a%d: tensor<4xf32>", i ? ", " : "", i);
  n += (size_t)sprintf(text + n, ") -> (");
  for (int i = 0; i < N; i++) n += (size_t)sprintf(text + n, "%stensor<%dxcomplex<f64>>", i ? ", " : "", i);
  n += (size_t)sprintf(text + n, ") {}");
  ttpu_client_t *client = open_client("", 1);
  ttpu_executable_t *executable = compile(client, 0, text);
  CHECK_INT(ttpu_executable_result_count(executable), N);
  ttpu_buffer_t *in[N], *out[N];
  for (int i = 0; i < N; i++) in[i] = put(client, 0);
  CHECK_OK(ttpu_executable_run(executable, 0, N, in, 0, NULL, NULL, out));
  for (int i = 0; i < N; i++) {
    CHECK_INT(ttpu_buffer_bytes(out[i]), 16 * i);
    ttpu_buffer_release(out[i]);
    ttpu_buffer_release(in[i]);
  }
  ttpu_executable_release(executable);
  ttpu_client_release(client);
  CHECK_INT(fake.live(), 0);
}

TEST(test_serialize) {
  ttpu_client_t *client = open_client("", 1);
  ttpu_executable_t *add = compile(client, 0, add_text), *again;
  char *data;
  size_t size;
  CHECK_OK(ttpu_executable_serialize(add, &data, &size));
  ttpu_executable_release(add);
  CHECK_OK(ttpu_executable_load(client, 0, data, size, &again));
  ttpu_buffer_t *in[2] = {put(client, 0), put(client, 0)}, *out;
  CHECK_OK(ttpu_executable_run(again, 0, 2, in, 0, NULL, NULL, &out));
  ttpu_buffer_release(out);
  ttpu_buffer_release(in[0]);
  ttpu_buffer_release(in[1]);
  ttpu_executable_release(again);
  for (size_t cut = 0; cut < size; cut += 7)
    CHECK_FAILS(ttpu_executable_load(client, 0, data, cut, &again), TTPU_INVALID_ARGUMENT, "no executable");
  ttpu_free(data);
  ttpu_client_release(client);
  CHECK_INT(fake.live(), 0);
}

/* Where executables are not portable each is bound to a device, and a stored one is bound anew when loaded. */
TEST(test_bound_executables) {
  ttpu_client_t *client = open_client("platform=tpu;options=0", 0);
  CHECK(!ttpu_client_traits(client)->portable_executables);
  ttpu_executable_t *on2 = compile(client, 2, add_text), *on3;
  ttpu_buffer_t *in2[2] = {put(client, 2), put(client, 2)}, *in3[2] = {put(client, 3), put(client, 3)}, *out;
  CHECK_FAILS(ttpu_executable_run(on2, 3, 2, in3, 0, NULL, NULL, &out), TTPU_INVALID_ARGUMENT, "compiled for device 2");
  CHECK_OK(ttpu_executable_run(on2, 2, 2, in2, 0, NULL, NULL, &out));
  float back[4];
  CHECK_OK(ttpu_buffer_to_host(out, back, sizeof back)); /* with an explicit row-major layout */
  ttpu_buffer_release(out);
  char *data;
  size_t size;
  CHECK_OK(ttpu_executable_serialize(on2, &data, &size));
  CHECK_OK(ttpu_executable_load(client, 3, data, size, &on3));
  CHECK_OK(ttpu_executable_run(on3, 3, 2, in3, 0, NULL, NULL, &out));
  ttpu_buffer_release(out);
  ttpu_free(data);
  for (int i = 0; i < 2; i++) ttpu_buffer_release(in2[i]), ttpu_buffer_release(in3[i]);
  ttpu_executable_release(on2);
  ttpu_executable_release(on3);
  ttpu_client_release(client);
  CHECK_INT(fake.live(), 0);
}

TEST(test_failed_executions) {
  ttpu_client_t *client = open_client("memory=40", 1);
  ttpu_executable_t *add = compile(client, 0, add_text);
  ttpu_buffer_t *in[2] = {put(client, 0), put(client, 0)}, *out, *next;
  const int64_t keep[] = {0};
  /* Sixteen more bytes do not fit, unless the donated ones are given back. */
  CHECK_FAILS(ttpu_executable_run(add, 0, 2, in, 1, keep, NULL, &out), TTPU_RESOURCE_EXHAUSTED, "out of device memory");
  CHECK(!ttpu_buffer_is_deleted(in[0]));
  CHECK_OK(ttpu_executable_run(add, 0, 2, in, 0, NULL, NULL, &out));
  ttpu_buffer_release(out);
  ttpu_buffer_release(in[0]);

  CHECK(fake.configure("fail=PJRT_LoadedExecutable_Execute@1:10;consume=1"));
  in[0] = put(client, 0);
  CHECK_FAILS(ttpu_executable_run(add, 0, 2, in, 0, NULL, NULL, &out), TTPU_ABORTED, "injected");
  CHECK(ttpu_buffer_is_deleted(in[0])); /* the failure took it along */
  ttpu_buffer_release(in[0]);

  CHECK(fake.configure("async_fail=1:15;delay_us=1000"));
  in[0] = put(client, 0);
  CHECK_OK(ttpu_executable_run(add, 0, 2, in, 0, NULL, NULL, &out));
  ttpu_buffer_t *chained[2] = {in[1], out};
  CHECK_OK(ttpu_executable_run(add, 0, 2, chained, 1, keep, NULL, &next));
  float back[4];
  bool ready;
  CHECK_FAILS(ttpu_buffer_await(out), TTPU_DATA_LOSS, "asynchronous");
  CHECK_FAILS(ttpu_buffer_await(next), TTPU_DATA_LOSS, "asynchronous"); /* it spreads */
  CHECK_FAILS(ttpu_buffer_poll(out, &ready), TTPU_DATA_LOSS, "asynchronous");
  CHECK_FAILS(ttpu_buffer_to_host(next, back, sizeof back), TTPU_DATA_LOSS, "asynchronous");
  ttpu_buffer_release(next);
  ttpu_buffer_release(out);
  ttpu_buffer_release(in[0]);
  ttpu_buffer_release(in[1]);
  ttpu_executable_release(add);
  ttpu_client_release(client);
  CHECK_INT(fake.live(), 0);
}

/* --- attacks ------------------------------------------------------------------------------------------------ */

/* Uses every wrapper once and releases all it got; the first failure. */
static ttpu_status_t *tour(void) {
  ttpu_client_t *client = NULL;
  ttpu_executable_t *add = NULL, *again = NULL;
  ttpu_buffer_t *in[2] = {NULL}, *out = NULL, *copy = NULL, *async = NULL;
  _Atomic int done = 0;
  char *data = NULL;
  size_t size;
  const float numbers[4] = {0};
  float back[4];
  bool ready;
  uintptr_t pointer;
  ttpu_cost_t cost;
  int64_t a, b, c;
  ttpu_status_t *status;
  TTPU_TRY_GOTO(status, out, ttpu_client_create(fake.path, 2, &client));
  TTPU_TRY_GOTO(status, out, ttpu_executable_compile(client, 0, add_text, strlen(add_text), &add));
  TTPU_TRY_GOTO(status, out, ttpu_executable_serialize(add, &data, &size));
  TTPU_TRY_GOTO(status, out, ttpu_executable_load(client, 0, data, size, &again));
  for (int i = 0; i < 2; i++)
    TTPU_TRY_GOTO(status, out, ttpu_buffer_from_host(client, 0, TTPU_F32, 1, four, numbers, &in[i]));
  TTPU_TRY_GOTO(status, out, ttpu_executable_run(again, 0, 2, in, 0, NULL, NULL, &out));
  TTPU_TRY_GOTO(status, out, ttpu_buffer_await(out));
  TTPU_TRY_GOTO(status, out, ttpu_buffer_poll(out, &ready));
  TTPU_TRY_GOTO(status, out, ttpu_buffer_to_host(out, back, sizeof back));
  TTPU_TRY_GOTO(status, out, ttpu_buffer_copy_to_device(out, 1, &copy));
  TTPU_TRY_GOTO(status, out, ttpu_buffer_pointer(out, &pointer));
  (void)ttpu_buffer_bytes(out);
  (void)ttpu_buffer_is_deleted(out);
  TTPU_TRY_GOTO(status, out, ttpu_client_memory_stats(client, 0, &a, &b, &c));
  TTPU_TRY_GOTO(status, out, ttpu_executable_cost(add, &cost));
  status = ttpu_buffer_from_host_async(client, 1, TTPU_F32, 1, four, numbers, count_up, (void *)&done, &async);
  if (!status) CHECK_INT(done, 1);
out:
  ttpu_free(data);
  ttpu_buffer_release(async);
  ttpu_buffer_release(copy);
  ttpu_buffer_release(out);
  ttpu_buffer_release(in[0]);
  ttpu_buffer_release(in[1]);
  ttpu_executable_release(again);
  ttpu_executable_release(add);
  ttpu_client_release(client);
  return status;
}

static const char *const slots[] = {
#define PJRT_SLOT(result, name) #name,
#include "pjrt/pjrt_api.def"
#undef PJRT_SLOT
};
enum { SLOT_COUNT = sizeof slots / sizeof *slots };

static void fail_each_call(const char *platform, bool *reached) {
  for (int i = 0; i < SLOT_COUNT; i++) {
    CHECK(fake.configure(platform));
    CHECK_OK(tour());
    const int64_t total = fake.calls(slots[i]);
    reached[i] |= total > 0;
    for (int64_t call = 1; call <= total; call++) {
      char config[128];
      snprintf(config, sizeof config, "%s;fail=%s@%lld:14", platform, slots[i], (long long)call);
      CHECK(fake.configure(config));
      ttpu_status_t *status = tour();
      if (status) CHECK_INT(ttpu_status_code(status), TTPU_UNAVAILABLE);
      ttpu_status_free(status);
      if (!CHECK_INT(fake.live(), 0)) fprintf(stderr, "  with %s\n", config);
    }
  }
}

TEST(test_every_plugin_failure) {
  bool reached[SLOT_COUNT] = {false};
  int count = 0;
  fail_each_call("platform=cpu", reached);
  fail_each_call("platform=tpu", reached); /* transfers go another way */
  for (int i = 0; i < SLOT_COUNT; i++) count += reached[i];
  CHECK(count >= 35);
}

TEST(test_every_failed_allocation) {
  fake.configure("");
  for (int64_t n = 0;; n++) {
    ttpu_alloc_count();
    ttpu_alloc_fail_at(n);
    ttpu_status_t *status = tour();
    const int64_t made = ttpu_alloc_count();
    ttpu_alloc_fail_at(-1);
    if (status) CHECK_INT(ttpu_status_code(status), TTPU_RESOURCE_EXHAUSTED);
    ttpu_status_free(status);
    CHECK_INT(fake.live(), 0);
    if (made <= n) {
      CHECK(!status && n > 10);
      break;
    }
  }
}

TEST(test_shutdown) {
  ttpu_client_t *client = open_client("delay_us=5000", 1);
  ttpu_executable_t *add = compile(client, 0, add_text);
  ttpu_buffer_t *in[2] = {put(client, 0), put(client, 0)}, *out;
  CHECK_OK(ttpu_executable_run(add, 0, 2, in, 0, NULL, NULL, &out));
  ttpu_client_shutdown(client);
  CHECK_INT(fake.live(), 0); /* although everything is still held */
  ttpu_client_shutdown(client);
  float back[4];
  char *data;
  size_t size;
  bool ready;
  uintptr_t pointer;
  int64_t a, b, c;
  ttpu_cost_t cost;
  ttpu_buffer_t *other;
  ttpu_executable_t *again;
  const ttpu_code_e gone = TTPU_FAILED_PRECONDITION;
  CHECK_FAILS(ttpu_executable_run(add, 0, 2, in, 0, NULL, NULL, &other), gone, "shut down");
  CHECK_FAILS(ttpu_executable_compile(client, 0, add_text, strlen(add_text), &again), gone, "shut down");
  CHECK_FAILS(ttpu_executable_load(client, 0, "x", 1, &again), gone, "shut down");
  CHECK_FAILS(ttpu_executable_serialize(add, &data, &size), gone, "shut down");
  CHECK_FAILS(ttpu_executable_cost(add, &cost), gone, "shut down");
  CHECK_FAILS(ttpu_buffer_from_host(client, 0, TTPU_F32, 1, four, back, &other), gone, "shut down");
  CHECK_FAILS(ttpu_buffer_to_host(out, back, sizeof back), gone, "shut down");
  CHECK_FAILS(ttpu_buffer_await(out), gone, "shut down");
  CHECK_FAILS(ttpu_buffer_poll(out, &ready), gone, "shut down");
  CHECK_FAILS(ttpu_buffer_pointer(out, &pointer), gone, "shut down");
  CHECK_FAILS(ttpu_buffer_copy_to_device(out, 0, &other), gone, "shut down");
  CHECK_FAILS(ttpu_client_memory_stats(client, 0, &a, &b, &c), gone, "shut down");
  CHECK(ttpu_buffer_is_deleted(out));
  CHECK_INT(ttpu_buffer_bytes(in[1]), 16);
  ttpu_client_release(client);
  ttpu_buffer_release(in[0]);
  ttpu_buffer_release(in[1]);
  ttpu_executable_release(add);
  ttpu_buffer_release(out); /* the last reference to the client goes with it */
}

typedef struct {
  ttpu_client_t *client;
  ttpu_executable_t *add;
  ttpu_status_t *failed;
} worker_t;

static void *run_many(void *arg) {
  enum { KEPT = 300 };
  worker_t *w = arg;
  const float data[4] = {0};
  ttpu_buffer_t *x = NULL, *y = NULL, *kept[KEPT] = {NULL};
  TTPU_TRY_GOTO(w->failed, out, ttpu_buffer_from_host(w->client, 0, TTPU_F32, 1, four, data, &x));
  TTPU_TRY_GOTO(w->failed, out, ttpu_buffer_from_host(w->client, 0, TTPU_F32, 1, four, data, &y));
  for (int i = 0; i < 3 * KEPT; i++) {
    ttpu_buffer_t *next;
    TTPU_TRY_GOTO(w->failed, out, ttpu_executable_run(w->add, 0, 2, (ttpu_buffer_t *[]){x, y}, 0, NULL, NULL, &next));
    ttpu_buffer_release(x);
    x = next;
    ttpu_buffer_release(kept[i % KEPT]);
    ttpu_buffer_retain(kept[i % KEPT] = x);
  }
out:
  for (int i = 0; i < KEPT; i++) ttpu_buffer_release(kept[i]);
  ttpu_buffer_release(x);
  ttpu_buffer_release(y);
  return NULL;
}

TEST(test_threads) {
  enum { THREADS = 4 };
  ttpu_client_t *client = open_client("", 1);
  worker_t workers[THREADS];
  pthread_t threads[THREADS];
  for (int i = 0; i < THREADS; i++) {
    workers[i] = (worker_t){client, compile(client, 0, add_text), NULL};
    CHECK(!pthread_create(&threads[i], NULL, run_many, &workers[i]));
  }
  for (int i = 0; i < THREADS; i++) {
    pthread_join(threads[i], NULL);
    CHECK_OK(workers[i].failed);
    ttpu_executable_release(workers[i].add);
  }
  ttpu_client_release(client);
  CHECK_INT(fake.live(), 0);
}

int main(void) {
  fake = fake_open("");
  RUN(test_wrong_files);
  RUN(test_versions);
  RUN(test_short_table);
  RUN(test_missing_optional_slots);
  RUN(test_initialised_once);
  RUN(test_devices);
  RUN(test_tpu_detection);
  RUN(test_buffers);
  RUN(test_asynchrony);
  RUN(test_run_and_donation);
  RUN(test_many_arguments);
  RUN(test_serialize);
  RUN(test_bound_executables);
  RUN(test_failed_executions);
  RUN(test_every_plugin_failure);
  RUN(test_every_failed_allocation);
  RUN(test_shutdown);
  RUN(test_threads);
  fake_close(&fake);
  return check_end();
}
