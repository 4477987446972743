/* SPDX-License-Identifier: Apache-2.0 */
#include "autoconf.h"

/* How buffers grow by their policies, what is refused, and what others see of it. */

#include <stdlib.h>
#include <string.h>

#include "tests/integration/raw.h"
#include "tests/integration/resize_fixture.h"
#include "tests/tap.h"

START_TEST(a_policy_says_how_a_buffer_grows)
{
	gpumem_buffer *buffer = create(10 * MIB, 512 * MIB);
	gpumem_buffer_policy policy = GPUMEM_BUFFER_POLICY_INIT;
	int moved = 7;
	OK(gpumem_buffer_ensure(buffer, 10 * MIB, NULL, &moved));
	GM_REQUIRE_EQ(moved, 0);
	GM_REQUIRE_EQ(gpumem_buffer_size(buffer), 10 * MIB);
	OK(gpumem_buffer_ensure(buffer, 12 * MIB, NULL, NULL));
	GM_REQUIRE_EQ(gpumem_buffer_size(buffer), 12 * MIB);

	policy.factor = 1.5;
	OK(gpumem_buffer_set_policy(buffer, &policy));
	OK(gpumem_buffer_ensure(buffer, 13 * MIB, NULL, NULL));
	GM_REQUIRE_EQ(gpumem_buffer_size(buffer) / MIB, 17);
	OK(gpumem_buffer_ensure(buffer, 40 * MIB, NULL, NULL));
	GM_REQUIRE_EQ(gpumem_buffer_size(buffer), 40 * MIB);
	OK(gpumem_buffer_ensure(buffer, 30 * MIB, NULL, NULL));
	GM_REQUIRE_EQ(gpumem_buffer_size(buffer), 40 * MIB);

	policy.factor = 0;
	policy.step = 15 * MIB; /* counts as 16 */
	policy.ceiling = 100 * MIB;
	OK(gpumem_buffer_set_policy(buffer, &policy));
	OK(gpumem_buffer_ensure(buffer, 41 * MIB, NULL, NULL));
	GM_REQUIRE_EQ(gpumem_buffer_size(buffer), 56 * MIB);
	OK(gpumem_buffer_ensure(buffer, 90 * MIB, NULL, NULL));
	GM_REQUIRE_EQ(gpumem_buffer_size(buffer), 100 * MIB);
	struct was was = now(buffer);
	GM_REQUIRE_EQ(gpumem_buffer_ensure(buffer, 100 * MIB + 1, NULL, NULL), GPUMEM_E_LIMIT);
	GM_REQUIRE(strstr(gpumem_error_detail(), "ceiling of 104857600"));
	require_as(buffer, &was);

	/* The policy alone does not move it, and asks for no more than there is. */
	policy = (gpumem_buffer_policy)GPUMEM_BUFFER_POLICY_INIT;
	policy.factor = 50;
	OK(gpumem_buffer_set_policy(buffer, &policy));
	OK(gpumem_buffer_ensure(buffer, 101 * MIB, NULL, &moved));
	GM_REQUIRE_EQ(moved, 0);
	GM_REQUIRE_EQ(gpumem_buffer_size(buffer), 512 * MIB);
	gpumem_buffer_destroy(buffer);
	OK(gpumem_trim(session, NULL));
	buffer = create(10 * MIB, 2048 * MIB);
	OK(gpumem_buffer_set_policy(buffer, &policy));
	OK(gpumem_buffer_ensure(buffer, 11 * MIB, NULL, NULL));
	GM_REQUIRE_EQ(gpumem_buffer_size(buffer) / MIB, 499);
	OK(gpumem_buffer_ensure(buffer, 500 * MIB, NULL, NULL));
	GM_REQUIRE_EQ(gpumem_buffer_size(buffer), 500 * MIB);
	GM_REQUIRE_EQ(gpumem_buffer_ensure(buffer, SIZE_MAX, NULL, NULL), GPUMEM_E_INVALID);
	OK(gpumem_buffer_set_policy(buffer, NULL));
	gpumem_buffer_destroy(buffer);
}
END_TEST

START_TEST(policies_that_make_no_sense_are_refused)
{
	gpumem_buffer *buffer = create(2 * MIB, 0);
	gpumem_buffer_policy policy = GPUMEM_BUFFER_POLICY_INIT;
	static const double factors[] = {0.5, -1, 101, 1e300, -1e300};
	for (size_t i = 0; i < sizeof(factors) / sizeof(*factors) + 1; i++) {
		policy.factor = i ? factors[i - 1] : strtod("nan", NULL);
		GM_REQUIRE_EQ(gpumem_buffer_set_policy(buffer, &policy), GPUMEM_E_INVALID);
		GM_REQUIRE(strstr(gpumem_error_detail(), "factor"));
	}
	policy.factor = 1;
	policy.step = SIZE_MAX;
	GM_REQUIRE_EQ(gpumem_buffer_set_policy(buffer, &policy), GPUMEM_E_INVALID);
	GM_REQUIRE(strstr(gpumem_error_detail(), "step"));
	policy.step = 0;
	policy.ceiling = SIZE_MAX;
	GM_REQUIRE_EQ(gpumem_buffer_set_policy(buffer, &policy), GPUMEM_E_INVALID);
	GM_REQUIRE(strstr(gpumem_error_detail(), "ceiling"));
	policy.ceiling = 0;
	policy.size = 0;
	GM_REQUIRE_EQ(gpumem_buffer_set_policy(buffer, &policy), GPUMEM_E_INVALID);
	GM_REQUIRE_EQ(gpumem_buffer_set_policy(NULL, NULL), GPUMEM_E_INVALID);
	GM_REQUIRE_EQ(gpumem_buffer_ensure(NULL, 1, NULL, NULL), GPUMEM_E_INVALID);
	GM_REQUIRE_EQ(gpumem_buffer_report_use(NULL, 1), GPUMEM_E_INVALID);
	GM_REQUIRE_EQ(gpumem_buffer_report_use(buffer, 2 * MIB + 1), GPUMEM_E_INVALID);
	GM_REQUIRE(strstr(gpumem_error_detail(), "used"));
	gpumem_buffer_destroy(buffer);
}
END_TEST

/* The one row that gpumemctl buffers would show. The caller closes raw. */
static const Gm__Wire__Buffer *listed(struct gm_raw *raw)
{
	Gm__Wire__GetBuffers get = GM__WIRE__GET_BUFFERS__INIT;
	size_t rows = 0;

	gm_raw_observe(raw, &daemon_);
	gm_raw_send(raw, GM_RAW_PACKET(GET_BUFFERS, get_buffers, &get));
	do {
		GM_REQUIRE(gm_raw_receive(raw));
		rows += raw->packet->buffers->n_buffers;
	} while (raw->packet->more);
	GM_REQUIRE_EQ(rows, 1);

	gm_raw_send(raw, GM_RAW_PACKET(GET_BUFFERS, get_buffers, &get));
	GM_REQUIRE(gm_raw_receive(raw));
	GM_REQUIRE_EQ(raw->packet->buffers->n_buffers, 1);
	return raw->packet->buffers->buffers[0];
}

START_TEST(others_see_how_a_buffer_grows_and_how_full_it_is)
{
	struct gm_raw raw;
	gpumem_buffer_options options = GPUMEM_BUFFER_OPTIONS_INIT;
	options.max_size = 64 * MIB;
	options.tag = "growing";
	options.type = "kv-cache";
	options.precision = "bfloat16";
	gpumem_buffer *buffer = create_with(1000, options);
	gpumem_buffer_policy policy = {sizeof(policy), 1.25, 4 * MIB, 48 * MIB};
	/* It is too small to be listed, until it grows. */
	OK(gpumem_buffer_set_policy(buffer, &policy));
	OK(gpumem_buffer_report_use(buffer, 900));
	OK(gpumem_buffer_resize(buffer, 8 * MIB, NULL, NULL));
	const Gm__Wire__Buffer *row = listed(&raw);
	GM_REQUIRE_EQ(row->bytes, 8 * MIB);
	GM_REQUIRE(strcmp(row->tag, "growing") == 0);
	GM_REQUIRE(strcmp(row->type, "kv-cache") == 0);
	GM_REQUIRE(strcmp(row->precision, "bfloat16") == 0);
	GM_REQUIRE_EQ(row->max_bytes, 64 * MIB);
	GM_REQUIRE(row->use_known);
	GM_REQUIRE_EQ(row->used_bytes, 900);
	GM_REQUIRE(row->growth != NULL);
	GM_REQUIRE_EQ(row->growth->percent, 125);
	GM_REQUIRE_EQ(row->growth->step, 4 * MIB);
	GM_REQUIRE_EQ(row->growth->ceiling, 48 * MIB);
	gm_raw_close(&raw);

	/* The use cannot be more than there is. */
	OK(gpumem_buffer_report_use(buffer, 7 * MIB));
	OK(gpumem_buffer_resize(buffer, 6 * MIB, NULL, NULL));
	OK(gpumem_buffer_set_policy(buffer, NULL));
	OK(gpumem_buffer_set_tag(buffer, "renamed"));
	row = listed(&raw);
	GM_REQUIRE_EQ(row->bytes, 6 * MIB);
	GM_REQUIRE_EQ(row->used_bytes, 6 * MIB);
	GM_REQUIRE(!row->growth);
	GM_REQUIRE(strcmp(row->tag, "renamed") == 0);
	gm_raw_close(&raw);
	gpumem_buffer_destroy(buffer);

	buffer = create(2 * MIB, 0);
	row = listed(&raw);
	GM_REQUIRE_EQ(row->max_bytes, 0);
	GM_REQUIRE(!row->use_known && !row->growth);
	gm_raw_close(&raw);
	gpumem_buffer_destroy(buffer);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("client resize policy");
	TCase *tc = tcase_create("policy");
	tcase_add_checked_fixture(tc, set_up, tear_down);
	tcase_set_timeout(tc, 180);
	tcase_add_test(tc, a_policy_says_how_a_buffer_grows);
	tcase_add_test(tc, policies_that_make_no_sense_are_refused);
	tcase_add_test(tc, others_see_how_a_buffer_grows_and_how_full_it_is);
	suite_add_tcase(suite, tc);
	return gm_tap_run(suite);
}
