// shim.h: what the files of the shim share. The shim holds what PyTorch forces into C++ and no logic of its own: one
// file a PyTorch contract, and the one boxed kernel (boxed.cpp) that records every operator.
#pragma once

#include <array>
#include <memory>
#include <vector>

#include <ATen/core/Tensor.h>
#include <ATen/core/Generator.h>
#include <ATen/core/stack.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <c10/core/Allocator.h>
#include <c10/core/impl/LocalDispatchKeySet.h>

#include "ttpu.h"

// The headers of the core are C; their declarations have C linkage.
extern "C" {
#include "graph/dtype.h"
}

namespace ttpu {

constexpr auto kTpu = c10::DeviceType::PrivateUse1;

// Throws |status| (which is consumed) as the PyTorch error that fits its code; returns when it is NULL.
void check(ttpu_status_t *status);

// --- allocator.cpp
c10::Allocator *allocator();
inline ttpu_storage_t *handle_of(const at::Tensor &tensor) {
  return static_cast<ttpu_storage_t *>(
      tensor.unsafeGetTensorImpl()->unsafe_storage().unsafeGetStorageImpl()->_mutable_data_ptr_no_checks().get_context());
}
inline int32_t dtype_of(const at::Tensor &tensor) {
  static const auto table = [] {
    std::array<int8_t, 128> t{};
    for (int i = 0; i < 128; i++) t[static_cast<size_t>(i)] = static_cast<int8_t>(ttpu_dtype_from_torch(i));
    return t;
  }();
  return table[static_cast<size_t>(tensor.scalar_type())];
}
ttpu_dtype_e dtype_or_throw(at::ScalarType type, const char *what);
// Throws: the tensor wraps memory that this device did not allocate.
[[noreturn]] void throw_foreign_memory();
inline ttpu_view_t view_of(const at::Tensor &tensor) {
  const auto *impl = tensor.unsafeGetTensorImpl();
  ttpu_storage_t *storage = handle_of(tensor);
  if (C10_UNLIKELY(!storage)) throw_foreign_memory();
  return {storage,                   dtype_of(tensor),          static_cast<int32_t>(impl->dim()),
          impl->storage_offset(),     impl->sizes().data(),      impl->strides().data()};
}
// A tensor over a new storage, which it owns from here on.
at::Tensor adopt(ttpu_storage_t *storage, at::ScalarType type, at::IntArrayRef sizes, at::IntArrayRef strides, int device);
c10::Storage make_storage(ttpu_storage_t *storage);

// --- guard.cpp
int current_device();
int device_count();  // also before the core has started, as far as can be known
void set_current_device(int device);
inline int device_index(const c10::Device &device) { return device.has_index() ? device.index() : current_device(); }

// --- generator.cpp
const at::Generator &default_generator(int device);
// (seed, offset) of the next |count| numbers, advancing the generator.
std::pair<uint64_t, uint64_t> draw(const std::optional<at::Generator> &generator, int device, uint64_t count);

// --- shape.cpp: how the results of a call look, asked of PyTorch
struct Layout {
  bool defined = false;
  at::ScalarType type = at::ScalarType::Undefined;
  std::vector<int64_t> sizes, strides;
};
// Runs |op| on shapes alone (Meta, or the CPU on zeros where Meta cannot): one list of layouts a return, then one for each
// mutated argument in |mutated| (lists flattened). Raises what PyTorch raises.
struct Shapes {
  std::vector<std::vector<Layout>> returns, mutated;
};
Shapes infer(const c10::OperatorHandle &op, const torch::jit::Stack &arguments, const std::vector<int> &mutated);
// Raises what CPU PyTorch raises for this call on zeros of the same shapes; returns when it raises nothing.
void raise_as_cpu(const c10::OperatorHandle &op, const torch::jit::Stack &arguments);

// --- fallback.cpp
void fallback(const c10::OperatorHandle &op, torch::jit::Stack *stack);

// --- dynamic.cpp
c10::List<std::optional<at::Tensor>> expand_masks(const c10::List<std::optional<at::Tensor>> &indices, const at::Tensor &self);
void register_dynamic();

// --- registration, each file its own part; they throw on failure
void register_boxed();
void register_tensor();
void register_fallback();
void register_autocast();

// Hides Python modes, autocast and autograd while PyTorch code runs on our behalf.
struct Quiet {
  c10::impl::ExcludeDispatchKeyGuard keys;
  Quiet();
  ~Quiet();
  struct State;
  std::unique_ptr<State> state;
};

}  // namespace ttpu
