#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Pinned host memory of the daemon's, over fake GPUs.
exec "${top_srcdir:?}/tests/fake/run-fake.sh" -n 2 "${top_builddir:?}/tests/unit/backend/check_backend_pinned"
