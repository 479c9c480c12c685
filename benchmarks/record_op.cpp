// record_op.cpp: what one recorded `mul` costs, without Python: a C++ loop over at::mul on the tpu device in fused mode,
// against an operator of the same signature whose boxed kernel does nothing (the bare boxed dispatcher).
// benchmarks/run.py builds it, loads it and calls record_op_measure.
#include <ATen/ATen.h>
#include <torch/library.h>

#include <chrono>

namespace {

void null_kernel(const c10::OperatorHandle &, c10::DispatchKeySet, torch::jit::Stack *stack) {
  at::Tensor first = (*stack)[stack->size() - 2].toTensor();
  torch::jit::drop(*stack, 2);
  stack->push_back(std::move(first));
}

template <class F>
double nanoseconds(int rounds, int calls, F &&call) {
  double best = 1e30;
  for (int r = 0; r < rounds; r++) {
    const auto start = std::chrono::steady_clock::now();
    for (int i = 0; i < calls; i++) call();
    const std::chrono::duration<double, std::nano> spent = std::chrono::steady_clock::now() - start;
    best = std::min(best, spent.count() / calls);
  }
  return best;
}

}  // namespace

// out: [recorded mul, the same on the CPU, bare boxed dispatcher], nanoseconds a call. |calls| should divide the node
// budget so that no cut falls into a round.
extern "C" __attribute__((visibility("default"))) void record_op_measure(int rounds, int calls, void (*between)(),
                                                                         double *out) {
  static auto *library = [] {
    auto *l = new torch::Library(torch::Library::DEF, "tpu_bench", std::nullopt, __FILE__, __LINE__);
    l->def("null(Tensor a, Tensor b) -> Tensor");
    l->impl("null", torch::dispatch(c10::DispatchKey::PrivateUse1, torch::CppFunction::makeFromBoxedFunction<&null_kernel>()));
    return l;
  }();
  (void)library;
  const at::NoGradGuard no_grad;
  const at::Tensor host = at::ones({4, 4}), x = host.to(c10::DeviceType::PrivateUse1);
  const auto null = c10::Dispatcher::singleton()
                        .findSchemaOrThrow("tpu_bench::null", "")
                        .typed<at::Tensor(const at::Tensor &, const at::Tensor &)>();
  out[0] = out[1] = out[2] = 1e30;
  for (int r = 0; r < rounds; r++) {
    out[0] = std::min(out[0], nanoseconds(1, calls, [&] { at::mul(x, x); }));
    between();  // drops what was recorded, outside the measured time
    out[1] = std::min(out[1], nanoseconds(1, calls, [&] { at::mul(host, host); }));
    out[2] = std::min(out[2], nanoseconds(1, calls, [&] { null.call(x, x); }));
  }
}
