// generator.cpp: torch.Generator for the tpu device: a Philox seed and offset. Each random node takes (seed, offset) when
// it is recorded and advances the offset by the numbers it draws, so the numbers do not depend on the mode.
#include <ATen/core/GeneratorForPrivateuseone.h>
#include <ATen/ops/empty.h>
#include <ATen/detail/PrivateUse1HooksInterface.h>
#include <c10/core/GeneratorImpl.h>
#include <torch/library.h>

#include <cstring>
#include <deque>

#include "shim.h"

namespace ttpu {

namespace {

struct TpuGenerator final : c10::GeneratorImpl {
  explicit TpuGenerator(int device)
      : GeneratorImpl(c10::Device(kTpu, static_cast<c10::DeviceIndex>(device)),
                      c10::DispatchKeySet(c10::DispatchKey::PrivateUse1)) {}
  void set_current_seed(uint64_t seed) override {
    seed_ = seed;
    offset_ = 0;
  }
  void set_offset(uint64_t offset) override { offset_ = offset; }
  uint64_t get_offset() const override { return offset_; }
  uint64_t current_seed() const override { return seed_; }
  uint64_t seed() override {
    set_current_seed(c10::detail::getNonDeterministicRandom());
    return seed_;
  }
  void set_state(const c10::TensorImpl &state) override {
    TORCH_CHECK_TYPE(state.dtype() == caffe2::TypeMeta::Make<uint8_t>() && state.is_cpu(),
                     "RNG state must be a torch.ByteTensor on the CPU");
    TORCH_CHECK(state.numel() == 16 && state.is_contiguous(), "a tpu generator's state has 16 bytes, got ", state.numel());
    const auto *bytes = static_cast<const char *>(state.data());
    std::memcpy(&seed_, bytes, 8);
    std::memcpy(&offset_, bytes + 8, 8);
  }
  c10::intrusive_ptr<c10::TensorImpl> get_state() const override {
    at::Tensor state = at::empty({16}, at::TensorOptions().dtype(at::kByte).device(at::kCPU));
    std::memcpy(state.mutable_data_ptr(), &seed_, 8);
    std::memcpy(static_cast<char *>(state.mutable_data_ptr()) + 8, &offset_, 8);
    return state.getIntrusivePtr();
  }
  static c10::DeviceType device_type() { return kTpu; }
  TpuGenerator *clone_impl() const override {
    auto *copy = new TpuGenerator(device_.index());
    copy->seed_ = seed_;
    copy->offset_ = offset_;
    return copy;
  }

 private:
  uint64_t seed_ = c10::default_rng_seed_val, offset_ = 0;
};

std::mutex generators_mutex;
std::deque<at::Generator> generators;  // a deque: references stay valid

struct Hooks final : at::PrivateUse1HooksInterface {
  bool isBuilt() const override { return true; }
  bool isAvailable() const override { return ttpu_device_count() > 0; }
  bool hasPrimaryContext(c10::DeviceIndex) const override { return ttpu_is_initialized(); }
  c10::DeviceIndex deviceCount() const override { return static_cast<c10::DeviceIndex>(ttpu_device_count()); }
  void setCurrentDevice(c10::DeviceIndex device) const override { set_current_device(device); }
  c10::DeviceIndex getCurrentDevice() const override { return static_cast<c10::DeviceIndex>(current_device()); }
  c10::DeviceIndex exchangeDevice(c10::DeviceIndex device) const override {
    const auto old = getCurrentDevice();
    set_current_device(device);
    return old;
  }
  c10::DeviceIndex maybeExchangeDevice(c10::DeviceIndex device) const override { return exchangeDevice(device); }
  const at::Generator &getDefaultGenerator(c10::DeviceIndex device) const override { return default_generator(device); }
  at::Generator getNewGenerator(c10::DeviceIndex device) const override {
    return at::make_generator<TpuGenerator>(device < 0 ? current_device() : device);
  }
  at::Device getDeviceFromPtr(void *) const override { return {kTpu, static_cast<c10::DeviceIndex>(current_device())}; }
  bool isPinnedPtr(const void *) const override { return false; }
  c10::Allocator *getPinnedMemoryAllocator() const override { return c10::GetAllocator(c10::DeviceType::CPU); }
  void resizePrivateUse1Bytes(const c10::Storage &storage, size_t bytes) const override {
    auto *impl = storage.unsafeGetStorageImpl();
    ttpu_storage_t *fresh = nullptr;
    check(ttpu_storage_resize(static_cast<ttpu_storage_t *>(impl->_mutable_data_ptr_no_checks().get_context()),
                              static_cast<int64_t>(bytes), &fresh));
    impl->set_data_ptr(make_storage(fresh).unsafeGetStorageImpl()->set_data_ptr(c10::DataPtr()));
    impl->set_nbytes(bytes);
  }
};

}  // namespace

const at::Generator &default_generator(int device) {
  if (device < 0) device = current_device();
  TORCH_CHECK(device < ttpu_device_count(), "tpu:", device, " does not exist; this process has ", ttpu_device_count(),
              " tpu device(s)");
  std::lock_guard<std::mutex> lock(generators_mutex);
  while (static_cast<int>(generators.size()) <= device)
    generators.push_back(at::make_generator<TpuGenerator>(static_cast<int>(generators.size())));
  return generators[static_cast<size_t>(device)];
}

std::pair<uint64_t, uint64_t> draw(const std::optional<at::Generator> &generator, int device, uint64_t count) {
  const bool given = generator.has_value() && generator->defined();
  at::Generator chosen = given ? *generator : default_generator(device);
  TORCH_CHECK(chosen.device().type() == kTpu, "Expected a 'tpu' device type for generator but found '",
              chosen.device().type(), "'");
  std::lock_guard<std::mutex> lock(chosen.mutex());
  auto *impl = chosen.unsafeGetGeneratorImpl();
  const auto offset = impl->get_offset();
  impl->set_offset(offset + count);
  return {impl->current_seed(), offset};
}

void register_generator() {
  static Hooks hooks;
  at::RegisterPrivateUse1HooksInterface(&hooks);
  static auto *library = new torch::Library(torch::Library::DEF, "tpu", std::nullopt, __FILE__, __LINE__);
  library->def("default_generator(int device) -> Generator?",
               [](int64_t device) { return std::optional<at::Generator>(default_generator(static_cast<int>(device))); });
}

}  // namespace ttpu
