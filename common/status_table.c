/* SPDX-License-Identifier: Apache-2.0 */
#include "autoconf.h"

/* Translates status codes: into words, into an exit status, and from errno. The first two use the
 * table in gpumem/status.h. */

#include <errno.h>

#include "common/status_table.h"

const char *gm_status_text(gpumem_status status)
{
	switch (status) {
#define GM_STATUS_CASE(name, value, exit_status, text) \
	case name: \
		return text;
		GPUMEM_STATUS_MAP(GM_STATUS_CASE)
#undef GM_STATUS_CASE
	}
	return "unknown status";
}

int gm_status_exit(gpumem_status status)
{
	switch (status) {
#define GM_STATUS_CASE(name, value, exit_status, text) \
	case name: \
		return exit_status;
		GPUMEM_STATUS_MAP(GM_STATUS_CASE)
#undef GM_STATUS_CASE
	}
	return 1;
}

gpumem_status gm_status_from_errno(int error)
{
	switch (error < 0 ? -error : error) {
	case 0:
		return GPUMEM_OK;
	case EINVAL:
	case ERANGE:
	case ENAMETOOLONG:
	case EFAULT:
		return GPUMEM_E_INVALID;
	case EPIPE:
	case ECONNRESET:
	case ECONNREFUSED:
	case ECONNABORTED:
	case ENOTCONN:
		return GPUMEM_E_DISCONNECTED;
	case EACCES:
	case EPERM:
		return GPUMEM_E_DENIED;
	case E2BIG:
	case EDQUOT:
		return GPUMEM_E_LIMIT;
	case ENOENT:
	case ENODEV:
	case ENXIO:
	case ESRCH:
		return GPUMEM_E_NOT_FOUND;
	case EBADMSG:
	case EPROTO:
		return GPUMEM_E_PROTOCOL;
	case EPROTONOSUPPORT:
		return GPUMEM_E_VERSION;
	case EOPNOTSUPP:
	case ENOSYS:
		return GPUMEM_E_UNSUPPORTED;
	case ETIMEDOUT:
	case ETIME:
		return GPUMEM_E_TIMEOUT;
	case EBUSY:
		return GPUMEM_E_BUSY;
	case ENOMEM:
		return GPUMEM_E_HOST_MEMORY;
	case ENOBUFS:
		return GPUMEM_E_NO_MEMORY;
	case EDEADLK:
		return GPUMEM_E_DEADLOCK;
	case ECANCELED:
		return GPUMEM_E_CANCELLED;
	default:
		return GPUMEM_E_SYSTEM;
	}
}
