/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a configuration means for a device of a certain size, and for a daemon that runs with an
 * older one. It only computes; nothing here can fail except for lack of memory.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/config/config.h"

uint64_t gm_config_capacity(const struct gm_config_device *device, uint64_t total)
{
	const struct gm_policy *policy = &device->policy;
	uint64_t most = (uint64_t)(policy->fraction * (double)total);
	uint64_t rest = total > policy->min_free ? total - policy->min_free : 0;
	return most < rest ? most : rest;
}

static void config_policy_compute(
	const struct gm_config_device *set, uint64_t total, struct gm_policy *ret_policy)
{
	struct gm_policy policy = set->policy;
	if (set->max_pool_share >= 0)
		policy.max_pool =
			(uint64_t)(set->max_pool_share * (double)gm_config_capacity(set, total));
	if (policy.reserve > policy.max_pool)
		policy.reserve = policy.max_pool;
	*ret_policy = policy;
}

void gm_config_policy(const struct gm_config *config, uint32_t device, uint64_t total,
	struct gm_policy *ret_policy)
{
	config_policy_compute(&config->devices[device], total, ret_policy);
}

void gm_config_pinned_policy(
	const struct gm_config *config, uint64_t total, struct gm_policy *ret_policy)
{
	struct gm_config_device set = config->pinned;
	set.policy.fraction = 1;
	set.policy.min_free = 0;
	set.policy.reserve = 0;
	config_policy_compute(&set, total, ret_policy);
}

/* Says in the source of a setting why it is not in force. Returns whether a file has the setting. */
static bool config_policy_mark(
	struct gm_config *config, const char *section, const char *key, const char *why)
{
	bool written = false;
	for (size_t i = 0; i < config->n_entries; i++) {
		struct gm_config_entry *entry = &config->entries[i];
		char *source;
		if (strcmp(entry->section, section) || strcmp(entry->key, key))
			continue;
		written = written || strcmp(entry->source, "default");
		if (asprintf(&source, "%s: %s", why, entry->source) < 0)
			continue;
		free(entry->source);
		entry->source = source;
	}
	return written;
}

void gm_config_drop_socket(struct gm_config *config)
{
	static const char *const keys[] = {"socket", "socket_mode", "socket_group"};

	for (size_t i = 0; i < sizeof(keys) / sizeof(keys[0]); i++) {
		if (!config_policy_mark(config, "", keys[i], "no effect"))
			continue;
		if (config->dropped[0])
			strcat(config->dropped, ", ");
		strcat(config->dropped, keys[i]);
	}
	config->socket[0] = config->socket_group[0] = '\0';
	config->socket_mode = 0;
}

/* Replaces the value of an entry, and says that the command line has it. Without memory, the entry stays as it is. */
static void config_policy_replace(
	struct gm_config *config, const char *key, const char *value, const char *source)
{
	for (size_t i = 0; i < config->n_entries; i++) {
		struct gm_config_entry *entry = &config->entries[i];
		char *new_value, *new_source;
		if (*entry->section || strcmp(entry->key, key))
			continue;
		new_value = strdup(value);
		new_source = strdup(source);
		if (!new_value || !new_source) {
			free(new_value);
			free(new_source);
			return;
		}
		free(entry->value);
		free(entry->source);
		entry->value = new_value;
		entry->source = new_source;
	}
}

void gm_config_use_options(struct gm_config *config, const char *backend, const char *socket)
{
	if (backend) {
		snprintf(config->backend, sizeof(config->backend), "%s", backend);
		config_policy_replace(config, "backend", backend, "command line (-b)");
	}
	if (socket) {
		snprintf(config->socket, sizeof(config->socket), "%s", socket);
		config_policy_replace(config, "socket", socket, "command line (-s)");
	}
}

bool gm_config_same_start(const struct gm_config *a, const struct gm_config *b)
{
	bool same = !strcmp(a->backend, b->backend) && a->host_limit == b->host_limit &&
		    a->host_memory == b->host_memory && !strcmp(a->socket, b->socket) &&
		    a->socket_mode == b->socket_mode && !strcmp(a->socket_group, b->socket_group);

	for (uint32_t i = 0; i < GM_LIMIT_DEVICES; i++)
		same = same && a->devices[i].size == b->devices[i].size;
	return same;
}

char *gm_config_fixed_changes(const struct gm_config *running, struct gm_config *new)
{
	char *text = NULL;
	size_t size = 0;
	FILE *stream = open_memstream(&text, &size);
	if (!stream)
		return NULL;

	const char *comma = "";
#define CHANGED(condition, key) \
	do { \
		if (condition) { \
			fprintf(stream, "%s%s", comma, key); \
			comma = ", "; \
			config_policy_mark(new, "", key, "after a restart"); \
		} \
	} while (0)
	CHANGED(strcmp(running->backend, new->backend), "backend");
	CHANGED(running->host_limit != new->host_limit, "host_limit");
	CHANGED(running->host_memory != new->host_memory, "host_memory");
	CHANGED(strcmp(running->socket, new->socket), "socket");
	CHANGED(running->socket_mode != new->socket_mode, "socket_mode");
	CHANGED(strcmp(running->socket_group, new->socket_group), "socket_group");
#undef CHANGED
	for (uint32_t i = 0; i < GM_LIMIT_DEVICES; i++) {
		char section[32];
		if (running->devices[i].size == new->devices[i].size)
			continue;
		snprintf(section, sizeof(section), "device %u", i);
		fprintf(stream, "%ssize of [%s]", comma, section);
		comma = ", ";
		config_policy_mark(new, section, "size", "after a restart");
	}
	int failed = ferror(stream);
	if (fclose(stream) || failed || !size) {
		free(text);
		return NULL;
	}
	return text;
}
