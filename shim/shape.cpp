// shape.cpp: how the results of a call look, asked of PyTorch itself: its Meta kernels, or, where an operator has none, its
// CPU kernels on zeros of the same shapes. Runs once an instance, without any lock of the core.
#include <ATen/Functions.h>
#include <ATen/PythonTorchFunctionTLS.h>
#include <ATen/autocast_mode.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <c10/core/impl/TorchDispatchModeTLS.h>

#include <cstring>

#include "shim.h"

namespace ttpu {

namespace {
struct Silent final : c10::WarningHandler {
  void process(const c10::Warning &) override {}
};
}  // namespace

struct Quiet::State {
  at::AutoDispatchBelowADInplaceOrView below;
  at::impl::TorchFunctionDisabledState functions;
  Silent silent;  // the real call warns, a question does not
  c10::WarningUtils::WarningHandlerGuard warnings{&silent};
};

Quiet::Quiet()
    : keys(c10::DispatchKeySet({c10::DispatchKey::Python, c10::DispatchKey::PythonTLSSnapshot,
                                c10::DispatchKey::PythonDispatcher, c10::DispatchKey::PreDispatch}) |
           c10::autocast_dispatch_keyset),
      state(new State()) {
  state->functions = at::impl::PythonTorchFunctionTLS::get_disabled_state();
  at::impl::PythonTorchFunctionTLS::set_disabled_state(at::impl::TorchFunctionDisabledState::ALL_DISABLED);
}

Quiet::~Quiet() { at::impl::PythonTorchFunctionTLS::set_disabled_state(state->functions); }

namespace {

// One shape-only stand-in a tensor, on |device|: alike arguments stay alike.
struct Stage {
  c10::Device device;
  bool numbers_too;  // also 0-dim CPU tensors, for the one Meta kernel that does not take them
  std::vector<std::pair<const c10::TensorImpl *, at::Tensor>> made;

  at::Tensor tensor(const at::Tensor &t) {
    if (!t.defined() || t.device().type() != kTpu) {
      // a 0-dim CPU tensor is a number and stays; a CPU index tensor is a shape like the others
      if (!t.defined() || (t.dim() == 0 && !numbers_too) || device.is_cpu()) return t;
    }
    for (const auto &[impl, stand_in] : made)
      if (impl == t.unsafeGetTensorImpl()) return stand_in;
    at::Tensor stand_in = at::empty_strided(t.sizes(), t.strides(), t.options().device(device));
    if (device.is_cpu()) stand_in.zero_();
    if (t.unsafeGetTensorImpl()->is_wrapped_number()) stand_in.unsafeGetTensorImpl()->set_wrapped_number(true);
    made.emplace_back(t.unsafeGetTensorImpl(), stand_in);
    return stand_in;
  }

  c10::IValue value(const c10::IValue &v) {
    if (v.isTensor()) return tensor(v.toTensor());
    if (v.isDevice()) return device;
    if (v.isGenerator()) return c10::IValue();
    if (v.isTensorList()) {
      c10::List<at::Tensor> list;
      for (const at::Tensor t : v.toTensorList()) list.push_back(tensor(t));
      return list;
    }
    if (v.isOptionalTensorList()) {
      c10::List<std::optional<at::Tensor>> list;
      for (const std::optional<at::Tensor> t : v.toOptionalTensorList())
        list.push_back(t ? std::optional<at::Tensor>(tensor(*t)) : std::nullopt);
      return list;
    }
    return v;
  }
};

Layout layout_of(const at::Tensor &t) {
  if (!t.defined()) return {};
  return {true, t.scalar_type(), t.sizes().vec(), t.strides().vec()};
}

std::vector<Layout> layouts_of(const c10::IValue &v) {
  std::vector<Layout> out;
  if (v.isTensor())
    out.push_back(layout_of(v.toTensor()));
  else if (v.isTensorList())
    for (const at::Tensor t : v.toTensorList()) out.push_back(layout_of(t));
  else
    out.emplace_back();
  return out;
}

Shapes run_on(c10::Device device, const c10::OperatorHandle &op, const torch::jit::Stack &arguments,
              const std::vector<int> &mutated) {
  Quiet quiet;
  const std::string &name = op.operator_name().name;
  Stage stage{device, name == "aten::masked_fill" || name == "aten::masked_fill_", {}};
  torch::jit::Stack stack;
  const auto &schema = op.schema().arguments();
  for (size_t i = 0; i < arguments.size(); i++) {
    c10::IValue v = stage.value(arguments[i]);
    // a factory without a device argument value would make CPU tensors
    if (v.isNone() && schema[i].name() == "device") v = device;
    stack.push_back(std::move(v));
  }
  const torch::jit::Stack staged = stack;
  op.callBoxed(stack);
  Shapes shapes;
  for (const auto &v : stack) shapes.returns.push_back(layouts_of(v));
  for (const int m : mutated) shapes.mutated.push_back(layouts_of(staged[static_cast<size_t>(m)]));
  return shapes;
}

// Meta kernels that were measured to differ from the CPU (sizes or strides), by operator name.
bool meta_is_inexact(const std::string &name) {
  static const std::vector<std::string> names = {
      "aten::_embedding_bag_forward_only", "aten::native_batch_norm", "aten::_native_batch_norm_legit",
      "aten::_fft_c2r", "aten::_fft_r2c", "aten::_linalg_svd", "aten::max_unpool2d", "aten::new_empty_strided"};
  for (const auto &n : names)
    if (name == n) return true;
  return false;
}

Layout dense(at::ScalarType type, std::vector<int64_t> sizes) {
  auto strides = c10::contiguous_strides(sizes);
  return {true, type, std::move(sizes), {strides.begin(), strides.end()}};
}

// The CPU's convolutions keep the channels_last format of input or weight; the Meta kernel forgets it.
void restride_convolution(const torch::jit::Stack &arguments, Layout &out) {
  const auto is = [&](at::MemoryFormat format) {
    return arguments[0].toTensor().suggest_memory_format() == format || arguments[1].toTensor().suggest_memory_format() == format;
  };
  if (out.sizes.size() == 4 && is(at::MemoryFormat::ChannelsLast))
    out.strides = c10::get_channels_last_strides_2d(at::IntArrayRef(out.sizes));
  else if (out.sizes.size() == 5 && is(at::MemoryFormat::ChannelsLast3d))
    out.strides = c10::get_channels_last_strides_3d(at::IntArrayRef(out.sizes));
}

// Operators that exist neither on Meta nor on the CPU.
std::optional<Shapes> infer_by_hand(const std::string &name, const torch::jit::Stack &arguments) {
  if (name == "aten::_thnn_fused_gru_cell") {
    const at::Tensor hx = arguments[2].toTensor();
    return Shapes{{{dense(hx.scalar_type(), hx.sizes().vec())}, {dense(hx.scalar_type(), {hx.size(0), hx.size(1) * 5})}}, {}};
  }
  if (name == "aten::_thnn_fused_gru_cell_backward") {
    const at::Tensor grad = arguments[0].toTensor();
    const auto type = grad.scalar_type();
    const int64_t batch = grad.size(0), gates = grad.size(1) * 3;
    const Layout bias = arguments[2].toBool() ? dense(type, {gates}) : Layout{};
    return Shapes{{{dense(type, {batch, gates})}, {dense(type, {batch, gates})}, {dense(type, grad.sizes().vec())}, {bias}, {bias}}, {}};
  }
  return std::nullopt;
}

// What the CPU refuses by shape or dtype and Meta lets pass.
void check_by_hand(const std::string &name, const torch::jit::Stack &arguments) {
  if (name == "aten::multinomial") {
    const at::Tensor p = arguments[0].toTensor();
    const int64_t count = arguments[1].toInt();
    TORCH_CHECK(at::isFloatingType(p.scalar_type()), "multinomial only supports floating-point dtypes for input, got: ",
                p.scalar_type());
    TORCH_CHECK(count > 0, "cannot sample n_sample <= 0 samples");
    TORCH_CHECK(arguments[2].toBool() || count <= p.size(-1),
                "cannot sample n_sample > prob_dist.size(-1) samples without replacement");
    TORCH_CHECK(p.size(-1) <= (1 << 24), "number of categories cannot exceed 2^24");
  } else if (name == "aten::complex") {
    TORCH_CHECK(arguments[0].toTensor().scalar_type() == arguments[1].toTensor().scalar_type(), "Expected object of scalar type ",
                arguments[0].toTensor().scalar_type(), " but got scalar type ", arguments[1].toTensor().scalar_type(),
                " for second argument");
  } else if (name == "aten::masked_scatter" || name == "aten::masked_scatter_") {
    TORCH_CHECK(arguments[1].toTensor().scalar_type() == at::kBool, "masked_scatter_ only supports boolean masks, but got mask "
                "with dtype ", arguments[1].toTensor().scalar_type());
  } else if (name == "aten::convolution") {
    for (const int64_t p : arguments[4].toIntVector()) TORCH_CHECK(p >= 0, "negative padding is not supported");
  }
}

}  // namespace

void raise_as_cpu(const c10::OperatorHandle &op, const torch::jit::Stack &arguments) {
  if (!op.hasComputedKernelForDispatchKey(c10::DispatchKey::CPU)) return;
  size_t bytes = 0;
  for (const auto &v : arguments)
    if (v.isTensor() && v.toTensor().defined()) bytes += v.toTensor().nbytes();
  constexpr size_t kLarge = size_t{1} << 26;
  if (bytes <= kLarge) run_on(c10::Device(c10::kCPU), op, arguments, {});
}

Shapes infer(const c10::OperatorHandle &op, const torch::jit::Stack &arguments, const std::vector<int> &mutated) {
  const std::string &name = op.operator_name().name;
  if (auto shapes = infer_by_hand(name, arguments)) return *shapes;
  check_by_hand(name, arguments);
  if (!meta_is_inexact(name) && op.hasComputedKernelForDispatchKey(c10::DispatchKey::Meta)) {
    try {
      Shapes shapes = run_on(c10::Device(c10::kMeta), op, arguments, mutated);
      if (name == "aten::convolution") restride_convolution(arguments, shapes.returns[0][0]);
      return shapes;
    } catch (const c10::NotImplementedError &) {
      // a composite kernel over an operator without Meta: ask the CPU
    } catch (const std::exception &) {
      raise_as_cpu(op, arguments);  // Meta refuses in words, and sometimes types, of its own
      throw;
    }
  }
  return run_on(c10::Device(c10::kCPU), op, arguments, mutated);
}

}  // namespace ttpu
