// autocast.cpp: torch.autocast("tpu"): PyTorch's own lists of operators for lower precision, float32 and promotion.
#include <ATen/autocast_mode.h>
#include <torch/library.h>

#include "shim.h"

namespace ttpu {

void register_autocast() {
  static auto *rest = new torch::Library(torch::Library::IMPL, "_", c10::DispatchKey::AutocastPrivateUse1, __FILE__, __LINE__);
  rest->fallback(torch::CppFunction::makeFallthrough());
  static auto *library =
      new torch::Library(torch::Library::IMPL, "aten", c10::DispatchKey::AutocastPrivateUse1, __FILE__, __LINE__);
  auto &m = *library;
#define TTPU_LOWER(...) KERNEL_PRIVATEUSEONE(__VA_ARGS__, lower_precision_fp)
  AT_FORALL_LOWER_PRECISION_FP(TTPU_LOWER)
#undef TTPU_LOWER
#define TTPU_FP32(...) KERNEL_PRIVATEUSEONE(__VA_ARGS__, fp32)
  AT_FORALL_FP32(TTPU_FP32)
#undef TTPU_FP32
#define TTPU_FP32_SET(...) KERNEL_PRIVATEUSEONE(__VA_ARGS__, fp32_set_opt_dtype)
  AT_FORALL_FP32_SET_OPT_DTYPE(TTPU_FP32_SET)
#undef TTPU_FP32_SET
#define TTPU_PROMOTE(...) KERNEL_PRIVATEUSEONE(__VA_ARGS__, promote)
  AT_FORALL_PROMOTE(TTPU_PROMOTE)
#undef TTPU_PROMOTE
}

}  // namespace ttpu
