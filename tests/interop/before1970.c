// Sets the clock of a program to 1969, for test_surroundings.py: loaded before it.
#define _GNU_SOURCE
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

int clock_gettime(clockid_t clock, struct timespec *time)
{
	int done = syscall(SYS_clock_gettime, clock, time);

	if (done == 0 && clock == CLOCK_REALTIME)
		time->tv_sec = -86400 * 100 + time->tv_sec % 86400;
	return done;
}
