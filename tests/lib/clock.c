/*
 * A wall clock that can be set while a process runs. Preloaded into it, this adds the seconds that the file
 * $WALL_CLOCK_OFFSET holds to the real time; a change counts within a second. Monotonic clocks stay as they are.
 *
 * libfaketime looks up symbols, which allocates, while jemalloc reads the clock at its start and waits for itself.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static long read_offset(void)
{
	static _Atomic long offset, read_at = -1;
	int before = errno;
	struct timespec now;
	char text[32] = {0};

	syscall(SYS_clock_gettime, CLOCK_MONOTONIC, &now);
	if (now.tv_sec == read_at)
		return offset;
	read_at = now.tv_sec;
	const char *path = getenv("WALL_CLOCK_OFFSET");
	int file = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
	if (file >= 0) {
		if (read(file, text, sizeof text - 1) > 0)
			offset = strtol(text, NULL, 10);
		close(file);
	}
	errno = before;
	return offset;
}

int clock_gettime(clockid_t clock, struct timespec *time)
{
	int result = syscall(SYS_clock_gettime, clock, time);

	if (result == 0 && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE))
		time->tv_sec += read_offset();
	return result;
}

int gettimeofday(struct timeval *restrict time, void *restrict zone)
{
	int result = syscall(SYS_gettimeofday, time, zone);

	if (result == 0)
		time->tv_sec += read_offset();
	return result;
}

time_t time(time_t *result)
{
	struct timespec now;

	clock_gettime(CLOCK_REALTIME, &now);
	if (result)
		*result = now.tv_sec;
	return now.tv_sec;
}
