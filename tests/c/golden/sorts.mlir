module @m {
func.func public @main(%1: tensor<3x6xf32>) -> (tensor<3x6xf32>, tensor<3x6xi64>, tensor<3x6xf32>, tensor<3x2xf32>, tensor<3x2xi32>) {
%2 = stablehlo.log %1 : tensor<3x6xf32>
%3 = "stablehlo.iota"() {iota_dimension = 1 : i64} : () -> tensor<3x6xi64>
%4:2 = "stablehlo.sort"(%2, %3) ({
^bb0(%6: tensor<f32>, %7: tensor<f32>, %8: tensor<i64>, %9: tensor<i64>):
%10 = stablehlo.compare NE, %6, %6, FLOAT : (tensor<f32>, tensor<f32>) -> tensor<i1>
%11 = stablehlo.compare NE, %7, %7, FLOAT : (tensor<f32>, tensor<f32>) -> tensor<i1>
%12 = stablehlo.compare LT, %6, %7, FLOAT : (tensor<f32>, tensor<f32>) -> tensor<i1>
%13 = stablehlo.not %10 : tensor<i1>
%14 = stablehlo.and %13, %11 : tensor<i1>
%15 = stablehlo.or %12, %14 : tensor<i1>
"stablehlo.return"(%15) : (tensor<i1>) -> ()
}) {dimension = 1 : i64, is_stable = true} : (tensor<3x6xf32>, tensor<3x6xi64>) -> (tensor<3x6xf32>, tensor<3x6xi64>)
%16 = "stablehlo.sort"(%2) ({
^bb0(%17: tensor<f32>, %18: tensor<f32>):
%19 = stablehlo.compare NE, %18, %18, FLOAT : (tensor<f32>, tensor<f32>) -> tensor<i1>
%20 = stablehlo.compare NE, %17, %17, FLOAT : (tensor<f32>, tensor<f32>) -> tensor<i1>
%21 = stablehlo.compare LT, %18, %17, FLOAT : (tensor<f32>, tensor<f32>) -> tensor<i1>
%22 = stablehlo.not %19 : tensor<i1>
%23 = stablehlo.and %22, %20 : tensor<i1>
%24 = stablehlo.or %21, %23 : tensor<i1>
"stablehlo.return"(%24) : (tensor<i1>) -> ()
}) {dimension = 0 : i64, is_stable = false} : (tensor<3x6xf32>) -> tensor<3x6xf32>
%25:2 = "chlo.top_k"(%1) {k = 2 : i64} : (tensor<3x6xf32>) -> (tensor<3x2xf32>, tensor<3x2xi32>)
func.return %4#0, %4#1, %16, %25#0, %25#1 : tensor<3x6xf32>, tensor<3x6xi64>, tensor<3x6xf32>, tensor<3x2xf32>, tensor<3x2xi32>
}
}
