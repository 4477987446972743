/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GM_BENCH_MEASURE_H
#define GM_BENCH_MEASURE_H

#include <stddef.h>
#include <stdint.h>

/* What the benchmarks share: percentiles, and one way to print a figure. */

/* Sorts the samples. 0 <= p <= 100. */
double gm_percentile(double *samples, size_t n, double p);
double gm_median(double *samples, size_t n);

/* Prints one line: what was measured, the figure, its peer from the same run, their ratio, and the
 * goal, unless asked is negative. */
void gm_print_ratio(const char *what, double figure, double peer, const char *unit, double asked);
/* The same for a figure that is better the larger it is. */
void gm_print_speed(const char *what, double figure, double peer, const char *unit, double asked);
void gm_print_title(const char *title);

#endif
