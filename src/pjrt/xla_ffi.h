/* xla_ffi.h: the binary interface of XLA custom calls (XLA FFI major 0): what a handler is given, and how a plugin is
 * told of it. Layouts are compared with an independent table by tests/py/test_pjrt_abi.py.
 *
 * A handler is called with a frame whose |extension_start| is a metadata extension when it is registered: it then only
 * says which interface version it was built for. Otherwise it is called once for each stage of an execution. It returns
 * NULL, or an error made by the frame's own api.
 */
#ifndef TTPU_PJRT_XLA_FFI_H_
#define TTPU_PJRT_XLA_FFI_H_

#include <stddef.h>
#include <stdint.h>

#include "pjrt/pjrt_api.h"

enum { XLA_FFI_API_MAJOR = 0, XLA_FFI_API_MINOR = 1 }; /* the oldest that has all we use */

typedef struct XLA_FFI_Error XLA_FFI_Error;
typedef struct XLA_FFI_Future XLA_FFI_Future;
typedef struct XLA_FFI_ExecutionContext XLA_FFI_ExecutionContext;
typedef struct XLA_FFI_InternalApi XLA_FFI_InternalApi;

typedef struct XLA_FFI_Extension_Base {
  size_t struct_size;
  uint32_t type; /* XLA_FFI_Extension_Type */
  struct XLA_FFI_Extension_Base *next;
} XLA_FFI_Extension_Base;

typedef enum { XLA_FFI_Extension_Metadata = 1 } XLA_FFI_Extension_Type;

#define XLA_FFI_HEADER \
  size_t struct_size;  \
  XLA_FFI_Extension_Base *extension_start

typedef struct {
  XLA_FFI_HEADER;
  int major_version, minor_version; /* out */
} XLA_FFI_Api_Version;

typedef enum {
  XLA_FFI_ExecutionStage_INSTANTIATE = 0,
  XLA_FFI_ExecutionStage_PREPARE,
  XLA_FFI_ExecutionStage_INITIALIZE,
  XLA_FFI_ExecutionStage_EXECUTE,
} XLA_FFI_ExecutionStage;

/* Numbers differ from PJRT's for the same types. */
typedef enum {
  XLA_FFI_DataType_PRED = 1,
  XLA_FFI_DataType_S8 = 2,
  XLA_FFI_DataType_S16 = 3,
  XLA_FFI_DataType_S32 = 4,
  XLA_FFI_DataType_S64 = 5,
  XLA_FFI_DataType_U8 = 6,
  XLA_FFI_DataType_U16 = 7,
  XLA_FFI_DataType_U32 = 8,
  XLA_FFI_DataType_U64 = 9,
  XLA_FFI_DataType_F16 = 10,
  XLA_FFI_DataType_F32 = 11,
  XLA_FFI_DataType_F64 = 12,
  XLA_FFI_DataType_C64 = 15,
  XLA_FFI_DataType_BF16 = 16,
  XLA_FFI_DataType_C128 = 18,
  XLA_FFI_DataType_F8E5M2 = 19,
  XLA_FFI_DataType_F8E4M3FN = 20,
} XLA_FFI_DataType;

typedef struct {
  XLA_FFI_HEADER;
  uint32_t dtype; /* XLA_FFI_DataType */
  void *data;
  int64_t rank;
  int64_t *dims;
} XLA_FFI_Buffer;

typedef struct {
  XLA_FFI_HEADER;
  int64_t size;
  uint32_t *types; /* XLA_FFI_ArgType: 1 for a buffer */
  void **args;     /* XLA_FFI_Buffer each */
} XLA_FFI_Args;

typedef struct {
  XLA_FFI_HEADER;
  int64_t size;
  uint32_t *types; /* XLA_FFI_RetType: 1 for a buffer */
  void **rets;     /* XLA_FFI_Buffer each */
} XLA_FFI_Rets;

typedef struct {
  const char *ptr;
  size_t len;
} XLA_FFI_ByteSpan;

typedef enum {
  XLA_FFI_AttrType_ARRAY = 1,
  XLA_FFI_AttrType_DICTIONARY,
  XLA_FFI_AttrType_SCALAR,
  XLA_FFI_AttrType_STRING,
} XLA_FFI_AttrType;

typedef struct {
  uint32_t dtype;
  void *value;
} XLA_FFI_Scalar;

typedef struct {
  uint32_t dtype;
  size_t size;
  void *data;
} XLA_FFI_Array;

typedef struct {
  XLA_FFI_HEADER;
  int64_t size;
  uint32_t *types;          /* XLA_FFI_AttrType */
  XLA_FFI_ByteSpan **names; /* ascending */
  void **attrs;             /* XLA_FFI_Scalar, XLA_FFI_Array, XLA_FFI_ByteSpan or XLA_FFI_Attrs */
} XLA_FFI_Attrs;

typedef struct {
  XLA_FFI_HEADER;
  const char *message; /* NUL-terminated */
  uint32_t errc;       /* the numbers of base/status.def */
} XLA_FFI_Error_Create_Args;

typedef struct {
  XLA_FFI_HEADER;
  XLA_FFI_ExecutionContext *ctx;
  void *stream; /* out */
} XLA_FFI_Stream_Get_Args;

typedef struct {
  XLA_FFI_HEADER;
  XLA_FFI_ExecutionContext *ctx;
  int64_t run_id; /* out: the same for all participants of one execution */
} XLA_FFI_RunId_Get_Args;

typedef struct {
  XLA_FFI_HEADER;
  XLA_FFI_ExecutionContext *ctx;
  int32_t device_ordinal; /* out */
} XLA_FFI_DeviceOrdinal_Get_Args;

/* What a handler may call; the functions that we do not use keep their place. */
typedef struct {
  XLA_FFI_HEADER;
  XLA_FFI_Api_Version api_version;
  XLA_FFI_InternalApi *internal_api;
  XLA_FFI_Error *(*XLA_FFI_Error_Create)(XLA_FFI_Error_Create_Args *args);
  void *XLA_FFI_Error_GetMessage, *XLA_FFI_Error_Destroy, *XLA_FFI_Handler_Register;
  XLA_FFI_Error *(*XLA_FFI_Stream_Get)(XLA_FFI_Stream_Get_Args *args);
  void *XLA_FFI_Type_Register, *XLA_FFI_ExecutionContext_Get, *XLA_FFI_State_Set, *XLA_FFI_State_Get;
  void *XLA_FFI_DeviceMemory_Allocate, *XLA_FFI_DeviceMemory_Free;
  void *XLA_FFI_ThreadPool_Schedule, *XLA_FFI_ThreadPool_NumThreads;
  void *XLA_FFI_Future_Create, *XLA_FFI_Future_SetAvailable, *XLA_FFI_Future_SetError;
  XLA_FFI_Error *(*XLA_FFI_RunId_Get)(XLA_FFI_RunId_Get_Args *args);
  XLA_FFI_Error *(*XLA_FFI_DeviceOrdinal_Get)(XLA_FFI_DeviceOrdinal_Get_Args *args);
} XLA_FFI_Api;

typedef struct {
  XLA_FFI_HEADER;
  const XLA_FFI_Api *api;
  XLA_FFI_ExecutionContext *ctx;
  uint32_t stage; /* XLA_FFI_ExecutionStage */
  XLA_FFI_Args args;
  XLA_FFI_Rets rets;
  XLA_FFI_Attrs attrs;
  XLA_FFI_Future *future; /* out: a handler that ends later returns one */
} XLA_FFI_CallFrame;

typedef XLA_FFI_Error *(*XLA_FFI_Handler)(XLA_FFI_CallFrame *frame);

typedef struct {
  int64_t type_id;
} XLA_FFI_TypeId;

typedef struct {
  size_t struct_size;
  XLA_FFI_Api_Version api_version; /* out */
  uint32_t traits;                 /* out */
  XLA_FFI_TypeId state_type_id;    /* out */
} XLA_FFI_Metadata;

typedef struct {
  XLA_FFI_Extension_Base extension_base;
  XLA_FFI_Metadata *metadata;
} XLA_FFI_Metadata_Extension;

#undef XLA_FFI_HEADER

/* --- PJRT's side: the FFI link of the plugin's extension chain ------------------------------------------------ */

typedef struct {
  size_t struct_size;
  const char *target_name; /* what stablehlo.custom_call names */
  size_t target_name_size;
  void *handler; /* XLA_FFI_Handler */
  const char *platform_name; /* "Host" for CPU plugins */
  size_t platform_name_size;
  uint32_t traits;
} PJRT_FFI_Register_Handler_Args;

typedef struct {
  PJRT_Extension_Base base;
  void *type_register, *user_data_add;
  PJRT_Error *(*register_handler)(PJRT_FFI_Register_Handler_Args *args);
} PJRT_FFI_Extension;

#endif /* TTPU_PJRT_XLA_FFI_H_ */
