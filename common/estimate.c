/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The memory of a model, from its dimensions. Every figure is a sum of products of dimensions. This
 * file promises that no product wraps around: what passes 2^63 is refused, and the largest dimension
 * in it is named, because that is the one that is most likely wrong.
 */
#include "common/estimate.h"

#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>

#include "common/arith.h"

/* No figure may be larger. */
#define ESTIMATE_MOST (UINT64_C(1) << 63)
/* Logits are computed with 32 bits, whatever the weights have. */
#define ESTIMATE_LOGIT_BYTES 4
#define ESTIMATE_UNIT_MOST   16

struct estimate_dimension {
	const char *name; /* NULL: a constant */
	uint64_t value;
};

/* A sum of products. */
struct estimate_sum {
	uint64_t sum;
	bool passed; /* the sum is above 2^63 */
	struct estimate_dimension largest;
};

/* Adds a product of dimensions. The list ends with a value of 0, which no dimension has. */
static void estimate_add(struct estimate_sum *to, const struct estimate_dimension *factors)
{
	uint64_t product = 1;

	for (; factors->value; factors++) {
		if (factors->name && factors->value > to->largest.value)
			to->largest = *factors;
		to->passed |= __builtin_mul_overflow(product, factors->value, &product);
	}
	to->passed |= __builtin_add_overflow(to->sum, product, &to->sum);
	to->passed |= to->sum > ESTIMATE_MOST;
}

#define ESTIMATE_ADD(to, ...) \
	estimate_add(to, (const struct estimate_dimension[]){__VA_ARGS__, {NULL, 0}})

static gpumem_status estimate_refuse(char wrong[GM_ESTIMATE_WRONG], const char *format, ...)
	__attribute__((format(printf, 2, 3)));

static gpumem_status estimate_refuse(char wrong[GM_ESTIMATE_WRONG], const char *format, ...)
{
	va_list list;

	va_start(list, format);
	vsnprintf(wrong, GM_ESTIMATE_WRONG, format, list);
	va_end(list);
	return GPUMEM_E_INVALID;
}

static gpumem_status estimate_refuse_sum(
	const struct estimate_sum *sum, const char *what, char wrong[GM_ESTIMATE_WRONG])
{
	return estimate_refuse(wrong, "%s is %llu: the %s would pass 2^63 bytes", sum->largest.name,
		(unsigned long long)sum->largest.value, what);
}

static gpumem_status estimate_check(const gpumem_model *m, char wrong[GM_ESTIMATE_WRONG])
{
	const struct estimate_dimension needed[] = {
		{"hidden", m->hidden},
		{"intermediate", m->intermediate},
		{"layers", m->layers},
		{"vocab", m->vocab},
		{"heads", m->heads},
		{"kv_heads", m->kv_heads},
		{"context", m->context},
	};

	for (size_t i = 0; i < sizeof(needed) / sizeof(*needed); i++)
		if (needed[i].value == 0)
			return estimate_refuse(wrong, "%s must not be 0", needed[i].name);
	if (m->head_dim == 0 && m->hidden % m->heads != 0)
		return estimate_refuse(wrong,
			"heads is %llu, which does not divide hidden (%llu); set head_dim",
			(unsigned long long)m->heads, (unsigned long long)m->hidden);
	if (m->heads % m->kv_heads != 0)
		return estimate_refuse(wrong,
			"kv_heads is %llu, which does not divide heads (%llu)",
			(unsigned long long)m->kv_heads, (unsigned long long)m->heads);
	/* Written like this, it refuses what is no number, too. */
	if (!(m->bytes_per_weight > 0 && m->bytes_per_weight <= ESTIMATE_UNIT_MOST))
		return estimate_refuse(wrong,
			"bytes_per_weight is %g; it must be more than 0, and at most %d",
			m->bytes_per_weight, ESTIMATE_UNIT_MOST);
	if (m->bytes_per_value > ESTIMATE_UNIT_MOST)
		return estimate_refuse(wrong, "bytes_per_value is %u; it must be at most %d",
			m->bytes_per_value, ESTIMATE_UNIT_MOST);
	return GPUMEM_OK;
}

/* Rounds up. n must be at most 16. */
static uint32_t estimate_ceil(double n)
{
	uint32_t whole = (uint32_t)n;
	return whole + (whole < n);
}

/* The dimensions with their names, and the bytes of a value. */
struct estimate_shape {
	struct estimate_dimension hidden, intermediate, layers, vocab, heads, kv_heads, context;
	struct estimate_dimension head_dim, value;
};

void gm_estimate_fill(gpumem_model *model)
{
	if (!model->head_dim)
		model->head_dim = model->hidden / model->heads;
	if (!model->bytes_per_value)
		model->bytes_per_value =
			(uint32_t)gm_u64_max(2, estimate_ceil(model->bytes_per_weight));
}

static struct estimate_shape estimate_shape_of(const gpumem_model *m)
{
	gpumem_model filled = *m;

	gm_estimate_fill(&filled);
	return (struct estimate_shape){
		.hidden = {"hidden", m->hidden},
		.intermediate = {"intermediate", m->intermediate},
		.layers = {"layers", m->layers},
		.vocab = {"vocab", m->vocab},
		.heads = {"heads", m->heads},
		.kv_heads = {"kv_heads", m->kv_heads},
		.context = {"context", m->context},
		/* A value that follows from others has no name of its own: the others are to blame. */
		.head_dim = {m->head_dim ? "head_dim" : NULL, filled.head_dim},
		.value = {NULL, filled.bytes_per_value},
	};
}

static const struct estimate_dimension two = {NULL, 2}, three = {NULL, 3};

static struct estimate_sum estimate_parameters(const struct estimate_shape *s, bool tied)
{
	struct estimate_sum sum = {0};

	ESTIMATE_ADD(&sum, s->vocab, s->hidden); /* embeddings */
	if (!tied)
		ESTIMATE_ADD(&sum, s->vocab, s->hidden);                      /* the output layer */
	ESTIMATE_ADD(&sum, two, s->layers, s->hidden, s->heads, s->head_dim); /* Q, output */
	ESTIMATE_ADD(&sum, two, s->layers, s->hidden, s->kv_heads, s->head_dim); /* K, V */
	ESTIMATE_ADD(&sum, three, s->layers, s->hidden, s->intermediate);        /* MLP */
	ESTIMATE_ADD(&sum, two, s->layers, s->hidden);                           /* norms */
	ESTIMATE_ADD(&sum, s->hidden);                                           /* the last norm */
	return sum;
}

static struct estimate_sum estimate_kv_cache(const struct estimate_shape *s)
{
	struct estimate_sum sum = {0};

	ESTIMATE_ADD(&sum, two, s->layers, s->context, s->kv_heads, s->head_dim, s->value);
	return sum;
}

static struct estimate_sum estimate_activations(const struct estimate_shape *s)
{
	struct estimate_sum attention = {0}, sum = {0};

	/* Those of attention and those of the MLP are not there at the same time. */
	ESTIMATE_ADD(&attention, two, s->context, s->heads, s->head_dim, s->value);
	ESTIMATE_ADD(&attention, two, s->context, s->kv_heads, s->head_dim, s->value);
	ESTIMATE_ADD(&sum, two, s->context, s->intermediate, s->value);
	if (attention.passed || (!sum.passed && attention.sum > sum.sum))
		sum = attention;

	ESTIMATE_ADD(&sum, two, s->context, s->hidden, s->value);
	ESTIMATE_ADD(&sum, s->vocab, {NULL, ESTIMATE_LOGIT_BYTES});
	return sum;
}

gpumem_status gm_estimate_inference(
	const gpumem_model *model, gpumem_estimate *ret_estimate, char wrong[GM_ESTIMATE_WRONG])
{
	gpumem_status status = estimate_check(model, wrong);
	if (status != GPUMEM_OK)
		return status;

	const struct estimate_shape shape = estimate_shape_of(model);
	struct estimate_sum parameters = estimate_parameters(&shape, model->tied != 0);
	double exact = (double)parameters.sum * model->bytes_per_weight;
	if (parameters.passed || exact >= (double)ESTIMATE_MOST)
		return estimate_refuse_sum(&parameters, "weights", wrong);

	struct estimate_sum kv_cache = estimate_kv_cache(&shape);
	if (kv_cache.passed)
		return estimate_refuse_sum(&kv_cache, "KV cache", wrong);

	struct estimate_sum activations = estimate_activations(&shape);
	if (activations.passed)
		return estimate_refuse_sum(&activations, "activations", wrong);

	uint64_t weights = (uint64_t)exact;
	weights += (double)weights < exact;
	/* Each is at most 2^63. The largest dimension of any may be the wrong one. */
	struct estimate_sum total = parameters;
	total.sum = weights;
	ESTIMATE_ADD(&total, {NULL, kv_cache.sum});
	if (kv_cache.largest.value > total.largest.value)
		total.largest = kv_cache.largest;
	ESTIMATE_ADD(&total, {NULL, activations.sum});
	if (total.passed)
		return estimate_refuse_sum(&total, "total", wrong);

	ret_estimate->parameters = parameters.sum;
	ret_estimate->weights = weights;
	ret_estimate->kv_cache = kv_cache.sum;
	ret_estimate->activations = activations.sum;
	ret_estimate->total = total.sum;
	return GPUMEM_OK;
}
