#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The client's half of the cuda backend on two fake GPUs.
exec "${top_srcdir:?}/tests/fake/run-fake.sh" -n 2 -s 64m "${top_builddir:?}/tests/unit/map/check_map_cuda"
