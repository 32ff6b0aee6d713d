//! Claims of ReDedup: numbers and statements. The plan as printed is judged; the other planners judge nothing.

use crate::figures::claims::{Band, Claim, Kind, fitted, gain, ours, statement};

/// All of them, in the order of the paper.
pub const CLAIMS: &[&[Claim]] = &[FIG_1, TABLE_1, FIG_2, FIG_5, SEEKS, FIG_9, BEYOND];

const FIG_1: &[Claim] = &[
    statement("rededup-challenge/case-1", "Fig. 1", "if file 1 goes first, it is read in one piece and file 2 in two"),
    statement("rededup-challenge/case-2", "Fig. 1", "if file 2 goes first, it is read in one piece and file 1 in two"),
];

const MADE: &str = "The stand-ins were made to have it.";

const TABLE_1: &[Claim] = &[
    fitted("rededup-traces/read-mail", "table I", "mail: read", "MB", 778_125.0, Band::Within(15_562.5)).note(MADE),
    fitted("rededup-traces/ratio-mail", "table I", "mail: deduplication ratio", "%", 37.0, Band::Within(3.0))
        .note(MADE),
    fitted("rededup-traces/read-research", "table I", "research: read", "MB", 46_547.0, Band::Within(930.94))
        .note(MADE),
    fitted("rededup-traces/ratio-research", "table I", "research: deduplication ratio", "%", 46.0, Band::Within(3.0))
        .note(MADE),
    fitted("rededup/written-mail", "table I", "mail: written", "MB", 248_122.0, Band::Factor(2.0))
        .note("Writes are not made."),
    fitted("rededup/written-research", "table I", "research: written", "MB", 58_498.0, Band::Factor(2.0))
        .note("Writes are not made."),
];

const FIG_2: &[Claim] = &[
    statement("rededup-skew/mail", "Fig. 2a", "mail: accesses of the top 20 % of shared files")
        .within("%", 60.0, 80.0)
        .of(Kind::Fitted)
        .note(MADE),
    statement("rededup-skew/research", "Fig. 2a", "research: accesses of the top 20 % of shared files")
        .within("%", 60.0, 80.0)
        .of(Kind::Fitted)
        .note(MADE),
    statement(
        "rededup-skew-content/mail",
        "Fig. 2b",
        "mail: the top 10, 20 and 30 % of files read twice their share of copied content or more",
    ),
    statement(
        "rededup-skew-content/research",
        "Fig. 2b",
        "research: the top 10, 20 and 30 % of files read twice their share of copied content or more",
    ),
];

const FIG_5: &[Claim] = &[
    gain(
        "rededup-latency/mail",
        "Fig. 5",
        "mail: time of a read less with ReDedup than with basic deduplication",
        28.0,
    ),
    gain(
        "rededup-latency/research",
        "Fig. 5",
        "research: time of a read less with ReDedup than with basic deduplication",
        40.0,
    ),
];

const SEEKS: &[Claim] = &[
    statement("rededup-seeks-mail/long", "Fig. 6", "mail: fewer long seeks"),
    statement("rededup-seeks-mail/short", "Fig. 6", "mail: more short seeks"),
    statement("rededup-seeks-research/long", "Fig. 7", "research: fewer long seeks"),
    statement("rededup-seeks-research/short", "Fig. 7", "research: more short seeks"),
    gain(
        "rededup-seek-mean/mail",
        "Fig. 8",
        "mail: mean distance of seeks less with ReDedup than with basic deduplication",
        19.0,
    ),
    gain(
        "rededup-seek-mean/research",
        "Fig. 8",
        "research: mean distance of seeks less with ReDedup than with basic deduplication",
        41.0,
    ),
];

const FIG_9: &[Claim] =
    &[statement("rededup-planner/time", "Fig. 9", "research: planning takes less than half an hour, each day")
        .of(Kind::NoWorse)
        .note("Real time on the machine that made the figure, which is not the paper's.")];

const BEYOND: &[Claim] = &[
    ours("rededup-assess/mail-all", "beyond section IV.B", "mail, all moved: normalised is better than printed"),
    ours("rededup-assess/mail-tenth", "beyond section IV.B", "mail, a tenth moved: normalised is better than printed"),
    ours(
        "rededup-assess/research-all",
        "beyond section IV.B",
        "research, all moved: normalised is better than printed",
    ),
    ours(
        "rededup-assess/research-tenth",
        "beyond section IV.B",
        "research, a tenth moved: normalised is better than printed",
    ),
    ours(
        "rededup-chance/both-mail",
        "beyond ReDedup",
        "mail, mean of all populations: ours on top of homes is faster than ours and than homes",
    ),
    ours(
        "rededup-chance/both-research",
        "beyond ReDedup",
        "research, mean of all populations: ours on top of homes is faster than ours and than homes",
    ),
    ours("rededup-baselines/native-mail", "beyond ReDedup", "mail: native is faster than basic"),
    ours("rededup-baselines/idedup-mail", "beyond ReDedup", "mail: iDedup 16 is faster than basic"),
    ours("rededup-baselines/homes-mail", "beyond ReDedup", "mail: ours is faster than homes"),
    ours("rededup-baselines/both-homes-mail", "beyond ReDedup", "mail: ours on top of homes is faster than homes"),
    ours("rededup-baselines/both-ours-mail", "beyond ReDedup", "mail: ours on top of homes is faster than ours"),
    ours("rededup-baselines/native-research", "beyond ReDedup", "research: native is faster than basic"),
    ours("rededup-baselines/idedup-research", "beyond ReDedup", "research: iDedup 16 is faster than basic"),
    ours("rededup-baselines/homes-research", "beyond ReDedup", "research: ours is faster than homes"),
    ours(
        "rededup-baselines/both-homes-research",
        "beyond ReDedup",
        "research: ours on top of homes is faster than homes",
    ),
    ours(
        "rededup-baselines/both-ours-research",
        "beyond ReDedup",
        "research: ours on top of homes is faster than ours",
    ),
];
