#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Clients that leave while the GPU is at work, on a fake one.
exec "${top_srcdir:?}/tests/fake/run-fake.sh" "${top_builddir:?}/tests/gpu/check_leave"
