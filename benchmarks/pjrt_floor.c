/* pjrt_floor.c: what a plugin itself costs, in C with nothing of ours above it: the floor that no client gets under.
 *
 *   cc -O2 -Isrc benchmarks/pjrt_floor.c -o pjrt_floor -ldl && ./pjrt_floor PLUGIN.so
 *
 * Prints one line of JSON, nanoseconds, the minimum over rounds (the machine's noise only adds):
 *   execute  x + 1 on 4 floats, each on the result before; execute and destroy the input, nothing awaited in between
 *   to_host  the same, and its 4 floats read back each time
 *   h2d      a host buffer of 4 floats, copied during the call, and destroyed
 */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "pjrt/pjrt_api.h"

enum { ROUNDS = 200, CALLS = 500 };

static const PJRT_Api *api;

static void must(PJRT_Error *error) {
  if (!error) return;
  PJRT_Error_Message_Args args = {.struct_size = sizeof args, .error = error};
  api->PJRT_Error_Message(&args);
  fprintf(stderr, "%.*s\n", (int)args.message_size, args.message);
  exit(1);
}

static double now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec * 1e9 + (double)t.tv_nsec;
}

static void destroy(PJRT_Buffer *buffer) {
  PJRT_Buffer_Destroy_Args args = {.struct_size = sizeof args, .buffer = buffer};
  must(api->PJRT_Buffer_Destroy(&args));
}

static void finish(PJRT_Event *event) {
  PJRT_Event_Await_Args await = {.struct_size = sizeof await, .event = event};
  must(api->PJRT_Event_Await(&await));
  PJRT_Event_Destroy_Args args = {.struct_size = sizeof args, .event = event};
  must(api->PJRT_Event_Destroy(&args));
}

static PJRT_Buffer *put(PJRT_Client *client, PJRT_Device *device, const float *data) {
  static const int64_t dims[] = {4};
  PJRT_Client_BufferFromHostBuffer_Args args = {
      .struct_size = sizeof args,
      .client = client,
      .data = data,
      .type = 11, /* F32 */
      .dims = dims,
      .num_dims = 1,
      .host_buffer_semantics = PJRT_HostBufferSemantics_kImmutableOnlyDuringCall,
      .device = device};
  must(api->PJRT_Client_BufferFromHostBuffer(&args));
  PJRT_Event_Destroy_Args event = {.struct_size = sizeof event, .event = args.done_with_host_buffer};
  must(api->PJRT_Event_Destroy(&event));
  return args.buffer;
}

static void read_back(PJRT_Buffer *buffer, float *data) {
  PJRT_Buffer_ToHostBuffer_Args args = {
      .struct_size = sizeof args, .src = buffer, .dst = data, .dst_size = 4 * sizeof *data};
  must(api->PJRT_Buffer_ToHostBuffer(&args));
  finish(args.event);
}

static PJRT_Buffer *execute(PJRT_LoadedExecutable *executable, PJRT_Buffer *input) {
  PJRT_Buffer *output;
  PJRT_ExecuteOptions options = {.struct_size = sizeof options, .call_location = ""};
  PJRT_LoadedExecutable_Execute_Args args = {.struct_size = sizeof args,
                                             .executable = executable,
                                             .options = &options,
                                             .argument_lists = (PJRT_Buffer *const *const[]){&input},
                                             .num_devices = 1,
                                             .num_args = 1,
                                             .output_lists = (PJRT_Buffer **const[]){&output}};
  must(api->PJRT_LoadedExecutable_Execute(&args));
  return output;
}

static PJRT_LoadedExecutable *compile(PJRT_Client *client) {
  static char text[] = "module @m { func.func public @main(%x: tensor<4xf32>) -> tensor<4xf32> {"
                       " %c = stablehlo.constant dense<1.0> : tensor<4xf32>"
                       " %0 = stablehlo.add %x, %c : tensor<4xf32> return %0 : tensor<4xf32> } }";
  static const char options[] = {0x1a, 4, 0x20, 1, 0x28, 1}; /* one replica, one partition */
  PJRT_Program program = {.struct_size = sizeof program,
                          .code = text,
                          .code_size = sizeof text - 1,
                          .format = "mlir",
                          .format_size = 4};
  PJRT_Client_Compile_Args args = {.struct_size = sizeof args,
                                   .client = client,
                                   .program = &program,
                                   .compile_options = options,
                                   .compile_options_size = sizeof options};
  must(api->PJRT_Client_Compile(&args));
  return args.executable;
}

int main(int argc, char **argv) {
  void *library = argc > 1 ? dlopen(argv[1], RTLD_NOW | RTLD_LOCAL) : NULL;
  const PJRT_Api *(*get)(void) = library ? (const PJRT_Api *(*)(void))dlsym(library, "GetPjrtApi") : NULL;
  if (!get) {
    fprintf(stderr, "usage: %s PLUGIN.so\n%s\n", argv[0], argc > 1 ? dlerror() : "");
    return 1;
  }
  api = get();
  PJRT_Plugin_Initialize_Args initialize = {.struct_size = sizeof initialize};
  must(api->PJRT_Plugin_Initialize(&initialize));
  PJRT_Client_Create_Args create = {.struct_size = sizeof create};
  must(api->PJRT_Client_Create(&create));
  PJRT_Client_AddressableDevices_Args devices = {.struct_size = sizeof devices, .client = create.client};
  must(api->PJRT_Client_AddressableDevices(&devices));
  PJRT_Device *device = devices.addressable_devices[0];
  PJRT_LoadedExecutable *executable = compile(create.client);

  float data[4] = {0, 1, 2, 3};
  double best[3] = {1e18, 1e18, 1e18};
  for (int round = 0; round < ROUNDS; round++) {
    PJRT_Buffer *x = put(create.client, device, data);
    double start = now();
    for (int i = 0; i < CALLS; i++) {
      PJRT_Buffer *next = execute(executable, x);
      destroy(x);
      x = next;
    }
    double took[3];
    took[0] = (now() - start) / CALLS;
    read_back(x, data);
    start = now();
    for (int i = 0; i < CALLS / 10; i++) {
      PJRT_Buffer *next = execute(executable, x);
      destroy(x);
      read_back(x = next, data);
    }
    took[1] = (now() - start) / (CALLS / 10);
    destroy(x);
    start = now();
    for (int i = 0; i < CALLS; i++) destroy(put(create.client, device, data));
    took[2] = (now() - start) / CALLS;
    for (int i = 0; i < 3; i++)
      if (took[i] < best[i]) best[i] = took[i];
  }
  /* Counts every addition of all rounds, so none was skipped. */
  const float expected = (float)ROUNDS * (CALLS + CALLS / 10);
  if (data[0] != expected) {
    fprintf(stderr, "wrong result: %g, not %g\n", (double)data[0], (double)expected);
    return 1;
  }
  printf("{\"api\": \"%d.%d\", \"execute_ns\": %.0f, \"to_host_ns\": %.0f, \"h2d_ns\": %.0f}\n",
         api->pjrt_api_version.major_version, api->pjrt_api_version.minor_version, best[0], best[1], best[2]);
  PJRT_LoadedExecutable_Destroy_Args drop = {.struct_size = sizeof drop, .executable = executable};
  must(api->PJRT_LoadedExecutable_Destroy(&drop));
  PJRT_Client_Destroy_Args end = {.struct_size = sizeof end, .client = create.client};
  must(api->PJRT_Client_Destroy(&end));
  return 0;
}
