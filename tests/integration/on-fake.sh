#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Runs an integration test again on the cuda backend over the fake driver: on-fake.sh PROGRAM. The driver and contexts cost nothing
# here, so that a device's figures are those of the host backend to the byte.
export GPUMEM_TEST_BACKEND=cuda GPUMEM_FAKE_INIT_BYTES=0 GPUMEM_FAKE_CONTEXT_BYTES=0
exec "${top_srcdir:?}/tests/fake/run-fake.sh" -s 1g "${top_builddir:?}/tests/integration/$1"
