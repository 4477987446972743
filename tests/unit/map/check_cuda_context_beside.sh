#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Memory of one GPU that others use, on more fake GPUs than a daemon serves.
exec "${top_srcdir:?}/tests/fake/run-fake.sh" -n 18 -s 64m "${top_builddir:?}/tests/unit/map/check_cuda_context_beside"
