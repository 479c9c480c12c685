// dynamic.cpp: operators whose result is sized by the data. Each runs a counting program, reads one size, then records
// ordinary operators of that size. They are compositions of other operators on the device, not lowerings.
#include <ATen/Functions.h>
#include <ATen/ExpandUtils.h>
#include <ATen/TensorOperators.h>
#include <ATen/native/Resize.h>
#include <torch/library.h>

#include "shim.h"

namespace ttpu {

namespace {

using at::Tensor;
using std::optional;

Tensor positions_of(const Tensor &self) {
  const int64_t count = at::count_nonzero(self).item<int64_t>();
  return at::nonzero_static(self, count);
}

Tensor &into(Tensor &out, const Tensor &value, const char *name) {
  TORCH_CHECK(at::canCast(value.scalar_type(), out.scalar_type()), name, ": Expected object of scalar type ",
              value.scalar_type(), " but got scalar type ", out.scalar_type(), " for argument 'out'");
  at::native::resize_output(out, value.sizes());
  return out.copy_(value);
}

Tensor &nonzero_out(const Tensor &self, Tensor &out) {
  TORCH_CHECK(out.scalar_type() == at::kLong, "nonzero: Expected out tensor to have scalar type Long but got scalar type ",
              out.scalar_type());
  return into(out, positions_of(self), "nonzero");
}

Tensor select_masked(const Tensor &self, const Tensor &mask) {
  TORCH_CHECK(mask.scalar_type() == at::kByte || mask.scalar_type() == at::kBool,
              "masked_select: expected BoolTensor for mask");
  const Tensor flags = mask.to(at::kBool);
  const auto [x, m] = at::expand_outplace(self, flags);
  const Tensor positions = positions_of(m->reshape({-1})).squeeze(1);
  return x->reshape({-1}).index_select(0, positions);
}

Tensor &masked_select_out(const Tensor &self, const Tensor &mask, Tensor &out) {
  TORCH_CHECK(self.scalar_type() == out.scalar_type(), "masked_select(): self and result must have the same scalar type");
  return into(out, select_masked(self, mask), "masked_select");
}

bool equal(const Tensor &self, const Tensor &other) {
  TORCH_CHECK(self.device() == other.device(), "Cannot compare two tensors on different devices. Got: ", self.device(),
              " and ", other.device());
  TORCH_CHECK(self.scalar_type() == other.scalar_type(), "Expected object of data type ", self.scalar_type(),
              " but got data type ", other.scalar_type(), " for argument 'other' in call to equal");
  return self.sizes() == other.sizes() && (!self.numel() || at::eq(self, other).all().item<bool>());
}

// --- unique ---------------------------------------------------------------------------------------------------

struct Unique {
  Tensor values, inverse, counts;
};

// Groups rows of |rows| (n, ...) that stand next to each other and are equal.
Unique group(const Tensor &rows, bool want_inverse, bool want_counts) {
  const auto longs = rows.options().dtype(at::kLong);
  const int64_t n = rows.size(0);
  Unique u{rows, at::empty({0}, longs), at::empty({0}, longs)};
  if (n == 0) return u;
  Tensor differs = at::ne(rows.narrow(0, 1, n - 1), rows.narrow(0, 0, n - 1));
  if (differs.dim() > 1) differs = differs.flatten(1).any(1);
  const Tensor starts = at::cat({at::ones({1}, differs.options()), differs});
  const Tensor first = positions_of(starts).squeeze(1);
  u.values = rows.index_select(0, first);
  if (want_inverse) u.inverse = at::cumsum(starts, 0, at::kLong) - 1;
  if (want_counts) u.counts = at::cat({first.narrow(0, 1, first.size(0) - 1), at::full({1}, n, longs)}) - first;
  return u;
}

Tensor undo(const Tensor &permutation, const Tensor &values) {
  return at::empty_like(values).scatter(0, permutation, values);
}

std::tuple<Tensor, Tensor, Tensor> unique2(const Tensor &self, bool, bool want_inverse, bool want_counts) {
  const auto [sorted, permutation] = at::sort(self.reshape({-1}), /*stable=*/true, 0, false);
  Unique u = group(sorted, want_inverse, want_counts);
  if (want_inverse) u.inverse = undo(permutation, u.inverse).reshape(self.sizes());
  return {u.values, u.inverse, u.counts};
}

std::tuple<Tensor, Tensor> unique(const Tensor &self, bool sorted, bool want_inverse) {
  const auto [values, inverse, counts] = unique2(self, sorted, want_inverse, false);
  return {values, inverse};
}

std::tuple<Tensor, Tensor, Tensor> unique_rows(const Tensor &self, int64_t dim, bool want_inverse,
                                                          bool want_counts) {
  Unique u = group(self.transpose(0, dim).contiguous(), want_inverse, want_counts);
  return {u.values.transpose(0, dim).contiguous(), u.inverse, u.counts};
}

std::tuple<Tensor, Tensor, Tensor> unique_consecutive(const Tensor &self, bool want_inverse, bool want_counts,
                                                      optional<int64_t> dim) {
  if (dim) return unique_rows(self, *dim, want_inverse, want_counts);
  Unique u = group(self.reshape({-1}), want_inverse, want_counts);
  if (want_inverse) u.inverse = u.inverse.reshape(self.sizes());
  return {u.values, u.inverse, u.counts};
}

// Rows in lexicographic order: stable sorts from the last column to the first.
std::tuple<Tensor, Tensor, Tensor> unique_dim(const Tensor &self, int64_t dim, bool, bool want_inverse, bool want_counts) {
  const Tensor rows = self.transpose(0, dim).contiguous();
  const int64_t n = rows.size(0);
  TORCH_CHECK(n == 0 || rows.numel() > 0, "There are 0 sized dimensions, and they aren't selected, so unique cannot be applied");
  if (n == 0) return {self, at::empty({0}, self.options().dtype(at::kLong)), at::empty({0}, self.options().dtype(at::kLong))};
  const Tensor columns = rows.reshape({n, -1});
  Tensor order = at::arange(n, rows.options().dtype(at::kLong));
  for (int64_t c = columns.size(1); c-- > 0;) {
    const Tensor column = columns.select(1, c).index_select(0, order);
    order = order.index_select(0, std::get<1>(at::sort(column, /*stable=*/true, 0, false)));
  }
  Unique u = group(rows.index_select(0, order), want_inverse, want_counts);
  if (want_inverse) u.inverse = undo(order, u.inverse);
  return {u.values.transpose(0, dim).contiguous(), u.inverse, u.counts};
}

// --- counting -------------------------------------------------------------------------------------------------

Tensor bincount(const Tensor &self, const optional<Tensor> &weights, int64_t minlength) {
  TORCH_CHECK(minlength >= 0, "minlength should be >= 0");
  TORCH_CHECK(self.dim() == 1 && at::isIntegralType(self.scalar_type(), false),
              "bincount only supports 1-d non-negative integral inputs.");
  const bool weighted = weights && weights->defined();
  TORCH_CHECK(!weighted || weights->sizes() == self.sizes(), "weights should be 1-d and have the same length as input");
  const auto type = !weighted ? at::kLong : weights->scalar_type() == at::kFloat ? at::kFloat : at::kDouble;
  if (self.numel() == 0) return at::zeros({minlength}, self.options().dtype(at::kLong));
  const Tensor ends = at::stack({self.min(), self.max()}).to(at::kLong).cpu();
  const int64_t least = ends[0].item<int64_t>(), most = ends[1].item<int64_t>();
  TORCH_CHECK(least >= 0, "bincount only supports 1-d non-negative integral inputs.");
  const Tensor ones = weighted ? weights->to(type) : at::ones_like(self, self.options().dtype(type));
  return at::zeros({std::max(most + 1, minlength)}, self.options().dtype(type)).scatter_add(0, self.to(at::kLong), ones);
}

Tensor repeat_interleave(const Tensor &repeats, optional<c10::SymInt> output_size) {
  TORCH_CHECK(repeats.dim() == 1, "repeat_interleave only accept 1D vector as repeat");
  TORCH_CHECK(repeats.scalar_type() == at::kLong || repeats.scalar_type() == at::kInt,
              "repeats has to be Long or Int tensor");
  if (repeats.numel() == 0) return at::empty_like(repeats);
  const Tensor ends = repeats.cumsum(0);
  TORCH_CHECK(output_size || repeats.min().item<int64_t>() >= 0, "repeats can not be negative");
  const int64_t total = output_size ? output_size->guard_int(__FILE__, __LINE__) : ends[-1].item<int64_t>();
  const Tensor places = at::arange(total, ends.options());
  return at::searchsorted(ends, places, /*out_int32=*/false, /*right=*/true).to(repeats.scalar_type());
}

// Reads the condition: an error at the call, not at some later one.
void assert_async_message(const Tensor &condition, std::string_view message) {
  TORCH_CHECK(condition.numel() == 1, "Expected the condition of _assert_async to have one element");
  TORCH_CHECK(condition.is_nonzero(), message);
}

void assert_async(const Tensor &condition) { assert_async_message(condition, "Expected Tensor with single nonzero value, but got zero"); }

}  // namespace

// Boolean indices become the positions of their true elements, as PyTorch's own indexing does.
c10::List<optional<Tensor>> expand_masks(const c10::List<optional<Tensor>> &indices, const Tensor &self) {
  c10::List<optional<Tensor>> out;
  int64_t at = 0;
  for (const optional<Tensor> index : indices) {
    if (!index || !index->defined()) {
      out.push_back(std::nullopt);
      at++;
      continue;
    }
    if (index->scalar_type() != at::kBool && index->scalar_type() != at::kByte) {
      out.push_back(index);
      at++;
      continue;
    }
    for (int64_t j = 0; j < index->dim(); j++)
      TORCH_CHECK_INDEX(at + j < self.dim() && index->size(j) == self.size(at + j), "The shape of the mask ",
                        index->sizes(), " at index ", j, " does not match the shape of the indexed tensor ", self.sizes(),
                        " at index ", at + j);
    const Tensor positions = (index->device().is_cpu() ? index->to(self.device()) : *index).nonzero();
    for (int64_t j = 0; j < index->dim(); j++) out.push_back(positions.select(1, j));
    at += index->dim();
  }
  return out;
}

void register_dynamic() {
  static auto *library = new torch::Library(torch::Library::IMPL, "aten", c10::DispatchKey::PrivateUse1, __FILE__, __LINE__);
  library->impl("nonzero", TORCH_FN(positions_of));
  library->impl("nonzero.out", TORCH_FN(nonzero_out));
  library->impl("masked_select", TORCH_FN(select_masked));
  library->impl("masked_select.out", TORCH_FN(masked_select_out));
  library->impl("equal", TORCH_FN(equal));
  library->impl("_unique2", TORCH_FN(unique2));
  library->impl("_unique", TORCH_FN(unique));
  library->impl("unique_consecutive", TORCH_FN(unique_consecutive));
  library->impl("unique_dim_consecutive", TORCH_FN(unique_rows));
  library->impl("unique_dim", TORCH_FN(unique_dim));
  library->impl("bincount", TORCH_FN(bincount));
  library->impl("repeat_interleave.Tensor", TORCH_FN(repeat_interleave));
  library->impl("_assert_async", TORCH_FN(assert_async));
  library->impl("_assert_async.msg", TORCH_FN(assert_async_message));
}

}  // namespace ttpu
