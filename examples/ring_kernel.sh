#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Prints a kernel as PTX, as a string in C, with clang and without the CUDA Toolkit: ring_kernel.sh KERNEL.cu INCLUDE
set -eu
echo '/* SPDX-License-Identifier: Apache-2.0 */'
echo "/* Made from ${1##*/} by ring_kernel.sh. The driver compiles it for its GPU. */"
echo "static const char ring_kernel_text[] ="
"${CLANG:-clang}" -x cuda --cuda-device-only --cuda-gpu-arch=sm_70 -nocudainc -nocudalib -Wno-unknown-cuda-version -O2 -S -o - \
	-D__CUDACC__ -D'__host__=__attribute__((host))' -D'__device__=__attribute__((device))' \
	-D'__global__=__attribute__((global))' -D'__forceinline__=inline __attribute__((always_inline))' -I "$2" "$1" |
	sed -e '/^[[:space:]]*\/\//d' -e '/^$/d' -e 's/[[:space:]]*\/\/.*//' -e 's/\\/\\\\/g' -e 's/"/\\"/g' -e 's/.*/	"&\\n"/' -e '$s/$/;/'
