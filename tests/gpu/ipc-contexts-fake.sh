#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The ipc transport in several contexts of a program on the fake driver.
exec "${top_srcdir:?}/tests/fake/run-fake.sh" "${top_builddir:?}/tests/gpu/check_ipc_contexts"
