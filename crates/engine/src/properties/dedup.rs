//! The pass that finds all duplicates: its reads, its pace, and the duplicates that it leaves.

use super::choices::choices;
use super::policy::Policy;

choices! {
    /// Feedback loop that throttles the pass that finds duplicates, while clients are busy.
    #[derive(Default)]
    PassThrottle(Err("what sets the pace of the pass that finds duplicates is of an unknown kind")), BadPassThrottle("it is share, paper or paper:0.001") {
        /// A share of the device, as for all background work.
        #[default]
        Share = "share",
        /// HIODS' delay before each block, with the gains of its listing 4.1.
        Listing = "paper" | "paper:0.15",
        /// HIODS' delay before each block, with the smaller integral of its experiment.
        Experiment = "paper:0.001",
    }
}

choices! {
    /// Reads of a pass that finds duplicates, before blocks come to share a slot.
    #[derive(Default)]
    DedupVerify(Ok(DedupVerify::Off)), BadDedupVerify("it is kept, both or off") {
        /// The slot that is kept, once: its content must match its digest. Otherwise unnoticed damage would replace a good copy.
        #[default]
        Kept = "kept",
        /// Both slots, and compares their bytes. Contents that differ stay apart, also with the same digest.
        Both = "both",
        /// Nothing: digests are trusted.
        Off = "off",
    }
}

choices! {
    /// Rule by which a pass that finds duplicates leaves them where sharing would split a run: blocks that are consecutive on disk and in the volume.
    #[derive(Default)]
    KeepRuns(Err("the rule for runs is of an unknown kind")), BadKeepRuns("it is on, off or auto") {
        /// Runs are kept, unless the policy is `full`.
        #[default]
        Auto = "auto",
        /// Runs are kept.
        On = "on",
        /// Runs are not kept: the pass takes every duplicate.
        Off = "off",
    }
}

impl KeepRuns {
    /// Returns true if a pass keeps runs under this policy: `Auto` keeps them under all policies but `full`.
    pub fn keeps(self, policy: Policy) -> bool {
        match self {
            KeepRuns::Auto => policy != Policy::Full,
            KeepRuns::On => true,
            KeepRuns::Off => false,
        }
    }
}
