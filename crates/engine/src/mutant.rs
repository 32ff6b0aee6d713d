//! Behaviours that are broken on purpose, for the simulator to catch: a check that cannot fail is no check.
//!
//! Only a build with the feature `mutants` can be broken, at run time, by `Engine::break_on_purpose`; the simulator is always one. In all others
//! `Pool::mutant` is false at compile time, and nothing of this is left.

/// True in builds that can be broken. Cargo unifies features: a program that is built together with the simulator has the simulator's engine.
pub const CAN_BE_BROKEN: bool = cfg!(feature = "mutants");

/// Defects that a test build can have.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Mutant {
    /// Syncs are claimed to be done without any.
    SkippedSync,
    /// Records that are to be written durably are not.
    UnforcedRecord,
    /// A record that was written durably counts as durable though what was before it is not.
    LoneRecord,
    /// A sync and a durable write that overlap are believed one by one: where the other fails, both may have come to nothing.
    LoneSuccess,
    /// A sync covers records whose blocks are still being written.
    UnseenCompletion,
    /// A slot is reused one sync too early: when the loss of its last reference is durable, but not yet published.
    EarlyReuse,
    /// The index's answer for a live slot is taken for true.
    StaleHint,
    /// Merging a share does not count the reference.
    ForgottenReference,
    /// A FUA write is answered before its record is durable.
    EarlyFua,
    /// A flush is answered at once.
    EarlyFlush,
    /// Recovery believes records whose blocks it has not verified.
    UnprovenRecord,
    /// Recovery believes records beyond the seal that are older than it, if their blocks agree.
    StaleRecord,
    /// Recovery begins with the oldest superblock.
    OldSuperblock,
    /// Recovery writes no seal.
    MissingSeal,
    /// The pool serves before the seal is durable.
    UnsyncedSeal,
    /// A record calls records durable that are only complete.
    EarlyWatermark,
    /// Recovery leaves blocks inlined in the journal where they are.
    SkippedRedo,
    /// Replay ignores clears.
    LostClears,
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
    /// A merge frees slots that newer records refer to.
    FreedWhileHeld,
    /// Slots that a merge frees are reused before its superblock.
    FreedAtMerge,
    /// A partial block keeps what it was completed with, although that has been overwritten since.
    StaleBase,
    /// Blocks that a merge frees stay in the index on disk.
    ForgottenRemoval,
    /// Mappings are lost on their way into the map buffer.
    LostFromBuffer,
    /// The log of the map buffer does not say what has gone into its leaf.
    StaleLog,
    /// A slot is released twice when what replaced it leaves the map buffer.
    ReleasedTwice,
    /// A client's block that looks like a record travels in the journal.
    InlinedRecord,
    /// A client's block that looks like a record travels in the journal, and the checksums of records have a seed that everybody knows.
    PublicSeed,
    /// A write for which the host had no space counts as written.
    ForgottenWrite,
    /// The space that a checkpoint needs is counted without the interior pages of maps.
    SpaceCountedLow,
    /// A write that finds no metadata is refused, though the driver would grow the pool.
    UnawaitedGrowth,
    /// Superblocks are written without a look at who has the pool.
    OwnerNotLookedAt,
    /// Blocks lead to where they were moved before that is durable.
    UnsyncedMove,
    /// A block that was moved leads there whatever was written to it meanwhile.
    BlindMove,
    /// A block that is stored twice shares the other slot whatever was written to it meanwhile.
    BlindShare,
    /// A block that is stored twice shares the other slot whatever was written to it meanwhile, and whatever the other slot holds by now.
    ShareWithFreed,
    /// A slot's former content, as a pass found it, counts as its present one, whatever has been written there since.
    OldGeneration,
    /// The pass shares as many blocks between two syncs as it likes: recovery would have to verify all of them.
    EndlessChanges,
    /// The pass shares whether there is metadata for it or not.
    ShareWithoutSpace,
    /// The containers that a pass writes into go to clients while its writes are on their way there.
    SpillInUse,
    /// Records do not say which blocks were stored without a look for duplicates.
    UnmarkedOffline,
    /// The census counts slots with one reference as shared.
    SingleForShared,
    /// Second copies and replicas count as blocks of data.
    CopyForData,
    /// Blocks are moved to slots of containers that writes are being put into.
    MoveIntoOpen,
    /// Blocks are moved to slots of containers that another job evacuates.
    MoveIntoEvacuating,
    /// A container that was emptied counts as empty, whatever of it has been shared or kept meanwhile.
    EmptiedUnseen,
    /// A run of a plan does not see some of the blocks that lead to what it has moved, and the old slot is given out all the same.
    ForgottenReferrer,
    /// A cached block with the same 24 bits of a digest counts as the same content.
    UnprovenContent,
    /// The former content of a slot that the index named is served if 24 bits of its digest are right.
    UncheckedPlace,
    /// A replica that an earlier run left is believed without a look at the digests of both.
    UnprovenReplica,
    /// A slot that is freed keeps its replicas.
    KeptReplica,
    /// The flash is believed to hold containers in which replay took slots.
    ReplayedOnFlash,
    /// The log of the flash is believed whatever its stamp.
    AnyStamp,
    /// A place on flash is written anew before its log says durably that it holds nothing.
    EarlyPlace,
    /// A container is copied to flash while blocks are on their way to its slots, and whatever was read.
    CopyOfDirty,
    /// A container counts as copied to flash though it was opened meanwhile.
    CopyOfOpened,
    /// A buffer is used again while a flash that hangs still has it.
    ReusedWhileLate,
    /// Each flash of an opening has the same mark.
    SameNonce,
    /// Long requests take as many steps as they like.
    EndlessTimeSlice,
}
