#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# A program outside the broker that eats the GPU, a fake one.
exec "${top_srcdir:?}/tests/integration/on-fake.sh" check_eaten
