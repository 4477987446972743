/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GM_TESTS_UNIT_TERMINAL_H
#define GM_TESTS_UNIT_TERMINAL_H

#include <check.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <termios.h>
#include <unistd.h>

/* A terminal of so many columns. A program writes to ends[1]; ends[0] shows what it wrote. */
static inline void terminal_open(int ends[2], unsigned short columns)
{
	struct winsize size = {.ws_row = 24, .ws_col = columns};
	struct termios mode;

	ends[0] = posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC);
	ck_assert_int_ge(ends[0], 0);
	ck_assert_int_eq(grantpt(ends[0]), 0);
	ck_assert_int_eq(unlockpt(ends[0]), 0);
	ends[1] = open(ptsname(ends[0]), O_RDWR | O_NOCTTY | O_CLOEXEC);
	ck_assert_int_ge(ends[1], 0);
	ck_assert_int_eq(ioctl(ends[1], TIOCSWINSZ, &size), 0);
	/* Newlines stay as they are. */
	ck_assert_int_eq(tcgetattr(ends[1], &mode), 0);
	mode.c_oflag &= ~(tcflag_t)OPOST;
	ck_assert_int_eq(tcsetattr(ends[1], TCSANOW, &mode), 0);
}

/* Reads all that was written, and closes the terminal. */
static inline void terminal_read(int ends[2], char *text, size_t room)
{
	size_t n = 0;
	ssize_t r;

	close(ends[1]);
	while (n < room - 1 && (r = read(ends[0], text + n, room - 1 - n)) > 0)
		n += (size_t)r;
	text[n] = '\0';
	close(ends[0]);
}

#endif
