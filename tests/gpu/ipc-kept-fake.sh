#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Old handles of the ipc transport on the fake driver, on two devices.
exec "${top_srcdir:?}/tests/fake/run-fake.sh" -n 2 "${top_builddir:?}/tests/gpu/check_ipc_kept"
