/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The checks that need several values, or something that only this machine knows. All of them run
 * even if the reader has refused something, so that the user sees every mistake at once. But none
 * of them judges by a value that was refused, nor by a default that a misspelt line may have meant
 * to change: that would blame the wrong line. Nor do they guess what a device has that only the machine
 * knows.
 */
#include "daemon/config/config_check.h"

#include <errno.h>
#include <fcntl.h>
#include <pwd.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/arith.h"
#include "common/system/path.h"
#include "common/types.h"
#include "daemon/books/policy.h"
#include "daemon/config/config_account.h"
#include "daemon/config/config_fit.h"

/* Complains that two values do not go together, at the one that was written later. */
static __attribute__((format(printf, 4, 5))) int config_check_complain_about(
	struct gm_config_reader *reader, const struct gm_config_effective *a,
	const struct gm_config_effective *b, const char *format, ...)
{
	/* A test shows that defaults and presets go together. */
	if (!a->setting && !b->setting)
		return 0;
	if (gm_config_effective_is_doubtful(reader, a) ||
		gm_config_effective_is_doubtful(reader, b))
		return 0;
	const struct gm_config_effective *at = a->setting ? a : b;
	if (a->setting && b->setting)
		at = gm_config_setting_later(a->setting, b->setting) == a->setting ? a : b;

	char text[GM_CONFIG_WHY_BYTES];
	va_list args;
	va_start(args, format);
	vsnprintf(text, sizeof(text), format, args);
	va_end(args);
	return gm_config_errors_add(&reader->errors, at->setting->source, at->setting->line,
		"%s: %s", gm_config_key(at->id)->name, text);
}

static int config_check_pressure(struct gm_config_reader *reader)
{
	static const size_t ids[] = {GM_CONFIG_KEY_PRESSURE_MEDIUM, GM_CONFIG_KEY_PRESSURE_HIGH,
		GM_CONFIG_KEY_PRESSURE_CRITICAL};
	struct gm_config_effective e[3];
	for (size_t i = 0; i < 3; i++)
		e[i] = gm_config_effective_general(reader, ids[i]);
	for (size_t i = 0; i < 2; i++) {
		if (e[i].value.number < e[i + 1].value.number)
			continue;
		int r = config_check_complain_about(reader, &e[i], &e[i + 1],
			"the levels are out of order: %s (%s) must be below %s (%s)",
			gm_config_key(ids[i])->name, e[i].text, gm_config_key(ids[i + 1])->name,
			e[i + 1].text);
		if (r < 0)
			return r;
	}

	struct gm_config_effective hysteresis =
		gm_config_effective_general(reader, GM_CONFIG_KEY_PRESSURE_HYSTERESIS);
	if (hysteresis.value.number < e[0].value.number)
		return 0;
	return config_check_complain_about(reader, &hysteresis, &e[0],
		"pressure_hysteresis (%s) must be below pressure_medium (%s), or the pressure never becomes low again",
		hysteresis.text, e[0].text);
}

static int config_check_size(struct gm_config_reader *reader, int slot)
{
	struct gm_config_effective size = gm_config_effective(reader, GM_CONFIG_KEY_SIZE, slot);
	struct gm_config_effective min_free =
		gm_config_effective(reader, GM_CONFIG_KEY_MIN_FREE, slot);
	struct gm_config_effective backend =
		gm_config_effective_general(reader, GM_CONFIG_KEY_BACKEND);
	if (slot == GM_CONFIG_SLOT_GENERAL || !size.value.number)
		return 0;

	int r = 0;
	if (!strcmp(backend.text, "cuda"))
		r = config_check_complain_about(reader, &size, &backend,
			"the size of a GPU cannot be set: [device %d] can have a size only with backend = host, and backend is %s",
			slot - GM_CONFIG_SLOT_DEVICES, backend.text);
	if (r >= 0 && !gm_config_fit_size(reader, slot))
		r = config_check_complain_about(reader, &size, &min_free,
			"a size of %s leaves nothing to give out, because min_free is %s",
			size.text, min_free.text);
	return r;
}

static int config_check_reserve(struct gm_config_reader *reader, int slot)
{
	const struct gm_config_setting *settings = reader->settings[slot];
	struct gm_config_effective pool = gm_config_effective(reader, GM_CONFIG_KEY_MAX_POOL, slot);
	struct gm_config_effective reserve =
		gm_config_effective(reader, GM_CONFIG_KEY_RESERVE, slot);
	struct gm_config_effective transport =
		gm_config_effective_general(reader, GM_CONFIG_KEY_TRANSPORT);
	if (!reserve.setting)
		return 0; /* a default gives way: see gm_config_policy() and broker.c */

	int r = 0;
	bool own = settings[GM_CONFIG_KEY_MAX_POOL].text || settings[GM_CONFIG_KEY_RESERVE].text;
	if (own && pool.setting && !pool.value.share && reserve.value.number > pool.value.number)
		r = config_check_complain_about(reader, &pool, &reserve,
			"the reserve (%s) is part of the pool and cannot be more than max_pool (%s)",
			reserve.text, pool.text);
	bool first = slot == GM_CONFIG_SLOT_GENERAL || settings[GM_CONFIG_KEY_RESERVE].text;
	if (r >= 0 && first && reserve.value.number && transport.value.number == GM_TRANSPORT_IPC)
		r = config_check_complain_about(reader, &reserve, &transport,
			"the reserve (%s) holds memory for the fd transport, which no client gets with transport = ipc; leave out one of the two",
			reserve.text);
	return r;
}

/* The devices of the host backend are numbered without gaps. Device 0 needs no size. */
static int config_check_gaps(struct gm_config_reader *reader)
{
	int missing = 0, r = 0;
	for (int i = 1; i < GM_BOUND_DEVICES && r >= 0; i++) {
		const struct gm_config_setting *size =
			&reader->settings[GM_CONFIG_SLOT_DEVICES + i][GM_CONFIG_KEY_SIZE];
		if (size->refused)
			continue;
		if (!size->text || !size->value.number)
			missing = missing ? missing : i;
		else if (missing)
			r = gm_config_errors_add(&reader->errors, size->source, size->line,
				"size: [device %d] has a size but [device %d] has none; devices are numbered without gaps",
				i, missing);
	}
	return r;
}

/* ---- what this machine must have */

static int config_check_group(struct gm_config_reader *reader, size_t id)
{
	const struct gm_config_setting *setting = &reader->settings[GM_CONFIG_SLOT_GENERAL][id];
	char shown[GM_CONFIG_SHOW_BYTES];
	gid_t gid;
	if (!setting->text || !*setting->text || setting->refused ||
		gm_config_account_group(setting->text, &gid))
		return 0;
	return gm_config_errors_add(&reader->errors, setting->source, setting->line,
		"%s: there is no group \"%s\"; create it with groupadd, or leave out the key%s",
		gm_config_key(id)->name, gm_config_shown(setting->text, shown),
		gm_config_account_hint());
}

#define CONFIG_CHECK_USER 64

/* Returns the name of the user that runs the daemon. */
static const char *config_check_user(
	const struct gm_config_reader *reader, char name[CONFIG_CHECK_USER])
{
	const char *known = reader->names.known->user;
	const struct passwd *own = known ? NULL : getpwuid(geteuid());

	if (known || own)
		snprintf(name, CONFIG_CHECK_USER, "%s", known ? known : own->pw_name);
	else
		snprintf(name, CONFIG_CHECK_USER, "%u", (unsigned)geteuid());
	return name;
}

/* Returns whether the user that runs the daemon is known, and fn says -EACCES as that user. */
static bool config_check_is_denied(
	const struct gm_config_reader *reader, int (*fn)(const void *ctx), const void *ctx)
{
	const struct gm_config_known *known = reader->names.known;

	return !(known->user && !*known->user) &&
	       gm_config_account_try(known->user, known->group, known->groups, fn, ctx) == -EACCES;
}

static int config_check_try_write(const void *folder)
{
	if (faccessat(AT_FDCWD, folder, W_OK | X_OK, AT_EACCESS) == 0)
		return 0;
	return errno == EROFS ? -EACCES : -errno;
}

/* Root gives a file to any group, and another user only to a group of its own. */
static int config_check_try_group(const void *ctx)
{
	const gid_t *gid = ctx;
	gid_t list[1024];

	if (geteuid() == 0 || *gid == getegid())
		return 0;
	int n = getgroups(sizeof(list) / sizeof(list[0]), list);
	for (int i = 0; i < n; i++)
		if (list[i] == *gid)
			return 0;
	return n < 0 ? -errno : -EACCES;
}

/* The daemon gives its socket to the group. */
static int config_check_member(struct gm_config_reader *reader)
{
	const struct gm_config_setting *setting =
		&reader->settings[GM_CONFIG_SLOT_GENERAL][GM_CONFIG_KEY_SOCKET_GROUP];
	char user[CONFIG_CHECK_USER], shown[GM_CONFIG_SHOW_BYTES];
	gid_t gid;

	if (!reader->names.known->listens || !setting->text || !*setting->text ||
		setting->refused || !gm_config_account_group(setting->text, &gid) ||
		!config_check_is_denied(reader, config_check_try_group, &gid))
		return 0;
	gm_config_shown(setting->text, shown);
	config_check_user(reader, user);
	return gm_config_errors_add(&reader->errors, setting->source, setting->line,
		"socket_group: the daemon's user %s is not in the group \"%s\", and cannot give it the socket; run 'usermod -a -G %s %s', or leave out the key",
		user, shown, shown, user);
}

/* Without effect is what the files say of a socket that the service manager makes. */
static int config_check_passed(struct gm_config_reader *reader)
{
	static const size_t ids[] = {
		GM_CONFIG_KEY_SOCKET, GM_CONFIG_KEY_SOCKET_MODE, GM_CONFIG_KEY_SOCKET_GROUP};
	int r = 0;

	for (size_t i = 0; i < sizeof(ids) / sizeof(ids[0]) && r >= 0; i++) {
		const struct gm_config_setting *setting =
			&reader->settings[GM_CONFIG_SLOT_GENERAL][ids[i]];
		if (reader->names.known->passed && setting->text && !setting->refused)
			r = gm_config_errors_add(&reader->warnings, setting->source, setting->line,
				"%s: has no effect, because gpumemd.socket makes the socket; THE SERVICE in gpumemd(8) shows what to write instead",
				gm_config_key(ids[i])->name);
	}
	return r;
}

/* The keeper's socket is beside the daemon's, and its address goes through an open folder: "/proc/self/fd/1048575/". */
static int config_check_name(
	struct gm_config_reader *reader, const struct gm_config_setting *setting, const char *name)
{
	size_t n = strlen(name);

	if (n <= GM_BOUND_SOCKET_NAME_BYTES)
		return 0;
	return gm_config_errors_add(&reader->errors, setting->source, setting->line,
		"socket: the last part of the path has %zu bytes; the most is %d, because the keeper's socket beside it has a longer name",
		n, GM_BOUND_SOCKET_NAME_BYTES);
}

/* The daemon makes the socket, but not its folder. */
static int config_check_socket(struct gm_config_reader *reader)
{
	const struct gm_config_setting *setting =
		&reader->settings[GM_CONFIG_SLOT_GENERAL][GM_CONFIG_KEY_SOCKET];
	const char *path = setting->value.text;
	if (!reader->names.known->listens || !setting->text || setting->refused || !*path)
		return 0;

	char folder[GM_PATH_BYTES], user[CONFIG_CHECK_USER];
	struct stat st;
	snprintf(folder, sizeof(folder), "%s", path);
	char *slash = strrchr(folder, '/');
	int r = config_check_name(reader, setting, slash + 1);
	if (r < 0)
		return r;
	slash[slash == folder] = '\0';

	/* What this user may not look into, the daemon's user may. */
	if (stat(folder, &st) < 0) {
		if (errno != ENOENT && errno != ENOTDIR)
			return 0;
		return gm_config_errors_add(&reader->errors, setting->source, setting->line,
			"socket: there is no folder %s; create it, or write socket = auto", folder);
	}
	if (!S_ISDIR(st.st_mode))
		return gm_config_errors_add(&reader->errors, setting->source, setting->line,
			"socket: %s is not a folder", folder);
	if (lstat(path, &st) == 0 && !S_ISSOCK(st.st_mode))
		return gm_config_errors_add(&reader->errors, setting->source, setting->line,
			"socket: %s exists and is not a socket; remove it", path);
	if (config_check_is_denied(reader, config_check_try_write, folder)) {
		config_check_user(reader, user);
		return gm_config_errors_add(&reader->errors, setting->source, setting->line,
			"socket: the daemon's user %s cannot write to the folder %s; name a folder that belongs to this user, or write socket = auto",
			user, folder);
	}
	return 0;
}

/* ---- all checks */

/* The daemon does not start without a device. */
static int config_check_backend(struct gm_config_reader *reader)
{
	const struct gm_config_known *known = reader->names.known;
	struct gm_config_effective backend =
		gm_config_effective_general(reader, GM_CONFIG_KEY_BACKEND);
	const struct gm_config_setting *at = known->backend ? NULL : backend.setting;
	if (!known->lack)
		return 0;
	return gm_config_errors_add(&reader->errors, at ? at->source : NULL, at ? at->line : 0,
		"backend: %s has no device here: %s; the daemon does not start",
		known->backend ? known->backend : backend.text, known->lack);
}

static int config_check_machine(struct gm_config_reader *reader)
{
	if (!reader->names.known)
		return 0;
	int r = config_check_backend(reader);
	if (r >= 0)
		r = config_check_group(reader, GM_CONFIG_KEY_SOCKET_GROUP);
	if (r >= 0)
		r = config_check_group(reader, GM_CONFIG_KEY_ADMIN_GROUP);
	if (r >= 0)
		r = config_check_member(reader);
	if (r >= 0)
		r = config_check_socket(reader);
	if (r >= 0)
		r = config_check_passed(reader);
	return r < 0 ? r : gm_config_fit_check(reader);
}

int gm_config_check(struct gm_config_reader *reader)
{
	if (reader->settings[GM_CONFIG_SLOT_GENERAL][GM_CONFIG_KEY_PRESET].refused)
		reader->unsure = true;

	int r = config_check_pressure(reader);
	for (int slot = 0; slot < GM_CONFIG_SLOTS && r >= 0; slot++) {
		r = config_check_size(reader, slot);
		if (r >= 0)
			r = config_check_reserve(reader, slot);
	}
	if (r >= 0 && !reader->unsure && !reader->doubtful[GM_CONFIG_KEY_SIZE])
		r = config_check_gaps(reader);
	if (r >= 0)
		r = gm_config_limits_check(&reader->limits, &reader->errors, reader->unsure);
	return r < 0 ? r : config_check_machine(reader);
}
