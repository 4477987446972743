/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Metadata of published leases. This file promises that metadata is charged before there is memory for
 * it and until that is gone, and that published metadata never changes. It must never give the memfd to
 * a client. Nothing here waits: a seal against future writes needs no look at the pages, and it is
 * enough where nobody else has the memfd.
 */
#include "daemon/books/hash_table.h"
#include "daemon/lease/session_private.h"
#include "daemon/lease/metadata_private.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/arith.h"
#include "common/cleanup.h"
#include "common/system/memfd.h"
#include "common/step.h"
#include "common/text/uid_name.h"
#include "common/text/units.h"
#include "daemon/books/fds.h"

#ifndef F_SEAL_FUTURE_WRITE
#define F_SEAL_FUTURE_WRITE 0x0010
#endif

#define METADATA_SEALS (F_SEAL_FUTURE_WRITE | F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL)

struct gm_metadata {
	uint64_t id;
	struct gm_core *core;
	struct gm_user_charge memfd;
	struct gm_user_charge charge; /* in bytes, see gm_metadata_cost() */
	uint64_t size, received;
	uint64_t version; /* of the name; 0: a draft */
	int fd;
	bool deposited;
	uint32_t place; /* of its record */
	UT_hash_handle hh;
};

uint64_t gm_metadata_cost(uint64_t size)
{
	uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE);

	return gm_round_up(size, page) + page;
}

/* ---- life */

static void metadata_free(struct gm_metadata *metadata)
{
	if (!metadata)
		return;

	struct gm_core *core = metadata->core;
	struct gm_env *env = &core->env;
	gm_env_erase(env, &metadata->place);
	GM_STEP("metadata: record erased");
	if (metadata->deposited)
		env->ops.withdraw(env->ctx, GM_STORE_METADATA, metadata->id);
	if (metadata->fd >= 0 && env->ops.close)
		env->ops.close(env->ctx, metadata->charge.user->uid, metadata->fd);
	else
		gm_close(metadata->fd);
	gm_user_charge_deinit(&metadata->memfd);
	gm_user_charge_deinit(&metadata->charge);
	HASH_DEL(core->metadata, metadata);
	free(metadata);
}

/* Makes metadata that is charged, and has no memfd yet. id 0: a new one. NULL: no memory. */
static struct gm_metadata *metadata_new(const struct gm_lease *lease, uint64_t id, uint64_t size)
{
	struct gm_core *core = lease->core;
	struct gm_metadata *metadata = calloc(1, sizeof(*metadata));
	if (!metadata)
		return NULL;

	metadata->id = id ? id : core->env.ops.new_id(core->env.ctx);
	metadata->core = core;
	metadata->size = size;
	metadata->fd = -1;
	HASH_ADD(hh, core->metadata, id, sizeof(metadata->id), metadata);
	if (!GM_TABLE_ADDED(metadata)) {
		free(metadata);
		return NULL;
	}
	struct gm_user *user = lease->orphan->charge.user;
	gm_user_charge_init(&metadata->memfd, user, GM_USER_CHUNK_FDS);
	gm_user_charge_add(&metadata->memfd, 1);
	gm_user_charge_init(&metadata->charge, user, GM_USER_METADATA);
	gm_user_charge_add(&metadata->charge, gm_metadata_cost(size));
	return metadata;
}

void gm_metadata_drop_draft(struct gm_lease *lease)
{
	metadata_free(gm_steal_ptr(&lease->draft));
}

void gm_metadata_drop(struct gm_lease *lease)
{
	metadata_free(gm_steal_ptr(&lease->metadata));
}

/* ---- drafts */

static gpumem_status metadata_check(const struct gm_session *session, const struct gm_lease *lease,
	const struct gm_metadata_piece *piece, char detail[GM_DETAIL_BYTES])
{
	if (lease->maker != session)
		return gm_text_refuse(GPUMEM_E_DENIED, detail,
			"only the client that made a lease can give it metadata");
	if (lease->name)
		return gm_text_refuse(GPUMEM_E_BUSY, detail,
			"the buffer is published as %s, and its metadata cannot be changed; publish "
			"another buffer, and replace this one",
			lease->name->text);
	if (piece->size == 0 || piece->size > GM_BOUND_METADATA_BYTES)
		return gm_text_refuse(GPUMEM_E_INVALID, detail,
			"metadata has 1 to %d bytes, not %llu", GM_BOUND_METADATA_BYTES,
			(unsigned long long)piece->size);
	if (piece->n == 0 || piece->offset > piece->size || piece->n > piece->size - piece->offset)
		return gm_text_refuse(GPUMEM_E_INVALID, detail,
			"a piece of metadata must not be empty, and must lie within its size");
	return GPUMEM_OK;
}

/* Whether descriptors will be free soon: some are about to be closed, or others wait for theirs. */
static bool metadata_must_wait(const struct gm_env *env)
{
	return gm_fds_short(env) && (env->fds->dying > 0 || env->fds->waiting > 0);
}

/* Refuses metadata that would pass the bound of the user, or the one of all users. An adopted metadata is
 * counted and never refused: an earlier daemon allowed it. */
static gpumem_status metadata_admit(const struct gm_session *session, uint64_t cost,
	const char *owner, char detail[GM_DETAIL_BYTES])
{
	int r = gm_user_check(session->payer.user, GM_USER_METADATA, cost);
	char most[GM_UNITS_TEXT], has[GM_UNITS_TEXT], asked[GM_UNITS_TEXT];
	gm_format_size(session->payer.user->has[GM_USER_METADATA], has);
	gm_format_size(cost, asked);

	if (r == GM_USER_E_OWN)
		return gm_text_refuse(GPUMEM_E_LIMIT, detail,
			"%s may have %s of metadata, has %s, asked for %s; remove a name that has "
			"metadata first, see gpumemctl shares",
			owner, gm_format_size(GM_BOUND_METADATA_PER_UID, most), has, asked);
	if (r == GM_USER_E_SHARED)
		return gm_text_refuse(GPUMEM_E_LIMIT, detail,
			"%s has %s of metadata, asked for %s, and may have no more than it leaves to "
			"others; the most is %s for all; remove a name that has metadata first",
			owner, has, asked, gm_format_size(GM_BOUND_METADATA, most));
	return GPUMEM_OK;
}

/*
 * Begins another draft. A request for a piece does not wait. If there is no descriptor yet, there is no
 * draft: then the publish that follows is answered by asking for the metadata again, and the client comes
 * back in a moment. So chunks and control blocks, which wait here, are not overtaken.
 */
static gpumem_status metadata_begin(struct gm_session *session, struct gm_lease *lease,
	uint64_t size, char detail[GM_DETAIL_BYTES])
{
	const struct gm_core *core = session->core;
	char owner[GM_UID_NAME_PAYER_TEXT];

	gm_metadata_drop_draft(lease);
	gm_uid_name_say_payer(session->payer.user->uid, session->info.uid, owner);
	gpumem_status status = metadata_admit(session, gm_metadata_cost(size), owner, detail);
	if (status != GPUMEM_OK)
		return status;
	if (gm_user_check(session->payer.user, GM_USER_CHUNK_FDS, 1))
		return gm_text_refuse(GPUMEM_E_LIMIT, detail,
			"metadata needs a file descriptor of the daemon, and %s has as many as it "
			"may; return some memory, or raise LimitNOFILE= of the daemon and its keeper",
			owner);

	struct gm_metadata *draft = metadata_new(lease, 0, size);
	if (!draft)
		return gm_text_refuse(
			GPUMEM_E_HOST_MEMORY, detail, "the daemon has no memory for metadata");
	lease->draft = draft;
	if (gm_fd_budget_short(core->env.fds))
		gm_device_settle_fds(lease->device->env, false);
	int r = -EMFILE;
	if (!metadata_must_wait(&core->env))
		r = gm_memfd_create("gpumem-metadata", size, &draft->fd);
	if (r == 0)
		return GPUMEM_OK;

	gm_metadata_drop_draft(lease);
	if ((r == -EMFILE || r == -ENFILE) && core->env.fds->dying + core->env.fds->waiting > 0)
		return GPUMEM_OK;
	return gm_text_refuse(GPUMEM_E_HOST_MEMORY, detail,
		"the daemon has no memory, or no file descriptor, for metadata; try again");
}

static int metadata_write(int fd, const struct gm_metadata_piece *piece)
{
	const char *bytes = piece->bytes;

	for (size_t done = 0; done < piece->n;) {
		ssize_t n =
			pwrite(fd, bytes + done, piece->n - done, (off_t)(piece->offset + done));
		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			return n < 0 ? -errno : -EIO;
		done += (size_t)n;
	}
	return 0;
}

gpumem_status gm_lease_put_metadata(struct gm_session *session, struct gm_lease *lease,
	const struct gm_metadata_piece *piece, char detail[GM_DETAIL_BYTES])
{
	gpumem_status status = metadata_check(session, lease, piece, detail);
	if (status != GPUMEM_OK)
		return status;

	if (piece->offset == 0) {
		gm_env_enter(lease->device->env);
		status = metadata_begin(session, lease, piece->size, detail);
		gm_env_leave(lease->device->env);
		if (status != GPUMEM_OK)
			return status;
	}

	struct gm_metadata *draft = lease->draft;
	if (!draft || draft->size != piece->size || piece->offset > draft->received) {
		gm_metadata_drop_draft(lease);
		return GPUMEM_OK;
	}

	if (metadata_write(draft->fd, piece) < 0) {
		gm_metadata_drop_draft(lease);
		return gm_text_refuse(
			GPUMEM_E_HOST_MEMORY, detail, "the daemon has no memory for metadata");
	}
	draft->received = gm_u64_max(draft->received, piece->offset + piece->n);
	return GPUMEM_OK;
}

/* ---- publishing */

bool gm_metadata_is_whole(const struct gm_lease *lease, uint64_t size)
{
	const struct gm_metadata *draft = lease->draft;

	return draft && draft->size == size && draft->received == size;
}

int gm_metadata_commit(struct gm_lease *lease, uint64_t version, uint64_t *ret_id)
{
	struct gm_metadata *draft = lease->draft;
	struct gm_env *env = &lease->core->env;

	if (fcntl(draft->fd, F_ADD_SEALS, METADATA_SEALS) < 0)
		return -errno;
	if (env->ops.deposit) {
		int r = env->ops.deposit(env->ctx, GM_STORE_METADATA, draft->id, draft->fd, NULL);
		if (r < 0)
			return r;
		draft->deposited = true;
	}
	GM_STEP("metadata: deposited");

	draft->version = version;
	struct gm_record_metadata record = {
		.lease = lease->id, .bytes = draft->size, .version = version};
	gm_record_begin(&record.head, GM_RECORD_METADATA, draft->id, sizeof(record),
		lease->orphan->info.uid);
	int r = gm_env_record(
		env, GM_RECORD_METADATA, draft->id, &draft->place, &record, sizeof(record));
	GM_STEP("metadata: recorded");
	if (r == 0)
		*ret_id = draft->id;
	return r;
}

void gm_metadata_publish(struct gm_lease *lease)
{
	metadata_free(lease->metadata);
	lease->metadata = gm_steal_ptr(&lease->draft);
}

int gm_metadata_adopt(struct gm_lease *lease, uint64_t id, uint32_t place,
	const struct gm_record_metadata *record, int fd)
{
	struct stat st;
	int seals = fcntl(fd, F_GET_SEALS);
	bool sound = seals >= 0 && (seals & METADATA_SEALS) == METADATA_SEALS &&
		     fstat(fd, &st) == 0 && (uint64_t)st.st_size == record->bytes;
	struct gm_metadata *metadata = sound ? metadata_new(lease, id, record->bytes) : NULL;
	if (!metadata) {
		const struct gm_env *env = &lease->core->env;
		gm_close(fd);
		/* Without memory this daemon ends, and the next one needs it. */
		if (sound)
			return -ENOMEM;
		if (env->ops.withdraw)
			env->ops.withdraw(env->ctx, GM_STORE_METADATA, id);
		return -EINVAL;
	}

	metadata->fd = fd;
	metadata->received = metadata->size;
	metadata->version = record->version;
	metadata->place = place;
	metadata->deposited = lease->core->env.ops.deposit != NULL;
	lease->metadata = metadata;
	return 0;
}

/* ---- reading */

void gm_lease_metadata(const struct gm_lease *lease, struct gm_metadata_info *ret)
{
	const struct gm_metadata *metadata = lease->metadata;

	*ret = (struct gm_metadata_info){
		.id = metadata ? metadata->id : 0,
		.size = metadata ? metadata->size : 0,
		.version = metadata ? metadata->version : lease->version,
	};
}

int gm_core_read_metadata(
	const struct gm_core *core, uint64_t id, uint64_t offset, void *ret_bytes, size_t n)
{
	const struct gm_metadata *metadata;
	HASH_FIND(hh, core->metadata, &id, sizeof(id), metadata);
	if (!metadata)
		return -ENOENT;

	for (size_t done = 0; done < n;) {
		ssize_t got = pread(
			metadata->fd, (char *)ret_bytes + done, n - done, (off_t)(offset + done));
		if (got < 0 && errno == EINTR)
			continue;
		if (got <= 0)
			return got < 0 ? -errno : -ENODATA;
		done += (size_t)got;
	}
	return 0;
}
