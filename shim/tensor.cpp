// tensor.cpp: the operators that make tensors, change their geometry or move data. They are typed kernels because they
// touch storages, which the boxed kernel never does.
#include <ATen/EmptyTensor.h>
#include <ATen/ExpandUtils.h>
#include <ATen/InferSize.h>
#include <ATen/Functions.h>
#include <ATen/MemoryOverlap.h>
#include <ATen/NativeFunctions.h>
#include <ATen/native/Resize.h>
#include <ATen/native/ResizeCommon.h>
#include <c10/core/DeviceGuard.h>
#include <torch/library.h>

#include "shim.h"

namespace ttpu {

namespace {

using at::IntArrayRef;
using at::Tensor;
using std::optional;

c10::Device target_device(optional<c10::Device> device) {
  const c10::Device d = device.value_or(c10::Device(kTpu));
  TORCH_INTERNAL_ASSERT(d.type() == kTpu);
  return {kTpu, static_cast<c10::DeviceIndex>(device_index(d))};
}

Tensor empty(at::SymIntArrayRef sizes, optional<at::ScalarType> type, optional<at::Layout> layout,
             optional<c10::Device> device, optional<bool> pin, optional<at::MemoryFormat> format) {
  TORCH_CHECK(!pin.value_or(false), "Only dense CPU tensors can be pinned");
  TORCH_CHECK_NOT_IMPLEMENTED(!layout || *layout == at::kStrided, "the tpu device has strided tensors only, asked for ",
                              *layout);
  const auto scalar = c10::dtype_or_default(type);
  dtype_or_throw(scalar, "empty");
  const c10::DeviceGuard guard(target_device(device));
  return at::detail::empty_generic(C10_AS_INTARRAYREF_SLOW(sizes), allocator(),
                                   c10::DispatchKeySet(c10::DispatchKey::PrivateUse1), scalar, format);
}

Tensor empty_strided(at::SymIntArrayRef sizes, at::SymIntArrayRef strides, optional<at::ScalarType> type,
                     optional<at::Layout> layout, optional<c10::Device> device, optional<bool> pin) {
  TORCH_CHECK(!pin.value_or(false), "Only dense CPU tensors can be pinned");
  TORCH_CHECK_NOT_IMPLEMENTED(!layout || *layout == at::kStrided, "the tpu device has strided tensors only, asked for ",
                              *layout);
  const auto scalar = c10::dtype_or_default(type);
  dtype_or_throw(scalar, "empty_strided");
  const c10::DeviceGuard guard(target_device(device));
  return at::detail::empty_strided_generic(C10_AS_INTARRAYREF_SLOW(sizes), C10_AS_INTARRAYREF_SLOW(strides), allocator(),
                                           c10::DispatchKeySet(c10::DispatchKey::PrivateUse1), scalar);
}

Tensor view(const Tensor &self, at::SymIntArrayRef sizes) { return at::native::view(self, C10_AS_INTARRAYREF_SLOW(sizes)); }

Tensor as_strided(const Tensor &self, at::SymIntArrayRef sizes, at::SymIntArrayRef strides, optional<c10::SymInt> offset) {
  optional<int64_t> at;
  if (offset) at = offset->guard_int(__FILE__, __LINE__);
  return at::native::as_strided_tensorimpl(self, C10_AS_INTARRAYREF_SLOW(sizes), C10_AS_INTARRAYREF_SLOW(strides), at);
}

Tensor reshape_alias(const Tensor &self, at::SymIntArrayRef sizes, at::SymIntArrayRef strides) {
  return at::native::_reshape_alias(self, C10_AS_INTARRAYREF_SLOW(sizes), C10_AS_INTARRAYREF_SLOW(strides));
}

Tensor unfold(const Tensor &self, int64_t dim, int64_t size, int64_t step) {
  return at::native::unfold(self, dim, size, step);
}

void grow_storage(c10::TensorImpl *impl, size_t bytes) {
  const c10::Storage &storage = impl->unsafe_storage();
  if (bytes > storage.nbytes()) at::detail::getPrivateUse1Hooks().resizePrivateUse1Bytes(storage, bytes);
}

const Tensor &resize_(const Tensor &self, at::SymIntArrayRef symbolic, optional<at::MemoryFormat> format) {
  const IntArrayRef sizes = C10_AS_INTARRAYREF_SLOW(symbolic);
  auto *impl = self.unsafeGetTensorImpl();
  if (impl->sizes() != sizes) {
    const c10::DeviceGuard guard(self.device());
    impl->set_sizes_contiguous(sizes);
    grow_storage(impl, at::detail::computeStorageNbytesContiguous(sizes, self.dtype().itemsize(),
                                                                  static_cast<size_t>(self.storage_offset())));
  }
  if (format) {
    TORCH_CHECK(*format != at::MemoryFormat::Preserve, "Unsupported memory format ", *format);
    impl->empty_tensor_restride(*format);
  }
  return self;
}

Tensor &set_storage_offset(Tensor &self, at::Storage source, c10::SymInt offset, at::SymIntArrayRef sizes,
                           at::SymIntArrayRef strides) {
  const int64_t at_offset = offset.guard_int(__FILE__, __LINE__);
  const IntArrayRef to_sizes = C10_AS_INTARRAYREF_SLOW(sizes), to_strides = C10_AS_INTARRAYREF_SLOW(strides);
  at::native::checkSetStorage(self, source, at_offset, to_sizes, to_strides);
  auto *impl = self.unsafeGetTensorImpl();
  impl->set_storage_offset(at_offset);
  impl->set_sizes_and_strides(
      to_sizes, strides.data() ? to_strides : IntArrayRef(c10::contiguous_strides(to_sizes)));
  grow_storage(impl, at::detail::computeStorageNbytes(impl->sizes(), impl->strides(), self.dtype().itemsize(),
                                                      static_cast<size_t>(at_offset)));
  return self;
}

Tensor &set_storage(Tensor &self, at::Storage source) {
  const auto numel = static_cast<int64_t>(source.nbytes() / self.dtype().itemsize());
  const std::array<c10::SymInt, 1> sizes{numel}, strides{1};
  return set_storage_offset(self, std::move(source), 0, sizes, strides);
}

Tensor &set_tensor(Tensor &self, const Tensor &source) {
  if (self.unsafeGetTensorImpl() == source.unsafeGetTensorImpl()) return self;
  return set_storage_offset(self, source.storage(), source.sym_storage_offset(), source.sym_sizes(), source.sym_strides());
}

Tensor &set_(Tensor &self) {
  const c10::DeviceGuard guard(self.device());
  ttpu_storage_t *storage = nullptr;
  check(ttpu_storage_create(self.device().index(), 0, &storage));
  const std::array<c10::SymInt, 1> sizes{0}, strides{1};
  return set_storage_offset(self, make_storage(storage), 0, sizes, strides);
}

bool is_set_to(const Tensor &self, const Tensor &source) { return at::native::is_set_to(self, source); }

// --- data ---------------------------------------------------------------------------------------------------

// A dense, row-major CPU tensor of |type| with the value of |source| (which may carry conjugate or negative bits).
Tensor host_dense(const Tensor &source, at::ScalarType type) {
  return source.resolve_conj().resolve_neg().to(type).contiguous();
}

Tensor to_host(const Tensor &source) {
  Tensor host = at::empty(source.sizes(), source.options().device(at::kCPU).memory_format(at::MemoryFormat::Contiguous));
  if (host.numel()) {
    const auto view = view_of(source);
    check(ttpu_download(&view, host.mutable_data_ptr()));
  }
  return host;
}

// Copies without regard to conjugate and negative bits, which the callers have resolved.
void copy_plain(const Tensor &target, const Tensor &source) {
  if (!target.numel()) return;
  if (source.device().type() == kTpu && target.device().type() == kTpu) {
    const auto to = view_of(target), from = view_of(source);
    check(ttpu_copy(&to, &from));
  } else if (target.device().type() == kTpu) {
    TORCH_CHECK(source.device().is_cpu(), "copy to tpu from ", source.device(), " goes through the CPU: call .cpu() first");
    const Tensor host = host_dense(source.expand(target.sizes()), target.scalar_type());
    const auto to = view_of(target);
    check(ttpu_upload(&to, host.const_data_ptr()));
  } else {
    TORCH_CHECK(target.device().is_cpu(), "copy from tpu to ", target.device(), " goes through the CPU: call .cpu() first");
    if (target.is_contiguous() && target.scalar_type() == source.scalar_type() && target.sizes() == source.sizes()) {
      const auto from = view_of(source);
      check(ttpu_download(&from, target.mutable_data_ptr()));
    } else {
      target.copy_(to_host(source));
    }
  }
}

Tensor &copy_(Tensor &self, const Tensor &source, bool /*non_blocking*/) {
  TORCH_CHECK(self.defined() && source.defined(), "copy_: both tensors must be defined");
  if (self.is_same(source)) return self;
  at::assert_no_internal_overlap(self);
  Tensor from = source;
  // Bits are stripped from both sides; those that differ are applied to the value. (resolve_conj is a clone, and a clone
  // ends here.)
  Tensor to = self;
  const bool conjugate = from.is_conj() != to.is_conj(), negative = from.is_neg() != to.is_neg();
  if (from.is_conj()) from = from._conj();
  if (to.is_conj()) to = to._conj();
  if (from.is_neg()) from = from._neg_view();
  if (to.is_neg()) to = to._neg_view();
  if (conjugate) from = at::conj_physical(from);
  if (negative) from = at::neg(from);
  TORCH_CHECK(at::is_expandable_to(from.sizes(), self.sizes()), "The size of tensor a ", self.sizes(),
              " must match the size of tensor b ", from.sizes(), " (copy_)");
  copy_plain(to, from);
  return self;
}

Tensor copy_from(const Tensor &self, const Tensor &target, bool) {
  copy_plain(target, self);
  return target;
}

Tensor copy_from_and_resize(const Tensor &self, const Tensor &target) {
  if (self.sizes() != target.sizes()) target.resize_(self.sizes());
  copy_plain(target, self);
  return target;
}

at::Scalar local_scalar_dense(const Tensor &self) {
  TORCH_CHECK(self.numel() == 1, "a Tensor with ", self.numel(), " elements cannot be converted to Scalar");
  return to_host(self).item();
}

// Whether `self.data = from` may turn one into the other. Between the CPU and the device it may, as for CUDA: so
// module.to("tpu") changes parameters in place, and ties, optimizers and weak references to them stay right.
bool has_compatible_shallow_copy_type(const Tensor &self, const Tensor &from) {
  const auto plain = [](const Tensor &t) {
    return (t.is_cpu() || t.device().type() == kTpu) && t.layout() == at::kStrided && !t.is_quantized() &&
           !t.key_set().has_any(c10::DispatchKeySet({c10::DispatchKey::Python, c10::DispatchKey::FuncTorchBatched,
                                                     c10::DispatchKey::FuncTorchGradWrapper, c10::DispatchKey::Functionalize}));
  };
  return plain(self) && plain(from);
}

Tensor view_as_real(const Tensor &self) { return at::native::view_as_real(self); }
Tensor view_as_complex(const Tensor &self) { return at::native::view_as_complex(self); }

Tensor efficientzerotensor(at::SymIntArrayRef sizes, optional<at::ScalarType> type, optional<at::Layout> layout,
                           optional<c10::Device> device, optional<bool> pin) {
  return at::zeros(C10_AS_INTARRAYREF_SLOW(sizes), type, layout, target_device(device), pin);
}

int64_t fused_sdp_choice(const Tensor &query, const Tensor &key, const Tensor &value, const optional<Tensor> &mask, double,
                         bool, optional<double>, bool) {
  // The fused lowering takes dense 4-D operands of one type; anything else goes through PyTorch's math form.
  const bool plain = query.dim() == 4 && key.dim() == 4 && value.dim() == 4 && query.scalar_type() == key.scalar_type() &&
                     key.scalar_type() == value.scalar_type() && at::isFloatingType(query.scalar_type());
  const bool mask_needs_grad = mask && mask->defined() && mask->requires_grad();
  return static_cast<int64_t>(plain && !mask_needs_grad ? at::SDPBackend::overrideable : at::SDPBackend::math);
}

}  // namespace

void register_tensor() {
  static auto *library = new torch::Library(torch::Library::IMPL, "aten", c10::DispatchKey::PrivateUse1, __FILE__, __LINE__);
  library->impl("empty.memory_format", TORCH_FN(empty));
  library->impl("empty_strided", TORCH_FN(empty_strided));
  library->impl("view", TORCH_FN(view));
  library->impl("as_strided", TORCH_FN(as_strided));
  library->impl("_reshape_alias", TORCH_FN(reshape_alias));
  library->impl("unfold", TORCH_FN(unfold));
  library->impl("resize_", TORCH_FN(resize_));
  library->impl("set_.source_Storage_storage_offset", TORCH_FN(set_storage_offset));
  library->impl("set_.source_Storage", TORCH_FN(set_storage));
  library->impl("set_.source_Tensor", TORCH_FN(set_tensor));
  library->impl("set_", TORCH_FN(set_));
  library->impl("is_set_to", TORCH_FN(is_set_to));
  library->impl("copy_", TORCH_FN(copy_));
  library->impl("_copy_from", TORCH_FN(copy_from));
  library->impl("_copy_from_and_resize", TORCH_FN(copy_from_and_resize));
  library->impl("_local_scalar_dense", TORCH_FN(local_scalar_dense));
  library->impl("_has_compatible_shallow_copy_type", TORCH_FN(has_compatible_shallow_copy_type));
  library->impl("view_as_real", TORCH_FN(view_as_real));
  library->impl("view_as_complex", TORCH_FN(view_as_complex));
  library->impl("_efficientzerotensor", TORCH_FN(efficientzerotensor));
  library->impl("_fused_sdp_choice", TORCH_FN(fused_sdp_choice));
}

}  // namespace ttpu
