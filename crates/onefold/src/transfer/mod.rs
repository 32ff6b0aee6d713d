//! Whole images in and out of a volume: `onefold import` and `onefold export`. `onefold estimate` reads images by the same formats, tool and disks.
//!
//! Both ends are disks that are read and written at offsets: a file, or an NBD export. Ours is an export, of the server that has the pool
//! or of one that lives as long as the transfer (`commands/ephemeral_server.rs`); an image of another format than raw is one, too, made by qemu-nbd. So one loop copies in
//! both directions, goes on where it was interrupted, and verifies.
//!
//! ```text
//! format     which format an image has
//! folder     where sockets lie that only this command reaches
//! tool       qemu-nbd and qemu-img, for formats other than raw
//! client     an NBD client, blocking, one request at a time
//! disk       a file or an export, at offsets; where data is and where holes are
//! extents    which pieces are work: holes of both ends are passed over
//! copy       the loop: pieces, several at a time; then every one is read back and compared
//! ```
//!
//! Invariant: an end that holds something else is never overwritten unless that was asked for.

pub mod client;
pub mod copy;
pub mod disk;
pub mod extents;
pub mod folder;
pub mod format;
pub mod tool;
