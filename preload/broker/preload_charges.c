/* SPDX-License-Identifier: Apache-2.0 */
#include "preload/broker/preload_charges.h"

#include <stdatomic.h>
#include <stdlib.h>

#include "preload/broker/preload_broker.h"
#include "common/lock.h"

struct gm_preload_charges_list {
	struct gm_preload_charge charge;
	uint64_t key;
	struct gm_preload_charges_list *next;
};

#define CHARGES_PLACES 4096

static struct gm_lock charges_lock = GM_LOCK_INITIALIZER(GM_LOCK_LEAF);
static struct gm_preload_charges_list *charges_table[CHARGES_PLACES];
static atomic_size_t charges_count; /* written with the lock held */

static struct gm_preload_charges_list **charges_place(uint64_t key)
{
	struct gm_preload_charges_list **place =
		&charges_table[key * UINT64_C(0x9e3779b97f4a7c15) >> 52];

	while (*place && (*place)->key != key)
		place = &(*place)->next;
	return place;
}

/* ---- before the memory is made */

static gm_cu_result charges_ask(enum gm_preload_call call, struct gm_preload_charge *charge)
{
	bool charged = false;
	gm_cu_result result = gm_preload_declare(charge->number, charge->bytes, &charged);

	if (result == GM_CUDA_SUCCESS && !charged) {
		gm_preload_count_passed(call); /* the daemon is too old */
		charge->bytes = 0;
	}
	return result;
}

/* found: the number and the context are written, if a session could be begun. */
static gm_cu_result charges_begin(enum gm_preload_answer answer, bool found,
	enum gm_preload_call call, struct gm_preload_charge *charge)
{
	if (answer == GM_BROKER_REFUSED)
		return gm_preload_refuse();
	if (!charge->bytes)
		return GM_CUDA_SUCCESS;
	if (found)
		return charges_ask(call, charge);
	charge->bytes = 0;
	gm_preload_count_passed(call);
	return GM_CUDA_SUCCESS;
}

gm_cu_result gm_preload_charges_begin(const struct gm_driver *driver, enum gm_preload_call call,
	uint64_t bytes, struct gm_preload_charge *ret_charge)
{
	enum gm_preload_answer answer = gm_preload_begin();

	*ret_charge = (struct gm_preload_charge){.bytes = bytes};
	bool found = answer == GM_BROKER_READY &&
		     gm_preload_current(driver, &ret_charge->ctx, &ret_charge->number);
	return charges_begin(answer, found, call, ret_charge);
}

gm_cu_result gm_preload_charges_begin_on(const struct gm_driver *driver, enum gm_preload_call call,
	gm_cu_device device, uint64_t bytes, struct gm_preload_charge *ret_charge)
{
	enum gm_preload_answer answer = gm_preload_begin();

	*ret_charge = (struct gm_preload_charge){.bytes = bytes};
	bool found =
		answer == GM_BROKER_READY && gm_preload_device(driver, device, &ret_charge->number);
	return charges_begin(answer, found, call, ret_charge);
}

/* ---- what there is */

static bool charges_add(const struct gm_preload_charge *charge, uint64_t key)
{
	struct gm_preload_charges_list *entry = malloc(sizeof *entry);
	struct gm_preload_charge before = {0};
	if (!entry)
		return false;
	*entry = (struct gm_preload_charges_list){.charge = *charge, .key = key};

	gm_lock(&charges_lock);
	struct gm_preload_charges_list **place = charges_place(key);
	if (*place) {
		/* It ended in a way that nobody saw. */
		before = (*place)->charge;
		(*place)->charge = *charge;
	} else {
		*place = entry;
		atomic_fetch_add_explicit(&charges_count, 1, memory_order_relaxed);
		entry = NULL;
	}
	gm_lock_drop(&charges_lock);

	free(entry);
	gm_preload_charges_settle(&before, 0);
	return true;
}

void gm_preload_charges_settle(const struct gm_preload_charge *charge, uint64_t key)
{
	/* What cannot be noted down is foreign memory. */
	if (charge->bytes && (!key || !charges_add(charge, key)))
		gm_preload_undeclare(charge->number, charge->bytes);
}

/* With the lock held. */
static struct gm_preload_charges_list *charges_remove(struct gm_preload_charges_list **place)
{
	struct gm_preload_charges_list *entry = *place;

	*place = entry->next;
	atomic_fetch_sub_explicit(&charges_count, 1, memory_order_relaxed);
	return entry;
}

/* A forked child has none, and another thread of its parent may have had the lock. */
static bool charges_any(void)
{
	return atomic_load_explicit(&charges_count, memory_order_relaxed) && gm_preload_there();
}

struct gm_preload_charge gm_preload_charges_take(uint64_t key)
{
	struct gm_preload_charge charge = {0};

	if (!charges_any())
		return charge;
	gm_lock(&charges_lock);
	struct gm_preload_charges_list **place = charges_place(key);
	struct gm_preload_charges_list *entry = *place ? charges_remove(place) : NULL;
	gm_lock_drop(&charges_lock);

	if (entry)
		charge = entry->charge;
	free(entry);
	return charge;
}

struct gm_preload_charges_list *gm_preload_charges_take_of(gm_cu_ctx ctx)
{
	struct gm_preload_charges_list *list = NULL;

	if (!charges_any())
		return NULL;
	gm_lock(&charges_lock);
	for (size_t i = 0; i < CHARGES_PLACES; i++) {
		struct gm_preload_charges_list **place = &charges_table[i];
		while (*place) {
			if ((*place)->charge.ctx != ctx) {
				place = &(*place)->next;
				continue;
			}
			struct gm_preload_charges_list *entry = charges_remove(place);
			entry->next = list;
			list = entry;
		}
	}
	gm_lock_drop(&charges_lock);
	return list;
}

void gm_preload_charges_settle_list(struct gm_preload_charges_list *list, bool ended)
{
	struct gm_preload_charges_list *next;

	for (; list; list = next) {
		next = list->next;
		gm_preload_charges_settle(&list->charge, ended ? 0 : list->key);
		free(list);
	}
}
