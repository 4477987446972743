/* SPDX-License-Identifier: Apache-2.0 */
#include "autoconf.h"

/*
 * gpumem-exporter: serves what gpumemctl metrics writes over HTTP. It is an ordinary client of the daemon's socket, which asks
 * at most once a second however many scrape it. The daemon itself has no network.
 *
 * One thread serves everything (libmicrohttpd), so nothing here is locked.
 */

#include <errno.h>
#include <getopt.h>
#include <microhttpd.h>
#include <netdb.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <systemd/sd-daemon.h>
#include <unistd.h>

#include "common/clock.h"
#include "common/text/message.h"
#include "common/text/text.h"
#include "ctl/options.h"
#include "ctl/show/metrics.h"

#define EXIT_USAGE 2

#define EXPORTER_LISTEN "127.0.0.1:9846"
/* The daemon is asked again when the last answer is older than this. */
#define EXPORTER_FRESH_NS GM_NS_PER_S
/* Maximum time for an answer of the daemon. Prometheus gives up after 10 s unless configured otherwise. */
#define EXPORTER_TIMEOUT_MS 5000
/* Connections at a time, and the time in seconds after which a silent one is closed. */
#define EXPORTER_CONNECTIONS 64
#define EXPORTER_SILENCE_S   10

static const char own_name[] = "gpumem-exporter";

struct exporter {
	struct gm_options options;
	char *text; /* the last answer; NULL: none */
	size_t n;
	uint64_t asked_ns;
	bool down; /* the last answer was that the daemon cannot be reached, and was reported */
};

static const char exporter_help[] =
	"gpumem-exporter [OPTION...]\n\n"
	"Serves the metrics of gpumemd over HTTP, for Prometheus: GET /metrics.\n\n"
	"  --listen ADDRESS:PORT  where to listen (" EXPORTER_LISTEN "); [::1]:9846 for IPv6\n"
	"  --listen /PATH         a Unix socket instead\n"
	"  --socket PATH          the socket of the daemon; default: as gpumemctl\n"
	"  -h, --help             this help\n"
	"  --version              the version\n\n"
	"A socket that systemd passes takes the place of --listen. gpumem-exporter(8) says more.\n";

/* ---- answers */

/* Asks the daemon if the last answer is old. Returns whether there is an answer. */
static bool exporter_refresh(struct exporter *exporter)
{
	struct gm_ctl ctl = {.options = &exporter->options};
	uint64_t now = gm_clock_ns();
	char *text;
	size_t n;

	if (exporter->text && now - exporter->asked_ns < EXPORTER_FRESH_NS)
		return true;
	gpumem_status status = gm_metrics_write(&ctl, &text, &n);
	if (status != GPUMEM_OK && !exporter->down)
		gm_message(own_name, ctl.trouble.text);
	exporter->down = status != GPUMEM_OK;
	if (!text)
		return false;
	free(exporter->text);
	exporter->text = text;
	exporter->n = n;
	exporter->asked_ns = gm_clock_ns();
	return true;
}

static enum MHD_Result exporter_send(struct MHD_Connection *connection, unsigned status,
	const char *type, const char *text, size_t n)
{
	struct MHD_Response *response =
		MHD_create_response_from_buffer(n, (void *)text, MHD_RESPMEM_MUST_COPY);
	enum MHD_Result result = MHD_NO;

	if (response && MHD_add_response_header(response, MHD_HTTP_HEADER_CONTENT_TYPE, type) &&
		(status != MHD_HTTP_METHOD_NOT_ALLOWED ||
			MHD_add_response_header(response, MHD_HTTP_HEADER_ALLOW, "GET, HEAD")))
		result = MHD_queue_response(connection, status, response);
	if (response)
		MHD_destroy_response(response);
	return result;
}

#define EXPORTER_TEXT "text/plain; charset=utf-8"

static enum MHD_Result exporter_answer(void *user, struct MHD_Connection *connection,
	const char *url, const char *method, const char *version, const char *upload,
	size_t *upload_n, void **request)
{
	static const char index[] = "<!DOCTYPE html><title>gpumem-exporter</title>"
				    "<p>gpumem-exporter: <a href=\"/metrics\">metrics</a></p>\n";
	static const char not_found[] = "there is only /metrics\n";
	static const char not_allowed[] = "only GET and HEAD\n";
	static const char no_memory[] = "out of memory\n";
	struct exporter *exporter = user;

	if (strcmp(method, MHD_HTTP_METHOD_GET) && strcmp(method, MHD_HTTP_METHOD_HEAD))
		return exporter_send(connection, MHD_HTTP_METHOD_NOT_ALLOWED, EXPORTER_TEXT,
			not_allowed, sizeof(not_allowed) - 1);
	if (!strcmp(url, "/"))
		return exporter_send(connection, MHD_HTTP_OK, "text/html; charset=utf-8", index,
			sizeof(index) - 1);
	if (strcmp(url, "/metrics"))
		return exporter_send(connection, MHD_HTTP_NOT_FOUND, EXPORTER_TEXT, not_found,
			sizeof(not_found) - 1);
	if (!exporter_refresh(exporter))
		return exporter_send(connection, MHD_HTTP_SERVICE_UNAVAILABLE, EXPORTER_TEXT,
			no_memory, sizeof(no_memory) - 1);
	return exporter_send(connection, MHD_HTTP_OK, "text/plain; version=0.0.4; charset=utf-8",
		exporter->text, exporter->n);
}

/* ---- the socket */

static int exporter_fail(const char *listen, const char *what, const char *why)
{
	char text[512];

	snprintf(text, sizeof(text), "cannot %s %s: %s; choose another place with --listen", what,
		listen, why);
	gm_message(own_name, text);
	return -1;
}

static int exporter_bind(int fd, const struct sockaddr *address, socklen_t n, const char *listen_at)
{
	if (bind(fd, address, n) == 0 && listen(fd, SOMAXCONN) == 0)
		return fd;
	(void)exporter_fail(listen_at, "listen on", strerror(errno));
	close(fd);
	return -1;
}

static int exporter_listen_unix(const char *path)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};

	if (strlen(path) >= sizeof(address.sun_path))
		return exporter_fail(path, "listen on", "the path is too long");
	strcpy(address.sun_path, path);
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (fd < 0)
		return exporter_fail(path, "listen on", strerror(errno));
	/* A socket that nobody listens on is left from a program that was killed. */
	if (connect(fd, (struct sockaddr *)&address, sizeof(address)) < 0 && errno == ECONNREFUSED)
		(void)unlink(path);
	return exporter_bind(fd, (struct sockaddr *)&address, sizeof(address), path);
}

/* Takes ADDRESS:PORT or [ADDRESS]:PORT apart, in place. Returns false if it is neither. */
static bool exporter_split(char *text, char **ret_address, char **ret_port)
{
	char *colon = strrchr(text, ':');

	if (!colon || colon == text || !colon[1])
		return false;
	*colon = '\0';
	*ret_port = colon + 1;
	*ret_address = text;
	if (*text == '[' && colon[-1] == ']') {
		colon[-1] = '\0';
		*ret_address = text + 1;
	} else if (strchr(text, ':')) {
		return false;
	}
	return true;
}

static int exporter_listen(const char *at)
{
	const struct addrinfo hints = {.ai_socktype = SOCK_STREAM,
		.ai_flags = AI_PASSIVE | AI_NUMERICHOST | AI_NUMERICSERV};
	char text[128], *address, *port;
	struct addrinfo *found;

	if (*at == '/')
		return exporter_listen_unix(at);
	if (snprintf(text, sizeof(text), "%s", at) >= (int)sizeof(text) ||
		!exporter_split(text, &address, &port))
		return exporter_fail(at, "listen on", "it is no ADDRESS:PORT and no /PATH");
	int r = getaddrinfo(address, port, &hints, &found);
	if (r)
		return exporter_fail(at, "listen on", gai_strerror(r));
	int fd = socket(found->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (fd < 0) {
		(void)exporter_fail(at, "listen on", strerror(errno));
	} else {
		(void)setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &(int){1}, sizeof(int));
		fd = exporter_bind(fd, found->ai_addr, found->ai_addrlen, at);
	}
	freeaddrinfo(found);
	return fd;
}

/* Returns the socket that systemd passed, or makes one, as *ret_own says. */
static int exporter_socket(const char *at, bool *ret_own)
{
	int n = sd_listen_fds(1);

	*ret_own = n <= 0;

	if (n > 1) {
		gm_message(own_name, "systemd passed several sockets: there must be one");
		return -1;
	}
	return n == 1 ? SD_LISTEN_FDS_START : exporter_listen(at);
}

/* Writes where it listens: with port 0, the kernel has chosen one. */
static void exporter_say_where(int fd)
{
	struct sockaddr_storage address;
	socklen_t n = sizeof(address);
	char host[NI_MAXHOST], port[NI_MAXSERV], text[NI_MAXHOST + NI_MAXSERV + 64];

	if (getsockname(fd, (struct sockaddr *)&address, &n) < 0 || address.ss_family == AF_UNIX ||
		getnameinfo((struct sockaddr *)&address, n, host, sizeof(host), port, sizeof(port),
			NI_NUMERICHOST | NI_NUMERICSERV))
		snprintf(text, sizeof(text), "serving /metrics");
	else
		snprintf(text, sizeof(text), "serving http://%s%s%s:%s/metrics",
			strchr(host, ':') ? "[" : "", host, strchr(host, ':') ? "]" : "", port);
	gm_message(own_name, text);
	(void)sd_notify(0, "READY=1");
}

/* ---- */

static int exporter_run(struct exporter *exporter, const char *at)
{
	sigset_t signals;
	int signal_number;
	bool own;

	sigemptyset(&signals);
	sigaddset(&signals, SIGTERM);
	sigaddset(&signals, SIGINT);
	pthread_sigmask(SIG_BLOCK, &signals, NULL);

	int fd = exporter_socket(at, &own);
	if (fd < 0)
		return EXIT_FAILURE;
	/* ITC: a thread that is woken through the socket would shut the socket down, which systemd keeps for the next one. */
	struct MHD_Daemon *server = MHD_start_daemon(MHD_USE_EPOLL_INTERNAL_THREAD | MHD_USE_ITC, 0,
		NULL, NULL, exporter_answer, exporter, MHD_OPTION_LISTEN_SOCKET, fd,
		MHD_OPTION_CONNECTION_LIMIT, (unsigned)EXPORTER_CONNECTIONS,
		MHD_OPTION_CONNECTION_TIMEOUT, (unsigned)EXPORTER_SILENCE_S, MHD_OPTION_END);
	if (!server) {
		(void)exporter_fail(at, "serve", strerror(errno));
		return EXIT_FAILURE;
	}
	exporter_say_where(fd);
	(void)sigwait(&signals, &signal_number);
	MHD_stop_daemon(server);
	if (own && *at == '/')
		(void)unlink(at);
	free(exporter->text);
	return EXIT_SUCCESS;
}

int main(int argc, char **argv)
{
	static const struct option long_options[] = {{"listen", required_argument, NULL, 'l'},
		{"socket", required_argument, NULL, 's'}, {"help", no_argument, NULL, 'h'},
		{"version", no_argument, NULL, 'v'}, {0}};
	struct exporter exporter = {.options = {.timeout_ms = EXPORTER_TIMEOUT_MS}};
	const char *at = EXPORTER_LISTEN;
	bool utf8;
	int option;

	gm_text_init(&utf8);
	while ((option = getopt_long(argc, argv, "h", long_options, NULL)) >= 0) {
		switch (option) {
		case 'l':
			at = optarg;
			break;
		case 's':
			exporter.options.socket = optarg;
			break;
		case 'h':
			fputs(exporter_help, stdout);
			return EXIT_SUCCESS;
		case 'v':
			puts("gpumem-exporter " PACKAGE_VERSION);
			return EXIT_SUCCESS;
		default:
			return EXIT_USAGE;
		}
	}
	if (optind < argc) {
		gm_message(own_name,
			"it takes no arguments, only options; see gpumem-exporter --help");
		return EXIT_USAGE;
	}
	return exporter_run(&exporter, at);
}
