//! Setup of the ring: its size and features, as the kernel and its limits allow; and advice where something forbids it.

use std::io;

use anyhow::anyhow;
use io_uring::IoUring;
use tracing::info;

/// Oldest Linux that can serve a pool; the ring's probe decides. The pages of users name it (tests/interop/test_pages.py).
const LEAST_KERNEL: &str = "5.11";
/// Entries of the submission queue; the completion queue has eight times as many. The lower numbers are for a low limit on locked memory: they work as well,
/// with more calls of the kernel.
const ENTRIES: [u32; 3] = [512, 128, 32];

/// Builds the ring. Fails if io_uring is too old here, or forbidden.
pub(super) fn build() -> anyhow::Result<IoUring> {
    let ring = build_largest()?;
    if !ring.params().is_feature_ext_arg() || !ring.params().is_feature_nodrop() {
        return Err(anyhow!("this kernel's io_uring is too old: Linux {LEAST_KERNEL} or newer is needed"));
    }
    Ok(ring)
}

/// Builds the largest ring that there is space for.
fn build_largest() -> anyhow::Result<IoUring> {
    let mut last = None;
    for entries in ENTRIES {
        match build_with(entries) {
            Ok(ring) => {
                if entries < ENTRIES[0] {
                    let why = "the limit on locked memory is low ('ulimit -l', LimitMEMLOCK=infinity)";
                    info!("the queue to the kernel has {entries} entries, not {}: {why}", ENTRIES[0]);
                }
                return Ok(ring);
            }
            Err(error) if error.raw_os_error() == Some(libc::ENOMEM) => last = Some(error),
            Err(error) => return Err(explain(error)),
        }
    }
    Err(last.map_or_else(|| anyhow!("io_uring cannot be set up"), explain))
}

/// Builds a ring with those of two features that the kernel has: work done only when we ask, one submitter.
fn build_with(entries: u32) -> io::Result<IoUring> {
    let mut attempt = 0;
    loop {
        let mut builder = IoUring::builder();
        builder.setup_clamp().setup_cqsize(entries * 8).dontfork();
        match attempt {
            0 => builder.setup_single_issuer().setup_defer_taskrun().setup_taskrun_flag(),
            1 => builder.setup_coop_taskrun().setup_taskrun_flag(),
            _ => &mut builder,
        };
        match builder.build(entries) {
            Err(error) if attempt < 2 && error.raw_os_error() == Some(libc::EINVAL) => attempt += 1,
            result => return result,
        }
    }
}

/// Explains why a ring cannot be made, with advice.
fn explain(error: io::Error) -> anyhow::Error {
    let number = |path: &str| std::fs::read_to_string(path).ok().and_then(|text| text.trim().parse().ok());
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mode = status.lines().find_map(|line| line.strip_prefix("Seccomp:"));
    let is_filtered = mode.is_some_and(|mode| mode.trim() == "2");
    let advice = advice(&error, number("/proc/sys/kernel/io_uring_disabled").unwrap_or(0), is_filtered);
    anyhow::Error::new(error).context(advice)
}

/// Explains what forbids io_uring, with advice: the kernel's switch, a seccomp filter, or neither.
fn advice(error: &io::Error, disabled: u32, is_filtered: bool) -> String {
    let advice = match (error.raw_os_error(), disabled, is_filtered) {
        (Some(libc::ENOMEM), ..) => {
            "io_uring got no memory: raise the limit on locked memory ('ulimit -l', LimitMEMLOCK=)"
        }
        (Some(libc::EPERM), 2.., _) => {
            "io_uring is switched off on this host (kernel.io_uring_disabled is 2): 'sysctl kernel.io_uring_disabled=0' as root switches it on"
        }
        (Some(libc::EPERM), 1, false) => {
            "io_uring is only for privileged processes on this host (kernel.io_uring_disabled is 1): 'sysctl kernel.io_uring_disabled=0' as root allows \
             it for all, or add the user to the group whose number is in kernel.io_uring_group"
        }
        (Some(libc::EPERM | libc::EACCES | libc::ENOSYS), _, true) => {
            "a seccomp filter of this container or service forbids io_uring: allow io_uring_setup, io_uring_enter and io_uring_register in its profile \
             (docker and podman run: --security-opt seccomp=PROFILE.json; Kubernetes: seccompProfile; systemd: SystemCallFilter=@aio)"
        }
        (Some(libc::ENOSYS), ..) => {
            return format!(
                "this kernel has no io_uring: Linux {LEAST_KERNEL} or newer is needed, and not every sandbox has it"
            );
        }
        (Some(libc::EPERM | libc::EACCES), ..) => {
            "io_uring is not permitted here: a security module (SELinux, AppArmor) or a sandbox forbids it; the host's log says which"
        }
        _ => "io_uring cannot be set up",
    };
    advice.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_forbids_the_ring_is_named_with_the_remedy() {
        for (number, disabled, is_filtered, said) in [
            (libc::EPERM, 0, true, "seccomp filter"),
            (libc::ENOSYS, 0, true, "--security-opt seccomp="),
            (libc::EPERM, 2, true, "kernel.io_uring_disabled is 2"),
            (libc::EPERM, 1, false, "kernel.io_uring_group"),
            (libc::EPERM, 0, false, "security module"),
            (libc::ENOSYS, 0, false, "no io_uring"),
            (libc::ENOMEM, 0, true, "locked memory"),
        ] {
            let advice = advice(&io::Error::from_raw_os_error(number), disabled, is_filtered);
            assert!(advice.contains(said), "{number} {disabled} {is_filtered}: {advice}");
        }
    }
}
