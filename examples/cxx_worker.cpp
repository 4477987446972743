/* SPDX-License-Identifier: Apache-2.0 */
/* A worker in C++17. Nothing is freed by hand: each object frees what it holds, also when an error is
 * thrown. */
#include <gpumem/gpumem.hpp>
#include <cstdio>
#include <vector>

static void work(const gpumem::session &session)
{
	/* One request for all tensors, each with a type. */
	gpumem::batch model(session, 0,
		{
			gpumem::entry_of<float>(1 << 20, "weights"),
			gpumem::entry_of<float>(1 << 10, "bias"),
			gpumem::entry_of<std::int8_t>(1 << 22, "activations"),
		});
	gpumem::span<float> weights = model.as<float>(0);
	std::printf("%zu floats at %p\n", weights.size(), static_cast<void *>(weights.data()));

	/* Memory to copy from, which the GPU reads at full speed. */
	gpumem::host_resource pinned(session);
	std::pmr::vector<float> staging(1 << 20, 1.0f, &pinned);
	std::printf("%zu floats in pinned host memory\n", staging.size());

	/* A caller that expects a failure asks for a result instead of an exception. */
	auto huge = gpumem::buffer::create(session, 0, std::size_t(1) << 40);
	if (!huge)
		std::printf(
			"1 TiB is refused, as expected: %s\n", gpumem_status_text(huge.status()));
}

int main()
{
	try {
		gpumem::session session;
		work(session);
	} catch (const std::exception &e) {
		std::fprintf(stderr, "cxx_worker: %s\n", e.what());
		return 1;
	}
}
