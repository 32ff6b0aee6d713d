//! Traces replayed in virtual time over disks, by scheme.
