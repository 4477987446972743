#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Runs an integration test again on the cuda backend over the fake driver: on-fake.sh PROGRAM [GPUS]. The driver and contexts cost
# nothing here, so that a device's figures are those of the host backend to the byte.
export GPUMEM_TEST_BACKEND=cuda GPUMEM_FAKE_INIT_BYTES=0 GPUMEM_FAKE_CONTEXT_BYTES=0
program=${top_builddir:?}/tests/integration/$1
[ -e "$program" ] || program=${top_srcdir:?}/tests/integration/$1
exec "${top_srcdir:?}/tests/fake/run-fake.sh" -n "${2:-1}" -s 1g "$program"
