//! Plots of bars and lines, drawn by `plotters` as SVG and PNG from the same code. The font of PNGs is part of the program.
//!
//! Ticks are values in the axis's unit, also on logarithmic axes. Categories are words. The paper's values are marked, error bars go from the lowest to the
//! highest of several seeds. An SVG follows the reader's light or dark setting; a PNG is light.

use std::error::Error;
use std::ops::Range;
use std::path::Path;
use std::sync::Once;

use plotters::coord::Shift;
use plotters::coord::ranged1d::{DefaultFormatting, KeyPointHint, Ranged};
use plotters::element::DashedPathElement;
use plotters::prelude::*;
use plotters::style::register_font;
use plotters::style::text_anchor::{HPos, Pos, VPos};

/// Width of a picture and height of a panel of it, in pixels of an SVG.
const WIDTH: u32 = 960;
const PANEL: u32 = 380;
/// A PNG has as many pixels for each.
const PNG_SCALE: u32 = 2;
const FONT: &str = "sans-serif";
/// Height of the title and of a line of the legend.
const TITLE: i32 = 36;
const LEGEND_LINE: i32 = 20;
/// Mean width of a letter.
const LETTER: f64 = 6.8;
/// Left edge of title and legend; a line of the legend ends at `RIGHT`.
const LEFT: i32 = 16;
const RIGHT: i32 = WIDTH as i32 - 16;

/// A colour: red, green, blue.
pub type Colour = (u8, u8, u8);

/// Colours that can be told apart, also without seeing red or green (Okabe and Ito; Tol).
pub const COLOURS: [Colour; 10] = [
    (0x00, 0x72, 0xb2),
    (0xd5, 0x5e, 0x00),
    (0x00, 0x9e, 0x73),
    (0xcc, 0x79, 0xa7),
    (0xe6, 0x9f, 0x00),
    (0x56, 0xb4, 0xe9),
    (0x66, 0x66, 0x66),
    (0xb0, 0xa8, 0x20),
    (0x88, 0x22, 0x55),
    (0x44, 0x33, 0x99),
];
/// Light colours for bands behind lines.
pub const SHADES: [Colour; 2] = [(0xdb, 0xe9, 0xf6), (0xfb, 0xe3, 0xd3)];

const INK: RGBColor = RGBColor(0x22, 0x22, 0x22);
const PALE: RGBColor = RGBColor(0xcc, 0xcc, 0xcc);

/// Colours of an SVG for readers with a dark setting, each for one above.
const DARK: [(&str, &str); 11] = [
    ("FFFFFF", "14171a"),
    ("222222", "e4e7ea"),
    ("000000", "ffffff"),
    ("CCCCCC", "3d444b"),
    ("0072B2", "4aa3df"),
    ("009E73", "2fc79a"),
    ("666666", "a5a5a5"),
    ("882255", "d56fa0"),
    ("443399", "9a8cf0"),
    ("DBE9F6", "1d3348"),
    ("FBE3D3", "48301f"),
];

/// A picture.
#[derive(Clone, Debug)]
pub struct Chart {
    /// Title above the panels.
    pub title: String,
    /// Kind of the data, behind the title: `synthetic`.
    pub tag: &'static str,
    /// Panels, one below the other. They share the legend.
    panels: Vec<Panel>,
}

#[derive(Clone, Debug)]
struct Panel {
    x: Axis,
    y: Axis,
    content: Content,
}

#[derive(Clone, Debug)]
struct Axis {
    /// Label in words, with its unit.
    label: String,
    /// Range of the axis; none: that of the values.
    range: Option<(f64, f64)>,
    scale: Scale,
}

/// Scale of an axis.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Scale {
    /// Linear.
    Linear,
    /// Logarithmic, with ticks at 1, 2, 5 and 10.
    Log,
    /// Logarithmic, with ticks at powers of two.
    Binary,
}

#[derive(Clone, Debug)]
enum Content {
    Lines { bands: Vec<Band>, lines: Vec<Line> },
    Bars { groups: Vec<String>, series: Vec<Bars> },
}

/// Stretches of the x axis of one kind.
#[derive(Clone, Debug)]
pub struct Band {
    /// Name in the legend.
    pub name: String,
    /// A colour.
    pub colour: Colour,
    /// Start and end of each stretch.
    pub stretches: Vec<(f64, f64)>,
}

/// A line through points.
#[derive(Clone, Debug)]
pub struct Line {
    name: String,
    colour: Option<usize>,
    dashed: bool,
    marked: bool,
    points: Vec<(f64, f64)>,
    papers: Vec<(f64, f64)>,
    spread: Vec<(f64, f64)>,
}

impl Line {
    /// Creates a line through points in order; it is in the legend if it has a name. Points are marked if there are at most 24.
    pub fn new(name: impl Into<String>, points: Vec<(f64, f64)>) -> Line {
        let marked = points.len() <= 24;
        Line { name: name.into(), colour: None, dashed: false, marked, points, papers: Vec::new(), spread: Vec::new() }
    }

    /// Sets the colour to a number in [`COLOURS`].
    pub fn colour(self, colour: usize) -> Line {
        Line { colour: Some(colour), ..self }
    }

    /// Switches dashes on or off.
    pub fn dashed(self, dashed: bool) -> Line {
        Line { dashed, ..self }
    }

    /// Switches marks at the points on or off.
    pub fn marked(self, marked: bool) -> Line {
        Line { marked, ..self }
    }

    /// Sets the points that the paper states.
    pub fn papers(self, papers: Vec<(f64, f64)>) -> Line {
        Line { papers, ..self }
    }

    /// Sets the lowest and the highest value of each point.
    pub fn spread(self, spread: Vec<(f64, f64)>) -> Line {
        Line { spread, ..self }
    }
}

/// Bars of one colour, one in each group.
#[derive(Clone, Debug)]
pub struct Bars {
    name: String,
    colour: Option<usize>,
    heights: Vec<f64>,
    papers: Vec<Option<f64>>,
    spread: Vec<(f64, f64)>,
}

impl Bars {
    /// Creates bars, one in each group; a group has none where the height is not a number.
    pub fn new(name: impl Into<String>, heights: Vec<f64>) -> Bars {
        Bars { name: name.into(), colour: None, heights, papers: Vec::new(), spread: Vec::new() }
    }

    /// Sets the colour to a number in [`COLOURS`].
    pub fn colour(self, colour: usize) -> Bars {
        Bars { colour: Some(colour), ..self }
    }

    /// Sets the paper's value for each group, where it states one.
    pub fn papers(self, papers: Vec<Option<f64>>) -> Bars {
        Bars { papers, ..self }
    }

    /// Sets the lowest and the highest value of each bar.
    pub fn spread(self, spread: Vec<(f64, f64)>) -> Bars {
        Bars { spread, ..self }
    }
}

impl Chart {
    fn of(title: impl Into<String>, (x_label, y_label): (&str, &str), content: Content) -> Chart {
        let axis = |label: &str| Axis { label: label.into(), range: None, scale: Scale::Linear };
        Chart { title: title.into(), tag: "", panels: vec![Panel { x: axis(x_label), y: axis(y_label), content }] }
    }

    /// Creates a chart of lines over an x axis. The axes begin at 0 unless values are below it, or the scale is logarithmic.
    pub fn lines(title: impl Into<String>, labels: (&str, &str), mut lines: Vec<Line>) -> Chart {
        for (at, line) in lines.iter_mut().enumerate() {
            line.dashed |= line.colour.is_none() && at >= COLOURS.len();
            line.colour.get_or_insert(at % COLOURS.len());
        }
        Chart::of(title, labels, Content::Lines { bands: Vec::new(), lines })
    }

    /// Creates a chart of bars in named groups. The bars are horizontal if the names are too long to stand side by side.
    pub fn bars(title: impl Into<String>, y_label: &str, groups: Vec<String>, mut series: Vec<Bars>) -> Chart {
        for (at, bars) in series.iter_mut().enumerate() {
            bars.colour.get_or_insert(at % COLOURS.len());
        }
        Chart::of(title, ("", y_label), Content::Bars { groups, series })
    }

    /// Sets the scale of x in all panels.
    pub fn scale_x(mut self, scale: Scale) -> Chart {
        self.panels.iter_mut().for_each(|panel| panel.x.scale = scale);
        self
    }

    /// Sets the scale of y, or of the values of bars, in all panels.
    pub fn scale_y(mut self, scale: Scale) -> Chart {
        self.panels.iter_mut().for_each(|panel| panel.y.scale = scale);
        self
    }

    /// Limits the x axis of all panels to the range `from` to `to`.
    pub fn range_x(mut self, from: f64, to: f64) -> Chart {
        self.panels.iter_mut().for_each(|panel| panel.x.range = Some((from, to)));
        self
    }

    /// Limits the y axis of all panels to the range `from` to `to`.
    pub fn range_y(mut self, from: f64, to: f64) -> Chart {
        self.panels.iter_mut().for_each(|panel| panel.y.range = Some((from, to)));
        self
    }

    /// Adds shaded ranges of the x axis to all panels with lines.
    pub fn shaded(mut self, bands: Vec<Band>) -> Chart {
        for panel in &mut self.panels {
            if let Content::Lines { bands: all, .. } = &mut panel.content {
                all.extend(bands.iter().cloned());
            }
        }
        self
    }

    /// Appends the panels of another chart below: values with another unit need another axis.
    pub fn below(mut self, other: Chart) -> Chart {
        self.panels.extend(other.panels);
        self
    }

    /// Renders the picture as the text of an SVG file.
    pub fn svg(&self) -> String {
        let mut text = String::new();
        self.draw(SVGBackend::with_string(&mut text, self.size()).into_drawing_area(), 1)
            .expect("a text takes any picture");
        text.push('\n');
        let rule = |(light, dark): (&str, &str)| {
            format!("svg [fill=\"#{light}\"]{{fill:#{dark}}}svg [stroke=\"#{light}\"]{{stroke:#{dark}}}")
        };
        let rules: String = DARK.map(rule).concat();
        let style = format!("<style>@media(prefers-color-scheme:dark){{{rules}}}</style>");
        // Behind the tag of the whole.
        let end = text.find("<svg").and_then(|begin| text[begin..].find('>').map(|end| begin + end + 1));
        text.insert_str(end.unwrap_or(0), &style);
        text
    }

    /// Writes the picture as a PNG file.
    pub fn png(&self, path: &Path) -> Result<(), Box<dyn Error>> {
        let (width, height) = self.size();
        let size = (width * PNG_SCALE, height * PNG_SCALE);
        self.draw(BitMapBackend::new(path, size).into_drawing_area(), PNG_SCALE as i32)
            .map_err(|error| error.to_string().into())
    }

    /// Returns width and height, in pixels of an SVG.
    fn size(&self) -> (u32, u32) {
        (WIDTH, self.head() as u32 + self.panels.iter().map(Panel::height).sum::<u32>())
    }

    /// Returns the height of title and legend.
    fn head(&self) -> i32 {
        let lines = self.placed().last().map_or(0, |entry| entry.1.1 / LEGEND_LINE + 1);
        TITLE + lines * LEGEND_LINE + 6
    }

    /// Returns the distinct entries of the legend with their places below the title, those of the paper last.
    fn placed(&self) -> Vec<(Entry<'_>, (i32, i32))> {
        let mut entries: Vec<Entry<'_>> = Vec::new();
        for entry in self.panels.iter().flat_map(Panel::entries) {
            if !entries.iter().any(|other| (other.name, other.colour) == (entry.name, entry.colour)) {
                entries.push(entry);
            }
        }
        // What stands for the paper comes last.
        entries.sort_by_key(|entry| matches!(entry.mark, Mark::Paper | Mark::PaperPoint));
        let (mut x, mut y) = (LEFT, 0);
        let place = |entry: Entry<'_>| {
            let width = 40 + width_of(entry.name);
            if x + width > RIGHT && x > LEFT {
                (x, y) = (LEFT, y + LEGEND_LINE);
            }
            let at = (x, y);
            x += width;
            at
        };
        let places: Vec<(i32, i32)> = entries.iter().copied().map(place).collect();
        entries.into_iter().zip(places).collect()
    }

    fn draw<B: DrawingBackend>(
        &self,
        area: DrawingArea<B, Shift>,
        scale: i32,
    ) -> Result<(), DrawingAreaErrorKind<B::ErrorType>> {
        register();
        area.fill(&WHITE)?;
        let title = (FONT, 17 * scale).into_font().color(&INK);
        let words = if self.tag.is_empty() { self.title.clone() } else { format!("{} ({})", self.title, self.tag) };
        area.draw(&Text::new(words, (LEFT * scale, 10 * scale), title))?;
        self.draw_legend(&area, scale)?;
        let (_, mut rest) = area.split_vertically(self.head() * scale);
        for panel in &self.panels {
            let (this, below) = rest.split_vertically(panel.height() as i32 * scale);
            panel.draw(&this, scale)?;
            rest = below;
        }
        area.present()
    }

    fn draw_legend<B: DrawingBackend>(
        &self,
        area: &DrawingArea<B, Shift>,
        scale: i32,
    ) -> Result<(), DrawingAreaErrorKind<B::ErrorType>> {
        let style = (FONT, 13 * scale).into_font().color(&INK);
        for (Entry { name, colour, mark }, (x, y)) in self.placed() {
            let y = y + TITLE;
            let at = |dx: i32, dy: i32| ((x + dx) * scale, (y + dy) * scale);
            let fill = rgb(colour).filled();
            match mark {
                Mark::Area => area.draw(&Rectangle::new([at(0, 1), at(18, 13)], fill))?,
                Mark::Dashes => {
                    for dash in [0, 7, 14] {
                        area.draw(&Rectangle::new([at(dash, 6), at(dash + 4, 8)], fill))?;
                    }
                }
                Mark::Line | Mark::Points(_) => area.draw(&Rectangle::new([at(0, 6), at(18, 8)], fill))?,
                Mark::Paper => area.draw(&Rectangle::new([at(0, 6), at(18, 9)], fill))?,
                Mark::PaperPoint => area.draw(&Polygon::new(diamond(5 * scale, at(9, 7)), fill))?,
            }
            if let Mark::Points(shape) = mark {
                area.draw(&Polygon::new(corners(shape, 4 * scale, at(9, 7)), fill))?;
            }
            area.draw(&Text::new(name.to_string(), at(24, 0), style.clone()))?;
        }
        Ok(())
    }
}

/// An entry of the legend.
#[derive(Clone, Copy)]
struct Entry<'a> {
    name: &'a str,
    colour: Colour,
    mark: Mark,
}

/// Symbol before a name of the legend.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Mark {
    Area,
    Line,
    Dashes,
    Points(usize),
    Paper,
    PaperPoint,
}

/// An axis of a panel that is drawn: its coordinates, which are logarithms on a logarithmic scale.
struct Drawn {
    scale: Scale,
    low: f64,
    high: f64,
    ticks: Vec<f64>,
}

impl Drawn {
    fn new(axis: &Axis, values: &[f64], from_zero: bool) -> Drawn {
        let finite = || values.iter().copied().filter(|value| value.is_finite());
        let (low, high) = match (axis.range, axis.scale) {
            (Some(range), _) => range,
            (None, Scale::Linear) => {
                let (least, most) = (finite().fold(f64::MAX, f64::min), finite().fold(f64::MIN, f64::max));
                match (from_zero, least < 0.0) {
                    _ if least > most => (0.0, 1.0),
                    (true, false) => (0.0, round_up(most)),
                    (true, true) => (-round_up(-least), if most > 0.0 { round_up(most) } else { 0.0 }),
                    (false, _) => (least, most),
                }
            }
            (None, _) => {
                let above = || finite().filter(|value| *value > 0.0);
                let (least, most) = (above().fold(f64::MAX, f64::min), above().fold(f64::MIN, f64::max));
                if least > most {
                    (1.0, 10.0)
                } else if from_zero {
                    (round_down(least), round_up(most))
                } else {
                    (least, most)
                }
            }
        };
        let high = if high > low { high } else { low + low.abs().max(1.0) };
        let values = ticks(axis.scale, low, high);
        let mut drawn = Drawn { scale: axis.scale, low, high, ticks: Vec::new() };
        drawn.ticks = values.into_iter().map(|value| drawn.at(value)).collect();
        (drawn.low, drawn.high) = (drawn.at(low), drawn.at(high));
        drawn
    }

    /// Returns the coordinate of a value: its logarithm on a logarithmic axis.
    fn at(&self, value: f64) -> f64 {
        if self.scale == Scale::Linear { value } else { value.max(1e-12).log10() }
    }

    /// Returns the coordinate of a value, clamped to the axis.
    fn within(&self, value: f64) -> f64 {
        self.at(value).clamp(self.low, self.high)
    }

    fn label(&self, at: f64) -> String {
        number(if self.scale == Scale::Linear { at } else { 10f64.powf(at) })
    }

    fn coordinates(&self) -> Coordinates {
        Coordinates { range: (self.low, self.high), ticks: self.ticks.clone() }
    }
}

/// Coordinates of an axis for `plotters`: linear, with ticks at given values.
struct Coordinates {
    range: (f64, f64),
    ticks: Vec<f64>,
}

impl Ranged for Coordinates {
    type FormatOption = DefaultFormatting;
    type ValueType = f64;

    fn map(&self, value: &f64, limit: (i32, i32)) -> i32 {
        let part = (value - self.range.0) / (self.range.1 - self.range.0);
        limit.0 + (f64::from(limit.1 - limit.0) * part).round() as i32
    }

    fn key_points<Hint: KeyPointHint>(&self, hint: Hint) -> Vec<f64> {
        if hint.weight().allow_light_points() { Vec::new() } else { self.ticks.clone() }
    }

    fn range(&self) -> Range<f64> {
        self.range.0..self.range.1
    }
}

/// Ticks of an axis, as values.
fn ticks(scale: Scale, low: f64, high: f64) -> Vec<f64> {
    /// Maximum number of ticks.
    const MOST: usize = 10;
    let near = |value: &f64| *value >= low * (1.0 - 1e-9) - 1e-12 && *value <= high * (1.0 + 1e-9) + 1e-12;
    match scale {
        Scale::Linear => {
            let step = round_up((high - low) / 8.0);
            let step = [1.0, 2.0, 2.5, 5.0, 10.0].map(|part| part * 10f64.powf(step.log10().floor()));
            let step = step.into_iter().find(|step| (high - low) / step <= 8.5).unwrap_or(high - low);
            let (first, last) = ((low / step).ceil() as i64, (high / step + 1e-9).floor() as i64);
            (first..=last).map(|at| at as f64 * step).collect()
        }
        Scale::Log => {
            let decades = (low.log10().floor() as i32)..=(high.log10().ceil() as i32);
            let of = |parts: &[f64]| -> Vec<f64> {
                decades
                    .clone()
                    .flat_map(|at| parts.iter().map(move |part| part * 10f64.powi(at)))
                    .filter(near)
                    .collect()
            };
            let (all, few) = (of(&[1.0, 2.0, 5.0]), of(&[1.0]));
            if all.len() <= MOST { all } else { few }
        }
        Scale::Binary => {
            let powers: Vec<f64> = ((low.log2().floor() as i32)..=(high.log2().ceil() as i32))
                .map(|at| 2f64.powi(at))
                .filter(near)
                .collect();
            let every = powers.len().div_ceil(MOST).max(1);
            powers.into_iter().step_by(every).collect()
        }
    }
}

impl Panel {
    /// Returns the height in pixels of an SVG: horizontal bars need space for each.
    fn height(&self) -> u32 {
        match &self.content {
            Content::Bars { groups, series } if self.lies() => {
                (groups.len() * (series.len() * 13 + 12)).max(160) as u32 + 64
            }
            _ => PANEL,
        }
    }

    /// Returns true if bars are horizontal: names that do not fit below their groups stand before them.
    fn lies(&self) -> bool {
        let Content::Bars { groups, .. } = &self.content else { return false };
        let space = (WIDTH as i32 - 110) / groups.len().max(1) as i32;
        groups.iter().any(|group| width_of(group) + 8 > space)
    }

    fn entries<'a>(&'a self) -> Vec<Entry<'a>> {
        let mut entries = Vec::new();
        let black = (0, 0, 0);
        match &self.content {
            Content::Lines { bands, lines } => {
                for (at, line) in lines.iter().enumerate().filter(|(_, line)| !line.name.is_empty()) {
                    let mark = match line {
                        Line { marked: true, .. } => Mark::Points(at),
                        Line { dashed: true, .. } => Mark::Dashes,
                        _ => Mark::Line,
                    };
                    entries.push(Entry { name: &line.name, colour: colour(line.colour), mark });
                }
                entries.extend(bands.iter().map(|band| Entry {
                    name: &band.name,
                    colour: band.colour,
                    mark: Mark::Area,
                }));
                if lines.iter().any(|line| !line.papers.is_empty()) {
                    entries.push(Entry { name: "the paper", colour: black, mark: Mark::PaperPoint });
                }
            }
            Content::Bars { series, .. } => {
                let named = series.iter().filter(|bars| !bars.name.is_empty());
                let of = |bars: &'a Bars| Entry { name: &bars.name, colour: colour(bars.colour), mark: Mark::Area };
                entries.extend(named.map(of));
                if series.iter().flat_map(|bars| &bars.papers).any(Option::is_some) {
                    entries.push(Entry { name: "the paper", colour: black, mark: Mark::Paper });
                }
            }
        }
        entries
    }

    fn draw<B: DrawingBackend>(
        &self,
        area: &DrawingArea<B, Shift>,
        scale: i32,
    ) -> Result<(), DrawingAreaErrorKind<B::ErrorType>> {
        match &self.content {
            Content::Lines { bands, lines } => self.draw_lines(area, scale, bands, lines),
            Content::Bars { groups, series } => self.draw_bars(area, scale, groups, series),
        }
    }

    fn draw_lines<B: DrawingBackend>(
        &self,
        area: &DrawingArea<B, Shift>,
        scale: i32,
        bands: &[Band],
        lines: &[Line],
    ) -> Result<(), DrawingAreaErrorKind<B::ErrorType>> {
        let points = || lines.iter().flat_map(|line| line.points.iter().chain(&line.papers));
        let xs: Vec<f64> = points().map(|point| point.0).collect();
        let spreads = lines.iter().flat_map(|line| &line.spread).flat_map(|&(low, high)| [low, high]);
        let ys: Vec<f64> = points().map(|point| point.1).chain(spreads).collect();
        let (x, y) = (Drawn::new(&self.x, &xs, false), Drawn::new(&self.y, &ys, true));
        let mut chart = ChartBuilder::on(area)
            .margin_left(8 * scale)
            .margin_right(24 * scale)
            .margin_top(6 * scale)
            .margin_bottom(6 * scale)
            .x_label_area_size(46 * scale)
            .y_label_area_size(72 * scale)
            .build_cartesian_2d(x.coordinates(), y.coordinates())?;
        let style = (FONT, 13 * scale).into_font().color(&INK);
        chart
            .configure_mesh()
            .disable_x_mesh()
            .bold_line_style(PALE)
            .light_line_style(TRANSPARENT)
            .axis_style(INK)
            .x_desc(&self.x.label)
            .y_desc(&self.y.label)
            .label_style(style)
            .x_label_formatter(&|at| x.label(*at))
            .y_label_formatter(&|at| y.label(*at))
            .draw()?;
        for band in bands {
            let fill = rgb(band.colour).filled();
            let shade =
                |&(from, to): &(f64, f64)| Rectangle::new([(x.within(from), y.low), (x.within(to), y.high)], fill);
            chart.draw_series(band.stretches.iter().map(shade))?;
        }
        for (at, line) in lines.iter().enumerate() {
            let colour = rgb(colour(line.colour));
            let style = colour.stroke_width(2 * scale as u32);
            let points: Vec<(f64, f64)> = line.points.iter().map(|&(px, py)| (x.within(px), y.within(py))).collect();
            if line.dashed {
                chart.draw_series([DashedPathElement::new(points.clone(), 6 * scale, 4 * scale, style)])?;
            } else {
                chart.draw_series([PathElement::new(points.clone(), style)])?;
            }
            let thin = colour.stroke_width(scale as u32);
            let spreads = line.points.iter().zip(&line.spread).map(|(&(px, _), &(low, high))| {
                PathElement::new([(x.within(px), y.within(low)), (x.within(px), y.within(high))], thin)
            });
            chart.draw_series(spreads)?;
            if line.marked {
                let mark = |&point: &(f64, f64)| {
                    EmptyElement::at(point) + Polygon::new(corners(at, 4 * scale, (0, 0)), colour.filled())
                };
                chart.draw_series(points.iter().map(mark))?;
            }
        }
        let papers = lines.iter().flat_map(|line| &line.papers);
        let mark = |&(px, py): &(f64, f64)| {
            let point = (x.within(px), y.within(py));
            EmptyElement::at(point) + Polygon::new(diamond(6 * scale, (0, 0)), BLACK.filled())
        };
        chart.draw_series(papers.map(mark))?;
        Ok(())
    }

    fn draw_bars<B: DrawingBackend>(
        &self,
        area: &DrawingArea<B, Shift>,
        scale: i32,
        groups: &[String],
        series: &[Bars],
    ) -> Result<(), DrawingAreaErrorKind<B::ErrorType>> {
        let ends = |bars: &Bars| -> Vec<f64> {
            let spread = bars.spread.iter().flat_map(|&(low, high)| [low, high]);
            bars.heights.iter().copied().chain(bars.papers.iter().flatten().copied()).chain(spread).collect()
        };
        let values: Vec<f64> = series.iter().flat_map(ends).collect();
        let (lies, count) = (self.lies(), groups.len().max(1) as f64);
        let value = Drawn::new(&self.y, &values, true);
        let places = Coordinates { range: if lies { (count, 0.0) } else { (0.0, count) }, ticks: Vec::new() };
        let longest = groups.iter().map(|group| width_of(group)).max().unwrap_or(0);
        let mut builder = ChartBuilder::on(area);
        builder.margin_left(8 * scale).margin_right(24 * scale).margin_top(6 * scale).margin_bottom(6 * scale);
        let before = if lies { longest + 14 } else { 72 };
        builder.x_label_area_size(46 * scale).y_label_area_size(before * scale);
        // One of both, as places and values have the same type.
        let mut chart = match lies {
            true => builder.build_cartesian_2d(value.coordinates(), places)?,
            false => builder.build_cartesian_2d(places, value.coordinates())?,
        };
        let style = (FONT, 13 * scale).into_font().color(&INK);
        let mut mesh = chart.configure_mesh();
        mesh.bold_line_style(PALE).light_line_style(TRANSPARENT).axis_style(INK).label_style(style.clone());
        let label = |at: &f64| value.label(*at);
        let nothing = |_: &f64| String::new();
        if lies {
            mesh.disable_y_mesh().x_desc(&self.y.label).x_label_formatter(&label).y_label_formatter(&nothing);
        } else {
            mesh.disable_x_mesh().y_desc(&self.y.label).y_label_formatter(&label).x_label_formatter(&nothing);
        }
        mesh.draw()?;
        let point = |place: f64, at: f64| if lies { (at, place) } else { (place, at) };
        let width = 0.84 / series.len().max(1) as f64;
        let base = if value.scale == Scale::Linear { value.low.max(0.0).min(value.high) } else { value.low };
        for (at, bars) in series.iter().enumerate() {
            let place = |group: usize| group as f64 + 0.08 + at as f64 * width;
            let shown = bars.heights.iter().enumerate().filter(|(_, height)| height.is_finite());
            let fill = rgb(colour(bars.colour)).filled();
            chart.draw_series(shown.map(|(group, &height)| {
                let (from, to) = (place(group) + 0.06 * width, place(group) + 0.94 * width);
                Rectangle::new([point(from, base), point(to, value.within(height))], fill)
            }))?;
            let thin = INK.stroke_width(scale as u32);
            let spread = bars.spread.iter().enumerate().filter(|(_, (low, high))| low.is_finite() && high.is_finite());
            for (group, &(low, high)) in spread {
                let (middle, part) = (place(group) + 0.5 * width, 0.2 * width);
                let (low, high) = (value.within(low), value.within(high));
                let strokes = [
                    [point(middle, low), point(middle, high)],
                    [point(middle - part, low), point(middle + part, low)],
                    [point(middle - part, high), point(middle + part, high)],
                ];
                chart.draw_series(strokes.map(|stroke| PathElement::new(stroke, thin)))?;
            }
            let papers = bars.papers.iter().enumerate().filter_map(|(group, paper)| Some((group, (*paper)?)));
            chart.draw_series(papers.map(|(group, paper)| {
                let at = value.within(paper);
                let ends = [point(place(group), at), point(place(group) + width, at)];
                PathElement::new(ends, BLACK.stroke_width(3 * scale as u32))
            }))?;
        }
        for (at, group) in groups.iter().enumerate() {
            let (x, y) = chart.backend_coord(&point(at as f64 + 0.5, value.low));
            let (pos, at) = match lies {
                true => (Pos::new(HPos::Right, VPos::Center), (x - 6 * scale, y)),
                false => (Pos::new(HPos::Center, VPos::Top), (x, y + 8 * scale)),
            };
            // Places of the chart are those of the whole picture.
            let (left, top) = area.get_base_pixel();
            area.draw(&Text::new(group.clone(), (at.0 - left, at.1 - top), style.pos(pos)))?;
        }
        Ok(())
    }
}

/// Corners of a marker around a point: markers of adjacent lines differ in shape.
fn corners(shape: usize, size: i32, (x, y): (i32, i32)) -> Vec<(i32, i32)> {
    let unit: &[(f64, f64)] = match shape % 4 {
        0 => &[(-0.9, -0.9), (0.9, -0.9), (0.9, 0.9), (-0.9, 0.9)],
        1 => &[(0.0, -1.2), (1.1, 0.9), (-1.1, 0.9)],
        2 => &[(0.0, -1.2), (1.2, 0.0), (0.0, 1.2), (-1.2, 0.0)],
        _ => &[(0.0, 1.2), (1.1, -0.9), (-1.1, -0.9)],
    };
    let size = f64::from(size);
    unit.iter().map(|(dx, dy)| (x + (dx * size).round() as i32, y + (dy * size).round() as i32)).collect()
}

fn diamond(size: i32, at: (i32, i32)) -> Vec<(i32, i32)> {
    corners(2, size, at)
}

/// Pixels of a text in an SVG, about.
fn width_of(text: &str) -> i32 {
    (LETTER * text.chars().count() as f64).ceil() as i32
}

fn colour(index: Option<usize>) -> Colour {
    COLOURS[index.unwrap_or(0) % COLOURS.len()]
}

fn rgb((red, green, blue): Colour) -> RGBColor {
    RGBColor(red, green, blue)
}

/// Registers the font once, for backends that draw letters themselves.
fn register() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        // Registration fails only for invalid fonts; this one is valid.
        let _ = register_font(FONT, FontStyle::Normal, dejavu::sans::regular());
    });
}

/// Formats a number of an axis as short as possible, with commas between thousands from five digits on.
pub fn number(value: f64) -> String {
    let digits = match value.abs() {
        size if size >= 100.0 || size == 0.0 => 0,
        size if size >= 1.0 => 1,
        _ => 3,
    };
    let text = format!("{value:.digits$}");
    let text = match text.contains('.') {
        true => text.trim_end_matches('0').trim_end_matches('.').to_string(),
        false => text,
    };
    // Thousands are set apart from five digits on.
    let (sign, digits) = text.split_at(usize::from(text.starts_with('-')));
    if digits.len() < 5 || digits.contains('.') {
        return text;
    }
    let parts: Vec<&str> =
        digits.as_bytes().rchunks(3).rev().map(|part| std::str::from_utf8(part).unwrap_or("")).collect();
    format!("{sign}{}", parts.join(","))
}

/// Rounds up to a round number, the end of an axis; 1 if the value is not above 0 or not finite.
fn round_up(value: f64) -> f64 {
    if value <= 0.0 || !value.is_finite() {
        return 1.0;
    }
    let magnitude = 10f64.powf(value.log10().floor());
    [1.0, 1.2, 1.5, 2.0, 2.5, 3.0, 4.0, 5.0, 6.0, 8.0, 10.0]
        .map(|step| step * magnitude)
        .into_iter()
        .find(|end| *end >= value * 0.999_999)
        .unwrap_or(value)
}

/// Rounds down to a round number above 0, the beginning of a logarithmic axis.
fn round_down(value: f64) -> f64 {
    let magnitude = 10f64.powf(value.log10().floor());
    [5.0, 2.0, 1.0].map(|step| step * magnitude).into_iter().find(|end| *end <= value * 1.000_001).unwrap_or(magnitude)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_picture_has_its_words_and_its_bars() {
        let papers = || vec![Some(30.0), None];
        let groups = vec!["web-vm".into(), "mail".into()];
        let one = Bars::new("one", vec![40.0, 60.0]).papers(papers());
        let other = Bars::new("other", vec![f64::NAN, 20.0]).papers(papers());
        let chart = Chart { tag: "synthetic", ..Chart::bars("A < B & C", "percent", groups, vec![one, other]) };
        let svg = chart.svg();
        for word in ["A &lt; B &amp; C (synthetic)", "web-vm", "mail", "other", "percent", "the paper"] {
            assert!(svg.contains(word), "{word}");
        }
        // Three bars, two marks of the legend, and a rule: with a dark setting the first is another colour.
        assert_eq!(svg.matches("fill=\"#0072B2\"").count(), 4);
        assert_eq!(svg.matches("fill=\"#D55E00\"").count(), 2);
        assert!(svg.contains("prefers-color-scheme:dark"));
    }

    #[test]
    fn bars_lie_if_their_names_are_long() {
        let groups = |name: &str| (0..8).map(|at| format!("{name} {at}")).collect::<Vec<String>>();
        let chart = |name| Chart::bars("", "", groups(name), vec![Bars::new("", vec![1.0; 8])]);
        assert!(!chart("short").panels[0].lies());
        assert!(chart("a name that is much too long").panels[0].lies());
        assert!(chart("a name that is much too long").svg().contains("a name that is much too long 7"));
    }

    #[test]
    fn ticks_are_values_in_the_axis_unit() {
        assert_eq!(ticks(Scale::Log, 0.5, 20.0), [0.5, 1.0, 2.0, 5.0, 10.0, 20.0]);
        assert_eq!(ticks(Scale::Log, 1.0, 1e6), [1.0, 10.0, 100.0, 1e3, 1e4, 1e5, 1e6]);
        assert_eq!(ticks(Scale::Binary, 64.0, 2048.0), [64.0, 128.0, 256.0, 512.0, 1024.0, 2048.0]);
        assert_eq!(ticks(Scale::Linear, 0.0, 100.0), [0.0, 20.0, 40.0, 60.0, 80.0, 100.0]);
        assert_eq!(ticks(Scale::Linear, -10.0, 5.0), [-10.0, -8.0, -6.0, -4.0, -2.0, 0.0, 2.0, 4.0]);
    }

    #[test]
    fn ends_of_axes_are_round() {
        assert_eq!([0.0, 0.7, 1.0, 19.0, 430.0].map(round_up), [1.0, 0.8, 1.0, 20.0, 500.0]);
        assert_eq!([0.7, 1.0, 19.0, 430.0].map(round_down), [0.5, 1.0, 10.0, 200.0]);
        assert_eq!([0.0, 0.25, 2.5, 1200.0, 35_000.0].map(number), ["0", "0.25", "2.5", "1200", "35,000"]);
    }
}
