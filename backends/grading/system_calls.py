"""The system calls that a submission's process may make: a list, and all others fail (seccomp)."""

from __future__ import annotations

import errno
import os

CALLS = """
    access arch_prctl brk clock_getres clock_gettime clock_nanosleep close dup dup2 dup3 exit
    exit_group faccessat faccessat2 fstat fstatfs futex futex_time64 getcpu getcwd getdents64
    getegid geteuid getgid getgroups getpgrp getpid getppid getpriority getrandom getresgid
    getresuid getrlimit getrusage get_robust_list gettid gettimeofday getuid lseek lstat madvise
    membarrier mprotect mremap munmap nanosleep newfstatat poll ppoll pread64 pselect6 read readlink
    readlinkat readv recvfrom restart_syscall rseq rt_sigaction rt_sigpending rt_sigprocmask
    rt_sigreturn sched_getaffinity sched_getparam sched_getscheduler sched_yield select sendto
    set_robust_list set_tid_address sigaltstack stat statx sysinfo time times uname write writev
"""
MAP_TYPE, MAP_PRIVATE = 0x0F, 0x02  # memory is not shared: it would outlive a bound of this process
CLONE_THREAD = 0x10000
FCNTL = (0, 1, 2, 3, 4, 1030)  # copy a descriptor, ask and set its flags; not who gets a signal of it
IOCTL = (0x5401, 0x5413, 0x5421, 0x5450, 0x5451)  # is it a terminal, how wide; does it wait, outlive exec
PRCTL = (15, 16, 0x53564D41)  # names of threads and of memory


def filter_system_calls(reading: bool) -> bool:
    """From now on every thread makes these calls alone, and opens files if ``reading``, to read them.

    False where there is no libseccomp, or the system does not take its filter.
    """
    try:
        import pyseccomp as seccomp
    except (ImportError, RuntimeError, OSError, AttributeError):  # not Linux, or no libseccomp.so.2
        return False
    masked, equal = seccomp.MASKED_EQ, seccomp.EQ
    beyond_reading = os.O_ACCMODE | os.O_CREAT | os.O_TRUNC | os.O_APPEND | (os.O_TMPFILE & ~os.O_DIRECTORY)
    rules: list[tuple[str, tuple[tuple[int, ...], ...]]] = [
        *((name, ()) for name in CALLS.split()),
        *(("fcntl", ((1, equal, command),)) for command in FCNTL),
        *(("ioctl", ((1, equal, request),)) for request in IOCTL),
        *(("prctl", ((0, equal, option),)) for option in PRCTL),
        *((name, ((3, masked, MAP_TYPE, MAP_PRIVATE),)) for name in ("mmap", "mmap2")),
        ("clone", ((0, masked, CLONE_THREAD, CLONE_THREAD),)),
        ("tgkill", ((0, equal, os.getpid()),)),
        ("prlimit64", ((0, equal, 0), (2, equal, 0))),  # to ask its own limits
    ]
    if reading:
        rules += [("openat", ((2, masked, beyond_reading, 0),)), ("open", ((1, masked, beyond_reading, 0),))]
    filter = seccomp.SyscallFilter(seccomp.ERRNO(errno.EPERM))
    absent = seccomp.ERRNO(errno.ENOSYS)  # then the C library takes the older call, whose flags are seen here
    try:
        for name in ("clone3", "openat2"):
            filter.add_rule(absent, name)
        for name, conditions in rules:
            if seccomp.resolve_syscall(seccomp.Arch.NATIVE, name) >= 0:  # not on every architecture
                filter.add_rule(seccomp.ALLOW, name, *(seccomp.Arg(*condition) for condition in conditions))
        filter.set_attr(seccomp.Attr.CTL_TSYNC, 1)
        filter.load()
    except OSError:
        return False
    return True
