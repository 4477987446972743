#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Contexts of a program on two fake GPUs whose driver is older.
exec "${top_srcdir:?}/tests/fake/run-fake.sh" -n 2 -s 256m "${top_builddir:?}/tests/unit/map/check_cuda_context_old"
