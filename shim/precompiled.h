// precompiled.h: PyTorch's headers that most files of the shim include, parsed once: it halves the time of the build.
// No file may rely on it: each includes what it uses.
#pragma once

#include <ATen/Functions.h>
#include <torch/library.h>

#include "shim.h"
