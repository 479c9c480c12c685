// allocator.cpp: PyTorch's Allocator over the core's storages. A DataPtr's pointer is a unique address range without
// memory behind it, its context the storage, its deleter a push on the core's list.
#include <ATen/ops/empty.h>
#include <c10/util/Exception.h>

#include "shim.h"

namespace ttpu {

void check(ttpu_status_t *status) {
  if (!status) return;
  const std::string text = ttpu_status_text(status);
  const int code = ttpu_status_number(status);
  ttpu_status_drop(status);
  switch (code) {
    case 8: TORCH_CHECK_WITH(OutOfMemoryError, false, "tpu: ", text);
    case 11: TORCH_CHECK_INDEX(false, text);
    case 12: TORCH_CHECK_NOT_IMPLEMENTED(false, text);
    case 3: TORCH_CHECK(false, text);
    default: throw c10::AcceleratorError({__func__, __FILE__, static_cast<uint32_t>(__LINE__)}, code, text);
  }
}

ttpu_dtype_e dtype_or_throw(at::ScalarType type, const char *what) {
  const auto dtype = ttpu_dtype_from_torch(static_cast<int>(type));
  TORCH_CHECK_TYPE(dtype != TTPU_DTYPE_NONE, what, ": the tpu device has no ", type, " tensors");
  return dtype;
}

void throw_foreign_memory() {
  TORCH_CHECK(false, "a tpu tensor over memory that the device did not allocate (torch::from_blob?) cannot be used: its "
              "addresses have no memory behind them. Make the tensor on the CPU and move it.");
}

namespace {

c10::DataPtr data_ptr_of(ttpu_storage_t *storage) {
  return {reinterpret_cast<void *>(ttpu_storage_address(storage)), storage, &ttpu_storage_drop,
          c10::Device(kTpu, static_cast<c10::DeviceIndex>(ttpu_storage_device(storage)))};
}

struct TpuAllocator final : c10::Allocator {
  c10::DataPtr allocate(size_t bytes) override {
    ttpu_storage_t *storage = nullptr;
    check(ttpu_storage_create(current_device(), static_cast<int64_t>(bytes), &storage));
    return data_ptr_of(storage);
  }
  c10::DeleterFnPtr raw_deleter() const override { return nullptr; }  // the context is not the pointer
  void copy_data(void *, const void *, std::size_t) const override {
    TORCH_CHECK(false, "tpu memory is not addressable from the host");
  }
};

}  // namespace

c10::Allocator *allocator() {
  static TpuAllocator instance;
  return &instance;
}

c10::Storage make_storage(ttpu_storage_t *storage) {
  return c10::Storage(c10::make_intrusive<c10::StorageImpl>(c10::StorageImpl::use_byte_size_t(),
                                                            static_cast<size_t>(ttpu_storage_bytes(storage)),
                                                            data_ptr_of(storage), allocator(), /*resizable=*/true));
}

at::Tensor adopt(ttpu_storage_t *storage, at::ScalarType type, at::IntArrayRef sizes, at::IntArrayRef strides, int) {
  auto tensor = at::detail::make_tensor<c10::TensorImpl>(
      make_storage(storage), c10::DispatchKeySet(c10::DispatchKey::PrivateUse1), c10::scalarTypeToTypeMeta(type));
  auto *impl = tensor.unsafeGetTensorImpl();
  // the contiguous form computes flags instead of asking for them, and is what nearly every result is
  int64_t expected = 1;
  bool contiguous = true;
  for (size_t i = sizes.size(); i-- > 0;) {
    contiguous &= strides[i] == expected;
    expected *= std::max<int64_t>(sizes[i], 1);
  }
  if (contiguous)
    impl->set_sizes_contiguous(sizes);
  else
    impl->set_sizes_and_strides(sizes, strides);
  return tensor;
}

}  // namespace ttpu
