module @m {
func.func public @main() -> (tensor<complex<f32>>, tensor<complex<f64>>, tensor<2x3xf32>, tensor<0x3xi1>, tensor<ui64>, tensor<ui8>, tensor<i64>) {
%1 = stablehlo.constant dense<(0.1, 0x7F800000)> : tensor<complex<f32>>
%2 = stablehlo.constant dense<(-0.0, 0x7FF8000000000000)> : tensor<complex<f64>>
%3 = stablehlo.constant dense<0.1> : tensor<2x3xf32>
%4 = stablehlo.constant dense<true> : tensor<0x3xi1>
%5 = stablehlo.constant dense<9223372036854775808> : tensor<ui64>
%6 = stablehlo.constant dense<255> : tensor<ui8>
%7 = stablehlo.constant dense<9223372036854775807> : tensor<i64>
func.return %1, %2, %3, %4, %5, %6, %7 : tensor<complex<f32>>, tensor<complex<f64>>, tensor<2x3xf32>, tensor<0x3xi1>, tensor<ui64>, tensor<ui8>, tensor<i64>
}
}
