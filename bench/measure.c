/* SPDX-License-Identifier: Apache-2.0 */
#include "autoconf.h"

/*
 * Percentiles and output for the benchmarks. It prints figures and does not judge: whether a
 * machine is fast enough is for the reader to decide.
 */

#include <stdio.h>
#include <stdlib.h>

#include "bench/measure.h"

static int by_value(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;
	return (x > y) - (x < y);
}

double gm_percentile(double *samples, size_t n, double p)
{
	if (n == 0)
		return 0;
	qsort(samples, n, sizeof(*samples), by_value);
	size_t i = (size_t)(p / 100.0 * (double)(n - 1) + 0.5);
	return samples[i];
}

double gm_median(double *samples, size_t n)
{
	return gm_percentile(samples, n, 50);
}

void gm_print_title(const char *title)
{
	printf("\n%s\n", title);
	fflush(stdout);
}

static void print_ratio(const char *what, double figure, double peer, const char *unit,
	const char *bound, double asked)
{
	printf("  %-44s %10.2f %-3s  peer %10.2f %-3s  ratio %6.2f", what, figure, unit, peer, unit,
		peer > 0 ? figure / peer : 0);
	if (asked >= 0)
		printf("  (asked: at %s %.2f)", bound, asked);
	printf("\n");
	fflush(stdout);
}

void gm_print_ratio(const char *what, double figure, double peer, const char *unit, double asked)
{
	print_ratio(what, figure, peer, unit, "most", asked);
}

void gm_print_speed(const char *what, double figure, double peer, const char *unit, double asked)
{
	print_ratio(what, figure, peer, unit, "least", asked);
}
