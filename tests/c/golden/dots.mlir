module @m {
func.func public @main(%1: tensor<2x3x4xf32>, %2: tensor<2x4x5xf32>) -> (tensor<2x3x5xf32>, tensor<3x5xf32>, tensor<2x3x4x2x4x5xf32>, tensor<2x3x3xf32>, tensor<2x3x3xi32>) {
%3 = "stablehlo.convert"(%1) : (tensor<2x3x4xf32>) -> tensor<2x3x4xbf16>
%4 = "stablehlo.convert"(%1) : (tensor<2x3x4xf32>) -> tensor<2x3x4xi32>
%5 = "stablehlo.convert"(%4) : (tensor<2x3x4xi32>) -> tensor<2x3x4xi8>
%6 = "stablehlo.dot_general"(%1, %2) {dot_dimension_numbers = #stablehlo.dot<lhs_batching_dimensions = [0], rhs_batching_dimensions = [0], lhs_contracting_dimensions = [2], rhs_contracting_dimensions = [1]>, precision_config = [#stablehlo<precision DEFAULT>, #stablehlo<precision DEFAULT>]} : (tensor<2x3x4xf32>, tensor<2x4x5xf32>) -> tensor<2x3x5xf32>
%7 = "stablehlo.dot_general"(%1, %2) {dot_dimension_numbers = #stablehlo.dot<lhs_contracting_dimensions = [0, 2], rhs_contracting_dimensions = [0, 1]>, precision_config = [#stablehlo<precision HIGHEST>, #stablehlo<precision HIGHEST>]} : (tensor<2x3x4xf32>, tensor<2x4x5xf32>) -> tensor<3x5xf32>
%8 = "stablehlo.dot_general"(%1, %2) {dot_dimension_numbers = #stablehlo.dot<>, precision_config = [#stablehlo<precision HIGHEST>, #stablehlo<precision HIGHEST>]} : (tensor<2x3x4xf32>, tensor<2x4x5xf32>) -> tensor<2x3x4x2x4x5xf32>
%9 = "stablehlo.dot_general"(%3, %3) {dot_dimension_numbers = #stablehlo.dot<lhs_batching_dimensions = [0], rhs_batching_dimensions = [0], lhs_contracting_dimensions = [2], rhs_contracting_dimensions = [2]>, precision_config = [#stablehlo<precision HIGHEST>, #stablehlo<precision HIGHEST>]} : (tensor<2x3x4xbf16>, tensor<2x3x4xbf16>) -> tensor<2x3x3xf32>
%10 = "stablehlo.dot_general"(%5, %5) {dot_dimension_numbers = #stablehlo.dot<lhs_batching_dimensions = [0], rhs_batching_dimensions = [0], lhs_contracting_dimensions = [2], rhs_contracting_dimensions = [2]>, precision_config = [#stablehlo<precision HIGHEST>, #stablehlo<precision HIGHEST>]} : (tensor<2x3x4xi8>, tensor<2x3x4xi8>) -> tensor<2x3x3xi32>
func.return %6, %7, %8, %9, %10 : tensor<2x3x5xf32>, tensor<3x5xf32>, tensor<2x3x4x2x4x5xf32>, tensor<2x3x3xf32>, tensor<2x3x3xi32>
}
}
