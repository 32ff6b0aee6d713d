//! `onefold top`: what the page of a server shows, in a terminal.
//!
//! A thread asks the server, so that keys are read also while it does not answer. The terminal is left as it was found: at the end, when a
//! signal comes, after an error, and by a panic's hook. A terminal that goes away ends it, also where no signal says so.

use std::io::IsTerminal;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use ratatui::backend::TestBackend;
use ratatui::crossterm::event::{self, Event, KeyCode, KeyModifiers};
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Style, Stylize};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Block, Cell, Paragraph, Row, Sparkline, Table};
use ratatui::{DefaultTerminal, Frame, Terminal};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

use crate::commands::cli::Target;
use crate::io::input::{self, Waited};
use crate::operators::control::{self, Request};
use crate::print::{print, shown};
use crate::report::health::{Health, Level};
use crate::report::jobs::{Job, jobs};
use crate::report::latency::show_seconds;
use crate::report::recent::{Past, Rates};
use crate::report::status::{Report, VolumeReport};
use crate::size;
use crate::store::backing;

/// From one question to the next.
const PERIOD: Duration = Duration::from_secs(1);
/// How long a key may wait.
const KEYS: Duration = Duration::from_millis(100);
/// The width of a frame of `--once`.
const ONCE_WIDTH: u16 = 100;
/// Volumes that are shown where there is room for any number.
const VOLUMES_MOST: usize = 50;

/// What is shown.
struct View {
    pool: String,
    report: Report,
    rates: Rates,
    past: Past,
    /// What the last line says.
    hint: &'static str,
    /// Why the figures are old, if they are.
    problem: Option<String>,
}

impl View {
    fn new(pool: String, report: Report) -> View {
        let mut past = Past::default();
        let rates = past.add(Instant::now(), &report);
        View { pool, report, rates, past, hint: "q ends this", problem: None }
    }

    fn take(&mut self, at: Instant, report: Report) {
        self.rates = self.past.add(at, &report);
        (self.report, self.problem) = (report, None);
    }
}

/// Shows the pool until a key or a signal ends it; with `once`, prints one frame.
pub fn top(target: &Target, once: bool) -> anyhow::Result<ExitCode> {
    let pool = shown(&target.pool);
    let first = ask(target)?;
    let mut view = View::new(pool, first);
    if once {
        std::thread::sleep(PERIOD);
        view.take(Instant::now(), ask(target)?);
        view.hint = "";
        print(format_args!("{}", frame_as_text(&view)?));
        return Ok(ExitCode::SUCCESS);
    }
    if !std::io::stdout().is_terminal() {
        bail!("the output is no terminal: 'onefold top {} --once' prints one frame", view.pool);
    }
    let ends = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM, SIGHUP] {
        signal_hook::flag::register(signal, ends.clone()).context("cannot catch signals")?;
    }
    let answers = follow(target.clone())?;
    let mut terminal = ratatui::try_init().context("cannot use this terminal")?;
    let result = show(&mut terminal, &mut view, &answers, &ends);
    if ratatui::try_restore().is_err() {
        // It is gone. The library would tell it so, and panic because it cannot.
        std::mem::forget(terminal);
    }
    result.map(|()| ExitCode::SUCCESS)
}

/// The figures of the server that has the pool.
fn ask(target: &Target) -> anyhow::Result<Report> {
    let pool = target.pool.display();
    if backing::kind_of(&target.pool)?.is_none() {
        bail!("{pool} does not exist");
    }
    let report = control::call_server_of(&target.pool, target.control.as_deref(), &Request::Status { settle: false })?;
    report.with_context(|| {
        format!(
            "no server has {pool}: 'onefold serve {pool}' starts one, 'onefold status {pool}' shows what the pool holds"
        )
    })
}

/// Asks once in a while, on a thread of its own.
fn follow(target: Target) -> anyhow::Result<Receiver<anyhow::Result<Report>>> {
    let (sender, answers) = channel();
    let run = move || {
        loop {
            std::thread::sleep(PERIOD);
            if sender.send(ask(&target)).is_err() {
                return;
            }
        }
    };
    std::thread::Builder::new().name("figures".into()).spawn(run).context("cannot start a thread")?;
    Ok(answers)
}

fn show(
    terminal: &mut DefaultTerminal,
    view: &mut View,
    answers: &Receiver<anyhow::Result<Report>>,
    ends: &AtomicBool,
) -> anyhow::Result<()> {
    let mut is_new = true;
    let keys = input::keyboard().context("cannot read from this terminal")?;
    while !ends.load(Ordering::Relaxed) {
        for answer in answers.try_iter() {
            is_new = true;
            match answer {
                Ok(report) => view.take(Instant::now(), report),
                Err(error) => view.problem = Some(format!("{error:#}")),
            }
        }
        if is_new {
            terminal.draw(|frame| draw(frame, view)).context("cannot write to this terminal")?;
            is_new = false;
        }
        match input::wait(&keys, KEYS).context("cannot read from this terminal")? {
            Waited::Gone => return Ok(()),
            Waited::Nothing | Waited::Ready => {}
        }
        // The library would wait forever for what a terminal says that is gone, so it is asked only for what is there. The size may have changed, too.
        if !event::poll(Duration::ZERO).context("cannot read from this terminal")? {
            continue;
        }
        match event::read().context("cannot read from this terminal")? {
            Event::Key(key) => match key.code {
                KeyCode::Char('q') | KeyCode::Esc => return Ok(()),
                KeyCode::Char('c') if key.modifiers.contains(KeyModifiers::CONTROL) => return Ok(()),
                _ => {}
            },
            Event::Resize(..) => is_new = true,
            _ => {}
        }
    }
    Ok(())
}

/// One frame as lines, as high as all that is to be shown.
fn frame_as_text(view: &View) -> anyhow::Result<String> {
    let rows = view.report.volumes.len().clamp(1, VOLUMES_MOST) + jobs(&view.report).len();
    let mut terminal = Terminal::new(TestBackend::new(ONCE_WIDTH, rows as u16 + 23))?;
    terminal.draw(|frame| draw(frame, view))?;
    let buffer = terminal.backend().buffer();
    let mut text = String::new();
    for line in buffer.content().chunks(usize::from(ONCE_WIDTH)) {
        let line: String = line.iter().map(|cell| cell.symbol()).collect();
        text.push_str(line.trim_end());
        text.push('\n');
    }
    Ok(text.trim_end().to_string() + "\n")
}

fn draw(frame: &mut Frame<'_>, view: &View) {
    let jobs = jobs(&view.report);
    let areas = Layout::vertical([
        Constraint::Length(2),
        Constraint::Length(3),
        Constraint::Min(4),
        Constraint::Length(7),
        Constraint::Length(5),
        Constraint::Length(jobs.len() as u16 + 2),
        Constraint::Length(1),
    ]);
    let [head, savings, volumes, middle, memory, work, foot] = areas.areas(frame.area());
    let [left, right] = Layout::horizontal([Constraint::Percentage(50), Constraint::Percentage(50)]).areas(middle);
    draw_head(frame, head, view);
    draw_savings(frame, savings, &view.report);
    draw_volumes(frame, volumes, &view.report);
    draw_requests(frame, left, view);
    draw_policies(frame, right, &view.report);
    draw_memory(frame, memory, view);
    draw_jobs(frame, work, &jobs);
    frame.render_widget(Line::from(view.hint).dim(), foot);
}

fn draw_head(frame: &mut Frame<'_>, area: Rect, view: &View) {
    let Health { level, sentence } = Health::of(&view.report);
    let colour = match level {
        Level::Good => Color::Green,
        Level::Warning => Color::Yellow,
        Level::Bad => Color::Red,
    };
    let health = match &view.problem {
        Some(problem) => Span::from(format!("these are the last figures: {problem}")).red(),
        None => Span::from(sentence).style(Style::new().fg(colour)),
    };
    let lines = vec![Line::from(view.pool.as_str()).bold(), Line::from(health)];
    frame.render_widget(Paragraph::new(lines), area);
}

fn draw_savings(frame: &mut Frame<'_>, area: Rect, report: &Report) {
    let bytes = |blocks: u64| size::show(blocks.saturating_mul(4096));
    let line = format!(
        "{:.1} % saved   {} held by volumes   {} stored   {} % of {} in use   tables {} %",
        report.saving_percent,
        bytes(report.logical_blocks_used),
        bytes(report.data_blocks_used),
        report.data_percent,
        size::show(report.capacity_bytes),
        report.metadata_percent,
    );
    frame.render_widget(Paragraph::new(line).block(Block::bordered().title("savings")), area);
}

fn draw_volumes(frame: &mut Frame<'_>, area: Rect, report: &Report) {
    let mut largest: Vec<&VolumeReport> = report.volumes.iter().collect();
    largest.sort_by_key(|volume| std::cmp::Reverse(volume.logical_blocks_used));
    let row = |volume: &&VolumeReport| {
        let removed = volume.writes.removed_percent;
        let filled = usize::try_from(removed / 5).unwrap_or(0).min(20);
        Row::new([
            Cell::from(volume.name.clone()),
            Cell::from(size::show(volume.logical_blocks_used.saturating_mul(4096))),
            Cell::from(volume.policy.clone()),
            Cell::from(volume.clients.to_string()),
            Cell::from(format!("{removed:>3} % {}", "█".repeat(filled))),
        ])
    };
    let widths = [
        Constraint::Fill(1),
        Constraint::Length(11),
        Constraint::Length(12),
        Constraint::Length(8),
        Constraint::Length(28),
    ];
    let table = Table::new(largest.iter().take(VOLUMES_MOST).map(row), widths)
        .header(Row::new(["volume", "holds", "policy", "clients", "not stored again, of writes"]).dim())
        .block(Block::bordered().title("savings by volume"));
    frame.render_widget(table, area);
}

fn draw_requests(frame: &mut Frame<'_>, area: Rect, view: &View) {
    let time = |seconds: Option<f64>| seconds.map_or_else(|| "–".into(), show_seconds);
    let kinds = view.report.latency.kinds();
    let rows = kinds.into_iter().zip(&view.rates).map(|((name, _), rate)| {
        Row::new([name.to_string(), format!("{:.0}", rate.per_second), time(rate.half), time(rate.most)])
    });
    let widths = [Constraint::Length(8), Constraint::Length(10), Constraint::Length(12), Constraint::Fill(1)];
    let table = Table::new(rows, widths)
        .header(Row::new(["now", "a second", "half within", "99 % within"]).dim())
        .block(Block::bordered().title("requests and latency"));
    frame.render_widget(table, area);
}

fn draw_policies(frame: &mut Frame<'_>, area: Rect, report: &Report) {
    let writes = &report.writes;
    let all = (writes.written_blocks + writes.removed_blocks).max(1);
    let what_if = &writes.what_if;
    let policies = [
        ("as it was done", writes.removed_blocks),
        ("full", what_if.full.blocks),
        ("select", what_if.select.blocks),
        ("idedup", what_if.idedup.blocks),
    ];
    let rows = policies.map(|(name, removed)| {
        let share = removed as f64 * 100.0 / all as f64;
        Row::new([name.to_string(), format!("{share:.1} %"), size::show(removed.saturating_mul(4096))])
    });
    let widths = [Constraint::Length(16), Constraint::Length(12), Constraint::Fill(1)];
    let table = Table::new(rows, widths)
        .header(Row::new(["policy", "of writes", "not written"]).dim())
        .block(Block::bordered().title("what each policy would have saved"));
    frame.render_widget(table, area);
}

fn draw_memory(frame: &mut Frame<'_>, area: Rect, view: &View) {
    let report = &view.report;
    let block = Block::bordered().title("memory");
    let inner = block.inner(area);
    frame.render_widget(block, area);
    let [words, caption, history] =
        Layout::vertical([Constraint::Length(1), Constraint::Length(1), Constraint::Length(1)]).areas(inner);
    let line = format!(
        "{} of {} in use: index {}, read cache {}; sharing {}",
        size::show(report.memory_bytes),
        size::show(report.memory_cap_bytes),
        size::show(report.cache.index_bytes),
        size::show(report.cache.read_bytes),
        report.cache.setting,
    );
    frame.render_widget(Line::from(line), words);
    let share = |index: u64, read: u64| (index as f64 * 100.0 / (index + read).max(1) as f64) as u64;
    let now = share(report.cache.index_bytes, report.cache.read_bytes);
    let said = format!("of index and read cache together the index has {now} %; every 10 s, the last on the right:");
    frame.render_widget(Line::from(said).dim(), caption);
    let samples = view.past.samples();
    let hidden = samples.len().saturating_sub(usize::from(history.width));
    let shares: Vec<u64> = samples.skip(hidden).map(|sample| share(sample.index_bytes, sample.read_bytes)).collect();
    frame.render_widget(Sparkline::default().data(shares).max(100), history);
}

fn draw_jobs(frame: &mut Frame<'_>, area: Rect, jobs: &[Job]) {
    let rows = jobs.iter().map(|job| {
        let done = job.done.map_or_else(String::new, |done| format!("{:>3.0} %", done * 100.0));
        Row::new([job.name.to_string(), done, job.text.clone()])
    });
    let widths = [Constraint::Length(9), Constraint::Length(6), Constraint::Fill(1)];
    frame.render_widget(Table::new(rows, widths).block(Block::bordered().title("background work")), area);
}
