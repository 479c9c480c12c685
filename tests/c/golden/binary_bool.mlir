module @m {
func.func public @main(%1: tensor<2x1x3xi1>, %2: tensor<4x1xi1>) -> (tensor<2x4x3xi1>, tensor<2x4x3xi1>, tensor<2x4x3xi1>, tensor<2x4x3xi1>, tensor<2x4x3xi1>, tensor<2x4x3xi1>, tensor<2x4x3xi1>) {
%3 = "stablehlo.broadcast_in_dim"(%1) {broadcast_dimensions = array<i64: 0, 1, 2>} : (tensor<2x1x3xi1>) -> tensor<2x4x3xi1>
%4 = "stablehlo.broadcast_in_dim"(%2) {broadcast_dimensions = array<i64: 1, 2>} : (tensor<4x1xi1>) -> tensor<2x4x3xi1>
%5 = stablehlo.or %3, %4 : tensor<2x4x3xi1>
%6 = "stablehlo.broadcast_in_dim"(%1) {broadcast_dimensions = array<i64: 0, 1, 2>} : (tensor<2x1x3xi1>) -> tensor<2x4x3xi1>
%7 = "stablehlo.broadcast_in_dim"(%2) {broadcast_dimensions = array<i64: 1, 2>} : (tensor<4x1xi1>) -> tensor<2x4x3xi1>
%8 = stablehlo.and %6, %7 : tensor<2x4x3xi1>
%9 = "stablehlo.broadcast_in_dim"(%1) {broadcast_dimensions = array<i64: 0, 1, 2>} : (tensor<2x1x3xi1>) -> tensor<2x4x3xi1>
%10 = "stablehlo.broadcast_in_dim"(%2) {broadcast_dimensions = array<i64: 1, 2>} : (tensor<4x1xi1>) -> tensor<2x4x3xi1>
%11 = stablehlo.or %9, %10 : tensor<2x4x3xi1>
%12 = "stablehlo.broadcast_in_dim"(%1) {broadcast_dimensions = array<i64: 0, 1, 2>} : (tensor<2x1x3xi1>) -> tensor<2x4x3xi1>
%13 = "stablehlo.broadcast_in_dim"(%2) {broadcast_dimensions = array<i64: 1, 2>} : (tensor<4x1xi1>) -> tensor<2x4x3xi1>
%14 = stablehlo.and %12, %13 : tensor<2x4x3xi1>
%15 = "stablehlo.broadcast_in_dim"(%1) {broadcast_dimensions = array<i64: 0, 1, 2>} : (tensor<2x1x3xi1>) -> tensor<2x4x3xi1>
%16 = "stablehlo.broadcast_in_dim"(%2) {broadcast_dimensions = array<i64: 1, 2>} : (tensor<4x1xi1>) -> tensor<2x4x3xi1>
%17 = stablehlo.and %15, %16 : tensor<2x4x3xi1>
%18 = "stablehlo.broadcast_in_dim"(%1) {broadcast_dimensions = array<i64: 0, 1, 2>} : (tensor<2x1x3xi1>) -> tensor<2x4x3xi1>
%19 = "stablehlo.broadcast_in_dim"(%2) {broadcast_dimensions = array<i64: 1, 2>} : (tensor<4x1xi1>) -> tensor<2x4x3xi1>
%20 = stablehlo.or %18, %19 : tensor<2x4x3xi1>
%21 = "stablehlo.broadcast_in_dim"(%1) {broadcast_dimensions = array<i64: 0, 1, 2>} : (tensor<2x1x3xi1>) -> tensor<2x4x3xi1>
%22 = "stablehlo.broadcast_in_dim"(%2) {broadcast_dimensions = array<i64: 1, 2>} : (tensor<4x1xi1>) -> tensor<2x4x3xi1>
%23 = stablehlo.xor %21, %22 : tensor<2x4x3xi1>
func.return %5, %8, %11, %14, %17, %20, %23 : tensor<2x4x3xi1>, tensor<2x4x3xi1>, tensor<2x4x3xi1>, tensor<2x4x3xi1>, tensor<2x4x3xi1>, tensor<2x4x3xi1>, tensor<2x4x3xi1>
}
}
