#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# What goes wrong with GPUs, on two fake ones that cost nothing themselves.
export GPUMEM_TEST_BACKEND=cuda GPUMEM_FAKE_INIT_BYTES=0 GPUMEM_FAKE_CONTEXT_BYTES=0
exec "${top_srcdir:?}/tests/fake/run-fake.sh" -n 2 -s 256m "${top_builddir:?}/tests/gpu/check_faults"
