//! Layout of `onefold top` in a terminal of any size.
//!
//! Where space is short, whole columns are left out, the least important first, then whole boxes. Text is wrapped between words. So no shown text is the
//! beginning of something else; only a single word that is longer than the line ends with `…`.

use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Style, Stylize};
use ratatui::text::Line;
use ratatui::widgets::{Block, Paragraph};

use crate::report::health::{Health, Level, findings};
use crate::report::jobs::jobs;
use crate::report::latency::show_seconds;
use crate::report::recent::{Rates, Sample};
use crate::report::share::{percent, shown_percent, whole_percent};
use crate::report::status::{Report, VolumeReport};
use crate::report::text::largest_first;
use crate::size;

/// Width in columns from which two boxes stand side by side.
const TWO_BESIDE: u16 = 100;
/// Height in lines from which the head also has remarks on a healthy pool, beside its state.
const TALL: u16 = 30;
/// Columns between two columns of a table.
const GAP: usize = 2;
/// Steps of a small picture.
const STEPS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];

/// Contents of the screen.
pub struct Screen<'a> {
    /// The name of the pool.
    pub pool: &'a str,
    /// Present figures of the pool.
    pub report: &'a Report,
    /// Rates a second, from the last two figures.
    pub rates: &'a Rates,
    /// Past samples, the oldest first.
    pub samples: Vec<&'a Sample>,
    /// Reason why the figures are old; `None` if they are not.
    pub problem: Option<&'a str>,
    /// Text of the last line; empty for none.
    pub hint: &'static str,
    /// Number of volumes shown at most.
    pub volumes_most: usize,
}

/// The boxes, in the order in which they are shown.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Part {
    Savings,
    Requests,
    Work,
    Volumes,
    Memory,
    Policies,
}

/// Order in which boxes are left out of a terminal that is too low.
const LEAST_IMPORTANT: [Part; 6] =
    [Part::Policies, Part::Memory, Part::Volumes, Part::Work, Part::Requests, Part::Savings];

impl Screen<'_> {
    /// Returns the height in lines at which nothing is left out.
    pub fn height(&self, width: u16) -> u16 {
        let parts = rows_of(&LEAST_IMPORTANT.iter().rev().copied().collect::<Vec<_>>(), width);
        let boxes: usize = parts.iter().map(|row| self.row_height(row, width)).sum();
        (self.head(width, u16::MAX).len() + boxes + usize::from(!self.hint.is_empty())) as u16
    }

    /// Draws it.
    pub fn draw(&self, frame: &mut Frame<'_>) {
        let area = frame.area();
        let (width, height) = (area.width, area.height);
        let head = self.head(width, height);
        let foot = usize::from(!self.hint.is_empty());
        let space = usize::from(height).saturating_sub(head.len() + foot);
        let rows = self.fit(width, space);
        let mut heights: Vec<usize> = rows.iter().map(|row| self.row_least(row, width)).collect();
        // The remaining lines go to the volumes.
        let left = space.saturating_sub(heights.iter().sum());
        if let Some(at) = rows.iter().position(|row| row.contains(&Part::Volumes)) {
            heights[at] = (heights[at] + left).min(self.row_height(&rows[at], width));
        }
        let lengths = [head.len()].into_iter().chain(heights).map(|lines| Constraint::Length(lines as u16));
        let areas = Layout::vertical(lengths.chain([Constraint::Fill(1)])).split(area);
        frame.render_widget(Paragraph::new(head), areas[0]);
        for (row, &area) in rows.iter().zip(&areas[1..]) {
            self.draw_row(frame, row, area);
        }
        if foot > 0 && height > 1 {
            let last = Rect { y: area.bottom() - 1, height: 1, ..area };
            frame.render_widget(Line::from(self.hint).dim(), last);
        }
    }

    fn draw_row(&self, frame: &mut Frame<'_>, row: &[Part], area: Rect) {
        let areas = Layout::horizontal(row.iter().map(|_| Constraint::Fill(1))).split(area);
        for (&part, &area) in row.iter().zip(areas.iter()) {
            let lines = self.lines(part, area.width.saturating_sub(2), usize::from(area.height.saturating_sub(2)));
            let title = self.title(part, lines.len().saturating_sub(1));
            frame.render_widget(Paragraph::new(lines).block(boxed(title, area.width)), area);
        }
    }

    /// Chooses the boxes that fit into `space` lines, as rows; the least important ones are left out first.
    fn fit(&self, width: u16, space: usize) -> Vec<Vec<Part>> {
        let mut gone = 0;
        loop {
            let left: Vec<Part> = LEAST_IMPORTANT[gone..].iter().rev().copied().collect();
            let rows = rows_of(&left, width);
            if rows.iter().map(|row| self.row_least(row, width)).sum::<usize>() <= space || left.is_empty() {
                return rows;
            }
            gone += 1;
        }
    }

    /// Returns the height of boxes side by side at which all of them are complete.
    fn row_height(&self, row: &[Part], width: u16) -> usize {
        let inner = inner_width(row, width);
        row.iter().map(|&part| self.lines(part, inner, usize::MAX).len() + 2).max().unwrap_or(0)
    }

    /// Returns the least height of boxes side by side: the list of volumes may shrink to two lines, the others are complete.
    fn row_least(&self, row: &[Part], width: u16) -> usize {
        let inner = inner_width(row, width);
        let least = |part: Part| if part == Part::Volumes { 4 } else { self.lines(part, inner, usize::MAX).len() + 2 };
        row.iter().map(|&part| least(part)).max().unwrap_or(0)
    }

    fn head(&self, width: u16, height: u16) -> Vec<Line<'static>> {
        let Health { level, sentence } = Health::of(self.report);
        let colour = match level {
            Level::Good => Color::Green,
            Level::Warning => Color::Yellow,
            Level::Bad => Color::Red,
        };
        let (said, colour) = match self.problem {
            Some(problem) => (format!("these are the last figures: {problem}"), Color::Red),
            None => (sentence, colour),
        };
        let mut lines: Vec<Line> = wrapped(self.pool, width).into_iter().map(|line| Line::from(line).bold()).collect();
        lines.extend(wrapped(&said, width).into_iter().map(|line| Line::from(line).style(Style::new().fg(colour))));
        if height >= TALL {
            let notes = findings(self.report, self.pool).into_iter().filter(|finding| finding.level == Level::Good);
            for note in notes {
                lines.extend(wrapped(&format!("{}: {}", note.name, note.sentence), width).into_iter().map(Line::from));
            }
        }
        lines
    }

    /// Returns the title of a box that shows this many rows of its list.
    fn title(&self, part: Part, rows: usize) -> String {
        match (part, self.report.volumes.len()) {
            (Part::Savings, _) => "savings".into(),
            (Part::Requests, _) => "requests and latency".into(),
            (Part::Work, _) => "background work".into(),
            (Part::Volumes, all) if rows < all => format!("volumes: {rows} of {all}, those that hold most"),
            (Part::Volumes, _) => "volumes".into(),
            (Part::Memory, _) => "memory".into(),
            (Part::Policies, _) => "what each policy would have saved".into(),
        }
    }

    /// Builds the lines of a box. The list of volumes has at most `most` lines.
    fn lines(&self, part: Part, width: u16, most: usize) -> Vec<Line<'static>> {
        match part {
            Part::Savings => self.savings(width),
            Part::Requests => self.requests(width),
            Part::Work => self.work(width),
            Part::Volumes => self.volumes(width, most),
            Part::Memory => self.memory(width),
            Part::Policies => self.policies(width),
        }
    }

    fn savings(&self, width: u16) -> Vec<Line<'static>> {
        let report = self.report;
        let bytes = |blocks: u64| size::show(blocks.saturating_mul(4096));
        let mut parts = vec![
            format!("{} saved", shown_percent(report.saving_percent)),
            format!("{} held by volumes", bytes(report.logical_blocks_used)),
            format!("{} stored", bytes(report.data_blocks_used)),
            format!("{} % of {} in use", report.data_percent, size::show(report.capacity_bytes)),
            format!("tables {} %", report.metadata_percent),
        ];
        if report.leaving_blocks > 0 || report.saving_is_at_least {
            parts.push("deleted volumes are still being freed".into());
        }
        side_by_side(&parts, width)
    }

    fn volumes(&self, width: u16, most: usize) -> Vec<Line<'static>> {
        let all = largest_first(&self.report.volumes);
        if all.is_empty() {
            return vec![Line::from("no volumes yet")];
        }
        let inherits = all.iter().any(|volume| volume.inherits());
        let shown = all.len().min(most.saturating_sub(1)).min(self.volumes_most);
        let column = |title, importance, cell: &dyn Fn(&VolumeReport) -> String| Column {
            title,
            importance,
            cells: all.iter().take(shown).map(|volume| cell(volume)).collect(),
        };
        let columns = vec![
            column("volume", 0, &|volume| volume.name.clone()),
            column("holds", 1, &|volume| size::show(volume.logical_blocks_used.saturating_mul(4096))),
            column("refer", 5, &|volume| if inherits { volume.refer_text() } else { String::new() }),
            column("shared", 2, &|volume| volume.shared_text()),
            column("size", 5, &|volume| size::show(volume.size_bytes)),
            column("policy", 3, &|volume| volume.policy.clone()),
            column("remarks", 4, &|volume| volume.remarks()),
        ];
        table(columns, width)
    }

    fn requests(&self, width: u16) -> Vec<Line<'static>> {
        let time = |seconds: Option<f64>| seconds.map_or_else(|| "–".into(), show_seconds);
        let kinds = self.report.latency.named();
        let of = |cell: &dyn Fn(usize) -> String| (0..kinds.len()).map(cell).collect();
        let columns = vec![
            Column { title: "now", importance: 0, cells: of(&|kind| kinds[kind].0.into()) },
            Column {
                title: "a second",
                importance: 1,
                cells: of(&|kind| format!("{:.0}", self.rates[kind].per_second)),
            },
            Column { title: "half within", importance: 3, cells: of(&|kind| time(self.rates[kind].half)) },
            Column { title: "99 % within", importance: 2, cells: of(&|kind| time(self.rates[kind].most)) },
        ];
        table(columns, width)
    }

    fn policies(&self, width: u16) -> Vec<Line<'static>> {
        let writes = &self.report.writes;
        let all = writes.written_blocks + writes.removed_blocks;
        let what_if = &writes.what_if;
        let policies = [
            ("as it was done", writes.removed_blocks),
            ("full", what_if.full.blocks),
            ("select", what_if.select.blocks),
            ("idedup", what_if.idedup.blocks),
        ];
        let cells =
            |cell: &dyn Fn(&str, u64) -> String| policies.iter().map(|(name, removed)| cell(name, *removed)).collect();
        let columns = vec![
            Column { title: "policy", importance: 0, cells: cells(&|name, _| name.into()) },
            Column {
                title: "of writes",
                importance: 1,
                cells: cells(&|_, removed| format!("{:.1} %", percent(removed, all))),
            },
            Column {
                title: "not written",
                importance: 2,
                cells: cells(&|_, removed| size::show(removed.saturating_mul(4096))),
            },
        ];
        table(columns, width)
    }

    fn memory(&self, width: u16) -> Vec<Line<'static>> {
        let report = self.report;
        let parts = [
            format!("{} of {} in use", size::show(report.memory_bytes), size::show(report.memory_cap_bytes)),
            format!("index {}", size::show(report.cache.index_bytes)),
            format!("read cache {}", size::show(report.cache.read_bytes)),
            format!("sharing {}", report.cache.setting),
        ];
        let mut lines = side_by_side(&parts, width);
        let share = |index: u64, read: u64| whole_percent(index, index.saturating_add(read));
        let now = share(report.cache.index_bytes, report.cache.read_bytes);
        let said =
            format!("of index and read cache together the index has {now} %; every 10 s, the last on the right:");
        lines.extend(wrapped(&said, width).into_iter().map(dim));
        let hidden = self.samples.len().saturating_sub(usize::from(width));
        let step = |sample: &&Sample| STEPS[(share(sample.index_bytes, sample.read_bytes) * 7 / 100) as usize];
        lines.push(Line::from(self.samples[hidden..].iter().map(step).collect::<String>()));
        lines
    }

    fn work(&self, width: u16) -> Vec<Line<'static>> {
        let jobs = jobs(self.report);
        let names = jobs.iter().map(|job| job.name.len()).max().unwrap_or(0) + GAP;
        let mut lines = Vec::new();
        for job in jobs {
            let done = job.done.map_or_else(String::new, |done| format!("{:.0} %, ", done * 100.0));
            let text = wrapped(&format!("{done}{}", job.text), width.saturating_sub(names as u16));
            for (number, line) in text.into_iter().enumerate() {
                let name = if number == 0 { job.name } else { "" };
                lines.push(Line::from(format!("{name:<names$}{line}")));
            }
        }
        lines
    }
}

/// Boxes by the rows in which they stand.
fn rows_of(parts: &[Part], width: u16) -> Vec<Vec<Part>> {
    let order = [Part::Savings, Part::Requests, Part::Policies, Part::Work, Part::Volumes, Part::Memory];
    let mut rows: Vec<Vec<Part>> = Vec::new();
    for part in order.into_iter().filter(|part| parts.contains(part)) {
        match rows.last_mut() {
            Some(last) if part == Part::Policies && last[0] == Part::Requests && width >= TWO_BESIDE => last.push(part),
            _ => rows.push(vec![part]),
        }
    }
    if width < TWO_BESIDE {
        // Alone it comes last.
        rows.sort_by_key(|row| row[0] == Part::Policies);
    }
    rows
}

fn inner_width(row: &[Part], width: u16) -> u16 {
    (width / row.len().max(1) as u16).saturating_sub(2)
}

fn boxed(title: String, width: u16) -> Block<'static> {
    let fits = title.chars().count() + 2 <= usize::from(width);
    Block::bordered().title(if fits { title } else { String::new() })
}

fn dim(line: String) -> Line<'static> {
    Line::from(line).dim()
}

/// A column of a table.
struct Column {
    title: &'static str,
    /// The higher the sooner it goes.
    importance: u8,
    cells: Vec<String>,
}

/// Lays out a table with the columns that fit, least important ones left out first. The first column always stays: a text too long for it ends with `…`.
fn table(mut columns: Vec<Column>, width: u16) -> Vec<Line<'static>> {
    // A column without anything in it takes no space.
    columns.retain(|column| column.importance == 0 || column.cells.iter().any(|cell| !cell.is_empty()));
    let width = usize::from(width);
    let wide = |column: &Column| {
        let cells = column.cells.iter().map(|cell| cell.chars().count());
        cells.chain([column.title.chars().count()]).max().unwrap_or(0)
    };
    let all = |columns: &[Column]| columns.iter().map(|column| wide(column) + GAP).sum::<usize>();
    while columns.len() > 1 && all(&columns) > width + GAP {
        let least = columns.iter().enumerate().max_by_key(|(_, column)| column.importance).map_or(0, |(at, _)| at);
        columns.remove(least);
    }
    let widths: Vec<usize> = columns.iter().map(|column| wide(column).min(width)).collect();
    let line = |cells: Vec<&str>| {
        let cells =
            cells.iter().zip(&widths).map(|(cell, &width)| format!("{:<1$}", abbreviated(cell, width), width + GAP));
        cells.collect::<String>().trim_end().to_string()
    };
    let mut lines = vec![dim(line(columns.iter().map(|column| column.title).collect()))];
    let rows = columns.first().map_or(0, |column| column.cells.len());
    lines.extend(
        (0..rows).map(|row| Line::from(line(columns.iter().map(|column| column.cells[row].as_str()).collect()))),
    );
    lines
}

fn abbreviated(word: &str, width: usize) -> String {
    if word.chars().count() <= width {
        return word.into();
    }
    word.chars().take(width.saturating_sub(1)).chain(['…']).take(width).collect()
}

/// Joins parts into lines, as many in each as fit beside each other.
fn side_by_side(parts: &[String], width: u16) -> Vec<Line<'static>> {
    const BETWEEN: &str = "   ";
    let mut lines: Vec<String> = Vec::new();
    for part in parts {
        match lines.last_mut() {
            Some(last) if (last.chars().count() + BETWEEN.len() + part.chars().count()) <= usize::from(width) => {
                last.push_str(BETWEEN);
                last.push_str(part);
            }
            _ => lines.extend(wrapped(part, width)),
        }
    }
    lines.into_iter().map(Line::from).collect()
}

/// Breaks text into lines between words. A word that is longer than a line is broken at its end.
fn wrapped(text: &str, width: u16) -> Vec<String> {
    let width = usize::from(width).max(1);
    let mut lines = vec![String::new()];
    for word in text.split(' ') {
        let last = lines.last_mut().expect("there is one");
        let length = word.chars().count();
        if last.is_empty() && length <= width {
            last.push_str(word);
        } else if !last.is_empty() && last.chars().count() + 1 + length <= width {
            last.push(' ');
            last.push_str(word);
        } else if length <= width {
            lines.push(word.into());
        } else {
            if last.is_empty() {
                lines.pop();
            }
            let characters: Vec<char> = word.chars().collect();
            lines.extend(characters.chunks(width).map(|piece| piece.iter().collect::<String>()));
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use ratatui::Terminal;
    use ratatui::backend::TestBackend;

    use super::*;
    use crate::report::text::tests::report;

    fn full_report() -> Report {
        let mut report = report(30);
        report.volumes[29].clients = 2;
        report.volumes[28].timing_state.offline = true;
        report.volumes[27].policy = "idedup:16".into();
        (report.scrub.state, report.scrub.blocks_total) = ("running".into(), 1 << 20);
        (report.logical_blocks_used, report.data_blocks_used) = (1_234_567, 765_432);
        (report.data_percent, report.metadata_percent) = (85, 81);
        report.dedup.missed_blocks = 200_000;
        report
    }

    fn frame(report: &Report, width: u16, height: u16) -> Vec<String> {
        let rates = Rates::default();
        let screen = Screen {
            pool: "/srv/disk.onefold",
            report,
            rates: &rates,
            samples: Vec::new(),
            problem: None,
            hint: "q ends this",
            volumes_most: 50,
        };
        let height = if height == 0 { screen.height(width) } else { height };
        let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
        terminal.draw(|frame| screen.draw(frame)).unwrap();
        let cells = terminal.backend().buffer().content();
        let line = |line: &[ratatui::buffer::Cell]| line.iter().map(|cell| cell.symbol()).collect::<String>();
        cells.chunks(usize::from(width)).map(line).collect()
    }

    fn words(lines: &[String]) -> BTreeSet<String> {
        let is_frame = |c: char| c.is_whitespace() || ('\u{2500}'..='\u{257f}').contains(&c);
        let words = lines.iter().flat_map(|line| line.split(is_frame)).filter(|word| !word.is_empty());
        words.map(String::from).collect()
    }

    /// Guards against cut text: at 80 columns `top` cut "99 % within" to "99 % wi", policies to their beginnings, and sentences at the end of the line.
    #[test]
    fn at_any_width_words_and_columns_are_whole_or_not_there() {
        let report = full_report();
        let all = &words(&frame(&report, 400, 0)) | &words(&frame(&report, 400, 24));
        for width in 40..=220 {
            for height in [24, 50, 0] {
                let lines = frame(&report, width, height);
                let words = words(&lines);
                let cut: Vec<&String> = words.difference(&all).filter(|word| word.parse::<u64>().is_err()).collect();
                assert_eq!(cut, [""; 0], "at {width} by {height}:\n{}", lines.join("\n"));
                let heads: Vec<&String> = lines.iter().filter(|line| line.contains("half within")).collect();
                assert!(heads.iter().all(|line| line.contains("99 % within") && line.contains("a second")));
            }
        }
    }

    #[test]
    fn a_small_terminal_has_the_state_requests_work_and_some_volumes() {
        let text = frame(&full_report(), 80, 24).join("\n");
        for words in
            ["/srv/disk.onefold", "trim or", "% saved", "99 % within", "scrub", "vm029", "of 30", "q ends this"]
        {
            assert!(text.contains(words), "{words}:\n{text}");
        }
    }

    #[test]
    fn a_large_terminal_has_all() {
        let mut report = full_report();
        report.volumes.truncate(8);
        report.volumes.push(crate::report::text::tests::volume("busy", 1 << 20));
        report.volumes[8].clients = 2;
        let text = frame(&report, 200, 50).join("\n");
        for words in [
            "size",
            "policy",
            "remarks",
            "2 clients",
            "idedup",
            "read cache",
            "to gain: up to",
            "vm000",
            "half within",
            "not written",
        ] {
            assert!(text.contains(words), "{words}:\n{text}");
        }
    }

    #[test]
    fn a_terminal_of_any_size_will_do() {
        for (width, height) in [(1, 1), (2, 3), (3, 200), (20, 200), (200, 3), (0, 0)] {
            frame(&full_report(), width.max(1), height.max(1));
        }
    }

    #[test]
    fn text_is_broken_between_words() {
        assert_eq!(wrapped("one two three", 7), ["one two", "three"]);
        assert_eq!(wrapped("abcdefgh ij", 5), ["abcde", "fgh", "ij"]);
        assert_eq!(wrapped("", 5), [""]);
        assert_eq!(abbreviated("a-long-name", 5), "a-lo…");
    }
}
