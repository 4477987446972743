#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
exec "${top_srcdir:?}/tests/integration/on-fake.sh" check_client_listing
