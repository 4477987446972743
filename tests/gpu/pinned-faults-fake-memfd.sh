#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Pinned host memory from a driver that fails, on two fake GPUs whose driver has none to share: clients register memfds.
export GPUMEM_FAKE_WITHOUT=hostnuma
exec "${top_srcdir:?}/tests/fake/run-fake.sh" -n 2 "${top_builddir:?}/tests/gpu/check_pinned_faults"
