#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Several captures at once on a fake GPU.
exec "${top_srcdir:?}/tests/fake/run-fake.sh" -n 1 -s 64m "${top_builddir:?}/tests/unit/map/check_cuda_capture"
