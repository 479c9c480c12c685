/* executable.c: see pjrt.h. Compiled programs: made from StableHLO text or from their serialized form, and run.
 *
 * A program is compiled portable where the plugin can: bound to no device, it runs on whichever is named at the call.
 * Elsewhere it is bound to one device by a device assignment. Running one allocates nothing but the output objects,
 * which come from the buffers' free list; usual argument lists live on the stack.
 */
#include <string.h>

#include "base/alloc.h"
#include "pjrt/objects.h"

enum { STACK_ARGUMENTS = 64, STACK_RESULTS = 16 };

/* --- compile options ---------------------------------------------------------------------------------------- */

typedef struct {
  char data[64];
  size_t size;
} options_t;

static void put(options_t *o, uint64_t value) { /* a protobuf varint */
  for (; value > 0x7f; value >>= 7) o->data[o->size++] = (char)(value | 0x80);
  o->data[o->size++] = (char)value;
}

static void put_field(options_t *o, int field, uint64_t value) {
  put(o, (uint64_t)field << 3);
  put(o, value);
}

static void put_message(options_t *o, int field, const options_t *message) {
  put(o, (uint64_t)field << 3 | 2);
  put(o, message->size);
  memcpy(o->data + o->size, message->data, message->size);
  o->size += message->size;
}

/* CompileOptionsProto for one replica of one partition, bound to |device_id| unless that is negative. */
static options_t make_options(int device_id) {
  options_t build = {.size = 0}, options = {.size = 0};
  if (device_id >= 0) put_field(&build, 1, (uint64_t)device_id); /* device_ordinal */
  put_field(&build, 4, 1);                                       /* num_replicas */
  put_field(&build, 5, 1);                                       /* num_partitions */
  if (device_id >= 0) {
    options_t computation = {.size = 0}, assignment = {.size = 0};
    put_field(&computation, 1, (uint64_t)device_id); /* replica_device_ids */
    put_field(&assignment, 1, 1);                    /* replica_count */
    put_field(&assignment, 2, 1);                    /* computation_count */
    put_message(&assignment, 3, &computation);       /* computation_devices */
    put_message(&build, 9, &assignment);             /* device_assignment */
  }
  put_message(&options, 3, &build);               /* executable_build_options */
  if (device_id < 0) put_field(&options, 4, 1); /* compile_portable_executable */
  return options;
}

static options_t options_for(const ttpu_client_t *client, int device) {
  return make_options(client->traits.portable_executables ? -1 : client->device_ids[device]);
}

/* --- making ------------------------------------------------------------------------------------------------- */

static void drop_handle(const ttpu_plugin_t *plugin, PJRT_LoadedExecutable *handle) {
  if (!handle) return;
  PJRT_LoadedExecutable_Destroy_Args args = {PJRT_SIZED(PJRT_LoadedExecutable_Destroy_Args), .executable = handle};
  PJRT_DROP(plugin, PJRT_LoadedExecutable_Destroy, &args);
}

void ttpu_executable_abandon(ttpu_executable_t *executable) {
  const ttpu_plugin_t *plugin = executable->client->plugin;
  if (executable->description) {
    PJRT_Executable_Destroy_Args args = {PJRT_SIZED(PJRT_Executable_Destroy_Args),
                                         .executable = executable->description};
    PJRT_DROP(plugin, PJRT_Executable_Destroy, &args);
  }
  drop_handle(plugin, executable->handle);
  executable->description = NULL;
  executable->handle = NULL;
}

static ttpu_status_t *describe(ttpu_executable_t *executable) {
  const ttpu_plugin_t *plugin = executable->client->plugin;
  PJRT_LoadedExecutable_GetExecutable_Args get = {PJRT_SIZED(PJRT_LoadedExecutable_GetExecutable_Args),
                                                  .loaded_executable = executable->handle};
  TTPU_TRY(PJRT_CALL(plugin, PJRT_LoadedExecutable_GetExecutable, &get));
  executable->description = get.executable;
  PJRT_Executable_NumOutputs_Args outputs = {PJRT_SIZED(PJRT_Executable_NumOutputs_Args), .executable = get.executable};
  TTPU_TRY(PJRT_CALL(plugin, PJRT_Executable_NumOutputs, &outputs));
  executable->result_count = (int)outputs.num_outputs;
  PJRT_Executable_SizeOfGeneratedCodeInBytes_Args size = {PJRT_SIZED(PJRT_Executable_SizeOfGeneratedCodeInBytes_Args),
                                                          .executable = get.executable};
  ttpu_status_t *unknown = PJRT_CALL(plugin, PJRT_Executable_SizeOfGeneratedCodeInBytes, &size);
  executable->code_bytes = unknown || size.size_in_bytes < 0 ? 0 : size.size_in_bytes;
  ttpu_status_free(unknown);
  return NULL;
}

/* Takes over |handle|, also on failure. */
static ttpu_status_t *wrap(ttpu_client_t *client, int device, PJRT_LoadedExecutable *handle,
                           ttpu_executable_t **out_executable) {
  ttpu_executable_t *executable = ttpu_alloc_zero(1, sizeof *executable);
  if (!executable) {
    drop_handle(client->plugin, handle);
    return TTPU_OUT_OF_HOST_MEMORY();
  }
  executable->refs = 1;
  executable->client = client;
  executable->handle = handle;
  executable->device = client->traits.portable_executables ? -1 : device;
  ttpu_status_t *status = describe(executable);
  if (status) {
    ttpu_executable_abandon(executable);
    ttpu_free(executable);
    return status;
  }
  ttpu_client_retain(client);
  pthread_mutex_lock(&client->lock);
  executable->next = client->executables;
  if (executable->next) executable->next->previous = executable;
  client->executables = executable;
  pthread_mutex_unlock(&client->lock);
  *out_executable = executable;
  return NULL;
}

ttpu_status_t *ttpu_executable_compile(ttpu_client_t *client, int device, const char *text, size_t size,
                                       ttpu_executable_t **out_executable) {
  *out_executable = NULL;
  TTPU_TRY(ttpu_client_check_device(client, device));
  PJRT_Program program = {PJRT_SIZED(PJRT_Program),
                          .code = (char *)text,
                          .code_size = size,
                          .format = "mlir",
                          .format_size = strlen("mlir")};
  const options_t options = options_for(client, device);
  PJRT_Client_Compile_Args args = {PJRT_SIZED(PJRT_Client_Compile_Args),
                                   .client = client->handle,
                                   .program = &program,
                                   .compile_options = options.data,
                                   .compile_options_size = options.size};
  TTPU_TRY(PJRT_CALL(client->plugin, PJRT_Client_Compile, &args));
  return wrap(client, device, args.executable, out_executable);
}

ttpu_status_t *ttpu_executable_load(ttpu_client_t *client, int device, const char *data, size_t size,
                                    ttpu_executable_t **out_executable) {
  *out_executable = NULL;
  TTPU_TRY(ttpu_client_check_device(client, device));
  PJRT_Executable_DeserializeAndLoad_Args args = {PJRT_SIZED(PJRT_Executable_DeserializeAndLoad_Args),
                                                  .client = client->handle,
                                                  .serialized_executable = data,
                                                  .serialized_executable_size = size};
  const options_t options = options_for(client, device);
  if (!client->traits.portable_executables) {
    /* The serialized form remembers the device it was compiled for. */
    args.overridden_serialized_compile_options = options.data;
    args.overridden_serialized_compile_options_size = options.size;
  }
  TTPU_TRY(PJRT_CALL(client->plugin, PJRT_Executable_DeserializeAndLoad, &args));
  return wrap(client, device, args.loaded_executable, out_executable);
}

ttpu_status_t *ttpu_executable_serialize(ttpu_executable_t *executable, char **out_data, size_t *out_size) {
  *out_data = NULL;
  *out_size = 0;
  if (!executable->handle) return ttpu_client_gone();
  PJRT_Executable_Serialize_Args args = {PJRT_SIZED(PJRT_Executable_Serialize_Args),
                                         .executable = executable->description};
  TTPU_TRY(PJRT_CALL(executable->client->plugin, PJRT_Executable_Serialize, &args));
  char *copy = ttpu_alloc(args.serialized_bytes_size);
  if (copy) {
    memcpy(copy, args.serialized_bytes, args.serialized_bytes_size);
    *out_data = copy;
    *out_size = args.serialized_bytes_size;
  }
  if (args.serialized_executable_deleter) args.serialized_executable_deleter(args.serialized_executable);
  return copy ? NULL : TTPU_OUT_OF_HOST_MEMORY();
}

void ttpu_executable_retain(ttpu_executable_t *executable) {
  atomic_fetch_add_explicit(&executable->refs, 1, memory_order_relaxed);
}

void ttpu_executable_release(ttpu_executable_t *executable) {
  if (!executable || atomic_fetch_sub_explicit(&executable->refs, 1, memory_order_acq_rel) != 1) return;
  ttpu_client_t *client = executable->client;
  pthread_mutex_lock(&client->lock);
  *(executable->previous ? &executable->previous->next : &client->executables) = executable->next;
  if (executable->next) executable->next->previous = executable->previous;
  pthread_mutex_unlock(&client->lock);
  ttpu_executable_abandon(executable);
  ttpu_free(executable);
  ttpu_client_release(client);
}

/* --- questions ---------------------------------------------------------------------------------------------- */

int ttpu_executable_result_count(const ttpu_executable_t *executable) { return executable->result_count; }
int64_t ttpu_executable_code_bytes(const ttpu_executable_t *executable) { return executable->code_bytes; }

static double property_number(const PJRT_NamedValue *value) {
  return value->type == PJRT_NamedValue_kFloat   ? (double)value->float_value
         : value->type == PJRT_NamedValue_kInt64 ? (double)value->int64_value
                                                 : -1;
}

static void read_property(ttpu_cost_t *cost, const PJRT_NamedValue *value) {
  const struct {
    const char *name;
    double *to;
  } known[] = {{"flops", &cost->flops},
               {"bytes accessed", &cost->bytes_accessed},
               {"transcendentals", &cost->transcendentals},
               {"optimal_seconds", &cost->optimal_seconds}};
  for (size_t i = 0; i < sizeof known / sizeof *known; i++)
    if (strlen(known[i].name) == value->name_size && !memcmp(known[i].name, value->name, value->name_size))
      *known[i].to = property_number(value);
}

ttpu_status_t *ttpu_executable_cost(ttpu_executable_t *executable, ttpu_cost_t *out_cost) {
  *out_cost = (ttpu_cost_t){-1, -1, -1, -1, -1, -1, -1, -1, -1, -1};
  if (!executable->handle) return ttpu_client_gone();
  const ttpu_plugin_t *plugin = executable->client->plugin;
  PJRT_Executable_GetCompiledMemoryStats_Args memory = {PJRT_SIZED(PJRT_Executable_GetCompiledMemoryStats_Args),
                                                        .executable = executable->description};
  ttpu_status_t *no_memory = PJRT_CALL(plugin, PJRT_Executable_GetCompiledMemoryStats, &memory);
  if (!no_memory) {
    out_cost->argument_bytes = memory.argument_size_in_bytes;
    out_cost->output_bytes = memory.output_size_in_bytes;
    out_cost->temp_bytes = memory.temp_size_in_bytes;
    out_cost->alias_bytes = memory.alias_size_in_bytes;
    out_cost->code_bytes = memory.generated_code_size_in_bytes;
    if (memory.peak_memory_in_bytes > 0) out_cost->peak_bytes = memory.peak_memory_in_bytes;
  }
  PJRT_Executable_GetCostAnalysis_Args cost = {PJRT_SIZED(PJRT_Executable_GetCostAnalysis_Args),
                                               .executable = executable->description};
  ttpu_status_t *no_cost = PJRT_CALL(plugin, PJRT_Executable_GetCostAnalysis, &cost);
  for (size_t i = 0; !no_cost && i < cost.num_properties; i++) read_property(out_cost, &cost.properties[i]);
  /* Either half alone is worth having. */
  ttpu_status_free(no_cost && no_memory ? no_memory : no_cost ? no_cost : no_memory);
  return no_cost && no_memory ? no_cost : NULL;
}

/* --- running ------------------------------------------------------------------------------------------------ */

ttpu_status_t *ttpu_executable_run(ttpu_executable_t *executable, int device, int argument_count,
                                   ttpu_buffer_t *const *arguments, int keep_count, const int64_t *keep,
                                   const int64_t *result_bytes, ttpu_buffer_t **out_buffers) {
  ttpu_client_t *client = executable->client;
  TTPU_TRY(ttpu_client_check_device(client, device));
  if (executable->device >= 0 && executable->device != device)
    return TTPU_ERROR(INVALID_ARGUMENT, "the program was compiled for device %d and cannot run on device %d",
                      executable->device, device);
  const int result_count = executable->result_count;
  PJRT_Buffer *stack[STACK_ARGUMENTS + STACK_RESULTS], **inputs = stack;
  if (argument_count > STACK_ARGUMENTS || result_count > STACK_RESULTS) {
    inputs = ttpu_alloc(sizeof *inputs * ((size_t)argument_count + (size_t)result_count));
    if (!inputs) return TTPU_OUT_OF_HOST_MEMORY();
  }
  PJRT_Buffer **outputs = inputs + argument_count;
  ttpu_status_t *status = ttpu_buffer_take(client, device, result_count, out_buffers);
  if (status) goto out;
  for (int i = 0; i < argument_count; i++) inputs[i] = arguments[i]->handle;

  PJRT_ExecuteOptions options = {PJRT_SIZED(PJRT_ExecuteOptions),
                                 .non_donatable_input_indices = keep,
                                 .num_non_donatable_input_indices = (size_t)keep_count,
                                 .call_location = ""};
  PJRT_LoadedExecutable_Execute_Args args = {PJRT_SIZED(PJRT_LoadedExecutable_Execute_Args),
                                             .executable = executable->handle,
                                             .options = &options,
                                             .argument_lists = (PJRT_Buffer *const *const[]){inputs},
                                             .num_devices = 1,
                                             .num_args = (size_t)argument_count,
                                             .output_lists = (PJRT_Buffer **const[]){outputs},
                                             .execute_device = client->devices[device]};
  status = PJRT_CALL(client->plugin, PJRT_LoadedExecutable_Execute, &args);
  if (status) {
    ttpu_buffer_give(client, result_count, out_buffers);
    goto out;
  }
  for (int i = 0; i < result_count; i++) {
    out_buffers[i]->handle = outputs[i];
    if (result_bytes) out_buffers[i]->bytes = result_bytes[i];
  }
out:
  if (inputs != stack) ttpu_free(inputs);
  return status;
}
