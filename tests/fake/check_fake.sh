#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The fake driver, on two GPUs of its own.
exec "${top_srcdir:?}/tests/fake/run-fake.sh" -n 2 -s 64m "${top_builddir:?}/tests/fake/check_fake"
