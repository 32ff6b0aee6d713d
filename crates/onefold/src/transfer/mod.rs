//! Whole images in and out of a volume: `onefold import` and `onefold export`. `onefold estimate` reads images by the same formats, tool and disks.
//!
//! Both ends are disks that are read and written at offsets: a file, or an NBD export. Ours is an export, of the server that has the pool or of one that lives
//! as long as the transfer (`commands/ephemeral_server.rs`). An image of another format than raw is one, too, made by qemu-nbd. So one loop copies in both
//! directions, resumes where it was interrupted, and verifies.
//!
//! ```text
//! format     format of an image
//! folder     private folder for sockets that only this command reaches
//! tool       qemu-nbd and qemu-img, for formats other than raw
//! client     an NBD client, blocking, one request at a time
//! disk       a file or an export, at offsets, with its data and holes
//! extents    the pieces of the work: holes of both ends are passed over
//! copy       the loop: pieces, several at a time; then every one is read back and compared
//! ```
//!
//! Invariant: an end that holds something else is never overwritten unless that was requested.

pub mod client;
pub mod copy;
pub mod disk;
pub mod extents;
pub mod folder;
pub mod format;
pub mod tool;
