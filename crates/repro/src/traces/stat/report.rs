//! Text report of a trace's figures.

use std::fmt::Write;

use super::{Figures, share};

/// Formats a line for each statistic.
pub fn text(figures: &Figures) -> String {
    let mut text = String::new();
    let mut row = |name: &str, value: String| {
        // Writing to a string does not fail.
        let _ = writeln!(text, "{name:<34} {value}");
    };
    let percent = |share: f64| format!("{:.1} %", share * 100.0);
    row("requests", format!("{} ({} reads, {} writes)", figures.requests, figures.reads, figures.writes));
    row("write ratio", percent(figures.write_ratio));
    row(
        "mean size, KiB",
        format!("{:.1} (reads {:.1}, writes {:.1})", figures.mean_kib, figures.mean_read_kib, figures.mean_write_kib),
    );
    row("duration, s", format!("{:.3}", figures.duration_s));
    row("blocks read, written", format!("{}, {}", figures.read_blocks, figures.write_blocks));
    row("distinct blocks", {
        let (read, written) = (figures.distinct_blocks_read, figures.distinct_blocks_written);
        format!("{} ({read} read, {written} written)", figures.distinct_blocks)
    });
    row("read working set, MiB", format!("{:.1}", figures.read_working_set_mib));
    row("addresses, GiB", {
        format!("{:.2} (blocks {} to {})", figures.span_gib, figures.first_block, figures.last_block)
    });
    if figures.known_write_blocks > 0 {
        row("blocks written, contents known", figures.known_write_blocks.to_string());
        row("  of zeroes", figures.zero_write_blocks.to_string());
        row("  written before (I/O redundancy)", {
            format!("{} ({})", percent(figures.duplicate_share), figures.duplicate_blocks)
        });
        row("    to the same place", format!("{} ({})", percent(figures.unchanged_share), figures.unchanged_blocks));
        row("    elsewhere (capacity red.)", percent(figures.elsewhere_share));
        row("distinct contents", {
            format!("{} ({} written)", figures.distinct_contents, figures.distinct_contents_written)
        });
        for class in &figures.by_size {
            let of = |part| percent(share(part, class.writes));
            row(&format!("writes of {} blocks", class.blocks), {
                let (fully, partly) = (class.fully, class.partly);
                format!("{}, redundant: fully {fully} ({}), partly {partly} ({})", class.writes, of(fully), of(partly))
            });
        }
    }
    let bursts = &figures.bursts;
    row("inter-arrival variation (CV)", format!("{:.1}", bursts.inter_arrival_cv));
    row("requests/s, index of dispersion", format!("{:.1}", bursts.dispersion_1s));
    row("bursts (idle above 0.1 s)", bursts.bursts.to_string());
    row("  requests p50, p90, most", {
        format!("{}, {}, {}", bursts.requests_p50, bursts.requests_p90, bursts.requests_max)
    });
    row("  idle p50, p90, s", format!("{:.2}, {:.2}", bursts.idle_s_p50, bursts.idle_s_p90));
    if let Some(lines) = &figures.lines {
        row("lines", {
            format!(
                "{} ({} I/Os, {} of other kinds, {} bad)",
                lines.lines, lines.records, lines.other_lines, lines.bad_lines
            )
        });
        row("  mean size as it is there, KiB", format!("{:.1}", lines.mean_record_kib));
        row("  inter-arrival variation (CV)", format!("{:.1}", lines.record_inter_arrival_cv));
        row("  gap in a request p50, us", format!("{:.1}", lines.joined_gap_us_p50));
        row("  moved to a later time", lines.moved.to_string());
        row("  not aligned, contents dropped", lines.unaligned_contents.to_string());
    }
    text
}
