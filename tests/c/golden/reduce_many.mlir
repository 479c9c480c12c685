module @m {
func.func public @main(%1: tensor<3x5xf32>) -> (tensor<3xf32>, tensor<3xi64>) {
%3 = stablehlo.constant dense<0.0> : tensor<3x5xf32>
%4 = stablehlo.add %1, %3 : tensor<3x5xf32>
%5 = "stablehlo.iota"() {iota_dimension = 1 : i64} : () -> tensor<3x5xi64>
%6 = stablehlo.constant dense<0xFF800000> : tensor<f32>
%7 = stablehlo.constant dense<0> : tensor<i64>
%8:2 = "stablehlo.reduce"(%4, %5, %6, %7) ({
^bb0(%10: tensor<f32>, %11: tensor<i64>, %12: tensor<f32>, %13: tensor<i64>):
%14 = stablehlo.constant dense<0.0> : tensor<f32>
%15 = stablehlo.add %12, %14 : tensor<f32>
%16 = stablehlo.compare GT, %15, %10, FLOAT : (tensor<f32>, tensor<f32>) -> tensor<i1>
%17 = "stablehlo.select"(%16, %12, %10) : (tensor<i1>, tensor<f32>, tensor<f32>) -> tensor<f32>
%18 = "stablehlo.select"(%16, %13, %11) : (tensor<i1>, tensor<i64>, tensor<i64>) -> tensor<i64>
"stablehlo.return"(%17, %18) : (tensor<f32>, tensor<i64>) -> ()
}) {dimensions = array<i64: 1>} : (tensor<3x5xf32>, tensor<3x5xi64>, tensor<f32>, tensor<i64>) -> (tensor<3xf32>, tensor<3xi64>)
func.return %8#0, %8#1 : tensor<3xf32>, tensor<3xi64>
}
}
