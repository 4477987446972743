#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Memory that did not come from the broker, on two fake GPUs.
exec "${top_srcdir:?}/tests/fake/run-fake.sh" -n 2 "${top_builddir:?}/tests/integration/check_foreign"
