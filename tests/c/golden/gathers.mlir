module @m {
func.func public @main(%1: tensor<3x4x5xf32>, %2: tensor<2x4x6xi64>, %3: tensor<7xi64>, %4: tensor<6x2xi32>) -> (tensor<2x4x6xf32>, tensor<3x7x5xf32>, tensor<6x5xf32>) {
%5 = "stablehlo.slice"(%1) {start_indices = array<i64: 0, 0, 0>, limit_indices = array<i64: 2, 4, 5>, strides = array<i64: 1, 1, 1>} : (tensor<3x4x5xf32>) -> tensor<2x4x5xf32>
%6 = "stablehlo.reshape"(%2) : (tensor<2x4x6xi64>) -> tensor<2x4x6x1xi64>
%7 = "stablehlo.gather"(%5, %6) {dimension_numbers = #stablehlo.gather<collapsed_slice_dims = [2], operand_batching_dims = [0, 1], start_indices_batching_dims = [0, 1], start_index_map = [2], index_vector_dim = 3>, indices_are_sorted = false, slice_sizes = array<i64: 1, 1, 1>} : (tensor<2x4x5xf32>, tensor<2x4x6x1xi64>) -> tensor<2x4x6xf32>
%8 = "stablehlo.reshape"(%3) : (tensor<7xi64>) -> tensor<7x1xi64>
%9 = "stablehlo.gather"(%1, %8) {dimension_numbers = #stablehlo.gather<offset_dims = [0, 2], collapsed_slice_dims = [1], start_index_map = [1], index_vector_dim = 1>, indices_are_sorted = false, slice_sizes = array<i64: 3, 1, 5>} : (tensor<3x4x5xf32>, tensor<7x1xi64>) -> tensor<3x7x5xf32>
%10 = "stablehlo.gather"(%1, %4) {dimension_numbers = #stablehlo.gather<offset_dims = [1], collapsed_slice_dims = [0, 1], start_index_map = [0, 1], index_vector_dim = 1>, indices_are_sorted = false, slice_sizes = array<i64: 1, 1, 5>} : (tensor<3x4x5xf32>, tensor<6x2xi32>) -> tensor<6x5xf32>
func.return %7, %9, %10 : tensor<2x4x6xf32>, tensor<3x7x5xf32>, tensor<6x5xf32>
}
}
