module @m {
func.func public @main(%1: tensor<2xui64>) -> (tensor<1000xui32>, tensor<10x50xui64>) {
%2:2 = "stablehlo.rng_bit_generator"(%1) {rng_algorithm = #stablehlo<rng_algorithm PHILOX>} : (tensor<2xui64>) -> (tensor<2xui64>, tensor<1000xui32>)
%4:2 = "stablehlo.rng_bit_generator"(%1) {rng_algorithm = #stablehlo<rng_algorithm PHILOX>} : (tensor<2xui64>) -> (tensor<2xui64>, tensor<10x50xui64>)
func.return %2#1, %4#1 : tensor<1000xui32>, tensor<10x50xui64>
}
}
