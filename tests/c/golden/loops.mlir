module @m {
func.func public @main(%1: tensor<4xf32>, %2: tensor<f32>) -> (tensor<4xf32>, tensor<i32>, tensor<4xf32>, tensor<4xf32>) {
%3 = stablehlo.constant dense<0> : tensor<i32>
%4:2 = "stablehlo.while"(%1, %3) ({
^bb0(%6: tensor<4xf32>, %7: tensor<i32>):
%8 = stablehlo.multiply %6, %6 : tensor<4xf32>
%9 = stablehlo.constant dense<0.0> : tensor<f32>
%10 = stablehlo.reduce(%8 init: %9) applies stablehlo.add across dimensions = [0] : (tensor<4xf32>, tensor<f32>) -> tensor<f32>
%11 = stablehlo.compare GT, %10, %2, FLOAT : (tensor<f32>, tensor<f32>) -> tensor<i1>
"stablehlo.return"(%11) : (tensor<i1>) -> ()
}, {
^bb0(%12: tensor<4xf32>, %13: tensor<i32>):
%15 = stablehlo.constant dense<0.5> : tensor<4xf32>
%16 = stablehlo.multiply %12, %15 : tensor<4xf32>
%17 = stablehlo.constant dense<1> : tensor<i32>
%18 = stablehlo.add %13, %17 : tensor<i32>
"stablehlo.return"(%16, %18) : (tensor<4xf32>, tensor<i32>) -> ()
}) : (tensor<4xf32>, tensor<i32>) -> (tensor<4xf32>, tensor<i32>)
%19 = stablehlo.constant dense<0> : tensor<i64>
%20:2 = "stablehlo.while"(%19, %1) ({
^bb0(%22: tensor<i64>, %23: tensor<4xf32>):
%24 = stablehlo.constant dense<2> : tensor<i64>
%25 = stablehlo.compare LT, %22, %24, SIGNED : (tensor<i64>, tensor<i64>) -> tensor<i1>
"stablehlo.return"(%25) : (tensor<i1>) -> ()
}, {
^bb0(%26: tensor<i64>, %27: tensor<4xf32>):
%28 = stablehlo.constant dense<0> : tensor<i64>
%29:2 = "stablehlo.while"(%28, %27) ({
^bb0(%31: tensor<i64>, %32: tensor<4xf32>):
%33 = stablehlo.constant dense<3> : tensor<i64>
%34 = stablehlo.compare LT, %31, %33, SIGNED : (tensor<i64>, tensor<i64>) -> tensor<i1>
"stablehlo.return"(%34) : (tensor<i1>) -> ()
}, {
^bb0(%35: tensor<i64>, %36: tensor<4xf32>):
%37 = "stablehlo.convert"(%35) : (tensor<i64>) -> tensor<f32>
%38 = "stablehlo.broadcast_in_dim"(%2) {broadcast_dimensions = array<i64>} : (tensor<f32>) -> tensor<4xf32>
%39 = stablehlo.multiply %36, %38 : tensor<4xf32>
%40 = "stablehlo.broadcast_in_dim"(%37) {broadcast_dimensions = array<i64>} : (tensor<f32>) -> tensor<4xf32>
%41 = stablehlo.add %39, %40 : tensor<4xf32>
%42 = stablehlo.constant dense<1> : tensor<i64>
%43 = stablehlo.add %35, %42 : tensor<i64>
"stablehlo.return"(%43, %41) : (tensor<i64>, tensor<4xf32>) -> ()
}) : (tensor<i64>, tensor<4xf32>) -> (tensor<i64>, tensor<4xf32>)
%44 = stablehlo.constant dense<1> : tensor<i64>
%45 = stablehlo.add %26, %44 : tensor<i64>
"stablehlo.return"(%45, %29#1) : (tensor<i64>, tensor<4xf32>) -> ()
}) : (tensor<i64>, tensor<4xf32>) -> (tensor<i64>, tensor<4xf32>)
func.return %4#0, %4#1, %20#1, %1 : tensor<4xf32>, tensor<i32>, tensor<4xf32>, tensor<4xf32>
}
}
