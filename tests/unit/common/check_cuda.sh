#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# How the driver and NVML are found, on two fake GPUs.
exec "${top_srcdir:?}/tests/fake/run-fake.sh" -n 2 "${top_builddir:?}/tests/unit/common/check_cuda"
