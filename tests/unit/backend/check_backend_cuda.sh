#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The daemon's cuda backend on two fake GPUs.
exec "${top_srcdir:?}/tests/fake/run-fake.sh" -n 2 "${top_builddir:?}/tests/unit/backend/check_backend_cuda"
