module @m {
func.func public @main(%1: tensor<2x3x4xf32>, %2: tensor<3xf32>) -> (tensor<4x6xf32>, tensor<24xf32>, tensor<3xf32>, tensor<2x3x4x1xf32>, tensor<4x2x3xf32>, tensor<4x3x2xf32>, tensor<2x4x3xf32>, tensor<3x2xf32>, tensor<2x3x4xf32>, tensor<2x2x2xf32>, tensor<2x3x2xf32>, tensor<2x6x4xf32>, tensor<7xf32>, tensor<2x5x4xf32>, tensor<2x3x4xf32>, tensor<2x3x4xf32>) {
%3 = "stablehlo.reshape"(%1) : (tensor<2x3x4xf32>) -> tensor<4x6xf32>
%4 = "stablehlo.reshape"(%1) : (tensor<2x3x4xf32>) -> tensor<24xf32>
%5 = "stablehlo.reshape"(%2) : (tensor<3xf32>) -> tensor<1x3xf32>
%6 = "stablehlo.reshape"(%5) : (tensor<1x3xf32>) -> tensor<3xf32>
%7 = "stablehlo.reshape"(%1) : (tensor<2x3x4xf32>) -> tensor<2x3x4x1xf32>
%8 = "stablehlo.transpose"(%1) {permutation = array<i64: 2, 0, 1>} : (tensor<2x3x4xf32>) -> tensor<4x2x3xf32>
%9 = "stablehlo.transpose"(%1) {permutation = array<i64: 2, 1, 0>} : (tensor<2x3x4xf32>) -> tensor<4x3x2xf32>
%10 = "stablehlo.broadcast_in_dim"(%2) {broadcast_dimensions = array<i64: 2>} : (tensor<3xf32>) -> tensor<2x4x3xf32>
%11 = "stablehlo.broadcast_in_dim"(%2) {broadcast_dimensions = array<i64: 0>} : (tensor<3xf32>) -> tensor<3x2xf32>
%12 = "stablehlo.broadcast_in_dim"(%2) {broadcast_dimensions = array<i64: 1>} : (tensor<3xf32>) -> tensor<2x3x4xf32>
%13 = "stablehlo.slice"(%1) {start_indices = array<i64: 0, 1, 0>, limit_indices = array<i64: 2, 3, 4>, strides = array<i64: 1, 1, 2>} : (tensor<2x3x4xf32>) -> tensor<2x2x2xf32>
%14 = "stablehlo.slice"(%1) {start_indices = array<i64: 0, 0, 1>, limit_indices = array<i64: 2, 3, 4>, strides = array<i64: 1, 1, 2>} : (tensor<2x3x4xf32>) -> tensor<2x3x2xf32>
%15 = "stablehlo.concatenate"(%1, %1) {dimension = 1 : i64} : (tensor<2x3x4xf32>, tensor<2x3x4xf32>) -> tensor<2x6x4xf32>
%16 = stablehlo.constant dense<9.0> : tensor<f32>
%17 = "stablehlo.pad"(%2, %16) {edge_padding_low = array<i64: 1>, edge_padding_high = array<i64: -1>, interior_padding = array<i64: 2>} : (tensor<3xf32>, tensor<f32>) -> tensor<7xf32>
%18 = stablehlo.constant dense<-1.0> : tensor<f32>
%19 = "stablehlo.pad"(%1, %18) {edge_padding_low = array<i64: 0, 0, 0>, edge_padding_high = array<i64: 0, 2, 0>, interior_padding = array<i64: 0, 0, 0>} : (tensor<2x3x4xf32>, tensor<f32>) -> tensor<2x5x4xf32>
%20 = "stablehlo.reverse"(%1) {dimensions = array<i64: 0, 2>} : (tensor<2x3x4xf32>) -> tensor<2x3x4xf32>
%22 = stablehlo.constant dense<2.0> : tensor<2x3x4xf32>
func.return %3, %4, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %17, %19, %20, %22 : tensor<4x6xf32>, tensor<24xf32>, tensor<3xf32>, tensor<2x3x4x1xf32>, tensor<4x2x3xf32>, tensor<4x3x2xf32>, tensor<2x4x3xf32>, tensor<3x2xf32>, tensor<2x3x4xf32>, tensor<2x2x2xf32>, tensor<2x3x2xf32>, tensor<2x6x4xf32>, tensor<7xf32>, tensor<2x5x4xf32>, tensor<2x3x4xf32>, tensor<2x3x4xf32>
}
}
