// guard.cpp: current device, streams and events. A device has one order of work; streams are names within it, so that
// code written for several runs unchanged. An event marks a cut; one with timing waits for the work before it.
#include <c10/core/impl/DeviceGuardImplInterface.h>

#include <chrono>

#include "shim.h"

namespace ttpu {

namespace {

thread_local int tls_device = 0;
thread_local std::array<c10::StreamId, 128> tls_streams{};
std::atomic<c10::StreamId> next_stream{1};
// How many devices there will be once the core has started. PyTorch asks at the first backward pass of the process, which
// may be one on the CPU, and makes a thread for each device then: never again.
std::atomic<int> expected_devices{1};

struct Event {
  int device;
  bool timed;
  bool done = false;
  std::chrono::steady_clock::time_point at;
};

c10::Stream stream_of(c10::DeviceIndex device, c10::StreamId id) {
  return c10::Stream(c10::Stream::UNSAFE, c10::Device(kTpu, device), id);
}

struct Guard final : c10::impl::DeviceGuardImplInterface {
  c10::DeviceType type() const override { return kTpu; }
  c10::Device exchangeDevice(c10::Device device) const override {
    const c10::Device old = getDevice();
    setDevice(device);
    return old;
  }
  c10::Device getDevice() const override { return {kTpu, static_cast<c10::DeviceIndex>(tls_device)}; }
  void setDevice(c10::Device device) const override { set_current_device(device.index()); }
  void uncheckedSetDevice(c10::Device device) const noexcept override { tls_device = device.index(); }

  c10::Stream getStream(c10::Device device) const override {
    return stream_of(device.index(), tls_streams[static_cast<size_t>(device.index())]);
  }
  c10::Stream getDefaultStream(c10::Device device) const override { return stream_of(device.index(), 0); }
  c10::Stream getStreamFromGlobalPool(c10::Device device, bool) const override { return getNewStream(device, 0); }
  c10::Stream getNewStream(c10::Device device, int) const override { return stream_of(device.index(), next_stream++); }
  c10::Stream exchangeStream(c10::Stream stream) const override {
    auto &slot = tls_streams[static_cast<size_t>(stream.device_index())];
    const auto old = stream_of(stream.device_index(), slot);
    slot = stream.id();
    return old;
  }
  void *getStreamNativeHandle(const c10::Stream stream) const override { return reinterpret_cast<void *>(stream.id()); }
  bool queryStream(const c10::Stream &stream) const override {
    check(ttpu_synchronize(stream.device_index()));
    return true;
  }
  void synchronizeStream(const c10::Stream &stream) const override { check(ttpu_synchronize(stream.device_index())); }
  void synchronizeDevice(const c10::DeviceIndex device) const override { check(ttpu_synchronize(device)); }
  void recordDataPtrOnStream(const c10::DataPtr &, const c10::Stream &) const override {}

  void destroyEvent(void *event, const c10::DeviceIndex) const noexcept override { delete static_cast<Event *>(event); }
  void record(void **event, const c10::Stream &stream, const c10::DeviceIndex, const c10::EventFlag flag) const override {
    if (!*event) *event = new Event{};
    auto *e = static_cast<Event *>(*event);
    e->device = stream.device_index();
    e->timed = flag == c10::EventFlag::BACKEND_DEFAULT;
    e->done = e->timed;
    check(e->timed ? ttpu_synchronize(e->device) : ttpu_flush(e->device));
    e->at = std::chrono::steady_clock::now();
  }
  void block(void *, const c10::Stream &) const override {}  // one order of work a device
  bool queryEvent(void *event) const override {
    synchronizeEvent(event);
    return true;
  }
  void synchronizeEvent(void *event) const override {
    auto *e = static_cast<Event *>(event);
    if (!e || e->done) return;
    check(ttpu_synchronize(e->device));
    e->done = true;
  }
  double elapsedTime(void *start, void *end, const c10::DeviceIndex) const override {
    const auto *a = static_cast<Event *>(start), *b = static_cast<Event *>(end);
    TORCH_CHECK(a && b, "Both events must be recorded before calculating elapsed time.");
    return std::chrono::duration<double, std::milli>(b->at - a->at).count();
  }
  c10::DeviceIndex deviceCount() const noexcept override { return static_cast<c10::DeviceIndex>(device_count()); }
};

C10_REGISTER_GUARD_IMPL(PrivateUse1, Guard)

}  // namespace

int current_device() { return tls_device; }

int device_count() { return ttpu_is_initialized() ? ttpu_device_count() : expected_devices.load(); }

void set_current_device(int device) {
  TORCH_CHECK(device >= 0 && device < device_count(), "tpu:", device, " does not exist; this process has ",
              device_count(), " tpu device(s). TORCHTPU_CPU_DEVICES sets how many the CPU plugin offers.");
  tls_device = device;
}

}  // namespace ttpu

// Called by the Python package, which knows the plugin that will be loaded.
extern "C" TTPU_API void ttpu_shim_expect_devices(int count) { ttpu::expected_devices = count; }
