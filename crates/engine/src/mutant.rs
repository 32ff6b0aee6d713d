//! Mutants: deliberate faults that the simulator must detect. A check that cannot fail is no check.
//!
//! Only a build with the feature `mutants` can have one, at run time, by `Engine::break_on_purpose`; the simulator always is such a build. In all
//! others `Pool::mutant` is false at compile time, and no trace of this is left.

/// True in builds that can have mutants. Cargo unifies features: a program that is built together with the simulator has the simulator's engine.
pub const CAN_BE_BROKEN: bool = cfg!(feature = "mutants");

/// Defects that a test build can have, by the part of the engine that they break. docs/internals/testing.md lists the parts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Mutant {
    // ---- sync and commit ----
    /// Syncs are claimed to be done without any.
    SkippedSync,
    /// Records that are to be written durably are not.
    UnforcedRecord,
    /// A record that was written durably counts as durable although an earlier one is not.
    LoneRecord,
    /// A sync and a durable write that overlap are trusted one by one: where the other fails, both may have been lost.
    LoneSuccess,
    /// A sync covers records whose blocks are still being written.
    UnseenCompletion,
    /// A FUA write is answered before its record is durable.
    EarlyFua,
    /// A flush is answered at once.
    EarlyFlush,
    /// A record calls records durable that are only complete.
    EarlyWatermark,
    /// A client's block that looks like a record travels in the journal.
    InlinedRecord,
    /// A client's block that looks like a record travels in the journal, and the checksums of records have a public seed.
    PublicSeed,
    /// A write for which the host had no space counts as written.
    ForgottenWrite,

    // ---- recovery ----
    /// Recovery accepts records whose blocks it has not verified.
    UnprovenRecord,
    /// Recovery accepts records beyond the seal that are older than it, if their blocks agree.
    StaleRecord,
    /// Recovery begins with the oldest superblock.
    OldSuperblock,
    /// Recovery writes no seal.
    MissingSeal,
    /// The pool serves before the seal is durable.
    UnsyncedSeal,
    /// Recovery leaves blocks inlined in the journal where they are.
    SkippedRedo,
    /// Replay ignores clears.
    LostClears,
    /// Superblocks are written without a check of the pool's owner.
    OwnerNotLookedAt,

    // ---- checkpoint and metadata ----
    /// A superblock is written before its pages are durable.
    UnsyncedPages,
    /// Pages that a superblock replaces are reused before it is durable.
    UnsyncedSuperblock,
    /// A checkpoint does not wait for the slot writes of inlined blocks.
    ForgottenInlined,
    /// Metadata pages that a checkpoint replaces are reused by the same checkpoint.
    EarlyPages,
    /// The discard list forgets one of the subtrees that a clear cuts off.
    LostSubtree,
    /// Mappings are lost before they are in the map buffer.
    LostFromBuffer,
    /// The log of the map buffer does not record the mappings that went into its leaf.
    StaleLog,
    /// A slot is released twice when its replacement leaves the map buffer.
    ReleasedTwice,
    /// Blocks that a merge frees stay in the index on disk.
    ForgottenRemoval,
    /// The filter of the index on disk does not get the entries of a bucket that is written.
    ForgetfulFilter,
    /// The space that a checkpoint needs is counted without the interior pages of maps.
    SpaceCountedLow,
    /// A checkpoint writes only the first changed leaf of the table of volumes.
    CleanLeaf,
    /// The superblock does not say that the table of volumes is one by number.
    UnmarkedTable,
    /// The number of a deleted volume is given again while the discard list has subtrees of it.
    EarlyNumber,
    /// A write that finds no metadata is refused, though the driver would grow the pool.
    UnawaitedGrowth,

    // ---- snapshots ----
    /// A block that replaces an inherited one releases the slot of the ancestor.
    ReleasedInherited,
    /// The mappings that the map buffer has of a volume stay there when a snapshot takes its map.
    UnflushedSnapshot,
    /// A page that a map has from an ancestor becomes a blank one when the map changes it.
    BlankBelowFrom,
    /// Inherited leaves that a map trims do not count as hidden.
    UncountedHidden,
    /// Blocks that a map inherits are remapped in that map, not where their entry stands.
    MovedForReader,
    /// A scrub takes pages that a map has from an ancestor for damaged ones.
    ScrubbedFrom,
    /// The snapshots of a group are of two checkpoints.
    GroupInTwoCuts,
    /// A subtree that is handed over to the child stays in the map of the snapshot, too.
    GivenTwice,
    /// The hand-over of a leaf gives the child the blocks that it has overwritten.
    OverriddenByParent,
    /// During a hand-over, blocks that younger maps inherit are looked for in the snapshot only, not in its child.
    GiverFirst,
    /// A snapshot is handed over while records and the map buffer name it.
    NamedMapRemoved,
    /// A checkpoint in progress writes the name that a volume has been given since it began.
    EarlyName,
    /// Jobs remap the blocks of a volume while a snapshot of it is pending.
    MovedAtSnapshot,
    /// A clear that creates leaves in a map with a parent takes the pages that are kept for overwrites.
    ClearTakesReserve,
    /// The map of a volume that is rolled back is not put on the discard list.
    KeptRoot,
    /// Writes of a volume are admitted while it is rolled back.
    WrittenAtRollback,
    /// A rollback clears the volume by a record before its checkpoint makes it a clone.
    RollbackByRecord,

    // ---- slots and references ----
    /// A slot is reused one sync too early: when the loss of its last reference is durable, but not yet published.
    EarlyReuse,
    /// Merging a share does not count the reference.
    ForgottenReference,
    /// A merge frees slots that newer records refer to.
    FreedWhileHeld,
    /// Slots that a merge frees are reused before its superblock.
    FreedAtMerge,
    /// A container whose last slots a merge frees is discarded before its superblock.
    EarlyDiscard,
    /// A container is reserved and opened while its discard is in flight.
    OpenedInDiscard,

    // ---- requests, index, cache ----
    /// The index's answer for a live slot is trusted.
    StaleHint,
    /// A partial block keeps the base that completed it, although that has been overwritten since.
    StaleBase,
    /// A cached block with the same 24 bits of a digest counts as the same content: proof by all 128 is left out.
    UnprovenContent,
    /// Long requests take an unlimited number of steps.
    EndlessTimeSlice,

    // ---- mover, garbage collection, relocation ----
    /// Blocks are remapped to their new slots before the moved copies are durable.
    UnsyncedMove,
    /// A moved block maps to its new slot even if it was overwritten meanwhile.
    BlindMove,
    /// Blocks are moved to slots of containers that writes are being put into.
    MoveIntoOpen,
    /// Blocks are moved to slots of containers that another job evacuates.
    MoveIntoEvacuating,
    /// An emptied container counts as empty, even if some of it has been shared or kept meanwhile.
    EmptiedUnseen,
    /// A relocation job misses some of the blocks that refer to a moved slot, and the old slot is given out all the same.
    ForgottenReferrer,

    // ---- deduplication pass, census ----
    /// A block that is stored twice shares the other slot regardless of writes to it meanwhile.
    BlindShare,
    /// A block that is stored twice shares the other slot regardless of writes to it meanwhile, and regardless of that slot's present content.
    ShareWithFreed,
    /// A slot's former content, as a pass found it, counts as its present one, regardless of writes since.
    OldGeneration,
    /// The pass shares an unlimited number of blocks between two syncs: recovery would have to verify all of them.
    EndlessChanges,
    /// The pass shares blocks with metadata that is kept for clients.
    ShareWithoutSpace,
    /// The containers that a pass writes into go to clients while its writes to them are in flight.
    SpillInUse,
    /// The census counts slots with one reference as shared.
    SingleForShared,
    /// Second copies and replicas count as blocks of data, for the pass and for the index.
    CopyForData,
    /// Records do not name the blocks that were stored without a look-up of duplicates, so no pass follows a crash.
    UnmarkedOffline,

    // ---- alternate locations ----
    /// The former content of a slot that the index named is served if 24 bits of its digest are right.
    UncheckedPlace,
    /// A replica of an earlier run is trusted without a comparison of both digests.
    UnprovenReplica,
    /// A slot that is freed keeps its replicas.
    KeptReplica,

    // ---- flash ----
    /// The flash counts as holding containers in which replay took slots.
    ReplayedOnFlash,
    /// The log of the flash counts as valid whatever its stamp.
    AnyStamp,
    /// A place on flash is written anew before its log says durably that it holds nothing.
    EarlyPlace,
    /// A container is copied to flash while writes to its slots are in flight, regardless of the bytes that were read.
    CopyOfDirty,
    /// A container counts as copied to flash though it was opened meanwhile.
    CopyOfOpened,
    /// A buffer is used again while a flash that hangs still has it.
    ReusedWhileLate,
    /// Each flash of an opening has the same nonce.
    SameNonce,
}
