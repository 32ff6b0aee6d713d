//! Figure of flash erases, by chunk and by container (the slide "Under Various Container Size").

use super::super::plot::{Bars, Chart};
use super::super::runs::Results;
use super::super::{Entry, Figure, Row};
use super::{PAPER, Workload, less, percent, sized};
use crate::flash_cache::policies::{Policy, Sar};
use crate::flash_cache::workload::Shape;
use crate::flash_cache::{Handling, Level, Setup};

pub(super) const ERASES: Entry = Entry {
    name: "plc-erases",
    about: "PLC slides, container size: erases of flash against SAR, from the model of flash",
    runs: Vec::new,
    make: erases,
};

/// Divisor of the 520 GB of reads. They overwrite the flash several times.
const READ_PART: u64 = 4;
/// Compared policies. SAR as the slides describe it comes first: the chunks to which the most files refer, taken in the order of files. The last policy is
/// judged against it.
const CASES: [(&str, Policy, Level); 7] = [
    ("SAR, at ingest", Policy::Sar(Sar::Ingest), Level::Chunks),
    ("SAR, the fewest references go", Policy::Sar(Sar::References), Level::Chunks),
    ("SAR, the least recently used goes", Policy::Sar(Sar::Recency), Level::Chunks),
    ("LRU, chunks", Policy::Lru, Level::Chunks),
    ("LRU, containers", Policy::Lru, Level::Containers),
    ("PLC-Cache, chunks", PAPER, Level::Chunks),
    ("PLC-Cache", PAPER, Level::Containers),
];
const LRU_CHUNKS: usize = 3;
const LRU_CONTAINERS: usize = 4;
const PLC: usize = 6;
/// Spare flash in thousandths. The first is judged: drives like the slides' have some 7 %.
const SPARES: [u64; 2] = [70, 280];

fn erases(results: &Results) -> Figure {
    let shape = sized(Shape::SLIDES, results.quick);
    let workload = Workload::new(Shape { read_bytes: shape.read_bytes / READ_PART, ..shape });
    let mut setups = Vec::new();
    for spare_permille in SPARES {
        setups.extend(CASES.map(|(_, policy, level)| Setup {
            level,
            disks: Some(Handling::Foreground),
            flash: (2 << 20, spare_permille),
            ..Setup::new(policy, workload.cache(10))
        }));
    }
    let outcomes = workload.run(&setups);
    let mut rows = Vec::new();
    let mut heights = vec![Vec::new(); CASES.len()];
    let (mut most, mut points) = (0.0f64, Vec::new());
    for (spare_at, spare) in SPARES.into_iter().enumerate() {
        let of = |at: usize| &outcomes[spare_at * CASES.len() + at];
        let amplification = |at: usize| of(at).wear.amplification_permille() as f64 / 1000.0;
        let erases = |at: usize| of(at).wear.erases as f64;
        for (at, (name, ..)) in CASES.into_iter().enumerate() {
            let label = format!("{name}, {} to spare", percent(spare));
            rows.push(Row::new(format!("{label}: erases"), "", erases(at)));
            let note = format!("hits {:.1} %", of(at).hit_percent());
            rows.push(Row::new(format!("{label}: written"), "GB", of(at).written_gib()).note(note));
            rows.push(Row::new(format!("{label}: pages programmed for each written"), "", amplification(at)));
            heights[at].push(erases(at));
        }
        let label = |what: &str| format!("{} to spare: {what}", percent(spare));
        for (at, (name, ..)) in CASES.into_iter().enumerate().take(PLC) {
            let gain = less(erases(PLC), erases(at));
            rows.push(match (spare_at, at) {
                (0, 0) => Row::claim("plc-erases/sar", gain),
                _ => Row::new(label(&format!("PLC-Cache erases less than {name}")), "%", gain),
            });
        }
        // A container fills whole erase units: nothing valid is left in a unit that is emptied.
        most = most.max(amplification(LRU_CONTAINERS));
        points.push((label("chunks"), amplification(LRU_CHUNKS) > amplification(LRU_CONTAINERS)));
    }
    rows.push(Row::claim("plc-erases/no-amplification", most));
    rows.push(Row::every("plc-erases/amplification", points));
    let series = CASES.into_iter().zip(heights).map(|((name, ..), heights)| Bars::new(name, heights)).collect();
    Figure {
        name: "plc-erases",
        source: "PLC slides, container size",
        title: "erases of flash by chunk and by container".into(),
        rows,
        chart: Chart::bars(
            "Units of 2 MiB erased, cache of 1 %, 130 GB of reads",
            "erases",
            SPARES.map(|spare| format!("{} to spare", percent(spare))).to_vec(),
            series,
        ),
        notes: vec![
            "The slide's 54.4 % is the SMART counter of one drive in one run. Here a translation layer with greedy collection counts. SAR's abstract \
             says what enters: chunks with many references, small and not sequential ones. The slides say that it has those to which the most \
             files refer, taken during backup: that is judged. As a cache of what is read it is shown with two victims."
                .into(),
            "Each reading of SAR writes less than PLC-Cache does, which reads fill with whole containers; so no amplification of writes by chunk makes \
             up for it. With more to spare than some 10 %, LRU by chunk leaves nothing valid to move: it overwrites in about the order in which it \
             wrote."
                .into(),
        ],
    }
}
