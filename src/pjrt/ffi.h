/* ffi.h: registering host functions that a compiled program calls (stablehlo.custom_call with api_version = 4). */
#ifndef TTPU_PJRT_FFI_H_
#define TTPU_PJRT_FFI_H_

#include "pjrt/pjrt.h"
#include "pjrt/xla_ffi.h"

/* Makes |handler| the target |name| of custom calls, for the whole process and this client's platform. Calls |handler|
 * once before returning, with a metadata frame. UNIMPLEMENTED where the plugin takes no handlers. */
TTPU_MUST_USE ttpu_status_t *ttpu_ffi_register(ttpu_client_t *client, const char *name, XLA_FFI_Handler handler);

/* To be called first in a handler: true when |frame| only asked for metadata, which is answered. */
bool ttpu_ffi_answer(XLA_FFI_CallFrame *frame);

/* The error to return from a handler. */
XLA_FFI_Error *ttpu_ffi_error(const XLA_FFI_CallFrame *frame, ttpu_code_e code, const char *message);

#endif /* TTPU_PJRT_FFI_H_ */
