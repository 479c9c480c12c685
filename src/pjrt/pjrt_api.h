/* pjrt_api.h: the binary interface of a PJRT plugin (C API major 0), as far as the core uses it.
 *
 * The function table is complete (pjrt_api.def); argument structs are written out for the functions that are called,
 * the others stay incomplete types, so that calling one without describing it does not compile. Names and layouts are
 * PJRT's; tests/py/test_pjrt_abi.py compares every offset, size and slot with an independent table.
 *
 * Rules of the interface: a caller sets struct_size in everything it passes (structs only grow at their end, so a
 * plugin of another minor reads or writes the common prefix); zero-initialise, because an older plugin leaves newer
 * results unwritten; an error is owned by the caller. "out" marks what the plugin writes.
 */
#ifndef TTPU_PJRT_PJRT_API_H_
#define TTPU_PJRT_PJRT_API_H_

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { PJRT_API_MAJOR = 0, PJRT_API_MINOR_OLDEST = 81, PJRT_API_MINOR_NEWEST = 117 };

typedef struct PJRT_Error PJRT_Error;
typedef struct PJRT_Event PJRT_Event;
typedef struct PJRT_Client PJRT_Client;
typedef struct PJRT_Device PJRT_Device;
typedef struct PJRT_DeviceDescription PJRT_DeviceDescription;
typedef struct PJRT_Memory PJRT_Memory;
typedef struct PJRT_Buffer PJRT_Buffer;
typedef struct PJRT_Executable PJRT_Executable;
typedef struct PJRT_LoadedExecutable PJRT_LoadedExecutable;
typedef struct PJRT_SerializedExecutable PJRT_SerializedExecutable;
typedef struct PJRT_TopologyDescription PJRT_TopologyDescription;
typedef struct PJRT_ExecuteContext PJRT_ExecuteContext;

/* A link of the extension chain; the concrete struct begins with this. */
typedef struct PJRT_Extension_Base {
  size_t struct_size;
  uint32_t type; /* PJRT_Extension_Type */
  struct PJRT_Extension_Base *next;
} PJRT_Extension_Base;

typedef enum { PJRT_Extension_Type_FFI = 5 } PJRT_Extension_Type;

/* The first two fields of almost every struct below. */
#define PJRT_HEADER   \
  size_t struct_size; \
  PJRT_Extension_Base *extension_start

typedef struct {
  PJRT_HEADER;
  int major_version, minor_version; /* out */
} PJRT_Api_Version;

#define PJRT_SLOT(result, name) typedef struct name##_Args name##_Args;
#include "pjrt/pjrt_api.def"
#undef PJRT_SLOT

typedef struct PJRT_Api {
  PJRT_HEADER;
  PJRT_Api_Version pjrt_api_version;
#define PJRT_SLOT(result, name) result (*name)(name##_Args *args);
#include "pjrt/pjrt_api.def"
#undef PJRT_SLOT
} PJRT_Api;

/* --- values ----------------------------------------------------------------------------------------------- */

typedef enum {
  PJRT_NamedValue_kString = 0,
  PJRT_NamedValue_kInt64,
  PJRT_NamedValue_kInt64List,
  PJRT_NamedValue_kFloat,
  PJRT_NamedValue_kBool,
} PJRT_NamedValue_Type;

typedef struct PJRT_NamedValue {
  PJRT_HEADER;
  const char *name;
  size_t name_size;
  PJRT_NamedValue_Type type;
  union {
    const char *string_value;
    int64_t int64_value;
    const int64_t *int64_array_value;
    float float_value;
    bool bool_value;
  };
  size_t value_size; /* bytes of a string, entries of a list, else 1 */
} PJRT_NamedValue;

typedef enum {
  PJRT_HostBufferSemantics_kImmutableOnlyDuringCall = 0, /* copied before the call returns */
  PJRT_HostBufferSemantics_kImmutableUntilTransferCompletes,
  PJRT_HostBufferSemantics_kImmutableZeroCopy, /* may alias the host memory for the buffer's life, read only */
  PJRT_HostBufferSemantics_kMutableZeroCopy,
} PJRT_HostBufferSemantics;

typedef struct {
  PJRT_HEADER;
  const int64_t *minor_to_major;
  size_t minor_to_major_size;
  const int64_t *tile_dims;     /* all tiles, one after another */
  const size_t *tile_dim_sizes; /* how many of them each tile has */
  size_t num_tiles;
} PJRT_Buffer_MemoryLayout_Tiled;

typedef struct {
  PJRT_HEADER;
  const int64_t *byte_strides;
  size_t num_byte_strides;
} PJRT_Buffer_MemoryLayout_Strides;

typedef enum {
  PJRT_Buffer_MemoryLayout_Type_Tiled = 0,
  PJRT_Buffer_MemoryLayout_Type_Strides,
} PJRT_Buffer_MemoryLayout_Type;

typedef struct {
  PJRT_HEADER;
  union {
    PJRT_Buffer_MemoryLayout_Tiled tiled;
    PJRT_Buffer_MemoryLayout_Strides strides;
  };
  PJRT_Buffer_MemoryLayout_Type type;
} PJRT_Buffer_MemoryLayout;

typedef struct {
  PJRT_HEADER;
  char *code; /* "mlir" format: StableHLO text or bytecode */
  size_t code_size;
  const char *format;
  size_t format_size;
} PJRT_Program;

/* --- errors, plugin ----------------------------------------------------------------------------------------- */

struct PJRT_Error_Destroy_Args {
  PJRT_HEADER;
  PJRT_Error *error;
};

struct PJRT_Error_Message_Args {
  PJRT_HEADER;
  const PJRT_Error *error;
  const char *message; /* out, lives as long as |error|; not terminated */
  size_t message_size; /* out */
};

struct PJRT_Error_GetCode_Args {
  PJRT_HEADER;
  const PJRT_Error *error;
  uint32_t code; /* out: the numbers of base/status.def */
};

struct PJRT_Plugin_Initialize_Args {
  PJRT_HEADER;
};

/* --- events ------------------------------------------------------------------------------------------------- */

struct PJRT_Event_Destroy_Args {
  PJRT_HEADER;
  PJRT_Event *event;
};

struct PJRT_Event_IsReady_Args {
  PJRT_HEADER;
  PJRT_Event *event;
  bool is_ready; /* out */
};

struct PJRT_Event_Error_Args {
  PJRT_HEADER;
  PJRT_Event *event;
};

struct PJRT_Event_Await_Args {
  PJRT_HEADER;
  PJRT_Event *event;
};

typedef void (*PJRT_Event_OnReadyCallback)(PJRT_Error *error, void *user_arg); /* owns |error| */

struct PJRT_Event_OnReady_Args {
  PJRT_HEADER;
  PJRT_Event *event;
  PJRT_Event_OnReadyCallback callback; /* runs at once when the event is ready, else on another thread */
  void *user_arg;
};

/* --- client, devices ---------------------------------------------------------------------------------------- */

/* The key-value store through which the processes of a distributed client find each other. */
typedef PJRT_Error *(*PJRT_CallbackError)(uint32_t code, const char *message, size_t message_size);

typedef struct {
  PJRT_HEADER;
  const char *key;
  size_t key_size;
  int timeout_in_ms;
  PJRT_CallbackError *callback_error;
  void *user_arg;
  char *value;                          /* out */
  size_t value_size;                    /* out */
  void (*value_deleter_callback)(char *); /* out */
} PJRT_KeyValueGetCallback_Args;
typedef PJRT_Error *(*PJRT_KeyValueGetCallback)(PJRT_KeyValueGetCallback_Args *args);

typedef struct {
  PJRT_HEADER;
  const char *key;
  size_t key_size;
  PJRT_CallbackError *callback_error;
  void *user_arg;
  char *value;                          /* out */
  size_t value_size;                    /* out */
  void (*value_deleter_callback)(char *); /* out */
} PJRT_KeyValueTryGetCallback_Args;
typedef PJRT_Error *(*PJRT_KeyValueTryGetCallback)(PJRT_KeyValueTryGetCallback_Args *args);

typedef struct {
  PJRT_HEADER;
  const char *key;
  size_t key_size;
  const char *value;
  size_t value_size;
  PJRT_CallbackError *callback_error;
  void *user_arg;
} PJRT_KeyValuePutCallback_Args;
typedef PJRT_Error *(*PJRT_KeyValuePutCallback)(PJRT_KeyValuePutCallback_Args *args);

struct PJRT_Client_Create_Args {
  PJRT_HEADER;
  const PJRT_NamedValue *create_options;
  size_t num_options;
  PJRT_KeyValueGetCallback kv_get_callback;
  void *kv_get_user_arg;
  PJRT_KeyValuePutCallback kv_put_callback;
  void *kv_put_user_arg;
  PJRT_Client *client; /* out */
  PJRT_KeyValueTryGetCallback kv_try_get_callback;
  void *kv_try_get_user_arg;
};

struct PJRT_Client_Destroy_Args {
  PJRT_HEADER;
  PJRT_Client *client;
};

struct PJRT_Client_PlatformName_Args {
  PJRT_HEADER;
  PJRT_Client *client;
  const char *platform_name; /* out, lives as long as |client| */
  size_t platform_name_size; /* out */
};

struct PJRT_Client_PlatformVersion_Args {
  PJRT_HEADER;
  PJRT_Client *client;
  const char *platform_version; /* out */
  size_t platform_version_size; /* out */
};

struct PJRT_Client_AddressableDevices_Args {
  PJRT_HEADER;
  PJRT_Client *client;
  PJRT_Device *const *addressable_devices; /* out, lives as long as |client| */
  size_t num_addressable_devices;          /* out */
};

struct PJRT_Client_Compile_Args {
  PJRT_HEADER;
  PJRT_Client *client;
  const PJRT_Program *program;
  const char *compile_options; /* a serialized CompileOptionsProto */
  size_t compile_options_size;
  PJRT_LoadedExecutable *executable; /* out */
};

struct PJRT_Client_BufferFromHostBuffer_Args {
  PJRT_HEADER;
  PJRT_Client *client;
  const void *data;
  uint32_t type; /* PJRT_Buffer_Type: dtype.def */
  const int64_t *dims;
  size_t num_dims;
  const int64_t *byte_strides; /* NULL: dense, row-major */
  size_t num_byte_strides;
  PJRT_HostBufferSemantics host_buffer_semantics;
  PJRT_Device *device;
  PJRT_Memory *memory; /* NULL: the device's default */
  PJRT_Buffer_MemoryLayout *device_layout;
  PJRT_Event *done_with_host_buffer; /* out */
  PJRT_Buffer *buffer;               /* out */
};

struct PJRT_DeviceDescription_Id_Args {
  PJRT_HEADER;
  PJRT_DeviceDescription *device_description;
  int id; /* out: what device assignments name */
};

struct PJRT_DeviceDescription_ProcessIndex_Args {
  PJRT_HEADER;
  PJRT_DeviceDescription *device_description;
  int process_index; /* out */
};

struct PJRT_DeviceDescription_Attributes_Args {
  PJRT_HEADER;
  PJRT_DeviceDescription *device_description;
  size_t num_attributes;             /* out */
  const PJRT_NamedValue *attributes; /* out */
};

struct PJRT_DeviceDescription_Kind_Args {
  PJRT_HEADER;
  PJRT_DeviceDescription *device_description;
  const char *device_kind; /* out */
  size_t device_kind_size; /* out */
};

struct PJRT_Device_GetDescription_Args {
  PJRT_HEADER;
  PJRT_Device *device;
  PJRT_DeviceDescription *device_description; /* out */
};

struct PJRT_Device_DefaultMemory_Args {
  PJRT_HEADER;
  PJRT_Device *device;
  PJRT_Memory *memory; /* out */
};

/* Each optional figure (out) is followed by whether the plugin set it. */
#define PJRT_STAT(name) \
  int64_t name;         \
  bool name##_is_set
struct PJRT_Device_MemoryStats_Args {
  PJRT_HEADER;
  PJRT_Device *device;
  int64_t bytes_in_use; /* out, always set */
  PJRT_STAT(peak_bytes_in_use);
  PJRT_STAT(num_allocs);
  PJRT_STAT(largest_alloc_size);
  PJRT_STAT(bytes_limit);
  PJRT_STAT(bytes_reserved);
  PJRT_STAT(peak_bytes_reserved);
  PJRT_STAT(bytes_reservable_limit);
  PJRT_STAT(largest_free_block_bytes);
  PJRT_STAT(pool_bytes);
  PJRT_STAT(peak_pool_bytes);
  PJRT_STAT(peak_allocated_bytes);
};
#undef PJRT_STAT

/* --- executables -------------------------------------------------------------------------------------------- */

struct PJRT_Executable_Destroy_Args {
  PJRT_HEADER;
  PJRT_Executable *executable;
};

struct PJRT_Executable_NumOutputs_Args {
  PJRT_HEADER;
  PJRT_Executable *executable;
  size_t num_outputs; /* out */
};

struct PJRT_Executable_SizeOfGeneratedCodeInBytes_Args {
  PJRT_HEADER;
  PJRT_Executable *executable;
  int64_t size_in_bytes; /* out */
};

struct PJRT_Executable_GetCostAnalysis_Args {
  PJRT_HEADER;
  PJRT_Executable *executable;
  size_t num_properties;             /* out */
  const PJRT_NamedValue *properties; /* out, lives as long as |executable| */
};

struct PJRT_Executable_GetCompiledMemoryStats_Args {
  PJRT_HEADER;
  PJRT_Executable *executable;
  /* all out */
  int64_t generated_code_size_in_bytes, argument_size_in_bytes, output_size_in_bytes, alias_size_in_bytes,
      temp_size_in_bytes;
  int64_t host_generated_code_size_in_bytes, host_argument_size_in_bytes, host_output_size_in_bytes,
      host_alias_size_in_bytes, host_temp_size_in_bytes;
  int64_t peak_memory_in_bytes, total_size_in_bytes, total_allocation_bytes, indefinite_allocations,
      peak_unpadded_heap_bytes;
};

struct PJRT_Executable_Serialize_Args {
  PJRT_HEADER;
  const PJRT_Executable *executable;
  const char *serialized_bytes;                                        /* out, owned by serialized_executable */
  size_t serialized_bytes_size;                                        /* out */
  PJRT_SerializedExecutable *serialized_executable;                    /* out */
  void (*serialized_executable_deleter)(PJRT_SerializedExecutable *); /* out */
};

struct PJRT_LoadedExecutable_Destroy_Args {
  PJRT_HEADER;
  PJRT_LoadedExecutable *executable;
};

struct PJRT_LoadedExecutable_GetExecutable_Args {
  PJRT_HEADER;
  PJRT_LoadedExecutable *loaded_executable;
  PJRT_Executable *executable; /* out, owned by the caller */
};

struct PJRT_Executable_DeserializeAndLoad_Args {
  PJRT_HEADER;
  PJRT_Client *client;
  const char *serialized_executable;
  size_t serialized_executable_size;
  PJRT_LoadedExecutable *loaded_executable; /* out */
  const char *overridden_serialized_compile_options;
  size_t overridden_serialized_compile_options_size;
  void *load_options;
};

typedef struct {
  PJRT_HEADER;
  void *send_callbacks, *recv_callbacks;
  size_t num_send_ops, num_recv_ops;
  int launch_id;
  const int64_t *non_donatable_input_indices; /* arguments that survive a program compiled to donate them */
  size_t num_non_donatable_input_indices;
  PJRT_ExecuteContext *context;
  const char *call_location; /* NUL-terminated */
  size_t num_tasks;
  int *task_ids;
  int64_t *incarnation_ids;
  void *multi_slice_config;
  bool use_major_to_minor_data_layout_for_callbacks;
  void *hlo_output_callbacks;
  size_t num_hlo_output_callbacks;
} PJRT_ExecuteOptions;

struct PJRT_LoadedExecutable_Execute_Args {
  PJRT_HEADER;
  PJRT_LoadedExecutable *executable;
  PJRT_ExecuteOptions *options;
  PJRT_Buffer *const *const *argument_lists; /* one list a device */
  size_t num_devices, num_args;
  PJRT_Buffer **const *output_lists;   /* one list a device, filled by the plugin */
  PJRT_Event **device_complete_events; /* NULL: none wanted */
  PJRT_Device *execute_device;         /* for one device: where to run; NULL: where compiled for */
};

/* --- buffers ------------------------------------------------------------------------------------------------ */

struct PJRT_Buffer_Destroy_Args {
  PJRT_HEADER;
  PJRT_Buffer *buffer;
};

struct PJRT_Buffer_ElementType_Args {
  PJRT_HEADER;
  PJRT_Buffer *buffer;
  uint32_t type; /* out */
};

struct PJRT_Buffer_Dimensions_Args {
  PJRT_HEADER;
  PJRT_Buffer *buffer;
  const int64_t *dims; /* out, lives as long as |buffer| */
  size_t num_dims;     /* out */
};

struct PJRT_Buffer_OnDeviceSizeInBytes_Args {
  PJRT_HEADER;
  PJRT_Buffer *buffer;
  size_t on_device_size_in_bytes; /* out */
};

struct PJRT_Buffer_IsDeleted_Args {
  PJRT_HEADER;
  PJRT_Buffer *buffer;
  bool is_deleted; /* out */
};

struct PJRT_Buffer_CopyToDevice_Args {
  PJRT_HEADER;
  PJRT_Buffer *buffer;
  PJRT_Device *dst_device;
  PJRT_Buffer *dst_buffer; /* out */
};

struct PJRT_Buffer_CopyToMemory_Args {
  PJRT_HEADER;
  PJRT_Buffer *buffer;
  PJRT_Memory *dst_memory;
  PJRT_Buffer *dst_buffer; /* out */
};

struct PJRT_Buffer_ToHostBuffer_Args {
  PJRT_HEADER;
  PJRT_Buffer *src;
  PJRT_Buffer_MemoryLayout *host_layout; /* NULL: the buffer's own */
  void *dst;
  size_t dst_size;
  PJRT_Event *event; /* out */
};

struct PJRT_Buffer_ReadyEvent_Args {
  PJRT_HEADER;
  PJRT_Buffer *buffer;
  PJRT_Event *event; /* out, owned by the caller */
};

struct PJRT_Buffer_UnsafePointer_Args {
  PJRT_HEADER;
  PJRT_Buffer *buffer;
  uintptr_t buffer_pointer; /* out */
};

/* --- topologies (compiling for hardware that is not here) --------------------------------------------------- */

struct PJRT_TopologyDescription_Create_Args {
  PJRT_HEADER;
  const char *topology_name;
  size_t topology_name_size;
  const PJRT_NamedValue *create_options;
  size_t num_options;
  PJRT_TopologyDescription *topology; /* out */
};

struct PJRT_TopologyDescription_Destroy_Args {
  PJRT_HEADER;
  PJRT_TopologyDescription *topology;
};

struct PJRT_TopologyDescription_PlatformName_Args {
  PJRT_HEADER;
  const PJRT_TopologyDescription *topology;
  const char *platform_name; /* out */
  size_t platform_name_size; /* out */
};

struct PJRT_TopologyDescription_PlatformVersion_Args {
  PJRT_HEADER;
  const PJRT_TopologyDescription *topology;
  const char *platform_version; /* out */
  size_t platform_version_size; /* out */
};

struct PJRT_TopologyDescription_GetDeviceDescriptions_Args {
  PJRT_HEADER;
  const PJRT_TopologyDescription *topology;
  PJRT_DeviceDescription *const *descriptions; /* out */
  size_t num_descriptions;                     /* out */
};

struct PJRT_Compile_Args {
  PJRT_HEADER;
  const PJRT_TopologyDescription *topology;
  const PJRT_Program *program;
  const char *compile_options;
  size_t compile_options_size;
  PJRT_Client *client;         /* may be NULL */
  PJRT_Executable *executable; /* out: cannot run, can be serialized and asked for its cost */
};

#undef PJRT_HEADER

#endif /* TTPU_PJRT_PJRT_API_H_ */
