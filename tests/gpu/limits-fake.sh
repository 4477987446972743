#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Limits, waiting and foreign use on the fake driver.
exec "${top_srcdir:?}/tests/fake/run-fake.sh" "${top_builddir:?}/tests/gpu/check_limits"
