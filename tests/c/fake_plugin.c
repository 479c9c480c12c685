/* fake_plugin.c: see fake_plugin.h. A PJRT plugin without a compiler, for tests of everything above it.
 *
 * Time is the only asynchrony: a result is ready at a moment of the clock, so waiting is sleeping and no thread runs,
 * except one for each callback that was asked for too early. Device memory is counted, not reserved.
 */
#include "fake_plugin.h"

#include <ctype.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "pjrt/pjrt_api.h"

enum { MAX_DEVICES = 64, MAX_OMIT = 16, MAX_RANK = 64 };
enum { INVALID_ARGUMENT = 3, RESOURCE_EXHAUSTED = 8, UNIMPLEMENTED = 12, INTERNAL = 13 };

/* --- configuration, counting, injected failures --------------------------------------------------------------- */

typedef struct {
  char name[64];
  int64_t at; /* 0: never */
  bool onwards;
  int code;
} fail_t;

typedef struct {
  char platform[16], kind[32], omit[512];
  int devices, options, major, minor, slots, consume, keep;
  fail_t fail, async_fail;
  int64_t delay_us, memory;
} config_t;

enum {
#define PJRT_SLOT(result, name) SLOT_##name,
#include "pjrt/pjrt_api.def"
#undef PJRT_SLOT
  SLOT_COUNT
};

static const char *const slot_names[] = {
#define PJRT_SLOT(result, name) #name,
#include "pjrt/pjrt_api.def"
#undef PJRT_SLOT
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static config_t config;
static _Atomic int64_t calls[SLOT_COUNT], executions, live;

static bool parse_fail(fail_t *fail, char *value) {
  char *at = strchr(value, '@');
  if (at) {
    *at++ = 0;
    snprintf(fail->name, sizeof fail->name, "%s", value);
  } else {
    at = value;
  }
  char *end;
  fail->at = strtoll(at, &end, 10);
  fail->onwards = *end == '+';
  if (fail->onwards) end++;
  fail->code = *end == ':' ? atoi(end + 1) : INTERNAL;
  return fail->at > 0;
}

static bool apply(config_t *c, char *key, char *value) {
  const struct {
    const char *key;
    int *number;
  } numbers[] = {{"devices", &c->devices}, {"options", &c->options}, {"major", &c->major}, {"minor", &c->minor},
                 {"slots", &c->slots},     {"consume", &c->consume}, {"keep", &c->keep}};
  for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
    if (!strcmp(key, numbers[i].key)) return *numbers[i].number = atoi(value), true;
  if (!strcmp(key, "platform")) return snprintf(c->platform, sizeof c->platform, "%s", value) > 0;
  if (!strcmp(key, "kind")) return snprintf(c->kind, sizeof c->kind, "%s", value) > 0;
  if (!strcmp(key, "omit")) return snprintf(c->omit, sizeof c->omit, "%s", value) > 0;
  if (!strcmp(key, "fail")) return parse_fail(&c->fail, value);
  if (!strcmp(key, "async_fail")) return parse_fail(&c->async_fail, value);
  if (!strcmp(key, "delay_us")) return c->delay_us = atoll(value), true;
  if (!strcmp(key, "memory")) return c->memory = atoll(value), true;
  return false;
}

__attribute__((visibility("default"))) int fake_plugin_configure(const char *text) {
  config_t c = {.platform = "cpu", .kind = "fake", .devices = 4, .options = 1, .minor = 114, .slots = SLOT_COUNT};
  c.keep = 1;
  char copy[1024], *rest = copy;
  snprintf(copy, sizeof copy, "%s", text ? text : "");
  for (char *item; (item = strsep(&rest, ";"));) {
    char *value = strchr(item, '=');
    if (!*item) continue;
    if (!value) return 0;
    *value++ = 0;
    if (!apply(&c, item, value)) return 0;
  }
  if (c.devices < 1 || c.devices > MAX_DEVICES || c.slots > SLOT_COUNT) return 0;
  pthread_mutex_lock(&lock);
  config = c;
  for (int i = 0; i < SLOT_COUNT; i++) calls[i] = 0;
  executions = 0;
  pthread_mutex_unlock(&lock);
  return 1;
}

__attribute__((visibility("default"))) int64_t fake_plugin_calls(const char *name) {
  for (int i = 0; i < SLOT_COUNT; i++)
    if (!strcmp(slot_names[i], name)) return calls[i];
  return -1;
}

__attribute__((visibility("default"))) int64_t fake_plugin_live(void) { return live; }

static void *make(size_t bytes) {
  live++;
  return calloc(1, bytes);
}

static void unmake(void *ptr) {
  if (ptr) live--;
  free(ptr);
}

struct PJRT_Error {
  int code;
  char message[256];
};

__attribute__((format(printf, 2, 3))) static PJRT_Error *error(int code, const char *fmt, ...) {
  PJRT_Error *e = make(sizeof *e);
  e->code = code;
  va_list args;
  va_start(args, fmt);
  vsnprintf(e->message, sizeof e->message, fmt, args);
  va_end(args);
  return e;
}

static bool hits(const fail_t *fail, int64_t call) {
  return fail->at && (fail->onwards ? call >= fail->at : call == fail->at);
}

/* Counts a call; its injected failure, if this is the one. */
static PJRT_Error *enter(int slot, size_t struct_size, size_t expected) {
  const int64_t call = ++calls[slot];
  if (struct_size != expected)
    return error(INVALID_ARGUMENT, "%s: struct_size is %zu, not %zu", slot_names[slot], struct_size, expected);
  pthread_mutex_lock(&lock);
  const fail_t fail = config.fail;
  pthread_mutex_unlock(&lock);
  if (!strcmp(fail.name, slot_names[slot]) && hits(&fail, call))
    return error(fail.code, "injected failure of %s", slot_names[slot]);
  return NULL;
}

/* --- time, events --------------------------------------------------------------------------------------------- */

static int64_t now_us(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (int64_t)t.tv_sec * 1000000 + t.tv_nsec / 1000;
}

static void sleep_until(int64_t when) {
  for (int64_t left; (left = when - now_us()) > 0;)
    nanosleep(&(struct timespec){left / 1000000, left % 1000000 * 1000}, NULL);
}

struct PJRT_Event {
  int64_t ready_at;
  int code; /* of the error it ends with, 0: none */
};

static PJRT_Event *make_event(int64_t ready_at, int code) {
  PJRT_Event *event = make(sizeof *event);
  event->ready_at = ready_at;
  event->code = code;
  return event;
}

static PJRT_Error *event_error(const PJRT_Event *event) {
  return event->code ? error(event->code, "injected asynchronous failure") : NULL;
}

typedef struct {
  PJRT_Event event;
  PJRT_Event_OnReadyCallback callback;
  void *arg;
} waiter_t;

static void *wait_and_call(void *arg) {
  waiter_t *w = arg;
  sleep_until(w->event.ready_at);
  w->callback(event_error(&w->event), w->arg);
  free(w);
  return NULL;
}

/* Each BODY below is what a slot does; the entry in front of it (see "the table") counts calls and injects failures. */
#define BODY(name) static PJRT_Error *body_##name(name##_Args *args)

BODY(PJRT_Plugin_Initialize) { return (void)args, NULL; }
BODY(PJRT_Event_Destroy) { return unmake(args->event), NULL; }
BODY(PJRT_Event_IsReady) { return args->is_ready = now_us() >= args->event->ready_at, NULL; }
BODY(PJRT_Event_Error) { return event_error(args->event); }
BODY(PJRT_Event_Await) { return sleep_until(args->event->ready_at), event_error(args->event); }
BODY(PJRT_Event_OnReady) {
  waiter_t *w = malloc(sizeof *w);
  *w = (waiter_t){*args->event, args->callback, args->user_arg};
  pthread_t thread;
  if (now_us() >= w->event.ready_at || pthread_create(&thread, NULL, wait_and_call, w))
    wait_and_call(w);
  else
    pthread_detach(thread);
  return NULL;
}

/* --- client, devices ------------------------------------------------------------------------------------------ */

struct PJRT_DeviceDescription {
  int id;
  int64_t coords[3];
  PJRT_NamedValue attributes[3];
  char kind[32];
};

struct PJRT_Memory {
  PJRT_Device *device;
};

struct PJRT_Device {
  PJRT_Client *client;
  PJRT_DeviceDescription description;
  PJRT_Memory memory;
  int64_t busy_until, used, peak; /* under |lock| */
};

struct PJRT_Client {
  char platform[16];
  int device_count;
  PJRT_Device devices[MAX_DEVICES], *addressable[MAX_DEVICES];
};

static PJRT_NamedValue named(const char *name, PJRT_NamedValue_Type type, size_t count) {
  return (PJRT_NamedValue){.struct_size = sizeof(PJRT_NamedValue),
                           .name = name,
                           .name_size = strlen(name),
                           .type = type,
                           .value_size = count};
}

static void describe(PJRT_DeviceDescription *d, int id) {
  d->id = id;
  d->coords[0] = id % 2, d->coords[1] = id / 2;
  snprintf(d->kind, sizeof d->kind, "%s", config.kind);
  d->attributes[0] = named("coords", PJRT_NamedValue_kInt64List, 3);
  d->attributes[0].int64_array_value = d->coords;
  d->attributes[1] = named("core_on_chip", PJRT_NamedValue_kInt64, 1);
  d->attributes[2] = named("num_cores", PJRT_NamedValue_kInt64, 1);
  d->attributes[2].int64_value = 1;
}

BODY(PJRT_Client_Create) {
  int count = config.devices;
  if (args->num_options && !config.options) return error(INVALID_ARGUMENT, "unknown client option");
  for (size_t i = 0; i < args->num_options; i++) {
    const PJRT_NamedValue *o = &args->create_options[i];
    if (o->name_size != strlen("cpu_device_count") || memcmp(o->name, "cpu_device_count", o->name_size) ||
        o->type != PJRT_NamedValue_kInt64)
      return error(INVALID_ARGUMENT, "unknown client option %.*s", (int)o->name_size, o->name);
    count = (int)o->int64_value;
  }
  if (count < 1 || count > MAX_DEVICES) return error(INVALID_ARGUMENT, "%d devices", count);
  PJRT_Client *client = make(sizeof *client);
  snprintf(client->platform, sizeof client->platform, "%s", config.platform);
  client->device_count = count;
  for (int i = 0; i < count; i++) {
    PJRT_Device *device = client->addressable[i] = &client->devices[i];
    device->client = client;
    device->memory.device = device;
    describe(&device->description, i);
  }
  return args->client = client, NULL;
}

BODY(PJRT_Client_Destroy) { return unmake(args->client), NULL; }
BODY(PJRT_Client_PlatformName) {
  args->platform_name = args->client->platform;
  return args->platform_name_size = strlen(args->platform_name), NULL;
}
BODY(PJRT_Client_PlatformVersion) {
  args->platform_version = "fake 1";
  return args->platform_version_size = strlen(args->platform_version), NULL;
}
BODY(PJRT_Client_AddressableDevices) {
  args->addressable_devices = args->client->addressable;
  return args->num_addressable_devices = (size_t)args->client->device_count, NULL;
}
BODY(PJRT_DeviceDescription_Id) { return args->id = args->device_description->id, NULL; }
BODY(PJRT_DeviceDescription_ProcessIndex) { return args->process_index = 0, NULL; }
BODY(PJRT_DeviceDescription_Attributes) {
  args->attributes = args->device_description->attributes;
  return args->num_attributes = 3, NULL;
}
BODY(PJRT_DeviceDescription_Kind) {
  args->device_kind = args->device_description->kind;
  return args->device_kind_size = strlen(args->device_kind), NULL;
}
BODY(PJRT_Device_GetDescription) { return args->device_description = &args->device->description, NULL; }
BODY(PJRT_Device_DefaultMemory) { return args->memory = &args->device->memory, NULL; }
BODY(PJRT_Device_MemoryStats) {
  pthread_mutex_lock(&lock);
  args->bytes_in_use = args->device->used;
  args->peak_bytes_in_use = args->device->peak;
  args->bytes_limit = config.memory;
  pthread_mutex_unlock(&lock);
  args->peak_bytes_in_use_is_set = true;
  return args->bytes_limit_is_set = args->bytes_limit > 0, NULL;
}

/* --- types and programs --------------------------------------------------------------------------------------- */

typedef struct {
  uint32_t type; /* PJRT's number */
  int rank;
  int64_t dims[MAX_RANK], bytes;
  bool donated; /* arguments only */
} type_t;

static const struct {
  const char *text;
  uint32_t pjrt;
  int64_t bytes;
} elements[] = {
#define DTYPE(name, bytes, kind, stablehlo, pjrt, torch, text) {stablehlo, pjrt, bytes},
#include "graph/dtype.def"
#undef DTYPE
};

static int64_t element_bytes(uint32_t type) {
  for (size_t i = 0; i < sizeof elements / sizeof *elements; i++)
    if (elements[i].pjrt == type) return elements[i].bytes;
  return 0;
}

/* Reads "tensor<2x3xf32>" at |p|; the text after it, or NULL. */
static const char *read_type(const char *p, type_t *type) {
  if (strncmp(p, "tensor<", 7)) return NULL;
  p += 7;
  *type = (type_t){.bytes = 1};
  for (const char *q; isdigit((unsigned char)*p); p = q + 1) {
    const int64_t dim = strtoll(p, (char **)&q, 10);
    if (*q != 'x' || type->rank == MAX_RANK) return NULL;
    type->dims[type->rank++] = dim;
    type->bytes *= dim;
  }
  for (size_t i = 0; i < sizeof elements / sizeof *elements; i++) {
    const size_t n = strlen(elements[i].text);
    if (strncmp(p, elements[i].text, n) || p[n] != '>') continue;
    type->type = elements[i].pjrt;
    type->bytes *= elements[i].bytes;
    return p + n + 1;
  }
  return NULL;
}

/* The end of the "{...}" at |p|, strings and nesting minded; |p| itself when there is none. */
static const char *skip_attributes(const char *p) {
  if (*p != '{') return p;
  int depth = 0;
  for (bool text = false; *p; p++) {
    if (*p == '"') text = !text;
    if (text) continue;
    depth += (*p == '{') - (*p == '}');
    if (!depth) return p + 1;
  }
  return p;
}

static const char *skip_space(const char *p) { return p + strspn(p, " \t\r\n"); }

static bool contains(const char *from, const char *to, const char *word) {
  const char *at = strstr(from, word);
  return at && at < to;
}

struct PJRT_LoadedExecutable {
  PJRT_Client *client;
  int device; /* -1: portable */
  int argument_count, result_count;
  type_t *arguments, *results;
  char *text;
  size_t text_size;
};

/* A list of types up to ')', or a single one; returns what follows or NULL. */
static const char *read_types(const char *p, bool named_values, type_t **types, int *count) {
  for (p = skip_space(p); *p != ')'; p = skip_space(p)) {
    if (named_values) {
      p = strchr(p, ':');
      if (!p) return NULL;
      p = skip_space(p + 1);
    }
    *types = realloc(*types, sizeof **types * (size_t)(*count + 1));
    type_t *type = &(*types)[(*count)++];
    if (!(p = read_type(p, type))) return NULL;
    const char *attributes = skip_space(p);
    p = skip_attributes(attributes);
    type->donated = contains(attributes, p, "tf.aliasing_output") || contains(attributes, p, "jax.buffer_donor");
    p = skip_space(p);
    if (*p == ',') p++;
    else if (*p != ')') return NULL;
  }
  return p + 1;
}

static PJRT_Error *read_main(PJRT_LoadedExecutable *e) {
  const char *p = strstr(e->text, "@main");
  if (!p || !(p = strchr(p, '('))) return error(INVALID_ARGUMENT, "the program has no function @main");
  if (!(p = read_types(p + 1, true, &e->arguments, &e->argument_count)))
    return error(INVALID_ARGUMENT, "argument %d of @main cannot be read", e->argument_count - 1);
  p = skip_space(p);
  if (strncmp(p, "->", 2)) return NULL; /* no results */
  p = skip_space(p + 2);
  if (*p == '(') {
    p = read_types(p + 1, false, &e->results, &e->result_count);
  } else {
    e->results = malloc(sizeof *e->results);
    e->result_count = 1;
    p = read_type(p, e->results);
  }
  return p ? NULL : error(INVALID_ARGUMENT, "result %d of @main cannot be read", e->result_count - 1);
}

static void free_executable(PJRT_LoadedExecutable *e) {
  if (!e) return;
  free(e->arguments);
  free(e->results);
  free(e->text);
  unmake(e);
}

static PJRT_Error *make_executable(PJRT_Client *client, int device, const char *text, size_t size,
                                   PJRT_LoadedExecutable **out) {
  PJRT_LoadedExecutable *e = make(sizeof *e);
  e->client = client;
  e->device = device;
  e->text = strndup(text, size);
  e->text_size = size;
  PJRT_Error *failure = read_main(e);
  if (!failure && device >= client->device_count) failure = error(INVALID_ARGUMENT, "there is no device %d", device);
  if (failure) return free_executable(e), failure;
  return *out = e, NULL;
}

static uint64_t read_varint(const unsigned char **p, const unsigned char *end) {
  uint64_t value = 0;
  for (int shift = 0; *p < end && shift < 64; shift += 7) {
    value |= (uint64_t)(**p & 0x7f) << shift;
    if (!(*(*p)++ & 0x80)) break;
  }
  return value;
}

/* The number at |path| (field numbers, 0-terminated) of a protobuf message, or |otherwise|. */
static int64_t read_field(const char *data, size_t size, const int *path, int64_t otherwise) {
  const unsigned char *p = (const unsigned char *)data, *end = p + size;
  while (p < end) {
    const uint64_t tag = read_varint(&p, end), value = read_varint(&p, end);
    const bool is_message = (tag & 7) == 2;
    if ((int)(tag >> 3) == *path) {
      if (!path[1]) return (int64_t)value;
      return read_field((const char *)p, (size_t)value, path + 1, otherwise);
    }
    if (is_message) p += value;
  }
  return otherwise;
}

/* Which device compile options bind to, -1: portable. */
static int bound_device(const char *options, size_t size) {
  if (read_field(options, size, (int[]){4, 0}, 0)) return -1;
  return (int)read_field(options, size, (int[]){3, 9, 3, 1, 0}, 0);
}

BODY(PJRT_Client_Compile) {
  const PJRT_Program *program = args->program;
  if (program->format_size != 4 || memcmp(program->format, "mlir", 4))
    return error(INVALID_ARGUMENT, "unknown program format");
  return make_executable(args->client, bound_device(args->compile_options, args->compile_options_size), program->code,
                         program->code_size, &args->executable);
}

/* The serialized form: magic with the device, then the text. */
static const char magic[] = "fake pjrt executable ";
struct PJRT_SerializedExecutable {
  size_t size;
  char data[];
};

static void free_serialized(PJRT_SerializedExecutable *s) { unmake(s); }

BODY(PJRT_Executable_Serialize) {
  const PJRT_LoadedExecutable *e = *(PJRT_LoadedExecutable *const *)args->executable;
  char head[64];
  const size_t n = (size_t)snprintf(head, sizeof head, "%s%d %zu\n", magic, e->device, e->text_size);
  PJRT_SerializedExecutable *s = make(sizeof *s + n + e->text_size);
  s->size = n + e->text_size;
  memcpy(s->data, head, n);
  memcpy(s->data + n, e->text, e->text_size);
  args->serialized_bytes = s->data;
  args->serialized_bytes_size = s->size;
  args->serialized_executable = s;
  return args->serialized_executable_deleter = free_serialized, NULL;
}

BODY(PJRT_Executable_DeserializeAndLoad) {
  char head[64] = "";
  const size_t size = args->serialized_executable_size;
  memcpy(head, args->serialized_executable, size < sizeof head - 1 ? size : sizeof head - 1);
  const char *end = strchr(head, '\n');
  int device;
  size_t text_size;
  if (strncmp(head, magic, strlen(magic)) || !end ||
      sscanf(head + strlen(magic), "%d %zu", &device, &text_size) != 2 ||
      text_size != size - (size_t)(end + 1 - head))
    return error(INVALID_ARGUMENT, "this is no executable of this plugin");
  const size_t override_size = args->overridden_serialized_compile_options_size;
  if (override_size) device = bound_device(args->overridden_serialized_compile_options, override_size);
  return make_executable(args->client, device, args->serialized_executable + (end + 1 - head), text_size,
                         &args->loaded_executable);
}

BODY(PJRT_LoadedExecutable_Destroy) { return free_executable(args->executable), NULL; }

/* An executable description only points at the loaded one. */
struct PJRT_Executable {
  PJRT_LoadedExecutable *loaded;
};

BODY(PJRT_LoadedExecutable_GetExecutable) {
  args->executable = make(sizeof *args->executable);
  return args->executable->loaded = args->loaded_executable, NULL;
}
BODY(PJRT_Executable_Destroy) { return unmake(args->executable), NULL; }
BODY(PJRT_Executable_NumOutputs) { return args->num_outputs = (size_t)args->executable->loaded->result_count, NULL; }
BODY(PJRT_Executable_SizeOfGeneratedCodeInBytes) {
  return args->size_in_bytes = (int64_t)args->executable->loaded->text_size, NULL;
}

static int64_t total_bytes(const type_t *types, int count) {
  int64_t n = 0;
  for (int i = 0; i < count; i++) n += types[i].bytes;
  return n;
}

BODY(PJRT_Executable_GetCostAnalysis) {
  static PJRT_NamedValue values[3];
  values[0] = named("flops", PJRT_NamedValue_kFloat, 1);
  values[0].float_value = 1000;
  values[1] = named("bytes accessed", PJRT_NamedValue_kFloat, 1);
  values[1].float_value = 2000;
  values[2] = named("optimal_seconds", PJRT_NamedValue_kFloat, 1);
  values[2].float_value = 0.5F;
  args->properties = values;
  return args->num_properties = 3, NULL;
}

BODY(PJRT_Executable_GetCompiledMemoryStats) {
  const PJRT_LoadedExecutable *e = args->executable->loaded;
  args->argument_size_in_bytes = total_bytes(e->arguments, e->argument_count);
  args->output_size_in_bytes = total_bytes(e->results, e->result_count);
  return args->generated_code_size_in_bytes = (int64_t)e->text_size, NULL;
}

/* --- buffers -------------------------------------------------------------------------------------------------- */

struct PJRT_Buffer {
  PJRT_Device *device;
  type_t type;
  void *data;
  int64_t ready_at;
  int code; /* of the error that the computation ended with */
  _Atomic bool deleted;
};

/* Books |more| bytes of device memory, after |freed| bytes are given back; false: they do not fit. */
static bool book(PJRT_Device *device, int64_t more, int64_t freed) {
  pthread_mutex_lock(&lock);
  const bool fits = !config.memory || device->used - freed + more <= config.memory;
  if (fits) device->used += more;
  if (device->used > device->peak) device->peak = device->used;
  pthread_mutex_unlock(&lock);
  return fits;
}

static PJRT_Buffer *make_buffer(PJRT_Device *device, const type_t *type) {
  PJRT_Buffer *b = make(sizeof *b);
  b->device = device;
  b->type = *type;
  b->data = calloc(1, type->bytes ? (size_t)type->bytes : 1);
  return b;
}

static void delete_buffer(PJRT_Buffer *b) {
  if (atomic_exchange(&b->deleted, true)) return;
  pthread_mutex_lock(&lock);
  b->device->used -= b->type.bytes;
  pthread_mutex_unlock(&lock);
  free(b->data);
  b->data = NULL;
}

static PJRT_Error *check_alive(const PJRT_Buffer *b) {
  return b->deleted ? error(INVALID_ARGUMENT, "the buffer was deleted or donated") : NULL;
}

static PJRT_Error *no_memory(int64_t bytes) {
  return error(RESOURCE_EXHAUSTED, "out of device memory: %lld bytes do not fit", (long long)bytes);
}

BODY(PJRT_Client_BufferFromHostBuffer) {
  type_t type = {.type = args->type, .rank = (int)args->num_dims, .bytes = element_bytes(args->type)};
  if (!type.bytes) return error(INVALID_ARGUMENT, "unknown element type %u", args->type);
  for (int i = 0; i < type.rank; i++) type.bytes *= type.dims[i] = args->dims[i];
  if (!book(args->device, type.bytes, 0)) return no_memory(type.bytes);
  args->buffer = make_buffer(args->device, &type);
  memcpy(args->buffer->data, args->data, (size_t)type.bytes);
  const bool during_call = args->host_buffer_semantics == PJRT_HostBufferSemantics_kImmutableOnlyDuringCall;
  args->buffer->ready_at = during_call ? 0 : now_us() + config.delay_us;
  return args->done_with_host_buffer = make_event(args->buffer->ready_at, 0), NULL;
}

BODY(PJRT_Buffer_Destroy) {
  if (!args->buffer) return NULL;
  delete_buffer(args->buffer);
  return unmake(args->buffer), NULL;
}
BODY(PJRT_Buffer_ElementType) { return args->type = args->buffer->type.type, NULL; }
BODY(PJRT_Buffer_Dimensions) {
  args->dims = args->buffer->type.dims;
  return args->num_dims = (size_t)args->buffer->type.rank, NULL;
}
BODY(PJRT_Buffer_OnDeviceSizeInBytes) { return args->on_device_size_in_bytes = (size_t)args->buffer->type.bytes, NULL; }
BODY(PJRT_Buffer_IsDeleted) { return args->is_deleted = args->buffer->deleted, NULL; }
BODY(PJRT_Buffer_ReadyEvent) {
  PJRT_Error *gone = check_alive(args->buffer);
  if (gone) return gone;
  return args->event = make_event(args->buffer->ready_at, args->buffer->code), NULL;
}
BODY(PJRT_Buffer_UnsafePointer) {
  PJRT_Error *gone = check_alive(args->buffer);
  if (gone) return gone;
  return args->buffer_pointer = (uintptr_t)args->buffer->data, NULL;
}

BODY(PJRT_Buffer_ToHostBuffer) {
  PJRT_Buffer *b = args->src;
  PJRT_Error *gone = check_alive(b);
  if (gone) return gone;
  if (!args->dst) return args->dst_size = (size_t)b->type.bytes, NULL;
  if (args->dst_size < (size_t)b->type.bytes)
    return error(INVALID_ARGUMENT, "%zu bytes do not hold %lld", args->dst_size, (long long)b->type.bytes);
  if (args->host_layout) {
    const PJRT_Buffer_MemoryLayout_Tiled *t = &args->host_layout->tiled;
    bool row_major = args->host_layout->type == PJRT_Buffer_MemoryLayout_Type_Tiled &&
                     t->minor_to_major_size == (size_t)b->type.rank && !t->num_tiles;
    for (int i = 0; row_major && i < b->type.rank; i++) row_major = t->minor_to_major[i] == b->type.rank - 1 - i;
    if (!row_major) return error(UNIMPLEMENTED, "only row-major host layouts");
  }
  if (!b->code) memcpy(args->dst, b->data, (size_t)b->type.bytes);
  return args->event = make_event(b->ready_at, b->code), NULL;
}

BODY(PJRT_Buffer_CopyToMemory) {
  PJRT_Buffer *b = args->buffer;
  PJRT_Error *gone = check_alive(b);
  if (gone) return gone;
  if (!book(args->dst_memory->device, b->type.bytes, 0)) return no_memory(b->type.bytes);
  args->dst_buffer = make_buffer(args->dst_memory->device, &b->type);
  memcpy(args->dst_buffer->data, b->data, (size_t)b->type.bytes);
  args->dst_buffer->ready_at = b->ready_at;
  return args->dst_buffer->code = b->code, NULL;
}

/* --- running -------------------------------------------------------------------------------------------------- */

static PJRT_Error *check_arguments(const PJRT_LoadedExecutable *e, const PJRT_LoadedExecutable_Execute_Args *args,
                                   const PJRT_Device *device) {
  if (args->num_devices != 1) return error(INVALID_ARGUMENT, "one device, not %zu", args->num_devices);
  if (args->options->struct_size != sizeof *args->options)
    return error(INVALID_ARGUMENT, "the struct_size of the execute options is %zu", args->options->struct_size);
  if ((int)args->num_args != e->argument_count)
    return error(INVALID_ARGUMENT, "the program takes %d arguments, not %zu", e->argument_count, args->num_args);
  for (int i = 0; i < e->argument_count; i++) {
    const PJRT_Buffer *b = args->argument_lists[0][i];
    const type_t *want = &e->arguments[i];
    if (!b || b->deleted) return error(INVALID_ARGUMENT, "argument %d was deleted or donated", i);
    if (b->device != device) return error(INVALID_ARGUMENT, "argument %d is on device %d, the program runs on %d", i,
                                          b->device->description.id, device->description.id);
    if (b->type.type != want->type || b->type.rank != want->rank ||
        memcmp(b->type.dims, want->dims, sizeof *want->dims * (size_t)want->rank))
      return error(INVALID_ARGUMENT, "argument %d has another type or shape than the program declares", i);
    for (int j = 0; want->donated && j < e->argument_count; j++)
      if (i != j && b == args->argument_lists[0][j])
        return error(INVALID_ARGUMENT, "argument %d is donated and is argument %d too", i, j);
  }
  return NULL;
}

static bool consumes(const PJRT_LoadedExecutable *e, const PJRT_ExecuteOptions *options, int argument) {
  if (!e->arguments[argument].donated) return false;
  for (size_t i = 0; config.keep && i < options->num_non_donatable_input_indices; i++)
    if (options->non_donatable_input_indices[i] == argument) return false;
  return true;
}

/* Its injected failure comes late, so the entry passes it on instead of returning it. */
static PJRT_Error *execute(PJRT_LoadedExecutable_Execute_Args *args, PJRT_Error *injected) {
  PJRT_LoadedExecutable *e = args->executable;
  PJRT_Device *device = args->execute_device;
  if (!device) device = &e->client->devices[e->device < 0 ? 0 : e->device];
  if (e->device >= 0 && device->description.id != e->device) {
    if (injected) unmake(injected);
    return error(INVALID_ARGUMENT, "the program was compiled for device %d", e->device);
  }
  PJRT_Error *failure = check_arguments(e, args, device);
  if (failure) {
    if (injected) unmake(injected);
    return failure;
  }
  int64_t donated = 0;
  for (int i = 0; i < e->argument_count; i++)
    if (consumes(e, args->options, i)) donated += e->arguments[i].bytes;
  const int64_t bytes = total_bytes(e->results, e->result_count);
  failure = injected ? injected : book(device, bytes, donated) ? NULL : no_memory(bytes);
  if (!failure || config.consume)
    for (int i = 0; i < e->argument_count; i++)
      if (consumes(e, args->options, i)) delete_buffer(args->argument_lists[0][i]);
  if (failure) return failure;

  pthread_mutex_lock(&lock);
  const int64_t start = now_us() > device->busy_until ? now_us() : device->busy_until;
  device->busy_until = start + config.delay_us;
  const int64_t ready_at = device->busy_until;
  const int code = hits(&config.async_fail, ++executions) ? config.async_fail.code : 0;
  pthread_mutex_unlock(&lock);
  for (int i = 0; i < e->result_count; i++) {
    PJRT_Buffer *b = args->output_lists[0][i] = make_buffer(device, &e->results[i]);
    b->ready_at = ready_at;
    b->code = code;
    /* What is computed from a failed value fails with it. */
    for (int j = 0; j < e->argument_count && !b->code; j++)
      if (!consumes(e, args->options, j)) b->code = args->argument_lists[0][j]->code;
  }
  if (args->device_complete_events) args->device_complete_events[0] = make_event(ready_at, code);
  return NULL;
}

/* --- the table ------------------------------------------------------------------------------------------------ */

static PJRT_Error *entry_PJRT_LoadedExecutable_Execute(PJRT_LoadedExecutable_Execute_Args *args) {
  return execute(args, enter(SLOT_PJRT_LoadedExecutable_Execute, args->struct_size, sizeof *args));
}

static void entry_PJRT_Error_Destroy(PJRT_Error_Destroy_Args *args) { unmake(args->error); }

static void entry_PJRT_Error_Message(PJRT_Error_Message_Args *args) {
  args->message = args->error->message;
  args->message_size = strlen(args->message);
}

static PJRT_Error *entry_PJRT_Error_GetCode(PJRT_Error_GetCode_Args *args) {
  return args->code = (uint32_t)args->error->code, NULL;
}

#define IMPLEMENTED(E)                                                                                             \
  E(PJRT_Plugin_Initialize) E(PJRT_Event_Destroy) E(PJRT_Event_IsReady) E(PJRT_Event_Error) E(PJRT_Event_Await)     \
  E(PJRT_Event_OnReady) E(PJRT_Client_Create) E(PJRT_Client_Destroy) E(PJRT_Client_PlatformName)                    \
  E(PJRT_Client_PlatformVersion) E(PJRT_Client_AddressableDevices) E(PJRT_Client_Compile)                           \
  E(PJRT_Client_BufferFromHostBuffer) E(PJRT_DeviceDescription_Id) E(PJRT_DeviceDescription_ProcessIndex)           \
  E(PJRT_DeviceDescription_Attributes) E(PJRT_DeviceDescription_Kind) E(PJRT_Device_GetDescription)                 \
  E(PJRT_Device_DefaultMemory) E(PJRT_Device_MemoryStats) E(PJRT_Executable_Destroy) E(PJRT_Executable_NumOutputs)  \
  E(PJRT_Executable_SizeOfGeneratedCodeInBytes) E(PJRT_Executable_GetCostAnalysis)                                  \
  E(PJRT_Executable_GetCompiledMemoryStats) E(PJRT_Executable_Serialize) E(PJRT_LoadedExecutable_Destroy)           \
  E(PJRT_LoadedExecutable_GetExecutable) E(PJRT_Executable_DeserializeAndLoad) E(PJRT_Buffer_Destroy)               \
  E(PJRT_Buffer_ElementType) E(PJRT_Buffer_Dimensions) E(PJRT_Buffer_OnDeviceSizeInBytes) E(PJRT_Buffer_IsDeleted)  \
  E(PJRT_Buffer_CopyToMemory) E(PJRT_Buffer_ToHostBuffer) E(PJRT_Buffer_ReadyEvent) E(PJRT_Buffer_UnsafePointer)

/* A destructor that fails has destroyed all the same. */
#define ENTRY(name)                                                             \
  static PJRT_Error *entry_##name(name##_Args *args) {                          \
    PJRT_Error *injected = enter(SLOT_##name, args->struct_size, sizeof *args); \
    if (injected && !strstr(#name, "_Destroy")) return injected;                \
    PJRT_Error *failure = body_##name(args);                                    \
    return injected ? injected : failure;                                       \
  }
IMPLEMENTED(ENTRY)

static bool is_omitted(const char *name) {
  const size_t n = strlen(name);
  for (const char *p = config.omit; (p = strstr(p, name)); p += n)
    if ((p == config.omit || p[-1] == ',') && (!p[n] || p[n] == ',')) return true;
  return false;
}

__attribute__((constructor)) static void load(void) { fake_plugin_configure(getenv("FAKE_PLUGIN")); }

__attribute__((visibility("default"))) const PJRT_Api *GetPjrtApi(void) {
  static PJRT_Api api;
  api = (PJRT_Api){.struct_size = offsetof(PJRT_Api, PJRT_Error_Destroy) + sizeof(void *) * (size_t)config.slots,
                   .pjrt_api_version = {.struct_size = sizeof(PJRT_Api_Version), .major_version = config.major,
                                        .minor_version = config.minor}};
#define SET(name) \
  if (!is_omitted(#name)) api.name = entry_##name;
  IMPLEMENTED(SET)
  SET(PJRT_Error_Destroy) SET(PJRT_Error_Message) SET(PJRT_Error_GetCode) SET(PJRT_LoadedExecutable_Execute)
  return &api;
}
