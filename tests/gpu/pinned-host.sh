#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Pinned host memory where there is no GPU.
GPUMEM_TEST_BACKEND=host exec "${top_builddir:?}/tests/gpu/check_pinned"
