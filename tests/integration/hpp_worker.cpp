/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A program that uses gpumem.hpp, for hpp.sh: with exceptions as C++17, and without them as C++20. It
 * prints "pass NAME" or "fail NAME: WHY" for each case. In every case, the daemon must have everything
 * back at the end.
 */
#include <gpumem/gpumem.hpp>

#include <cstdio>
#include <thread>
#include <vector>

#include <sched.h>
#include <time.h>
#include <unistd.h>

static_assert(!std::is_copy_constructible_v<gpumem::session>, "move-only");
static_assert(!std::is_copy_constructible_v<gpumem::buffer>, "move-only");
static_assert(!std::is_copy_constructible_v<gpumem::batch>, "move-only");
static_assert(!std::is_copy_constructible_v<gpumem::pin>, "move-only");
static_assert(!std::is_copy_constructible_v<gpumem::ring<int>>, "move-only");
static_assert(std::is_nothrow_move_constructible_v<gpumem::session>, "movable");
static_assert(std::is_nothrow_move_assignable_v<gpumem::buffer>, "movable");
static_assert(std::is_nothrow_move_assignable_v<gpumem::batch>, "movable");
static_assert(std::is_convertible_v<gpumem::span<int>, gpumem::span<const int>>, "more const");
static_assert(!std::is_convertible_v<gpumem::span<const int>, gpumem::span<int>>, "not less");
#if defined(__cpp_lib_span)
static_assert(std::is_convertible_v<gpumem::span<int>, std::span<int>>, "a std::span");
static_assert(std::is_convertible_v<gpumem::span<int>, std::span<const int>>, "a std::span");
#endif

static const std::size_t MIB = 1 << 20;
static const char *why; /* of the case that runs; NULL: it passes so far */

#define TEXT_(x) #x
#define TEXT(x)  TEXT_(x)
#define REQUIRE(what) \
	do { \
		if (!(what)) { \
			why = "line " TEXT(__LINE__) ": " #what; \
			return; \
		} \
	} while (0)

/* ---- what the daemon has, as another session sees it */

static gpumem_session *watcher;
static std::uint64_t untouched;
static bool on_host;

static std::uint64_t available()
{
	gpumem_device_info_t info = GPUMEM_DEVICE_INFO_INIT;
	return gpumem_device_info(watcher, 0, &info) ? 0 : info.available;
}

/* Waits for an event, and for 60 s if it never comes. */
template <class F> static bool until(F happened)
{
	const time_t end = time(nullptr) + 60;
	while (!happened()) {
		if (time(nullptr) > end)
			return false;
		sched_yield();
	}
	return true;
}

static bool everything_is_back()
{
	return until([] { return available() == untouched; });
}

/* ---- the cases */

static void a_session_that_cannot_be_had_is_an_error_with_a_sentence()
{
	gpumem_connect_options options = gpumem::connect_options();
	options.socket = "/nonexistent/gpumemd/socket";
	auto session = gpumem::session::connect(options);
	REQUIRE(!session);
	REQUIRE(session.status() == GPUMEM_E_DISCONNECTED);
	REQUIRE(std::strstr(session.failure().what(), "/nonexistent/gpumemd/socket"));
	REQUIRE(session.failure().entry() == GPUMEM_BATCH_NO_ENTRY);
}

static void a_buffer_is_a_view_of_elements()
{
	auto session = gpumem::session::connect();
	REQUIRE(session && session.status() == GPUMEM_OK);
	auto buffer = gpumem::buffer::create(*session, 0, 4 * MIB + 3);
	REQUIRE(buffer && *buffer);
	REQUIRE(buffer->size() == 4 * MIB + 3);
	gpumem::span<double> view = buffer->as<double>();
	REQUIRE(view.data() == buffer->data());
	REQUIRE(view.size() == 4 * MIB / sizeof(double) && view.size_bytes() == 4 * MIB);
	REQUIRE(view.subspan(2).size() == view.size() - 2 && view.subspan(2).data() == &view[2]);
	REQUIRE(view.subspan(2, 5).size() == 5 && view.subspan(view.size() + 1).empty());
	gpumem::span<const double> same = view;
	REQUIRE(same.begin() == view.begin() && same.end() == view.end());
	if (on_host) {
		for (double &x : view)
			x = 2.5;
		REQUIRE(same[view.size() - 1] == 2.5);
	}
#if defined(__cpp_lib_span)
	std::span<const double> standard = view;
	REQUIRE(standard.data() == view.data() && standard.size() == view.size());
#endif
}

static void what_is_moved_changes_its_owner()
{
	auto connected = gpumem::session::connect();
	REQUIRE(connected);
	gpumem::session session = *std::move(connected);
	gpumem::session other = std::move(session);
	REQUIRE(!session && !session.get() && other);

	auto first = gpumem::buffer::create(other, 0, 10 * MIB);
	auto second = gpumem::buffer::create(other, 0, 20 * MIB);
	REQUIRE(first && second);
	void *data = second->data();
	*first = *std::move(second);
	REQUIRE(first->data() == data && first->size() == 20 * MIB);
	REQUIRE(!*second && !second->data() && second->size() == 0 && second->as<int>().empty());
	REQUIRE(until([] { return available() == untouched - 20 * MIB; }));

	/* Nothing can be had of a session that was moved from. */
	REQUIRE(gpumem::buffer::create(session, 0, MIB).status() == GPUMEM_E_INVALID);
}

static void a_session_lives_as_long_as_its_buffers_and_batches()
{
	auto connected = gpumem::session::connect();
	REQUIRE(connected);
	auto *session = new gpumem::session(*std::move(connected));
	auto buffer = gpumem::buffer::create(*session, 0, 2 * MIB);
	auto batch = gpumem::batch::create(*session, 0, {{3 * MIB, 0, "a"}, {MIB, 0, "b"}});
	delete session;
	REQUIRE(buffer && batch);
	if (on_host) {
		buffer->as<char>()[2 * MIB - 1] = 1;
		batch->as<char>(1)[MIB - 1] = 1;
	}
	/* In whatever order, and in whatever thread. */
	std::thread([held = *std::move(batch)] {}).join();
	REQUIRE(buffer->data());
}

static void a_pin_keeps_a_buffer_until_it_ends()
{
	auto session = gpumem::session::connect();
	REQUIRE(session);
	auto options = gpumem::buffer_options();
	options.flags = GPUMEM_BUFFER_EVICTABLE;
	auto buffer = gpumem::buffer::create(*session, 0, 2 * MIB, options);
	REQUIRE(buffer && buffer->evict());
	REQUIRE(buffer->location() == GPUMEM_LOCATION_HOST);
	{
		auto pin = gpumem::pin::create(*buffer, GPUMEM_STREAM_DONE);
		REQUIRE(pin && pin->location() == GPUMEM_LOCATION_DEVICE);
		auto moved = *std::move(pin);
		REQUIRE(buffer->evict().status() == GPUMEM_E_BUSY);
	}
	REQUIRE(buffer->evict());
	auto pin = gpumem::pin::create(*buffer, GPUMEM_STREAM_DONE);
	REQUIRE(pin && pin->end() && pin->end());
	REQUIRE(gpumem_buffer_unpin(buffer->get(), nullptr) == GPUMEM_E_INVALID);
	auto plain = gpumem::buffer::create(*session, 0, MIB);
	REQUIRE(plain && gpumem::pin::create(*plain).status() == GPUMEM_E_UNSUPPORTED);
}

static void a_region_is_paused_and_resumed()
{
	auto session = gpumem::session::connect();
	REQUIRE(session);
	auto region = gpumem::region::create(*session, 0, "work", 8 * MIB);
	REQUIRE(region && std::string_view(region->tag()) == "work");
	auto memory = region->alloc(MIB, nullptr);
	REQUIRE(memory && *memory);
	REQUIRE(region->pause(GPUMEM_REGION_DROP));
	REQUIRE(!region->alloc(MIB, nullptr));
	REQUIRE(region->stats()->state == GPUMEM_REGION_PAUSED);
	auto moved = *std::move(region);
	REQUIRE(moved.resume());
	REQUIRE(moved.free(*memory));
	REQUIRE(moved.stats()->in_use == 0);
	auto twice = gpumem::region::create(*session, 0, "work", 8 * MIB);
	REQUIRE(twice.status() == GPUMEM_E_BUSY);
}

static void a_batch_has_typed_entries_that_are_freed_one_by_one()
{
	auto session = gpumem::session::connect();
	REQUIRE(session);
	struct alignas(1024) page {
		char bytes[1024];
	};
	auto batch = gpumem::batch::create(*session, 0,
		{
			gpumem::entry_of<float>(1000, "weights"),
			gpumem::entry_of<page>(3, "pages"),
			{5, 0, nullptr},
		});
	REQUIRE(batch && batch->size() == 3);
	REQUIRE(batch->as<float>(0).size() == 1000 && batch->bytes(0) == 4000);
	REQUIRE(batch->as<page>(1).size() == 3);
	REQUIRE(reinterpret_cast<std::uintptr_t>(batch->data(1)) % alignof(page) == 0);
	REQUIRE(!std::strcmp(batch->tag(0), "weights") && !std::strcmp(batch->tag(2), ""));

	REQUIRE(batch->free_entry(1));
	REQUIRE(!batch->data(1) && batch->as<page>(1).empty());
	auto again = batch->free_entry(1, GPUMEM_STREAM_DONE);
	REQUIRE(!again && again.status() == GPUMEM_E_INVALID);
	REQUIRE(std::strstr(again.failure().what(), "freed before") &&
		again.failure().entry() == 1);
	REQUIRE(batch->free_entry(0) && batch->free_entry(2));
	REQUIRE(everything_is_back());
}

static void a_batch_that_does_not_fit_names_its_entry()
{
	auto session = gpumem::session::connect();
	REQUIRE(session);
	auto batch = gpumem::batch::create(*session, 0,
		{
			{untouched / 4, 0, nullptr},
			{untouched / 4, 0, nullptr},
			{untouched, 0, "too much"},
		});
	REQUIRE(!batch && batch.status() == GPUMEM_E_NO_MEMORY);
	REQUIRE(batch.failure().entry() == 2);
	REQUIRE(std::strstr(batch.failure().what(), "entry 2 of the batch (too much"));

	auto overflow = gpumem::batch::create(
		*session, 0, {{1, 0, nullptr}, gpumem::entry_of<double>(SIZE_MAX / 2)});
	REQUIRE(!overflow && overflow.status() == GPUMEM_E_INVALID);
	REQUIRE(overflow.failure().entry() == 1);
	std::vector<gpumem_batch_entry> many(
		GPUMEM_BATCH_MOST + 1, gpumem_batch_entry{1, 0, nullptr});
	auto refused = gpumem::batch::create(*session, 0, many.data(), many.size());
	REQUIRE(!refused && refused.failure().entry() == GPUMEM_BATCH_NO_ENTRY);
	REQUIRE(everything_is_back());
}

static void a_ring_carries_messages_of_its_type()
{
	struct point {
		double x, y;
	};
	auto one = gpumem::session::connect(), other = gpumem::session::connect();
	REQUIRE(one && other);
	auto near = gpumem::ring<point>::create(*one, 100);
	REQUIRE(near && near->messages() == 128);
	gpumem_token token;
	REQUIRE(!gpumem_share(near->buffer(), nullptr, &token));

	auto wrong = gpumem::ring<double>::open(*other, token);
	REQUIRE(!wrong && wrong.status() == GPUMEM_E_INVALID);
	auto far = gpumem::ring<point>::open(*other, token);
	REQUIRE(far);
	auto taken = gpumem::ring<point>::open(*other, token);
	REQUIRE(!taken && taken.status() == GPUMEM_E_BUSY);

	REQUIRE(near->send({1, 2}) && near->send({3, 4}));
	auto got = far->receive();
	REQUIRE(got && got->x == 1 && got->y == 2);
	REQUIRE(far->send({5, 6}) && near->receive()->y == 6);
	REQUIRE(near->receive(0).status() == GPUMEM_E_TIMEOUT);
	REQUIRE(near->hang_up());
	REQUIRE(far->receive()->x == 3);
	REQUIRE(far->receive().status() == GPUMEM_E_CANCELLED);
	REQUIRE(far->stats().in.received == 2 && far->stats().out.sent == 1);

	auto none = gpumem::ring<point>::create(*one, 0);
	REQUIRE(!none && none.status() == GPUMEM_E_INVALID);
	{
		auto moved = std::move(*far);
		REQUIRE(moved && !*far);
	}
	REQUIRE(near->receive().status() == GPUMEM_E_CANCELLED);
	*near = gpumem::ring<point>::create(*one, 1).value();
	REQUIRE(near->messages() == 1);
}

static void a_buffer_can_be_opened_by_its_token()
{
	auto one = gpumem::session::connect(), other = gpumem::session::connect();
	REQUIRE(one && other);
	auto made = gpumem::buffer::create(*one, 0, MIB);
	REQUIRE(made);
	gpumem_token token;
	REQUIRE(!gpumem_share(made->get(), nullptr, &token));
	auto opened = gpumem::buffer::open(*other, token);
	REQUIRE(opened && opened->size() == MIB);
	token.bytes[0] ^= 1;
	auto wrong = gpumem::buffer::open(*other, token);
	REQUIRE(!wrong && wrong.status() == GPUMEM_E_NOT_FOUND);
}

static void a_session_finds_a_device_with_room()
{
	auto session = gpumem::session::connect();
	REQUIRE(session);
	auto place = session->place(4 * MIB);
	REQUIRE(place && place->device == 0 && place->fit == GPUMEM_FIT_NOW);
	auto buffer = gpumem::buffer::create(*session, place->device, 4 * MIB);
	REQUIRE(buffer);
	auto none = session->place(std::uint64_t(1) << 45, GPUMEM_FIT_WAIT);
	REQUIRE(!none && none.status() == GPUMEM_E_NO_MEMORY);
	REQUIRE(std::strstr(none.failure().what(), "which it can never give"));
}

static void managed_memory_is_charged_while_its_object_lives()
{
	auto session = gpumem::session::connect();
	REQUIRE(session);
	std::uint64_t declared = 0;
	{
		auto managed = gpumem::managed::create(*session, 0, 3 * MIB);
		REQUIRE(managed && *managed && managed->size() == 3 * MIB);
		managed->as<int>()[0] = 4711;
		REQUIRE(managed->advise(GPUMEM_MANAGED_READ_MOSTLY));
		REQUIRE(managed->prefetch(GPUMEM_MANAGED_ON_DEVICE, nullptr));
		REQUIRE(managed->as<int>()[0] == 4711);
		REQUIRE(gpumem_declared(session->get(), 0, &declared) == GPUMEM_OK);
		REQUIRE(declared == 4 * MIB);
		auto moved = *std::move(managed);
		REQUIRE(moved && !*managed);
	}
	auto nothing = gpumem::managed::create(*session, 0, 0);
	REQUIRE(!nothing && nothing.failure().status() == GPUMEM_E_INVALID);
}

static void a_buffer_grows_where_it_is()
{
	auto session = gpumem::session::connect();
	REQUIRE(session);
	gpumem_buffer_options options = gpumem::buffer_options();
	options.max_size = 64 * MIB;
	auto made = gpumem::buffer::create(*session, 0, MIB, options);
	REQUIRE(made && made->max_size() == 64 * MIB);
	void *place = made->data();
	auto moved = made->resize(32 * MIB, nullptr);
	REQUIRE(moved && !*moved && made->data() == place && made->size() == 32 * MIB);
	auto ensured = made->ensure(33 * MIB);
	REQUIRE(ensured && !*ensured && made->size() == 33 * MIB);
	REQUIRE(made->resize(0).status() == GPUMEM_E_INVALID && made->size() == 33 * MIB);
	auto farther = made->resize(100 * MIB);
	REQUIRE(farther && *farther && made->size() == 100 * MIB);
	REQUIRE(made->resize(MIB, GPUMEM_STREAM_DONE) && made->size() == MIB);
}

static void a_published_buffer_outlives_its_object()
{
	auto one = gpumem::session::connect(), other = gpumem::session::connect();
	REQUIRE(one && other);
	{
		auto made = gpumem::buffer::create(*one, 0, MIB);
		REQUIRE(made && made->version() == 0);
		REQUIRE(made->publish("a/b").status() == GPUMEM_E_INVALID);
		REQUIRE(made->publish("weights") && made->version() == 1);
		auto second = gpumem::buffer::create(*one, 0, MIB);
		REQUIRE(second && second->publish("weights").status() == GPUMEM_E_BUSY);
		gpumem_publish_options options = gpumem::publish_options();
		options.replace = 1;
		options.metadata = "about";
		options.metadata_size = 5;
		REQUIRE(made->metadata() && made->metadata()->size() == 0);
		REQUIRE(second->publish("weights", nullptr, options) && second->version() == 2);
	}
	auto attached = gpumem::buffer::attach(*other, "weights");
	REQUIRE(attached && attached->size() == MIB && attached->version() == 2);
	auto about = gpumem::metadata::read(*other, "weights");
	REQUIRE(about && about->text() == "about" && about->version() == 2);
	gpumem::metadata moved = std::move(*about);
	REQUIRE(moved.size() == 5 && about->size() == 0 && !about->data());
	moved = std::move(attached->metadata().value());
	REQUIRE(moved.text() == "about" && moved.version() == 2);
	REQUIRE(gpumem::metadata::read(*other, "mistral").status() == GPUMEM_E_NOT_FOUND);
	REQUIRE(gpumem::metadata::read(*other, "a/b").status() == GPUMEM_E_INVALID);
	REQUIRE(!gpumem_unpublish(other->get(), "weights"));
	auto gone = gpumem::buffer::attach(*other, "weights");
	REQUIRE(!gone && gone.status() == GPUMEM_E_NOT_FOUND);
}

static void signals_pass_between_two_sessions()
{
	auto one = gpumem::session::connect(), other = gpumem::session::connect();
	REQUIRE(one && other);
	gpumem_buffer_options options = gpumem::buffer_options();
	options.flags = GPUMEM_BUFFER_SIGNALS;
	auto made = gpumem::buffer::create(*one, 0, MIB, options);
	REQUIRE(made);
	gpumem_token token;
	REQUIRE(!gpumem_share(made->get(), nullptr, &token));
	auto opened = gpumem::buffer::open(*other, token);
	REQUIRE(opened && opened->signal(nullptr, 1).status() == GPUMEM_E_DENIED);
	REQUIRE(made->signal(GPUMEM_STREAM_DONE, 1));
	REQUIRE(opened->wait(nullptr, 1) && !opened->lost(1) && !opened->lost(2));
	REQUIRE(opened->wait(nullptr, 2, 0).status() == GPUMEM_E_TIMEOUT);
	{
		gpumem::buffer gone = std::move(*made); /* the producer goes */
	}
	while (!opened->lost(2))
		std::this_thread::yield();
	REQUIRE(!opened->lost(1) && opened->wait(nullptr, 2).status() == GPUMEM_E_CANCELLED);
}

static void bytes_go_to_a_buffer_and_back()
{
	auto session = gpumem::session::connect();
	REQUIRE(session);
	auto buffer = gpumem::buffer::create(*session, 0, 4 * MIB);
	REQUIRE(buffer);
	char text[] = "to and fro", back[sizeof(text)] = "";
	auto in = buffer->copy_in(5, text, sizeof(text));
	REQUIRE(in && in->bytes == sizeof(text) && in->strategy == GPUMEM_COPY_SYNC);
	REQUIRE(buffer->copy_out(5, back, sizeof(back), GPUMEM_STREAM_DONE));
	REQUIRE(std::strcmp(text, back) == 0);
	REQUIRE(buffer->copy_in(4 * MIB, text, 1).status() == GPUMEM_E_INVALID);
	REQUIRE(buffer->copy_file_in(0, "/nowhere").status() == GPUMEM_E_NOT_FOUND);
	gpumem_copy_options options = gpumem::copy_options();
	options.strategy = GPUMEM_COPY_STAGED;
	REQUIRE(buffer->copy_in(0, text, 3, GPUMEM_STREAM_DONE, options));
}

/* A transfer that fails says how many bytes arrived, also to programs in C++. */
static void a_failed_copy_knows_how_far_it_came()
{
	auto session = gpumem::session::connect();
	REQUIRE(session);
	auto buffer = gpumem::buffer::create(*session, 0, 64 * MIB);
	REQUIRE(buffer);
	std::vector<char> much(64 * MIB, 'x'), back(64 * MIB);
	std::uint64_t seen = 0;
	gpumem_copy_options options = gpumem::copy_options();
	options.user = &seen;
	options.progress = [](void *user, std::uint64_t done, std::uint64_t) -> int {
		*static_cast<std::uint64_t *>(user) = done;
		return 1;
	};
	options.strategy = GPUMEM_COPY_STAGED;
	options.threads = 1;
	options.slot_bytes = GPUMEM_COPY_SLOT_LEAST;

	auto in = buffer->copy_in(0, much.data(), much.size(), GPUMEM_STREAM_DONE, options);
	REQUIRE(in.status() == GPUMEM_E_CANCELLED);
	REQUIRE(seen > 0 && in.failure().bytes() >= seen && in.failure().bytes() < much.size());
	REQUIRE(buffer->copy_out(0, back.data(), in.failure().bytes(), GPUMEM_STREAM_DONE));
	REQUIRE(std::memcmp(much.data(), back.data(), in.failure().bytes()) == 0);

	auto out = buffer->copy_out(0, back.data(), back.size(), GPUMEM_STREAM_DONE, options);
	REQUIRE(out.status() == GPUMEM_E_CANCELLED && out.failure().bytes() >= seen);

	char path[64];
	std::FILE *sparse = std::tmpfile();
	REQUIRE(sparse && ftruncate(fileno(sparse), 64 * MIB) == 0);
	std::snprintf(path, sizeof(path), "/proc/self/fd/%d", fileno(sparse));
	auto file = buffer->copy_file_in(0, path, GPUMEM_STREAM_DONE, options);
	REQUIRE(file.status() == GPUMEM_E_CANCELLED);
	REQUIRE(file.failure().bytes() >= seen && file.failure().bytes() < 64 * MIB);
	std::fclose(sparse);

	/* Of other failures there is nothing to know. */
	REQUIRE(buffer->copy_in(64 * MIB, much.data(), 1).failure().bytes() == 0);
}

static void a_container_can_have_pinned_host_memory()
{
	auto session = gpumem::session::connect();
	REQUIRE(session);
	gpumem::host_resource pinned(*session), same(*session);
	std::pmr::vector<std::uint64_t> numbers(&pinned);
	for (std::uint64_t i = 0; i < 300000; i++)
		numbers.push_back(i * i);
	for (std::uint64_t i = 0; i < 300000; i++)
		REQUIRE(numbers[i] == i * i);
	void *aligned = pinned.allocate(100, 4096);
	REQUIRE(reinterpret_cast<std::uintptr_t>(aligned) % 4096 == 0);
	pinned.deallocate(aligned, 100, 4096);
	void *nothing = pinned.allocate(0);
	pinned.deallocate(nothing, 0);
	REQUIRE(pinned == pinned && !(pinned == *std::pmr::new_delete_resource()));
#if defined(__cpp_rtti)
	REQUIRE(pinned == same);
#endif
	gpumem_stats_t stats = GPUMEM_STATS_INIT;
	REQUIRE(!gpumem_stats(session->get(), GPUMEM_DEVICE_HOST, &stats));
	REQUIRE(stats.in_use >= 300000 * sizeof(std::uint64_t));
}

#if GPUMEM_HPP_EXCEPTIONS

static void fail_after_much_work()
{
	gpumem::session session;
	gpumem::buffer buffer(session, 0, 10 * MIB);
	gpumem::host_resource pinned(session);
	std::pmr::vector<char> bytes(MIB, 'x', &pinned);
	gpumem::batch batch(session, 0, {{5 * MIB, 0, nullptr}, {6 * MIB, 0, nullptr}});
	batch.free_entry(0).value();
	std::vector<gpumem::buffer> buffers;
	for (;;)
		buffers.emplace_back(session, 0, 100 * MIB);
}

static void an_error_that_is_thrown_frees_everything()
{
	try {
		fail_after_much_work();
		why = "nothing was thrown";
	} catch (const gpumem::error &e) {
		REQUIRE(e.status() == GPUMEM_E_NO_MEMORY && std::strlen(e.what()) > 0);
	}
}

static void constructors_and_value_throw_what_a_result_holds()
{
	gpumem_connect_options options = gpumem::connect_options();
	options.socket = "/nonexistent/gpumemd/socket";
	try {
		gpumem::session session(options);
		why = "it connected";
	} catch (const std::exception &e) {
		REQUIRE(std::strstr(e.what(), "/nonexistent/gpumemd/socket"));
	}

	gpumem::session session;
	try {
		gpumem::batch batch(session, 0, {{1, 0, nullptr}, {0, 0, nullptr}});
		why = "a batch of nothing";
	} catch (const gpumem::error &e) {
		REQUIRE(e.status() == GPUMEM_E_INVALID && e.entry() == 1);
	}
	gpumem::batch batch(session, 0, {{1, 0, nullptr}});
	try {
		batch.free_entry(7).value();
		why = "there is no such entry";
	} catch (const gpumem::error &e) {
		REQUIRE(e.status() == GPUMEM_E_INVALID);
	}
	gpumem::buffer buffer = gpumem::buffer::create(session, 0, MIB).value();
	REQUIRE(buffer.size() == MIB);
}

static void a_container_without_memory_throws_bad_alloc()
{
	gpumem::session session;
	gpumem::host_resource pinned(session);
	try {
		std::pmr::vector<char> huge(std::size_t(1) << 40, &pinned);
		why = "1 TiB of pinned memory";
	} catch (const std::bad_alloc &e) {
		auto *ours = dynamic_cast<const gpumem::bad_alloc *>(&e);
		REQUIRE(ours && ours->status() != GPUMEM_OK && std::strlen(e.what()) > 20);
	}
	std::pmr::vector<char> some(1000, &pinned);
	REQUIRE(some.data());
}

#endif

/* ---- */

static int failures;

static void run(const char *name, void (*test)())
{
	why = nullptr;
	test();
	if (!why && !everything_is_back())
		why = "the daemon does not have everything back";
	if (why) {
		std::printf("fail %s: %s (%s)\n", name, why, gpumem_error_detail());
		failures++;
	} else {
		std::printf("pass %s\n", name);
	}
	std::fflush(stdout);
}
#define RUN(test) run(#test, test)

int main()
{
	gpumem_device_info_t info = GPUMEM_DEVICE_INFO_INIT;
	if (gpumem_connect(nullptr, &watcher) || gpumem_device_info(watcher, 0, &info)) {
		std::printf("fail: %s\n", gpumem_error_detail());
		return 1;
	}
	untouched = info.available;
	on_host = !std::strcmp(info.backend, "host");

	RUN(a_session_that_cannot_be_had_is_an_error_with_a_sentence);
	RUN(a_buffer_is_a_view_of_elements);
	RUN(what_is_moved_changes_its_owner);
	RUN(a_session_lives_as_long_as_its_buffers_and_batches);
	RUN(a_pin_keeps_a_buffer_until_it_ends);
	RUN(a_region_is_paused_and_resumed);
	RUN(a_batch_has_typed_entries_that_are_freed_one_by_one);
	RUN(a_batch_that_does_not_fit_names_its_entry);
	RUN(a_buffer_can_be_opened_by_its_token);
	RUN(a_session_finds_a_device_with_room);
	RUN(managed_memory_is_charged_while_its_object_lives);
	RUN(a_buffer_grows_where_it_is);
	RUN(a_published_buffer_outlives_its_object);
	RUN(a_ring_carries_messages_of_its_type);
	RUN(signals_pass_between_two_sessions);
	RUN(bytes_go_to_a_buffer_and_back);
	RUN(a_failed_copy_knows_how_far_it_came);
	RUN(a_container_can_have_pinned_host_memory);
#if GPUMEM_HPP_EXCEPTIONS
	RUN(an_error_that_is_thrown_frees_everything);
	RUN(constructors_and_value_throw_what_a_result_holds);
	RUN(a_container_without_memory_throws_bad_alloc);
#endif
	gpumem_disconnect(watcher);
	return failures != 0;
}
