/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The shared pages. The daemon writes its page in place, and nobody else can write it: it is sealed
 * against future writing right after the daemon mapped it. The daemon never maps the client's page.
 * It copies it with pread(), so that nothing can change between a check and a use, and bounds every
 * figure by what it knows itself. So a client that writes nonsense only misreports itself.
 */
#include <errno.h>
#include <fcntl.h>
#include <stddef.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "common/arith.h"
#include "common/cleanup.h"
#include "common/system/memfd.h"
#include "common/text/units.h"
#include "daemon/tenant/pages.h"

#ifndef F_SEAL_FUTURE_WRITE
#define F_SEAL_FUTURE_WRITE 0x0010
#endif

/* The smallest piece that a client's heap hands out. */
#define GM_PAGES_PIECE_MIN 16

void gm_pages_init(struct gm_pages *pages)
{
	memset(pages, 0, sizeof(*pages));
	pages->daemon_fd = -1;
	pages->client_fd = -1;
}

void gm_pages_deinit(struct gm_pages *pages)
{
	if (pages->daemon)
		munmap(pages->daemon, sizeof(*pages->daemon));
	gm_close(pages->daemon_fd);
	gm_close(pages->client_fd);
	gm_pages_init(pages);
}

static int pages_open_daemon_page(struct gm_pages *pages, uint64_t generation, uint64_t session)
{
	int r = gm_memfd_create("gpumem-daemon-page", sizeof(*pages->daemon), &pages->daemon_fd);
	if (r < 0)
		return r;
	void *at = mmap(NULL, sizeof(*pages->daemon), PROT_READ | PROT_WRITE, MAP_SHARED,
		pages->daemon_fd, 0);
	if (at == MAP_FAILED)
		return -errno;
	pages->daemon = at;
	if (fcntl(pages->daemon_fd, F_ADD_SEALS,
		    F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_FUTURE_WRITE | F_SEAL_SEAL) < 0)
		return -errno;
	pages->daemon->header = (struct gm_page_header){
		.magic = GM_PAGE_DAEMON_MAGIC,
		.version = pages->version,
		.generation = generation,
		.session = session,
		.devices = pages->devices,
		.bytes = pages->version < 2 ? 0 : sizeof(*pages->daemon),
	};
	return 0;
}

static int pages_open_client_page(struct gm_pages *pages, uint64_t generation, uint64_t session)
{
	int r = gm_memfd_create(
		"gpumem-client-page", sizeof(struct gm_page_client), &pages->client_fd);
	if (r < 0)
		return r;
	const struct gm_page_header header = {
		.magic = GM_PAGE_CLIENT_MAGIC,
		.version = pages->version,
		.generation = generation,
		.session = session,
		.devices = pages->devices,
		.rows = GM_BOUND_TRACKED_BUFFERS,
		.bytes = pages->version < 2 ? 0 : sizeof(struct gm_page_client),
	};
	if (pwrite(pages->client_fd, &header, sizeof(header), 0) != (ssize_t)sizeof(header))
		return -EIO;
	if (fcntl(pages->client_fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) < 0)
		return -errno;
	return 0;
}

int gm_pages_open(struct gm_pages *pages, uint32_t version, uint64_t generation, uint64_t session,
	uint32_t devices)
{
	gm_pages_init(pages);
	pages->version = version;
	pages->devices = devices;
	int r = pages_open_daemon_page(pages, generation, session);
	if (r == 0)
		r = pages_open_client_page(pages, generation, session);
	if (r < 0)
		gm_pages_deinit(pages);
	return r;
}

int gm_pages_set_session(struct gm_pages *pages, uint64_t session)
{
	off_t at =
		offsetof(struct gm_page_client, header) + offsetof(struct gm_page_header, session);
	if (pwrite(pages->client_fd, &session, sizeof(session), at) != (ssize_t)sizeof(session))
		return -EIO;
	pages->daemon->header.session = session;
	return 0;
}

int gm_pages_share(const struct gm_pages *pages, int *ret_fd)
{
	return gm_memfd_open(pages->client_fd, false, ret_fd);
}

bool gm_pages_in_use(const struct gm_pages *pages)
{
	return pages->client_fd >= 0 && gm_memfd_in_use(pages->client_fd) != GM_MEMFD_FREE;
}

void gm_pages_write_device(struct gm_pages *pages, uint32_t device,
	const struct gm_device_figures *figures, uint64_t held, uint64_t max, uint64_t room)
{
	if (!pages->daemon || device >= pages->devices)
		return;
	struct gm_page_device *block = &pages->daemon->devices[device];
	gm_page_write_begin(&block->seq);
	block->level = figures->level;
	block->pressure_ppm = figures->pressure_ppm;
	block->reclaim_epoch = figures->reclaim_epoch;
	block->total = figures->total;
	block->capacity = figures->capacity;
	block->available = figures->available;
	block->held = held;
	block->max = max;
	block->room = pages->version < 2 ? 0 : room;
	gm_page_write_end(&block->seq);
}

void gm_pages_write_held(struct gm_pages *pages, uint32_t device, uint64_t held, uint64_t room)
{
	if (!pages->daemon || device >= pages->devices)
		return;
	struct gm_page_device *block = &pages->daemon->devices[device];
	gm_page_write_begin(&block->seq);
	block->held = held;
	block->room = pages->version < 2 ? 0 : room;
	gm_page_write_end(&block->seq);
}

void gm_pages_write_event(struct gm_pages *pages, uint32_t device,
	const struct gm_device_figures *figures, const struct gm_pages_event *event)
{
	if (!pages->daemon || device >= pages->devices)
		return;
	struct gm_page_device *block = &pages->daemon->devices[device];
	gm_page_write_begin(&block->seq);
	block->level = figures->level;
	block->pressure_ppm = figures->pressure_ppm;
	block->reclaim_epoch = figures->reclaim_epoch;
	if (event->pressure)
		block->pressure_event = event->pressure;
	if (event->reclaim) {
		block->reclaim_event = event->reclaim;
		block->urgent = event->urgent;
		block->wanted = event->wanted;
		block->spill = event->spill;
	}
	if (event->limits) {
		block->limits_event = event->limits;
		block->max = event->max;
	}
	if (event->evict) {
		block->evict_event = event->evict;
		block->evict_row = event->row;
		block->restore = event->restore;
	}
	gm_page_write_end(&block->seq);
}

/* The most that a client's figure can be, by its unit. */
#define PAGES_MOST_size  GM_LEASE_BYTES_MAX
#define PAGES_MOST_count UINT64_MAX
#define PAGES_MOST_total UINT64_MAX

/* Makes in_use, cached and slack add up to held. What the client did not account for is slack. */
static void pages_bound_use(struct gm_page_use *use, uint64_t held)
{
	use->in_use = gm_u64_min(use->in_use, held);
	use->cached = gm_u64_min(use->cached, held - use->in_use);
	use->slack = held - use->in_use - use->cached;
	use->evictable = gm_u64_min(use->evictable, held - use->cached);
}

int gm_pages_read_use(
	const struct gm_pages *pages, uint32_t device, uint64_t held, struct gm_page_use *ret)
{
	struct gm_page_use use;

	if (pages->client_fd < 0 || device >= pages->devices)
		return -EINVAL;
	int r = gm_page_pread(pages->client_fd,
		(off_t)(offsetof(struct gm_page_client, use) + device * sizeof(use)), sizeof(use),
		&use);
	if (r < 0)
		return r;
	const struct gm_page_use nothing = {.seq = use.seq};
	if (!memcmp(&use, &nothing, sizeof(use)))
		return -ENODATA;
#define PAGES_BOUND(name, unit, since, ...) \
	use.name = pages->version < (since) ? 0 : gm_u64_min(use.name, PAGES_MOST_##unit);
	GM_CLIENT_FIGURES(PAGES_BOUND, PAGES_BOUND, GM_FIGURE_SKIP)
#undef PAGES_BOUND
	pages_bound_use(&use, held);
	use.active_buffers = gm_u64_min(use.active_buffers, held / GM_PAGES_PIECE_MIN);
	use.untracked = gm_u64_min(use.untracked, use.active_buffers);
	*ret = use;
	return 0;
}

/*
 * Reads blocks of this size twice. A block is sound if its count is even and both copies are the same:
 * the client did not write it in between. Others are set to 0.
 */
static int pages_read_twice(
	const struct gm_pages *pages, size_t offset, size_t block, size_t n, void *ret_blocks)
{
	uint8_t again[GM_PAGES_STACKS * GM_PAGE_BLOCK];
	uint8_t *blocks = ret_blocks;
	const ssize_t bytes = (ssize_t)(block * n);
	uint32_t seq;

	ssize_t got = pread(pages->client_fd, blocks, (size_t)bytes, (off_t)offset);
	if (got == bytes) {
		/* A system call by itself does not order memory accesses. */
		atomic_thread_fence(memory_order_acquire);
		got = pread(pages->client_fd, again, (size_t)bytes, (off_t)offset);
	}
	if (got != bytes)
		return got < 0 ? -errno : -EIO;

	for (size_t i = 0; i < n; i++) {
		uint8_t *at = blocks + i * block;
		memcpy(&seq, at, sizeof(seq));
		if (seq % 2 || memcmp(at, again + i * block, block) != 0)
			memset(at, 0, block);
	}
	return 0;
}

/* Reads the notes on rows that were read. Without them, there are only the rows. */
static void pages_read_notes(const struct gm_pages *pages, struct gm_pages_rows *rows)
{
	_Static_assert(sizeof(rows->notes) <= GM_PAGES_STACKS * GM_PAGE_BLOCK, "they fit");
	bool any = false;

	for (size_t i = 0; i < GM_PAGES_ROWS; i++)
		any |= rows->rows[i].bytes != 0;
	if (!any || pages->version < GM_PAGE_VERSION_NOTES ||
		pages_read_twice(pages,
			offsetof(struct gm_page_client, notes) +
				rows->first * sizeof(rows->notes[0]),
			sizeof(rows->notes[0]), GM_PAGES_ROWS, rows->notes) < 0)
		memset(rows->notes, 0, sizeof(rows->notes));
}

/* Copies a text of the client's that must be printable and end within its room, or "". */
static void pages_copy_text(char *to, const char *from, size_t room)
{
	memset(to, 0, room);
	if (memchr(from, '\0', room) && gm_text_ok(from))
		strcpy(to, from);
}

/*
 * Reads the block that has this row. Of a file that a client may write to, the daemon calls pread()
 * alone: lseek() and the like wait for a lock that the client can hold for as long as it likes.
 *
 * A row is sound if its count was even and the same before and after it was read. Other rows are
 * being written, or the client wants it to look so, and are taken for free.
 */
static int pages_read_rows(const struct gm_pages *pages, uint32_t at, struct gm_pages_rows *rows)
{
	static const struct gm_page_row none;
	struct gm_page_row before[GM_PAGES_ROWS], after[GM_PAGES_ROWS];
	uint32_t first = at - at % GM_PAGES_ROWS;
	off_t place = (off_t)(offsetof(struct gm_page_client, rows) + first * sizeof(none));
	bool empty = true;

	rows->valid = false;
	ssize_t n = pread(pages->client_fd, before, sizeof(before), place);
	for (size_t i = 0; i < GM_PAGES_ROWS && empty && n == sizeof(before); i++)
		empty = memcmp(&before[i], &none, sizeof(none)) == 0;
	if (n == sizeof(before) && !empty) {
		/* A system call by itself does not order memory accesses. */
		atomic_thread_fence(memory_order_acquire);
		n = pread(pages->client_fd, rows->rows, sizeof(rows->rows), place);
		atomic_thread_fence(memory_order_acquire);
		if (n == sizeof(rows->rows))
			n = pread(pages->client_fd, after, sizeof(after), place);
	}
	if (n != sizeof(before))
		return n < 0 ? -errno : -EIO;

	for (size_t i = 0; i < GM_PAGES_ROWS; i++)
		if (empty || before[i].seq % 2 || before[i].seq != after[i].seq)
			rows->rows[i].bytes = 0;
	rows->first = first;
	rows->valid = true;
	pages_read_notes(pages, rows);
	return 0;
}

/* Adds what the note says about the buffer, if it is about it. */
static void pages_take_note(
	const struct gm_page_note *note, uint64_t now_ns, struct gm_pages_row *ret)
{
	bool about = note->born_ns == ret->born_ns;
	const struct gm_page_note nothing = {.used_ns = 0};

	note = about ? note : &nothing;
	ret->used_ns = gm_u64_min(gm_u64_max(note->used_ns, ret->born_ns), now_ns);
	ret->stack = note->stack <= GM_BOUND_STACKS ? note->stack : 0;
	pages_copy_text(ret->type, note->type, sizeof(ret->type));
	pages_copy_text(ret->precision, note->precision, sizeof(ret->precision));
}

int gm_pages_next_row(const struct gm_pages *pages, struct gm_pages_rows *rows,
	const uint64_t held[GM_BOUND_DEVICES], uint64_t now_ns, uint32_t *at,
	struct gm_pages_row *ret)
{
	if (pages->client_fd < 0 || *at >= GM_BOUND_TRACKED_BUFFERS)
		return 0;
	if (!rows->valid || *at - rows->first >= GM_PAGES_ROWS) {
		int r = pages_read_rows(pages, *at, rows);
		if (r < 0)
			return r;
	}

	while (*at - rows->first < GM_PAGES_ROWS) {
		const struct gm_page_note *note = &rows->notes[*at - rows->first];
		const struct gm_page_row *row = &rows->rows[(*at)++ - rows->first];
		uint32_t place = pages->version < GM_PAGE_VERSION_NOTES ? 0 : row->place;
		/* Pinned host memory is the last device. */
		uint32_t device = place & GM_PAGE_PLACE_HOST ? pages->devices - 1 : row->device;
		/* A paused region whose content is not kept holds nothing. */
		bool nothing = (place & GM_PAGE_PLACE_PAUSED) && !(place & GM_PAGE_PLACE_HOST);
		uint64_t bytes = nothing ? 0 : row->bytes;
		if (row->bytes == 0 || row->device >= pages->devices || bytes > held[device] ||
			row->born_ns > now_ns)
			continue;
		ret->number = *at;
		ret->device = device;
		ret->home = row->device;
		ret->place = place;
		ret->bytes = bytes;
		ret->born_ns = row->born_ns;
		pages_copy_text(ret->tag, row->tag, sizeof(row->tag));
		pages_take_note(note, now_ns, ret);
		ret->growth = row->growth;
		ret->growth.used = gm_u64_min(row->growth.used, row->bytes);
		return 1;
	}
	return *at < GM_BOUND_TRACKED_BUFFERS ? -EAGAIN : 0;
}

/* ---- call stacks */

int gm_pages_read_stacks(const struct gm_pages *pages, uint32_t first,
	struct gm_page_stack ret_stacks[GM_PAGES_STACKS])
{
	if (pages->client_fd < 0 || pages->version < GM_PAGE_VERSION_NOTES ||
		first >= GM_BOUND_STACKS)
		return 0;
	const uint32_t n = (uint32_t)gm_u64_min(GM_PAGES_STACKS, GM_BOUND_STACKS - first);
	int r = pages_read_twice(pages,
		offsetof(struct gm_page_client, stacks) + first * sizeof(*ret_stacks),
		sizeof(*ret_stacks), n, ret_stacks);

	for (uint32_t i = 0; r == 0 && i < n; i++)
		if (ret_stacks[i].frames > GM_PAGE_FRAMES)
			ret_stacks[i].frames = 0;
	return r < 0 ? r : (int)n;
}

int gm_pages_read_modules(const struct gm_pages *pages, uint32_t first,
	struct gm_page_module ret_modules[GM_PAGES_MODULES])
{
	if (pages->client_fd < 0 || pages->version < GM_PAGE_VERSION_NOTES ||
		first >= GM_BOUND_STACK_MODULES)
		return 0;
	const uint32_t n = (uint32_t)gm_u64_min(GM_PAGES_MODULES, GM_BOUND_STACK_MODULES - first);
	int r = pages_read_twice(pages,
		offsetof(struct gm_page_client, modules) + first * sizeof(*ret_modules),
		sizeof(*ret_modules), n, ret_modules);

	for (uint32_t i = 0; r == 0 && i < n; i++) {
		struct gm_page_module *module = &ret_modules[i];
		char path[GM_PAGE_MODULE_PATH];

		pages_copy_text(path, module->path, sizeof(path));
		memcpy(module->path, path, sizeof(path));
		if (module->id_bytes > sizeof(module->id))
			module->id_bytes = 0;
	}
	return r < 0 ? r : (int)n;
}
