/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GPUMEM_HPP
#define GPUMEM_HPP

/*
 * libgpumem-client for C++17 and later: sessions, buffers, batches and rings that end by themselves.
 *
 * Errors. The static functions (session::connect(), buffer::create(), …) return a result, which holds
 * the object or an error. The constructors throw the error. result::value() throws it, too: so a
 * program chooses for each call. Without exceptions (-fno-exceptions) there are no such constructors,
 * and value() ends the program if there is no value.
 *
 * Lifetime. All objects can be moved and not copied; one that was moved from holds nothing. Buffers,
 * batches, rings and host_resources keep their session alive: it ends when the last of them is gone, in
 * whatever order they go. So the last of them must not go in the function given to gpumem_on_event(),
 * where a session cannot end.
 *
 * Everything else is done with the functions of gpumem.h, on the pointers that get() returns. The
 * objects add no lock: as with a pointer, several threads may use one, but only one may change it.
 */

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <initializer_list>
#include <new>
#include <string_view>
#include <type_traits>
#include <utility>
#include <variant>
#if __has_include(<memory_resource>)
#include <memory_resource>
#endif
#if __cplusplus >= 202002L && __has_include(<span>)
#include <span>
#endif

#include "gpumem.h"
#include "gpumem_copy.h"
#include "gpumem_plan.h"
#include "gpumem_evict.h"
#include "gpumem_managed.h"
#include "gpumem_ring.h"
#include "gpumem_region.h"

/* The namespaces keep apart what is compiled with and without exceptions, so that one program can have
 * both. */
#if defined(__cpp_exceptions)
#define GPUMEM_HPP_EXCEPTIONS 1
#define GPUMEM_HPP_NAMESPACE  throwing
#else
#define GPUMEM_HPP_EXCEPTIONS 0
#define GPUMEM_HPP_NAMESPACE  plain
#endif

namespace gpumem
{
inline namespace GPUMEM_HPP_NAMESPACE
{

/* ---- errors */

/* Why a call failed: its status, and the sentence with the cause and the remedy. Takes no memory. */
class error : public std::exception
{
public:
	error(gpumem_status status, const char *text, std::size_t entry = GPUMEM_BATCH_NO_ENTRY,
		std::uint64_t bytes = 0) noexcept
	    : status_(status), entry_(entry), bytes_(bytes)
	{
		std::strncpy(text_, text, sizeof(text_) - 1);
	}

	gpumem_status status() const noexcept { return status_; }
	const char *what() const noexcept override { return text_; }
	/* The entry of a batch that is wrong or did not fit, or GPUMEM_BATCH_NO_ENTRY. */
	std::size_t entry() const noexcept { return entry_; }
	/* How many bytes of a copy arrived before it failed; 0 for other calls. */
	std::uint64_t bytes() const noexcept { return bytes_; }

private:
	gpumem_status status_;
	std::size_t entry_;
	std::uint64_t bytes_;
	char text_[512] = {};
};

namespace detail
{

/* This thread's last failure. */
inline error last_error(gpumem_status status, std::size_t entry = GPUMEM_BATCH_NO_ENTRY) noexcept
{
	return error(status, gpumem_error_detail(), entry);
}

/* This thread's last failure, which was that of a copy. */
inline error copy_error(gpumem_status status, const gpumem_copy_result &done) noexcept
{
	return error(status, gpumem_error_detail(), GPUMEM_BATCH_NO_ENTRY, done.bytes);
}

[[noreturn]] inline void fail(const error &why)
{
#if GPUMEM_HPP_EXCEPTIONS
	throw why;
#else
	static_cast<void>(why);
	std::abort();
#endif
}

} /* namespace detail */

/* A value or an error. The value may be void. */
template <class T> class [[nodiscard]] result
{
public:
	result(T value) noexcept : state_(std::in_place_index<0>, std::move(value)) {}
	result(const error &why) noexcept : state_(std::in_place_index<1>, why) {}

	explicit operator bool() const noexcept { return state_.index() == 0; }
	gpumem_status status() const noexcept { return *this ? GPUMEM_OK : failure().status(); }
	/* Only if there is no value. */
	const class error &failure() const noexcept { return *std::get_if<1>(&state_); }

	/* If there is no value, throws the error. */
	T &value() & { return *checked(); }
	T &&value() && { return std::move(*checked()); }
	/* Only if there is a value. */
	T &operator*() &noexcept { return *std::get_if<0>(&state_); }
	T &&operator*() &&noexcept { return std::move(*std::get_if<0>(&state_)); }
	T *operator->() noexcept { return std::get_if<0>(&state_); }

private:
	T *checked()
	{
		if (!*this)
			detail::fail(failure());
		return std::get_if<0>(&state_);
	}

	std::variant<T, error> state_;
};

template <> class [[nodiscard]] result<void>
{
public:
	result() noexcept = default;
	result(const error &why) noexcept : state_(why) {}

	explicit operator bool() const noexcept { return state_.index() == 0; }
	gpumem_status status() const noexcept { return *this ? GPUMEM_OK : failure().status(); }
	const class error &failure() const noexcept { return *std::get_if<1>(&state_); }
	void value() const
	{
		if (!*this)
			detail::fail(failure());
	}

private:
	std::variant<std::monostate, error> state_;
};

/* ---- typed memory */

/*
 * A view of memory as elements of one type; it owns nothing. The CPU can use the elements if the
 * memory is pinned host memory or on the host backend. For memory of a GPU, data() and size() are for
 * kernels and copies. As C++20, it converts to std::span.
 */
template <class T> class span
{
	static_assert(std::is_trivially_copyable_v<T>, "device memory holds plain bytes");

public:
	using element_type = T;
	using value_type = std::remove_cv_t<T>;
	using size_type = std::size_t;
	using pointer = T *;
	using reference = T &;
	using iterator = T *;

	constexpr span() noexcept = default;
	constexpr span(T *data, std::size_t size) noexcept : data_(data), size_(size) {}
	/* A view of T is one of const T. */
	template <class U,
		class = std::enable_if_t<std::is_same_v<T, const U> && !std::is_same_v<T, U>>>
	constexpr span(const span<U> &other) noexcept : data_(other.data()), size_(other.size())
	{
	}

	constexpr T *data() const noexcept { return data_; }
	constexpr std::size_t size() const noexcept { return size_; }
	constexpr std::size_t size_bytes() const noexcept { return size_ * sizeof(T); }
	constexpr bool empty() const noexcept { return size_ == 0; }
	constexpr T *begin() const noexcept { return data_; }
	constexpr T *end() const noexcept { return data_ + size_; }
	constexpr T &operator[](std::size_t index) const noexcept { return data_[index]; }

	/* From an element on, at most so many; what lies past the end is left out. */
	constexpr span subspan(std::size_t from, std::size_t size = SIZE_MAX) const noexcept
	{
		from = from < size_ ? from : size_;
		return span(data_ + from, size < size_ - from ? size : size_ - from);
	}

private:
	T *data_ = nullptr;
	std::size_t size_ = 0;
};

namespace detail
{

/* As many whole elements as there is room for. */
template <class T> span<T> view(void *ptr, std::size_t bytes) noexcept
{
	return ptr ? span<T>(static_cast<T *>(ptr), bytes / sizeof(T)) : span<T>();
}

/* A session with the number of objects that use it. */
struct shared_session {
	gpumem_session *handle;
	std::atomic<std::size_t> uses;
};

/* One use of a session. */
class session_use
{
public:
	session_use() noexcept = default;
	explicit session_use(shared_session *shared) noexcept : shared_(shared) {}
	session_use(const session_use &other) noexcept : shared_(other.shared_)
	{
		if (shared_)
			shared_->uses.fetch_add(1, std::memory_order_relaxed);
	}
	session_use(session_use &&other) noexcept : shared_(std::exchange(other.shared_, nullptr))
	{
	}
	session_use &operator=(session_use other) noexcept
	{
		std::swap(shared_, other.shared_);
		return *this;
	}
	~session_use()
	{
		if (!shared_ || shared_->uses.fetch_sub(1, std::memory_order_acq_rel) != 1)
			return;
		gpumem_disconnect(shared_->handle);
		delete shared_;
	}

	gpumem_session *handle() const noexcept { return shared_ ? shared_->handle : nullptr; }

private:
	shared_session *shared_ = nullptr;
};

/* A handle of the library and one use of its session. The handle goes first. */
template <class H, void (*End)(H *)> class owned
{
public:
	owned(session_use session, H *handle) noexcept
	    : session_(std::move(session)), handle_(handle)
	{
	}
	owned(owned &&other) noexcept
	    : session_(std::move(other.session_)), handle_(std::exchange(other.handle_, nullptr))
	{
	}
	owned &operator=(owned &&other) noexcept
	{
		if (this != &other) {
			End(std::exchange(handle_, std::exchange(other.handle_, nullptr)));
			session_ = std::move(other.session_);
		}
		return *this;
	}
	~owned() { End(handle_); }

	H *handle() const noexcept { return handle_; }
	gpumem_session *session() const noexcept { return session_.handle(); }

private:
	session_use session_;
	H *handle_;
};

} /* namespace detail */

/* ---- session */

inline gpumem_connect_options connect_options() noexcept
{
	return GPUMEM_CONNECT_OPTIONS_INIT;
}

class session
{
public:
	static result<session> connect(
		const gpumem_connect_options &options = connect_options()) noexcept
	{
		gpumem_session *handle = nullptr;
		if (gpumem_status status = gpumem_connect(&options, &handle))
			return detail::last_error(status);
		return adopt(handle);
	}
	/* Takes ownership of a session, even on error. */
	static result<session> adopt(gpumem_session *handle) noexcept
	{
		auto *shared = new (std::nothrow) detail::shared_session{handle, {1}};
		if (!shared) {
			gpumem_disconnect(handle);
			return error(GPUMEM_E_HOST_MEMORY, "no memory for a session");
		}
		return session(detail::session_use(shared));
	}
#if GPUMEM_HPP_EXCEPTIONS
	explicit session(const gpumem_connect_options &options = connect_options())
	    : session(connect(options).value())
	{
	}
#endif
	session(session &&) noexcept = default;
	session &operator=(session &&) noexcept = default;

	/* NULL if it was moved from. */
	gpumem_session *get() const noexcept
	{
		return use_.handle();
	}
	explicit operator bool() const noexcept
	{
		return get();
	}

	/* A device with room for so many bytes: advice, as gpumem_place() gives it. */
	result<gpumem_placement> place(
		std::uint64_t bytes, gpumem_fit at_worst = GPUMEM_FIT_RECLAIM) const noexcept
	{
		gpumem_placement placement = GPUMEM_PLACEMENT_INIT;
		if (gpumem_status status = gpumem_place(get(), bytes, at_worst, &placement))
			return detail::last_error(status);
		return placement;
	}

	/* For the objects of this header: one more use. */
	detail::session_use use() const noexcept
	{
		return use_;
	}

private:
	explicit session(detail::session_use use) noexcept : use_(std::move(use))
	{
	}

	detail::session_use use_;
};

/* ---- buffer */

inline gpumem_copy_options copy_options() noexcept
{
	return GPUMEM_COPY_OPTIONS_INIT;
}

inline gpumem_buffer_options buffer_options() noexcept
{
	return GPUMEM_BUFFER_OPTIONS_INIT;
}

inline gpumem_publish_options publish_options() noexcept
{
	return GPUMEM_PUBLISH_OPTIONS_INIT;
}

/* What a name was published with: a copy that this object owns. */
class metadata
{
public:
	/* Without attaching to the name. */
	static result<metadata> read(const session &session, const char *name) noexcept
	{
		metadata read;
		if (gpumem_status status = gpumem_metadata_read(
			    session.get(), name, &read.data_, &read.size_, &read.version_))
			return detail::last_error(status);
		return read;
	}
	/* Of a buffer that was published or attached, in its own version. */
	static result<metadata> of(gpumem_buffer *buffer) noexcept
	{
		metadata read;
		if (gpumem_status status = gpumem_buffer_metadata(buffer, &read.data_, &read.size_))
			return detail::last_error(status);
		read.version_ = gpumem_buffer_version(buffer);
		return read;
	}
	metadata(metadata &&other) noexcept
	    : data_(std::exchange(other.data_, nullptr)), size_(std::exchange(other.size_, 0)),
	      version_(std::exchange(other.version_, 0))
	{
	}
	metadata &operator=(metadata &&other) noexcept
	{
		std::swap(data_, other.data_);
		std::swap(size_, other.size_);
		std::swap(version_, other.version_);
		return *this;
	}
	~metadata() { gpumem_metadata_free(data_); }

	/* NULL, with a size of 0: there is none. */
	const void *data() const noexcept { return data_; }
	std::size_t size() const noexcept { return size_; }
	std::uint64_t version() const noexcept { return version_; }
	std::string_view text() const noexcept { return {static_cast<const char *>(data_), size_}; }

private:
	metadata() noexcept = default;

	void *data_ = nullptr;
	std::size_t size_ = 0;
	std::uint64_t version_ = 0;
};

class buffer
{
public:
	static result<buffer> create(const session &session, std::uint32_t device, std::size_t size,
		const gpumem_buffer_options &options = buffer_options()) noexcept
	{
		gpumem_buffer *handle = nullptr;
		gpumem_status status =
			gpumem_buffer_create(session.get(), device, size, &options, &handle);
		if (status)
			return detail::last_error(status);
		return adopt(session, handle);
	}
	/* Maps a buffer that another process shared. */
	static result<buffer> open(const session &session, const gpumem_token &token) noexcept
	{
		gpumem_buffer *handle = nullptr;
		if (gpumem_status status = gpumem_open(session.get(), &token, &handle))
			return detail::last_error(status);
		return adopt(session, handle);
	}
	/* Maps the buffer that the name means now, or, if there is none, when it is published within wait_ms. */
	static result<buffer> attach(
		const session &session, const char *name, std::uint32_t wait_ms = 0) noexcept
	{
		gpumem_buffer *handle = nullptr;
		if (gpumem_status status =
				gpumem_attach_wait(session.get(), name, wait_ms, &handle))
			return detail::last_error(status);
		return adopt(session, handle);
	}
	/* Takes ownership of a buffer of the session. */
	static buffer adopt(const session &session, gpumem_buffer *handle) noexcept
	{
		return buffer(session.use(), handle);
	}
#if GPUMEM_HPP_EXCEPTIONS
	buffer(const session &session, std::uint32_t device, std::size_t size,
		const gpumem_buffer_options &options = buffer_options())
	    : buffer(create(session, device, size, options).value())
	{
	}
#endif

	gpumem_buffer *get() const noexcept
	{
		return owned_.handle();
	}
	explicit operator bool() const noexcept
	{
		return get();
	}
	void *data() const noexcept
	{
		return gpumem_buffer_ptr(get());
	}
	std::size_t size() const noexcept
	{
		return gpumem_buffer_size(get());
	}
	template <class T> span<T> as() const noexcept
	{
		return detail::view<T>(data(), size());
	}
	/* Makes it larger or smaller. The result says whether it has moved, so that data() is another. */
	result<bool> resize(std::size_t size, gpumem_stream stream = GPUMEM_STREAM_ANY) noexcept
	{
		int moved = 0;
		if (gpumem_status status = gpumem_buffer_resize(get(), size, stream, &moved))
			return detail::last_error(status);
		return moved != 0;
	}
	/* Sees to it that it has so many bytes: grows as its policy says. */
	result<bool> ensure(std::size_t needed, gpumem_stream stream = GPUMEM_STREAM_ANY) noexcept
	{
		int moved = 0;
		if (gpumem_status status = gpumem_buffer_ensure(get(), needed, stream, &moved))
			return detail::last_error(status);
		return moved != 0;
	}
	/* How far it can grow where it is. */
	std::size_t max_size() const noexcept
	{
		return gpumem_buffer_max_size(get());
	}
	/* Where it is; unless it is pinned (class pin), that may change at any time. */
	gpumem_location location() const noexcept
	{
		return gpumem_buffer_location(get());
	}
	/* Moves an evictable buffer to host memory now. */
	result<void> evict() const noexcept
	{
		if (gpumem_status status = gpumem_buffer_evict(get()))
			return detail::last_error(status);
		return {};
	}
	/* Puts the buffer under a name, where it outlives this object. */
	result<void> publish(const char *name, gpumem_stream stream = GPUMEM_STREAM_ANY,
		const gpumem_publish_options &options = publish_options()) const noexcept
	{
		if (gpumem_status status = gpumem_publish(get(), name, &options, stream, nullptr))
			return detail::last_error(status);
		return {};
	}
	/* What it was published with. */
	result<gpumem::metadata> metadata() const noexcept
	{
		return gpumem::metadata::of(get());
	}
	/* Signals and waits, of a buffer with GPUMEM_BUFFER_SIGNALS: see gpumem_buffer_signal(3). */
	result<void> signal(gpumem_stream stream, std::uint64_t value) const noexcept
	{
		if (gpumem_status status = gpumem_buffer_signal(get(), stream, value))
			return detail::last_error(status);
		return {};
	}
	result<void> wait(gpumem_stream stream, std::uint64_t value,
		std::uint32_t timeout_ms = GPUMEM_WAIT_FOREVER) const noexcept
	{
		if (gpumem_status status = gpumem_buffer_wait(get(), stream, value, timeout_ms))
			return detail::last_error(status);
		return {};
	}
	/* Whether a wait for the value was lost, because the producer is gone. An error counts as
	 * lost, too: what was waited for cannot be relied on. */
	bool lost(std::uint64_t value) const noexcept
	{
		return gpumem_buffer_lost(get(), value) != GPUMEM_OK;
	}
	/* Copies, as gpumem_copy_in(3) describes them. The progress function must not throw. */
	result<gpumem_copy_result> copy_in(std::size_t offset, const void *from, std::size_t bytes,
		gpumem_stream stream = GPUMEM_STREAM_ANY,
		const gpumem_copy_options &options = copy_options()) const noexcept
	{
		gpumem_copy_result done = GPUMEM_COPY_RESULT_INIT;
		if (gpumem_status status =
				gpumem_copy_in(get(), offset, from, bytes, stream, &options, &done))
			return detail::copy_error(status, done);
		return done;
	}
	result<gpumem_copy_result> copy_out(std::size_t offset, void *to, std::size_t bytes,
		gpumem_stream stream = GPUMEM_STREAM_ANY,
		const gpumem_copy_options &options = copy_options()) const noexcept
	{
		gpumem_copy_result done = GPUMEM_COPY_RESULT_INIT;
		if (gpumem_status status =
				gpumem_copy_out(get(), offset, to, bytes, stream, &options, &done))
			return detail::copy_error(status, done);
		return done;
	}
	/* The whole file. */
	result<gpumem_copy_result> copy_file_in(std::size_t offset, const char *path,
		gpumem_stream stream = GPUMEM_STREAM_ANY,
		const gpumem_copy_options &options = copy_options()) const noexcept
	{
		gpumem_copy_result done = GPUMEM_COPY_RESULT_INIT;
		gpumem_copy_file file = GPUMEM_COPY_FILE_INIT;
		file.path = path;
		if (gpumem_status status =
				gpumem_copy_file_in(get(), offset, &file, stream, &options, &done))
			return detail::copy_error(status, done);
		return done;
	}
	/* Says that the buffer is used now, for gpumem_leaks() and gpumemctl buffers. */
	void touch() const noexcept
	{
		(void)gpumem_buffer_touch(get());
	}
	/* As which it was published or attached; 0: neither. */
	std::uint64_t version() const noexcept
	{
		return gpumem_buffer_version(get());
	}

private:
	buffer(detail::session_use use, gpumem_buffer *handle) noexcept
	    : owned_(std::move(use), handle)
	{
	}

	detail::owned<gpumem_buffer, gpumem_buffer_destroy> owned_;
};

/* ---- pin */

inline gpumem_pin_options pin_options() noexcept
{
	return GPUMEM_PIN_OPTIONS_INIT;
}

/*
 * Keeps an evictable buffer where it is: see gpumem_buffer_pin(3). Ends with an unpin for work on the stream
 * that was given. The buffer must live longer.
 */
class pin
{
public:
	static result<pin> create(const buffer &buffer, gpumem_stream stream = GPUMEM_STREAM_ANY,
		const gpumem_pin_options &options = pin_options()) noexcept
	{
		gpumem_location location = GPUMEM_LOCATION_DEVICE;
		if (gpumem_status status = gpumem_buffer_pin(buffer.get(), &options, &location))
			return detail::last_error(status);
		return pin(buffer.get(), stream, location);
	}
#if GPUMEM_HPP_EXCEPTIONS
	explicit pin(const buffer &buffer, gpumem_stream stream = GPUMEM_STREAM_ANY,
		const gpumem_pin_options &options = pin_options())
	    : pin(create(buffer, stream, options).value())
	{
	}
#endif
	pin(pin &&other) noexcept
	    : handle_(std::exchange(other.handle_, nullptr)), stream_(other.stream_),
	      location_(other.location_)
	{
	}
	pin &operator=(pin &&other) noexcept
	{
		std::swap(handle_, other.handle_);
		std::swap(stream_, other.stream_);
		std::swap(location_, other.location_);
		return *this;
	}
	pin(const pin &) = delete;
	pin &operator=(const pin &) = delete;
	~pin()
	{
		(void)end();
	}

	/* Where the buffer is, until the pin ends. */
	gpumem_location location() const noexcept
	{
		return location_;
	}
	/* Ends the pin now. If that fails, because the stream is being captured, the buffer stays
	 * pinned. */
	result<void> end() noexcept
	{
		gpumem_buffer *handle = std::exchange(handle_, nullptr);
		gpumem_status status = handle ? gpumem_buffer_unpin(handle, stream_) : GPUMEM_OK;
		if (status)
			return detail::last_error(status);
		return {};
	}

private:
	pin(gpumem_buffer *handle, gpumem_stream stream, gpumem_location location) noexcept
	    : handle_(handle), stream_(stream), location_(location)
	{
	}

	gpumem_buffer *handle_;
	gpumem_stream stream_;
	gpumem_location location_;
};

/* ---- batch */

inline gpumem_batch_options batch_options() noexcept
{
	return GPUMEM_BATCH_OPTIONS_INIT;
}

/* An entry with room for so many elements. A count that overflows is refused by batch::create(). */
template <class T>
constexpr gpumem_batch_entry entry_of(std::size_t count, const char *tag = nullptr) noexcept
{
	return {count > SIZE_MAX / sizeof(T) ? SIZE_MAX : count * sizeof(T), alignof(T), tag};
}

class batch
{
public:
	/* If it fails, error::entry() is the entry to blame, whatever options.ret_failed says. */
	static result<batch> create(const session &session, std::uint32_t device,
		const gpumem_batch_entry *entries, std::size_t count,
		gpumem_batch_options options = batch_options()) noexcept
	{
		gpumem_batch *handle = nullptr;
		std::size_t failed = GPUMEM_BATCH_NO_ENTRY;
		options.ret_failed = &failed;
		gpumem_status status = gpumem_batch_create(
			session.get(), device, entries, count, &options, &handle);
		if (status)
			return detail::last_error(status, failed);
		return adopt(session, handle);
	}
	static result<batch> create(const session &session, std::uint32_t device,
		std::initializer_list<gpumem_batch_entry> entries,
		const gpumem_batch_options &options = batch_options()) noexcept
	{
		return create(session, device, entries.begin(), entries.size(), options);
	}
	/* Takes ownership of a batch of the session. */
	static batch adopt(const session &session, gpumem_batch *handle) noexcept
	{
		return batch(session.use(), handle);
	}
#if GPUMEM_HPP_EXCEPTIONS
	batch(const session &session, std::uint32_t device, const gpumem_batch_entry *entries,
		std::size_t count, const gpumem_batch_options &options = batch_options())
	    : batch(create(session, device, entries, count, options).value())
	{
	}
	batch(const session &session, std::uint32_t device,
		std::initializer_list<gpumem_batch_entry> entries,
		const gpumem_batch_options &options = batch_options())
	    : batch(create(session, device, entries, options).value())
	{
	}
#endif

	gpumem_batch *get() const noexcept
	{
		return owned_.handle();
	}
	explicit operator bool() const noexcept
	{
		return get();
	}
	/* How many entries it was made with. */
	std::size_t size() const noexcept
	{
		return gpumem_batch_count(get());
	}
	/* NULL if the entry was freed, or if there is no such entry. */
	void *data(std::size_t index) const noexcept
	{
		return gpumem_batch_ptr(get(), index);
	}
	std::size_t bytes(std::size_t index) const noexcept
	{
		return gpumem_batch_size(get(), index);
	}
	const char *tag(std::size_t index) const noexcept
	{
		return gpumem_batch_tag(get(), index);
	}
	/* Empty if the entry was freed, or if there is no such entry. */
	template <class T> span<T> as(std::size_t index) const noexcept
	{
		return detail::view<T>(data(index), bytes(index));
	}

	/* Frees one entry; the others go with the batch. */
	result<void> free_entry(
		std::size_t index, gpumem_stream stream = GPUMEM_STREAM_ANY) noexcept
	{
		if (gpumem_status status = gpumem_batch_free_entry(get(), index, stream))
			return detail::last_error(status, index);
		return {};
	}

private:
	batch(detail::session_use use, gpumem_batch *handle) noexcept
	    : owned_(std::move(use), handle)
	{
	}

	detail::owned<gpumem_batch, gpumem_batch_destroy> owned_;
};

/* ---- managed memory */

inline gpumem_managed_options managed_options() noexcept
{
	return GPUMEM_MANAGED_OPTIONS_INIT;
}

/* Managed memory, which the CPU and the device both use: see gpumem_managed_create(3). */
class managed
{
public:
	static result<managed> create(const session &session, std::uint32_t device,
		std::size_t bytes,
		const gpumem_managed_options &options = managed_options()) noexcept
	{
		gpumem_managed *handle = nullptr;
		gpumem_status status =
			gpumem_managed_create(session.get(), device, bytes, &options, &handle);
		if (status)
			return detail::last_error(status);
		return adopt(session, handle);
	}
	/* Takes ownership of managed memory of the session. */
	static managed adopt(const session &session, gpumem_managed *handle) noexcept
	{
		return managed(session.use(), handle);
	}
#if GPUMEM_HPP_EXCEPTIONS
	managed(const session &session, std::uint32_t device, std::size_t bytes,
		const gpumem_managed_options &options = managed_options())
	    : managed(create(session, device, bytes, options).value())
	{
	}
#endif

	gpumem_managed *get() const noexcept
	{
		return owned_.handle();
	}
	explicit operator bool() const noexcept
	{
		return get();
	}
	void *data() const noexcept
	{
		return gpumem_managed_ptr(get());
	}
	std::size_t size() const noexcept
	{
		return gpumem_managed_size(get());
	}
	template <class T> span<T> as() const noexcept
	{
		return detail::view<T>(data(), size());
	}

	/* Moves all of it. */
	result<void> prefetch(gpumem_managed_place place, gpumem_stream stream) noexcept
	{
		if (gpumem_status status = gpumem_managed_prefetch(get(), 0, size(), place, stream))
			return detail::last_error(status);
		return {};
	}
	/* About all of it. */
	result<void> advise(gpumem_managed_advice advice,
		gpumem_managed_place place = GPUMEM_MANAGED_ON_DEVICE) noexcept
	{
		if (gpumem_status status = gpumem_managed_advise(get(), 0, size(), advice, place))
			return detail::last_error(status);
		return {};
	}

private:
	managed(detail::session_use use, gpumem_managed *handle) noexcept
	    : owned_(std::move(use), handle)
	{
	}

	detail::owned<gpumem_managed, gpumem_managed_destroy> owned_;
};

/* ---- ring */

inline gpumem_ring_options ring_options() noexcept
{
	return GPUMEM_RING_OPTIONS_INIT;
}

/* One end of a ring whose messages are of type T: see gpumem_ring_create(3). It is closed by itself. */
template <class T> class ring
{
	static_assert(std::is_trivially_copyable_v<T> && std::is_default_constructible_v<T>,
		"a message is copied as bytes");

public:
	static result<ring> create(const session &session, std::size_t messages,
		const gpumem_ring_options &options = ring_options()) noexcept
	{
		gpumem_ring *handle = nullptr;
		gpumem_status status =
			gpumem_ring_create(session.get(), sizeof(T), messages, &options, &handle);
		if (status)
			return detail::last_error(status);
		return ring(session.use(), handle);
	}
	/* The far end of a ring that another process shared. */
	static result<ring> open(const session &session, const gpumem_token &token,
		const gpumem_ring_options &options = ring_options()) noexcept
	{
		gpumem_buffer *buffer = nullptr;
		if (gpumem_status status = gpumem_open(session.get(), &token, &buffer))
			return detail::last_error(status);
		return take(session, buffer, options);
	}
	/* The far end of a ring that another process published. */
	static result<ring> attach(const session &session, const char *name,
		const gpumem_ring_options &options = ring_options()) noexcept
	{
		gpumem_buffer *buffer = nullptr;
		if (gpumem_status status = gpumem_attach(session.get(), name, &buffer))
			return detail::last_error(status);
		return take(session, buffer, options);
	}
#if GPUMEM_HPP_EXCEPTIONS
	ring(const session &session, std::size_t messages,
		const gpumem_ring_options &options = ring_options())
	    : ring(create(session, messages, options).value())
	{
	}
#endif

	gpumem_ring *get() const noexcept
	{
		return owned_.handle();
	}
	explicit operator bool() const noexcept
	{
		return get();
	}
	/* To be shared or published; it belongs to the ring. */
	gpumem_buffer *buffer() const noexcept
	{
		return gpumem_ring_buffer(get());
	}
	/* How many messages there is room for in each direction. */
	std::size_t messages() const noexcept
	{
		return gpumem_ring_messages(get());
	}
	result<void> send(const T &message) noexcept
	{
		return done(gpumem_ring_send(get(), &message));
	}
	result<void> flush() noexcept
	{
		return done(gpumem_ring_flush(get()));
	}
	result<T> receive(std::uint32_t wait_ms = GPUMEM_WAIT_FOREVER) noexcept
	{
		T message;
		if (gpumem_status status = gpumem_ring_receive(get(), &message, wait_ms))
			return detail::last_error(status);
		return message;
	}
	/* Says that this end sends no more. */
	result<void> hang_up() noexcept
	{
		return done(gpumem_ring_hang_up(get()));
	}
	gpumem_ring_stats_t stats() const noexcept
	{
		gpumem_ring_stats_t stats = GPUMEM_RING_STATS_INIT;
		(void)gpumem_ring_stats(get(), &stats);
		return stats;
	}

private:
	ring(detail::session_use use, gpumem_ring *handle) noexcept : owned_(std::move(use), handle)
	{
	}

	/* Takes ownership of the buffer, even on error. */
	static result<ring> take(const session &session, gpumem_buffer *buffer,
		const gpumem_ring_options &options) noexcept
	{
		gpumem_ring *handle = nullptr;
		if (gpumem_status status = gpumem_ring_open(buffer, &options, &handle)) {
			error why = detail::last_error(status);
			gpumem_buffer_destroy(buffer);
			return why;
		}
		ring taken(session.use(), handle);
		if (gpumem_ring_message_bytes(handle) != sizeof(T))
			return error(GPUMEM_E_INVALID, "the ring's messages have another size");
		return taken;
	}
	static result<void> done(gpumem_status status) noexcept
	{
		if (status)
			return detail::last_error(status);
		return {};
	}

	detail::owned<gpumem_ring, gpumem_ring_close> owned_;
};

/* ---- region */

inline gpumem_region_options region_options() noexcept
{
	return GPUMEM_REGION_OPTIONS_INIT;
}

class region
{
public:
	static result<region> create(const session &session, std::uint32_t device, const char *tag,
		std::size_t max_size,
		const gpumem_region_options &options = region_options()) noexcept
	{
		gpumem_region *handle = nullptr;
		if (gpumem_status status = gpumem_region_create(
			    session.get(), device, tag, max_size, &options, &handle))
			return detail::last_error(status);
		return region(session.use(), handle, tag);
	}
#if GPUMEM_HPP_EXCEPTIONS
	region(const session &session, std::uint32_t device, const char *tag, std::size_t max_size,
		const gpumem_region_options &options = region_options())
	    : region(create(session, device, tag, max_size, options).value())
	{
	}
#endif

	gpumem_region *get() const noexcept
	{
		return owned_.handle();
	}
	explicit operator bool() const noexcept
	{
		return get();
	}
	const char *tag() const noexcept
	{
		return tag_;
	}

	/* Memory of the region. The region frees nothing of it before its own end. */
	result<void *> alloc(std::size_t size, gpumem_stream stream,
		const gpumem_alloc_options &options = GPUMEM_ALLOC_OPTIONS_INIT) noexcept
	{
		void *ptr = nullptr;
		if (gpumem_status status = gpumem_region_alloc(get(), size, stream, &options, &ptr))
			return detail::last_error(status);
		return ptr;
	}
	result<void> free(void *ptr, gpumem_stream stream = GPUMEM_STREAM_ANY) noexcept
	{
		if (gpumem_status status = gpumem_region_free(get(), ptr, stream))
			return detail::last_error(status);
		return {};
	}
	result<void> pause(gpumem_region_content content) noexcept
	{
		if (gpumem_status status = gpumem_region_pause(owned_.session(), tag_, content))
			return detail::last_error(status);
		return {};
	}
	result<void> resume(std::uint32_t wait_ms = 0) noexcept
	{
		if (gpumem_status status = gpumem_region_resume(owned_.session(), tag_, wait_ms))
			return detail::last_error(status);
		return {};
	}
	result<gpumem_region_stats_t> stats() const noexcept
	{
		gpumem_region_stats_t stats = GPUMEM_REGION_STATS_INIT;
		if (gpumem_status status = gpumem_region_stats(owned_.session(), tag_, &stats))
			return detail::last_error(status);
		return stats;
	}

private:
	region(detail::session_use use, gpumem_region *handle, const char *tag) noexcept
	    : owned_(std::move(use), handle)
	{
		/* The library has checked that it is no longer. */
		std::strncpy(tag_, tag, sizeof(tag_) - 1);
	}

	detail::owned<gpumem_region, gpumem_region_destroy> owned_;
	char tag_[64] = {};
};

/* ---- pinned host memory for containers */

#if __has_include(<memory_resource>)

#if GPUMEM_HPP_EXCEPTIONS
/* What a host_resource throws: a std::bad_alloc with a status and a sentence. */
class bad_alloc : public std::bad_alloc
{
public:
	explicit bad_alloc(const error &why) noexcept : why_(why) {}
	gpumem_status status() const noexcept { return why_.status(); }
	const char *what() const noexcept override { return why_.what(); }

private:
	error why_;
};
#endif

/*
 * Pinned host memory for containers, as in
 *
 *   gpumem::host_resource pinned(session);
 *   std::pmr::vector<float> staging(n, &pinned);
 *
 * It must outlive them. Memory that is freed is reused when the work that was launched before is
 * done. Without exceptions, the program ends if there is no memory.
 */
class host_resource : public std::pmr::memory_resource
{
public:
	explicit host_resource(const session &session) noexcept : use_(session.use()) {}

private:
	void *do_allocate(std::size_t bytes, std::size_t alignment) override
	{
		gpumem_alloc_options options = GPUMEM_ALLOC_OPTIONS_INIT;
		void *ptr = nullptr;
		options.alignment = alignment;
		options.tag = "host_resource";
		gpumem_status status =
			gpumem_host_alloc(use_.handle(), bytes ? bytes : 1, &options, &ptr);
		if (status) {
#if GPUMEM_HPP_EXCEPTIONS
			throw bad_alloc(detail::last_error(status));
#else
			std::abort();
#endif
		}
		return ptr;
	}

	void do_deallocate(void *ptr, std::size_t, std::size_t) override
	{
		gpumem_host_free(use_.handle(), ptr);
	}

	/* Two resources of one session can free each other's memory. */
	bool do_is_equal(const std::pmr::memory_resource &other) const noexcept override
	{
#if defined(__cpp_rtti)
		auto *same = dynamic_cast<const host_resource *>(&other);
		return same && same->use_.handle() == use_.handle();
#else
		return this == &other;
#endif
	}

	detail::session_use use_;
};

#endif

} // namespace GPUMEM_HPP_NAMESPACE
} /* namespace gpumem */

#if defined(__cpp_lib_span)
template <class T> inline constexpr bool std::ranges::enable_borrowed_range<gpumem::span<T>> = true;
template <class T> inline constexpr bool std::ranges::enable_view<gpumem::span<T>> = true;
#endif

#endif
