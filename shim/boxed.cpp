// boxed.cpp: the one kernel that serves every row of ops.def, registered for the functional overload of the row and its
// in-place and out= siblings. A call is encoded as words (what it is), operands (views) and parameters (numbers) and
// recorded; words never seen before are first described to the core by asking PyTorch how the results look.
#include <ATen/MemoryOverlap.h>
#include <ATen/core/GeneratorForPrivateuseone.h>
#include <ATen/core/List.h>
#include <ATen/native/Resize.h>
#include <ATen/Context.h>
#include <c10/util/SmallVector.h>
#include <torch/library.h>

#include <cstring>
#include <deque>
#include <mutex>
#include <unordered_map>
#include <unordered_set>

#include "shim.h"

extern "C" {
#include "graph/inst.h"
}

namespace ttpu {

namespace {

enum Form : uint8_t { FUNCTIONAL, IN_PLACE, OUT };
enum RowFlag : unsigned { STATIC = 1, RANDOM = 2, CPU_INDEX = 4 };  // op_flags_e of src/ops/ops.h

// How the argument of a schema is encoded. What Python passes is told by the IValue; only numbers need the schema.
enum class Kind : uint8_t { OTHER, SCALAR, SCALARS, FLOAT, GENERATOR, DEVICE, SKIP };

struct Overload {
  int row;
  unsigned flags;
  Form form;
  uint32_t id;                  // distinguishes overloads in the words of one process
  int functional_args;          // of the row's schema
  std::vector<int> position;    // functional argument -> argument of the called schema, -1 where it has none
  std::vector<Kind> kinds;      // one a functional argument
  std::vector<int> targets;     // called-schema arguments that results 0.. are written to (in-place, out=)
  std::vector<int> writes;      // functional arguments mutated besides
  int returns;                  // of the functional schema
  std::vector<int> alias;       // functional return -> functional argument it is (already mutated ones), or -1
  std::vector<bool> is_list;    // functional return -> a list of tensors
  int called_args, called_returns;
  std::optional<c10::OperatorHandle> functional;
};

// What was refused by a lowering, by hash of its words: goes to the fallback at once.
std::mutex refused_mutex;
std::unordered_set<uint64_t> refused;

// --- encoding ------------------------------------------------------------------------------------------------

enum Tag : uint64_t { T_NONE = 1, T_TENSOR, T_CPU, T_TENSORS, T_SCALAR, T_NUMBER, T_INT, T_INTS, T_DOUBLES, T_STRING };

// The second half of encoding, only on first sight: the arguments as the lowering will see them.
struct Draft {
  std::vector<ttpu_arg_t> args;
  std::vector<ttpu_shape_t> operands;
  std::string kinds;
  std::deque<std::vector<int64_t>> lists;  // own what args point to
  std::deque<std::vector<double>> doubles;
  std::deque<std::string> texts;
};

struct Call {
  const Overload &o;
  torch::jit::Stack &stack;
  size_t base;  // of the called arguments on the stack
  int device = -1;
  c10::SmallVector<uint64_t, 128> words;
  c10::SmallVector<ttpu_view_t, 8> operands;
  c10::SmallVector<uint64_t, 8> params;
  c10::SmallVector<at::Tensor, 2> uploaded;  // CPU index tensors and resolved operands, kept alive
  std::optional<at::Generator> generator;
  Draft *draft = nullptr;

  const c10::IValue &argument(int position) const { return stack[base + static_cast<size_t>(position)]; }

  void word(uint64_t w) { words.push_back(w); }

  ttpu_arg_t *arg(ttpu_arg_e kind) {
    if (!draft) return nullptr;
    draft->args.push_back(ttpu_arg_t{});
    draft->args.back().kind = kind;
    return &draft->args.back();
  }

  void param(uint64_t bits, char kind) {
    params.push_back(bits);
    if (draft) draft->kinds.push_back(kind);
  }

  // A number: a runtime parameter, or a literal for static rows.
  void number(const c10::Scalar &s, ttpu_dtype_e dtype, bool wrapped) {
    const bool complex = s.isComplex(), floating = s.isFloatingPoint();
    if (o.flags & STATIC) {
      word(T_NUMBER | static_cast<uint64_t>(dtype) << 8 | static_cast<uint64_t>(wrapped) << 16);
      double d = complex ? s.toComplexDouble().real() : s.toDouble();
      int64_t i = 0;
      std::memcpy(&i, &d, 8);
      if (!complex && !floating) i = s.isBoolean() ? s.toBool() : s.toLong();
      word(static_cast<uint64_t>(i));
      if (complex) {
        const double im = s.toComplexDouble().imag();
        uint64_t bits;
        std::memcpy(&bits, &im, 8);
        word(bits);
      }
      if (auto *a = arg(floating || complex ? TTPU_ARG_NUMBER : TTPU_ARG_INT)) {
        a->dtype = dtype;
        a->wrapped = wrapped;
        a->u.integer = i;
      }
      return;
    }
    word(T_SCALAR | static_cast<uint64_t>(dtype) << 8 | static_cast<uint64_t>(wrapped) << 16);
    if (auto *a = arg(TTPU_ARG_SCALAR)) {
      a->dtype = dtype;
      a->wrapped = wrapped;
      a->first = static_cast<int32_t>(params.size());
      a->count = complex ? 2 : 1;
    }
    uint64_t bits;
    if (complex) {
      const double re = s.toComplexDouble().real(), im = s.toComplexDouble().imag();
      std::memcpy(&bits, &re, 8);
      param(bits, 'd');
      std::memcpy(&bits, &im, 8);
      param(bits, 'd');
    } else if (floating) {
      const double d = s.toDouble();
      std::memcpy(&bits, &d, 8);
      param(bits, 'd');
    } else {
      param(static_cast<uint64_t>(s.isBoolean() ? static_cast<int64_t>(s.toBool()) : s.toLong()), 'i');
    }
  }

  static ttpu_dtype_e dtype_of_scalar(const c10::Scalar &s) {
    return s.isBoolean() ? TTPU_BOOL : s.isComplex() ? TTPU_C128 : s.isFloatingPoint() ? TTPU_F64 : TTPU_I64;
  }

  void none() {
    word(T_NONE);
    arg(TTPU_ARG_NONE);
  }

  // Words and operand of a tensor on the device; its number.
  int32_t operand(const at::Tensor &t) {
    // PyTorch resolves these bits itself, except for products, which it leaves to the backend.
    if (C10_UNLIKELY(t.is_conj() || t.is_neg())) {
      uploaded.push_back(t.resolve_conj().resolve_neg());
      return operand(at::Tensor(uploaded.back()));
    }
    const ttpu_view_t view = view_of(t);
    const int index = ttpu_storage_device(view.storage);
    if (device < 0) device = index;
    TORCH_CHECK(device == index, "Expected all tensors to be on the same device, but found at least two devices, tpu:",
                device, " and tpu:", index, "! (", ttpu_row_name(o.row), ")");
    if (C10_UNLIKELY(!view.dtype)) dtype_or_throw(t.scalar_type(), ttpu_row_name(o.row));
    const bool contiguous = t.is_contiguous();
    word(T_TENSOR | static_cast<uint64_t>(view.dtype) << 8 | static_cast<uint64_t>(view.rank) << 16 |
         static_cast<uint64_t>(contiguous) << 24);
    for (int i = 0; i < view.rank; i++) word(static_cast<uint64_t>(view.sizes[i]));
    if (!contiguous)
      for (int i = 0; i < view.rank; i++) word(static_cast<uint64_t>(view.strides[i]));
    operands.push_back(view);
    if (draft) draft->operands.push_back({static_cast<ttpu_dtype_e>(view.dtype), view.rank, view.sizes});
    return static_cast<int32_t>(operands.size()) - 1;
  }

  // A 0-dim CPU tensor's value; the common types without a trip through the dispatcher.
  static c10::Scalar read_number(const at::Tensor &t) {
    if (t.is_neg() || t.is_conj()) return t.item();
    switch (t.scalar_type()) {
      case at::kDouble: return *static_cast<const double *>(t.const_data_ptr());
      case at::kFloat: return *static_cast<const float *>(t.const_data_ptr());
      case at::kLong: return *static_cast<const int64_t *>(t.const_data_ptr());
      case at::kBool: return *static_cast<const bool *>(t.const_data_ptr());
      default: return t.item();
    }
  }

  void tensor(const at::Tensor &t) {
    if (!t.defined()) return none();
    if (C10_LIKELY(t.device().type() == kTpu)) {
      const int32_t first = operand(t);
      if (auto *a = arg(TTPU_ARG_TENSOR)) a->first = first;
      return;
    }
    TORCH_CHECK(t.device().is_cpu(), "Expected all tensors to be on the same device, but found at least two devices, tpu and ",
                t.device(), "! (", ttpu_row_name(o.row), ")");
    if (t.dim() == 0 && !(o.flags & CPU_INDEX && !at::isFloatingType(t.scalar_type())))
      return number(read_number(t), dtype_or_throw(t.scalar_type(), ttpu_row_name(o.row)),
                    t.unsafeGetTensorImpl()->is_wrapped_number());
    TORCH_CHECK(o.flags & CPU_INDEX, "Expected all tensors to be on the same device, but found at least two devices, tpu:",
                device < 0 ? current_device() : device, " and cpu! (argument of ", ttpu_row_name(o.row),
                "; move it with .to(\"tpu\"))");
    uploaded.push_back(t.to(c10::Device(kTpu, static_cast<c10::DeviceIndex>(device < 0 ? current_device() : device))));
    tensor(uploaded.back());
  }

  // A list of (maybe undefined) tensors.
  template <class List>
  void tensors(const List &list) {
    word(T_TENSORS | static_cast<uint64_t>(list.size()) << 8);
    std::vector<int64_t> items;
    for (size_t i = 0; i < list.size(); i++) {
      at::Tensor t = get(list, i);
      if (!t.defined()) {
        word(T_NONE);
        items.push_back(-1);
        continue;
      }
      if (t.device().is_cpu()) {
        TORCH_CHECK(o.flags & CPU_INDEX || t.dim() == 0,
                    "Expected all tensors to be on the same device, but found at least two devices, tpu and cpu! (",
                    ttpu_row_name(o.row), ")");
        uploaded.push_back(t.to(c10::Device(kTpu, static_cast<c10::DeviceIndex>(device < 0 ? current_device() : device))));
        t = uploaded.back();
      }
      items.push_back(operand(t));
    }
    if (auto *a = arg(TTPU_ARG_TENSORS)) {
      a->count = static_cast<int32_t>(items.size());
      draft->lists.push_back(std::move(items));
      a->u.items = draft->lists.back().data();
    }
  }
  static at::Tensor get(const c10::List<at::Tensor> &list, size_t i) { return list.get(i); }
  static at::Tensor get(const c10::List<std::optional<at::Tensor>> &list, size_t i) {
    const std::optional<at::Tensor> t = list.get(i);
    return t ? *t : at::Tensor();
  }

  void integer(int64_t value, ttpu_dtype_e dtype) {
    word(T_INT | static_cast<uint64_t>(dtype) << 8);
    word(static_cast<uint64_t>(value));
    if (auto *a = arg(TTPU_ARG_INT)) {
      a->dtype = dtype;
      a->u.integer = value;
    }
  }

  void integers(std::vector<int64_t> values) {
    word(T_INTS | static_cast<uint64_t>(values.size()) << 8);
    for (const int64_t v : values) word(static_cast<uint64_t>(v));
    if (auto *a = arg(TTPU_ARG_INTS)) {
      a->count = static_cast<int32_t>(values.size());
      draft->lists.push_back(std::move(values));
      a->u.items = draft->lists.back().data();
    }
  }

  void doubles(std::vector<double> values) {
    word(T_DOUBLES | static_cast<uint64_t>(values.size()) << 8);
    for (const double v : values) {
      uint64_t bits;
      std::memcpy(&bits, &v, 8);
      word(bits);
    }
    if (auto *a = arg(TTPU_ARG_DOUBLES)) {
      a->count = static_cast<int32_t>(values.size());
      draft->doubles.push_back(std::move(values));
      a->u.numbers = draft->doubles.back().data();
    }
  }

  void text(const std::string &value) {
    word(T_STRING | static_cast<uint64_t>(value.size()) << 8);
    for (size_t i = 0; i < value.size(); i += 8) {
      uint64_t bits = 0;
      std::memcpy(&bits, value.data() + i, std::min<size_t>(8, value.size() - i));
      word(bits);
    }
    if (auto *a = arg(TTPU_ARG_STRING)) {
      draft->texts.push_back(value);
      a->u.text = draft->texts.back().c_str();
    }
  }

  void list(const c10::IValue &v, Kind kind) {
    if (v.isTensorList()) return tensors(v.toTensorList());
    if (v.isOptionalTensorList()) return tensors(v.toOptionalTensorList());
    if (v.isIntList()) return integers(v.toIntVector());
    if (v.isDoubleList()) return doubles(v.toDoubleVector());
    if (v.isBoolList()) {
      std::vector<int64_t> values;
      for (const bool b : v.toBoolList()) values.push_back(b);
      return integers(std::move(values));
    }
    const auto &generic = v.toListRef();
    if (kind == Kind::SCALARS) {  // Scalar[] of the foreach operators: one parameter each, none of them literal words
      for (const auto &item : generic) number(item.toScalar(), dtype_of_scalar(item.toScalar()), true);
      return;
    }
    if (!generic.empty() && (generic[0].isTensor() || generic[0].isNone())) {
      c10::List<std::optional<at::Tensor>> tensors_list;
      for (const auto &item : generic) tensors_list.push_back(item.toOptional<at::Tensor>());
      return tensors(tensors_list);
    }
    std::vector<int64_t> values;
    for (const auto &item : generic) values.push_back(item.toSymInt().guard_int(__FILE__, __LINE__));
    integers(std::move(values));
  }

  void encode(const c10::IValue &v, Kind kind) {
    switch (kind) {
      case Kind::SKIP:
        return none();
      case Kind::GENERATOR:
        if (v.isGenerator()) generator = v.toGenerator();
        return none();
      case Kind::DEVICE:
        if (v.isDevice() && device < 0) device = device_index(v.toDevice());
        return none();
      default:
        break;
    }
    if (v.isTensor()) return tensor(v.toTensor());
    if (v.isNone()) return none();
    if (kind == Kind::SCALAR || kind == Kind::FLOAT) {
      const c10::Scalar s = v.toScalar();
      return number(s, kind == Kind::FLOAT ? TTPU_F64 : dtype_of_scalar(s), true);
    }
    if (v.isInt()) return integer(v.toInt(), TTPU_I64);
    if (v.isBool()) return integer(v.toBool(), TTPU_BOOL);
    if (v.isSymInt()) return integer(v.toSymInt().guard_int(__FILE__, __LINE__), TTPU_I64);
    if (v.isDouble()) return number(c10::Scalar(v.toDouble()), TTPU_F64, true);
    if (v.isString()) return text(v.toStringRef());
    if (v.isList()) return list(v, kind);
    TORCH_CHECK_NOT_IMPLEMENTED(false, "aten::", ttpu_row_name(o.row), ": an argument of type ", v.tagKind(),
                                " is not understood by the tpu device");
  }

  // Everything but targets. With |d| also the draft.
  void run(Draft *d) {
    draft = d;
    words.clear();
    operands.clear();
    params.clear();
    uploaded.clear();
    word(static_cast<uint64_t>(o.id) << 16 | static_cast<uint64_t>(c10::typeMetaToScalarType(c10::get_default_dtype())));
    static const c10::IValue absent;
    for (int i = 0; i < o.functional_args; i++) {
      const int p = o.position[static_cast<size_t>(i)];
      encode(p < 0 ? absent : argument(p), o.kinds[static_cast<size_t>(i)]);
    }
    // the layout of out= tensors decides how they are resized
    if (o.form == OUT)
      for (const int p : o.targets) {
        const at::Tensor &t = argument(p).toTensor();
        TORCH_CHECK(t.device().type() == kTpu, "Expected out tensor to be on the tpu device, but got ", t.device(), " (",
                    ttpu_row_name(o.row), ")");
        if (device < 0) device = t.device().index();
        word(static_cast<uint64_t>(t.scalar_type()) << 8 | static_cast<uint64_t>(t.dim()));
        for (const int64_t s : t.sizes()) word(static_cast<uint64_t>(s));
        for (const int64_t s : t.strides()) word(static_cast<uint64_t>(s));
      }
    if (device < 0) device = current_device();
    if (o.flags & RANDOM) {
      param(0, 'r');
      param(0, 'r');
    }
  }
};

// --- first sight ----------------------------------------------------------------------------------------------

void put_result(std::vector<ttpu_result_t> &results, const Layout &layout, const Layout *fresh_strides, int alias,
                const char *name) {
  ttpu_result_t r{};
  r.alias = alias;
  if (layout.defined) {
    r.shape = {dtype_or_throw(layout.type, name), static_cast<int32_t>(layout.sizes.size()), layout.sizes.data()};
    r.strides = (fresh_strides ? fresh_strides : &layout)->strides.data();
  }
  results.push_back(r);
}

// Describes the call to the core. False when the lowering refuses it.
bool describe(const c10::OperatorHandle &op, Call &call) {
  const Overload &o = call.o;
  const char *name = ttpu_row_name(o.row);
  Draft draft;
  call.run(&draft);
  // Ask about the overload that was called (its errors, the strides of resized outputs), then about the functional one
  // (the type it computes in), unless they are the same.
  torch::jit::Stack arguments(call.stack.begin() + static_cast<std::ptrdiff_t>(call.base),
                              call.stack.begin() + static_cast<std::ptrdiff_t>(call.base) + o.called_args);
  Shapes called = infer(op, arguments, o.form == FUNCTIONAL ? std::vector<int>{} : o.targets);
  Shapes shapes;
  if (o.form == FUNCTIONAL) {
    shapes = std::move(called);
  } else {
    torch::jit::Stack functional;
    for (int i = 0; i < o.functional_args; i++) {
      const int p = o.position[static_cast<size_t>(i)];
      functional.push_back(p < 0 ? c10::IValue() : arguments[static_cast<size_t>(p)]);
    }
    shapes = infer(*o.functional, functional, {});
  }
  std::vector<ttpu_result_t> results;
  int target = 0;
  for (int k = 0; k < o.returns; k++) {
    if (o.alias[static_cast<size_t>(k)] >= 0) continue;
    for (const Layout &layout : shapes.returns[static_cast<size_t>(k)]) {
      if (o.form == FUNCTIONAL) {
        put_result(results, layout, nullptr, -1, name);
      } else {
        const auto &mutated = called.mutated[static_cast<size_t>(target)];
        TORCH_CHECK(!layout.defined || at::canCast(layout.type, mutated.at(0).type), "result type ", layout.type,
                    " can't be cast to the desired output type ", mutated.at(0).type);
        put_result(results, layout, &mutated.at(0), target, name);
        target++;
      }
    }
  }
  std::deque<Layout> own;
  for (const int w : o.writes) {
    const c10::IValue &v = arguments[static_cast<size_t>(o.position[static_cast<size_t>(w)])];
    const auto put = [&](const at::Tensor &t) {
      own.emplace_back();
      if (t.defined()) own.back() = {true, t.scalar_type(), t.sizes().vec(), t.strides().vec()};
      put_result(results, own.back(), nullptr, target++, name);
    };
    if (v.isTensorList())
      for (const at::Tensor t : v.toTensorList()) put(t);
    else
      put(v.isTensor() ? v.toTensor() : at::Tensor());
  }
  ttpu_inst_t inst{};
  inst.row = o.row;
  inst.arg_count = static_cast<int32_t>(draft.args.size());
  inst.operand_count = static_cast<int32_t>(draft.operands.size());
  inst.result_count = static_cast<int32_t>(results.size());
  inst.param_count = static_cast<int32_t>(draft.kinds.size());
  inst.word_count = static_cast<int32_t>(call.words.size());
  inst.args = draft.args.data();
  inst.operands = draft.operands.data();
  inst.results = results.data();
  inst.words = call.words.data();
  inst.param_kinds = draft.kinds.data();
  ttpu_status_t *status = ttpu_inst_make(&inst);
  if (status && ttpu_status_number(status) == 3) raise_as_cpu(op, arguments);  // PyTorch's own words, where it has any
  if (status && ttpu_status_number(status) == 12 /* unimplemented: the lowering refuses these types */) {
    ttpu_status_drop(status);
    return false;
  }
  check(status);
  return true;
}

uint64_t hash_of(const Call &call) {
  uint64_t h = 0x9e3779b97f4a7c15u;
  for (const uint64_t w : call.words) h = (h ^ w) * 0xd6e8feb86659fd93u, h ^= h >> 32;
  return h;
}

// --- the kernel ------------------------------------------------------------------------------------------------

struct Boxed final : c10::OperatorKernel {
  explicit Boxed(Overload overload) : o(std::move(overload)) {}
  Overload o;

  void operator()(const c10::OperatorHandle &op, c10::DispatchKeySet, torch::jit::Stack *stack) {
    Call call{o, *stack, stack->size() - static_cast<size_t>(o.called_args)};
    if (C10_UNLIKELY(o.flags & CPU_INDEX)) expand_masks_of(call);
    call.run(nullptr);
    c10::SmallVector<ttpu_view_t, 4> targets;
    ttpu_record_t record{};
    constexpr size_t kFew = 16;
    std::array<ttpu_storage_t *, kFew> few;  // filled by the core
    std::vector<ttpu_storage_t *> many;
    ttpu_status_t *status = nullptr;
    check_overlap(call);
    uint64_t drawn = 0;
    for (int attempt = 0;; attempt++) {
      collect_targets(call, targets);
      record.device = call.device;
      record.words = call.words.data();
      record.word_count = static_cast<int32_t>(call.words.size());
      record.operand_count = static_cast<int32_t>(call.operands.size());
      record.target_count = static_cast<int32_t>(targets.size());
      record.param_count = static_cast<int32_t>(call.params.size());
      record.operands = call.operands.data();
      record.targets = targets.data();
      record.params = call.params.data();
      // a call has at most as many results as targets and operands, and a few
      const size_t most = 8 + targets.size() + call.operands.size();
      if (C10_UNLIKELY(most > kFew)) many.resize(most);
      record.storages = many.empty() ? few.data() : many.data();
      record.storage_capacity = static_cast<int32_t>(std::max(most, kFew));
      if ((o.flags & RANDOM) && !drawn) {
        drawn = numbers_drawn(call);
        const auto [seed, offset] = draw(call.generator, call.device, drawn);
        call.params[call.params.size() - 2] = seed;
        call.params[call.params.size() - 1] = offset;
      }
      // out= tensors take the shape of the result before it is written
      if (o.form == OUT && attempt == 0 && is_refused(call)) return fallback(op, stack);
      const int result = o.form == OUT && attempt == 0 ? prepare_out(op, call) : ttpu_record(&record, &status);
      if (result == TTPU_RECORDED) break;
      check(status);
      if (attempt > 2) TORCH_CHECK(false, "aten::", ttpu_row_name(o.row), ": the instance table is too small");
      if (result == TTPU_UNSEEN) {
        if (is_refused(call)) return fallback(op, stack);
        const auto saved = call.params;
        if (!describe(op, call)) {
          refuse(call);
          return fallback(op, stack);
        }
        call.params = saved;
      }
    }
    finish(call, record);
  }

 private:
  // x[mask]: positions first. x[mask] = number stays a mask, which the lowering turns into a select.
  void expand_masks_of(Call &call) const {
    const size_t at = call.base + 1;
    if (o.called_args < 2 || !(call.stack[at].isOptionalTensorList() || call.stack[at].isTensorList() || call.stack[at].isList())) return;
    bool masked = false, others = false;
    c10::List<std::optional<at::Tensor>> list;
    for (const auto &item : call.stack[at].toListRef()) {
      list.push_back(item.toOptional<at::Tensor>());
      if (!item.isTensor() || !item.toTensor().defined()) continue;
      const auto type = item.toTensor().scalar_type();
      (type == at::kBool || type == at::kByte ? masked : others) = true;
    }
    if (!masked) return;
    const bool writes = o.called_args >= 3 && call.stack[at + 1].isTensor();
    if (writes && !others && list.size() == 1 && call.stack[at + 1].toTensor().numel() == 1) return;
    call.stack[at] = expand_masks(list, call.stack[call.base].toTensor());
  }

  static bool is_refused(const Call &call) {
    std::lock_guard<std::mutex> lock(refused_mutex);
    return !refused.empty() && refused.count(hash_of(call));
  }
  static void refuse(const Call &call) {
    std::lock_guard<std::mutex> lock(refused_mutex);
    if (refused.size() > 65536) refused.clear();
    refused.insert(hash_of(call));
  }

  // An upper bound of the numbers that a call draws: results have at most the elements of the operands, or of the sizes.
  uint64_t numbers_drawn(const Call &call) const {
    int64_t n = 1;
    for (const auto &view : call.operands) n = std::max(n, ttpu_dims_numel(view.rank, view.sizes));
    for (int i = 0; i < o.functional_args; i++) {
      const int p = o.position[static_cast<size_t>(i)];
      if (p >= 0 && call.argument(p).isInt()) n = std::max(n, std::abs(call.argument(p).toInt()) & 0xffffffff);
    }
    return static_cast<uint64_t>(n);
  }

  void check_overlap(const Call &call) const {
    if (o.form == FUNCTIONAL) return;
    for (const int p : o.targets) {
      const at::Tensor &target = call.argument(p).toTensor();
      at::assert_no_internal_overlap(target);
      for (const auto &view : call.operands) {
        if (view.storage != handle_of(target) || !target.numel()) continue;
        const auto own = view_of(target);
        const bool same = view.rank == own.rank && view.offset == own.offset &&
                          std::equal(own.sizes, own.sizes + own.rank, view.sizes) &&
                          std::equal(own.strides, own.strides + own.rank, view.strides);
        if (!same && partly_overlaps(own, view))
          TORCH_CHECK(false, "unsupported operation: some elements of the input tensor and the written-to tensor refer to a "
                             "single memory location. Please clone() the tensor before performing the operation. (",
                      ttpu_row_name(o.row), ")");
      }
    }
  }
  // Dense views of one storage whose ranges cross; like PyTorch's own check, strided ones are given the benefit of doubt.
  static bool partly_overlaps(const ttpu_view_t &a, const ttpu_view_t &b) {
    const int64_t an = dense_numel(a), bn = dense_numel(b);
    if (!an || !bn) return false;
    const int64_t au = ttpu_dtype_bytes(static_cast<ttpu_dtype_e>(a.dtype)), bu = ttpu_dtype_bytes(static_cast<ttpu_dtype_e>(b.dtype));
    return a.offset * au < (b.offset + bn) * bu && b.offset * bu < (a.offset + an) * au;
  }
  static int64_t dense_numel(const ttpu_view_t &v) {
    int64_t expected = 1;
    for (int i = v.rank - 1; i >= 0; i--) {
      if (v.sizes[i] != 1 && v.strides[i] != expected) return 0;
      expected *= v.sizes[i];
    }
    return expected;
  }

  void collect_targets(const Call &call, c10::SmallVector<ttpu_view_t, 4> &targets) const {
    targets.clear();
    if (o.form != FUNCTIONAL)
      for (const int p : o.targets) targets.push_back(view_of(call.argument(p).toTensor()));
    for (const int w : o.writes) {
      const c10::IValue &v = call.argument(o.position[static_cast<size_t>(w)]);
      if (v.isTensorList())
        for (const at::Tensor t : v.toTensorList()) targets.push_back(view_of(t));
      else if (v.isTensor() && v.toTensor().defined())
        targets.push_back(view_of(v.toTensor()));
      else
        targets.push_back(ttpu_view_t{});
    }
  }

  // Shapes of out= tensors are part of the words; a fitting one needs no work, another is resized and encoded again.
  int prepare_out(const c10::OperatorHandle &op, Call &call) const {
    bool resized = false;
    const auto key = hash_of(call);
    std::vector<std::vector<int64_t>> sizes, strides;
    {
      std::lock_guard<std::mutex> lock(resize_mutex);
      const auto found = resize_memo.find(key);
      if (found != resize_memo.end()) {
        sizes = found->second.first;
        strides = found->second.second;
      }
    }
    if (sizes.empty()) {
      torch::jit::Stack arguments(call.stack.begin() + static_cast<std::ptrdiff_t>(call.base), call.stack.end());
      const Shapes called = infer(op, arguments, o.targets);
      for (const auto &m : called.mutated) {
        sizes.push_back(m.at(0).sizes);
        strides.push_back(m.at(0).strides);
      }
      std::lock_guard<std::mutex> lock(resize_mutex);
      if (resize_memo.size() > 16384) resize_memo.clear();
      resize_memo[key] = {sizes, strides};
    }
    for (size_t k = 0; k < o.targets.size(); k++) {
      const at::Tensor &t = call.argument(o.targets[k]).toTensor();
      if (t.sizes() == at::IntArrayRef(sizes[k])) continue;
      resized = true;
      at::native::resize_output(t, sizes[k]);
      if (t.strides() != at::IntArrayRef(strides[k]) && t.numel()) t.as_strided_(sizes[k], strides[k]);
    }
    if (resized) {
      const auto saved = call.params;
      call.run(nullptr);
      call.params = saved;
    }
    return -1;  // not recorded yet: the loop goes round once more
  }
  static std::mutex resize_mutex;
  static std::unordered_map<uint64_t, std::pair<std::vector<std::vector<int64_t>>, std::vector<std::vector<int64_t>>>>
      resize_memo;

  void finish(Call &call, const ttpu_record_t &record) const {
    torch::jit::Stack &stack = call.stack;
    const ttpu_inst_t *inst = record.inst;
    if (C10_LIKELY(o.form == FUNCTIONAL && o.returns == 1 && !o.is_list[0] && o.alias[0] < 0 && record.storages[0])) {
      const ttpu_result_t &r = inst->results[0];
      const auto rank = static_cast<size_t>(r.shape.rank);
      at::Tensor out = adopt(record.storages[0], static_cast<at::ScalarType>(ttpu_dtype_torch(r.shape.dtype)),
                             at::IntArrayRef(r.shape.dims, rank), at::IntArrayRef(r.strides, rank), call.device);
      ttpu_inst_drop(record.inst);
      torch::jit::drop(stack, static_cast<size_t>(o.called_args));
      stack.emplace_back(std::move(out));
      return;
    }
    c10::SmallVector<c10::IValue, 4> returned;
    if (o.form == FUNCTIONAL) {
      int next = 0;
      const auto tensor = [&](int k) {
        const ttpu_result_t &r = inst->results[k];
        if (!record.storages[k]) return at::Tensor();
        const auto rank = static_cast<size_t>(r.shape.rank);
        return adopt(record.storages[k], static_cast<at::ScalarType>(ttpu_dtype_torch(r.shape.dtype)),
                     at::IntArrayRef(r.shape.dims, rank), at::IntArrayRef(r.strides, rank), call.device);
      };
      for (int k = 0; k < o.returns; k++) {
        const int a = o.alias[static_cast<size_t>(k)];
        if (a >= 0) {
          returned.push_back(call.argument(o.position[static_cast<size_t>(a)]));
        } else if (o.is_list[static_cast<size_t>(k)]) {
          c10::List<at::Tensor> list;
          const int writes = writes_count(call);
          while (next < inst->result_count - writes) list.push_back(tensor(next++));
          returned.push_back(c10::IValue(std::move(list)));
        } else {
          returned.push_back(tensor(next++));
        }
      }
    } else {
      for (int k = 0; k < o.called_returns; k++) returned.push_back(call.argument(o.targets[static_cast<size_t>(k)]));
    }
    ttpu_inst_drop(record.inst);
    torch::jit::drop(stack, static_cast<size_t>(o.called_args));
    for (auto &v : returned) stack.push_back(std::move(v));
  }
  int writes_count(const Call &call) const {
    int n = 0;
    for (const int w : o.writes) {
      const c10::IValue &v = call.argument(o.position[static_cast<size_t>(w)]);
      n += v.isTensorList() ? static_cast<int>(v.toTensorList().size()) : 1;
    }
    return n;
  }
};

std::mutex Boxed::resize_mutex;
std::unordered_map<uint64_t, std::pair<std::vector<std::vector<int64_t>>, std::vector<std::vector<int64_t>>>>
    Boxed::resize_memo;

// --- registration ------------------------------------------------------------------------------------------------

using Schema = c10::FunctionSchema;

bool is_option(const std::string &name) {
  return name == "dtype" || name == "layout" || name == "device" || name == "pin_memory";
}

bool is_written(const c10::Argument &a) { return a.alias_info() && a.alias_info()->isWrite(); }

Kind kind_of(const c10::Argument &a) {
  c10::TypePtr type = a.real_type();
  if (const auto optional = type->cast<c10::OptionalType>()) type = optional->getElementType();
  const std::string text = type->repr_str();
  if (text == "Generator") return Kind::GENERATOR;
  if (text == "Device" || text == "Device?") return Kind::DEVICE;
  if (a.name() == "layout" || a.name() == "pin_memory") return Kind::SKIP;
  if (type->kind() == c10::TypeKind::NumberType) return Kind::SCALAR;
  if (type->kind() == c10::TypeKind::FloatType) return Kind::FLOAT;
  if (type->kind() == c10::TypeKind::ListType && type->castRaw<c10::ListType>()->getElementType()->kind() == c10::TypeKind::NumberType)
    return Kind::SCALARS;
  return Kind::OTHER;
}

bool same_type(const c10::Argument &a, const c10::Argument &b) { return *a.real_type() == *b.real_type(); }

// Fills positions when |schema| takes the functional arguments (tensor options may be missing) and, for out=, one
// written tensor a return; false when it is no sibling.
bool match(const Schema &functional, const Schema &schema, Overload &o) {
  const auto &f = functional.arguments(), &s = schema.arguments();
  o.position.assign(f.size(), -1);
  o.targets.clear();
  size_t j = 0;
  for (size_t i = 0; i < f.size(); i++) {
    while (o.form == OUT && j < s.size() && is_written(s[j]) && s[j].kwarg_only()) j++;
    if (j < s.size() && s[j].name() == f[i].name() && same_type(s[j], f[i]) && (o.form == OUT ? !is_written(s[j]) || is_written(f[i]) : true)) {
      o.position[i] = static_cast<int>(j++);
      continue;
    }
    if (!is_option(f[i].name())) return false;
  }
  if (o.form == IN_PLACE) {
    if (j != s.size() || s.empty() || !is_written(s[0])) return false;
    o.targets = {0};
    return functional.returns().size() == 1;
  }
  for (; j < s.size(); j++)
    if (!is_written(s[j])) return false;  // an argument that the row does not know
  for (size_t k = 0; k < s.size(); k++)
    if (is_written(s[k]) && s[k].kwarg_only()) {
      if (!(s[k].real_type()->kind() == c10::TypeKind::TensorType)) return false;
      o.targets.push_back(static_cast<int>(k));
    }
  return o.targets.size() == functional.returns().size();
}

void finish_overload(Overload &o, const Schema &functional, const Schema &called, const char *writes) {
  static uint32_t next_id = 1;
  o.id = next_id++;
  o.functional_args = static_cast<int>(functional.arguments().size());
  o.called_args = static_cast<int>(called.arguments().size());
  o.called_returns = static_cast<int>(called.returns().size());
  o.returns = static_cast<int>(functional.returns().size());
  o.kinds.clear();
  for (const auto &a : functional.arguments()) o.kinds.push_back(kind_of(a));
  o.alias.assign(static_cast<size_t>(o.returns), -1);
  for (const auto &r : functional.returns()) o.is_list.push_back(r.type()->kind() == c10::TypeKind::ListType);
  o.writes.clear();
  for (size_t i = 0; i < functional.arguments().size(); i++) {
    const auto &a = functional.arguments()[i];
    if (!is_written(a)) continue;
    o.writes.push_back(static_cast<int>(i));
    for (size_t k = 0; k < functional.returns().size(); k++) {
      const auto *info = functional.returns()[k].alias_info();
      if (info && info->beforeSets() == a.alias_info()->beforeSets()) o.alias[k] = static_cast<int>(i);
    }
  }
  for (const char *w = writes; w && *w; w = std::strchr(w, ',') ? std::strchr(w, ',') + 1 : "")
    o.writes.push_back(std::atoi(w));
}

bool loses_autograd(const c10::OperatorHandle &op) {
  return op.hasKernelForDispatchKey(c10::DispatchKey::CompositeImplicitAutograd);
}

}  // namespace

// Overloads registered, for the documentation and `torchtpu.check`.
std::vector<std::string> &registered_overloads() {
  static std::vector<std::string> names;
  return names;
}

void register_boxed() {
  static auto *library = new torch::Library(torch::Library::IMPL, "aten", c10::DispatchKey::PrivateUse1, __FILE__, __LINE__);
  auto &dispatcher = c10::Dispatcher::singleton();
  std::unordered_map<std::string, std::vector<c10::OperatorName>> by_base;
  for (const auto &name : dispatcher.getAllOpNames())
    if (name.name.rfind("aten::", 0) == 0) by_base[name.name.substr(6)].push_back(name);
  std::unordered_set<std::string> taken;
  const auto add = [&](Overload o, const c10::OperatorHandle &op) {
    const auto &name = op.operator_name();
    const std::string full = name.name.substr(6) + (name.overload_name.empty() ? "" : "." + name.overload_name);
    // an operator of tensor.cpp or dynamic.cpp has its kernel already
    if (loses_autograd(op) || op.hasKernelForDispatchKey(c10::DispatchKey::PrivateUse1) || !taken.insert(full).second) return;
    library->impl(full.c_str(), torch::CppFunction::makeFromBoxedFunctor(std::make_unique<Boxed>(std::move(o))));
    registered_overloads().push_back(full);
  };
  const int rows = ttpu_row_count();
  for (int row = 0; row < rows; row++) {
    const std::string name = ttpu_row_name(row);
    if (name.rfind("tpu::", 0) == 0) continue;
    const auto dot = name.find('.');
    const std::string base = name.substr(0, dot), overload = dot == std::string::npos ? "" : name.substr(dot + 1);
    const auto functional = dispatcher.findSchema({"aten::" + base, overload});
    if (!functional) continue;  // another torch minor: the group does not exist there
    unsigned flags = 0;
    const char *writes = nullptr;
    ttpu_row_find(name.c_str(), &flags, &writes);
    const Schema &schema = functional->schema();
    Overload o{};
    o.row = row;
    o.flags = flags;
    o.form = FUNCTIONAL;
    o.functional = *functional;
    o.position.resize(schema.arguments().size());
    for (size_t i = 0; i < o.position.size(); i++) o.position[i] = static_cast<int>(i);
    finish_overload(o, schema, schema, writes);
    add(o, *functional);
    // An operator of which only a mutating form exists has no siblings.
    if (!o.writes.empty() && !writes) continue;
    // "normal_functional" is the functional form of "normal_"
    std::string stem = base;
    const std::string suffix = "_functional";
    if (stem.size() > suffix.size() && stem.compare(stem.size() - suffix.size(), suffix.size(), suffix) == 0)
      stem.resize(stem.size() - suffix.size());
    for (const Form form : {IN_PLACE, OUT})
      for (const auto &sibling_name : by_base[form == IN_PLACE ? stem + "_" : base]) {
        const auto sibling = dispatcher.findSchema(sibling_name);
        if (!sibling) continue;
        Overload s{};
        s.row = row;
        s.flags = flags;
        s.form = form;
        s.functional = *functional;
        if (!match(schema, sibling->schema(), s)) continue;
        auto position = s.position, targets = s.targets;
        finish_overload(s, schema, sibling->schema(), writes);
        s.position = std::move(position);
        s.targets = std::move(targets);
        add(std::move(s), *sibling);
      }
  }
}

}  // namespace ttpu
