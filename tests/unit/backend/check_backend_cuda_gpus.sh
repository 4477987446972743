#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Which GPUs the daemon finds, over fake ones.
exec "${top_srcdir:?}/tests/fake/run-fake.sh" -n 2 "${top_builddir:?}/tests/unit/backend/check_backend_cuda_gpus"
