#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Pinned host memory in a client, on two fake GPUs.
exec "${top_srcdir:?}/tests/fake/run-fake.sh" -n 2 -s 64m "${top_builddir:?}/tests/unit/map/check_map_pinned"
