#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The service on a fake GPU.
GPUMEM_TEST_BACKEND=cuda exec bash "${top_srcdir:?}/tests/integration/systemd.sh"
