//! Background work of a pool, as a list: each job, its progress, and its text.

use crate::report::status::Report;
use crate::size;

/// A background job.
#[derive(Clone, PartialEq, Debug)]
pub struct Job {
    /// Name of the job.
    pub name: &'static str,
    /// Progress from 0 to 1, while the job is running or paused.
    pub done: Option<f64>,
    /// State of the job in one line.
    pub text: String,
}

/// Lists the background work of a pool. Scrub and dedup are always in it.
pub fn jobs(report: &Report) -> Vec<Job> {
    let bytes = |blocks: u64| size::show(blocks.saturating_mul(4096));
    let in_progress = |state: &str| matches!(state, "running" | "paused");
    let (scrub, dedup) = (&report.scrub, &report.dedup);
    let share = scrub.blocks_done as f64 / scrub.blocks_total.max(1) as f64;
    let mut jobs = vec![
        Job { name: "scrub", done: in_progress(&scrub.state).then_some(share.min(1.0)), text: scrub.text() },
        Job {
            name: "dedup",
            done: in_progress(&dedup.state).then_some(f64::from(dedup.done_ppm) / 1e6),
            text: dedup.text(),
        },
    ];
    let relocate = &report.relocate;
    if in_progress(&relocate.state) {
        let done = Some(f64::from(relocate.done_ppm) / 1e6);
        jobs.push(Job { name: "relocate", done, text: relocate.text() });
    }
    let mut add = |name, text| jobs.push(Job { name, done: None, text });
    if report.discarded_blocks > 0 {
        add("freeing", format!("at most {} to go, discarded or deleted", bytes(report.discarded_blocks)));
    }
    let unmerged = report.unmerged_entries + report.buffered_entries;
    if unmerged > 0 {
        add("merging", format!("{unmerged} mappings are durable and not in their tables yet"));
    }
    let defrag = &report.defrag;
    if defrag.noted_regions > 0 || defrag.moved_blocks > 0 {
        let (moved, regions, noted) = (bytes(defrag.moved_blocks), defrag.regions, defrag.noted_regions);
        add("defrag", format!("{moved} moved into order, {regions} regions; {noted} wait for idle time"));
    }
    let replicas = &report.replicas;
    if replicas.blocks > 0 || replicas.noted_reads > 0 {
        let (held, budget, noted) = (bytes(replicas.blocks), size::show(replicas.budget_bytes), replicas.noted_reads);
        add("replicas", format!("{held} of at most {budget}; {noted} reads wait for idle time"));
    }
    if report.memory_resizing {
        add("memory", "being given back, or divided anew".into());
    }
    if report.disk_index.buckets > 0 && !report.disk_index.complete && !report.disk_index.behind {
        add("index", "the index on disk is being built".into());
    }
    jobs
}
