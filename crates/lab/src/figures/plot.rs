//! Pictures for documents, as SVG and PNG: lines over two axes, or bars in groups, with a legend below the title.

use std::error::Error;
use std::path::Path;
use std::sync::Once;

use plotters::coord::Shift;
use plotters::element::DashedPathElement;
use plotters::prelude::*;
use plotters::style::register_font;
use plotters::style::text_anchor::{HPos, Pos, VPos};

/// The size of a picture, in pixels.
const SIZE: (u32, u32) = (820, 440);
const FONT: &str = "sans-serif";
/// The strip above the plot: title and legend.
const HEAD: i32 = 84;
/// Room for a letter of the legend.
const LETTER: i32 = 7;
/// Where the legend begins, and where a line of it ends.
const LEGEND: (i32, i32) = (72, 800);

/// A colour: red, green, blue.
pub type Colour = (u8, u8, u8);

/// Colours that can be told apart, also without seeing red or green (Okabe and Ito).
pub const COLOURS: [Colour; 8] = [
    (0x00, 0x72, 0xb2),
    (0xd5, 0x5e, 0x00),
    (0x00, 0x9e, 0x73),
    (0xcc, 0x79, 0xa7),
    (0xe6, 0x9f, 0x00),
    (0x56, 0xb4, 0xe9),
    (0x66, 0x66, 0x66),
    (0xb0, 0xa8, 0x20),
];
/// Light ones, for what is behind lines.
pub const SHADES: [Colour; 2] = [(0xdb, 0xe9, 0xf6), (0xfb, 0xe3, 0xd3)];

const INK: RGBColor = RGBColor(0x22, 0x22, 0x22);
const PALE: RGBColor = RGBColor(0xcc, 0xcc, 0xcc);

/// A picture.
#[derive(Clone, Debug)]
pub struct Chart {
    /// What it shows.
    pub title: String,
    /// What the axes are, with units.
    pub x_label: String,
    /// The other one.
    pub y_label: String,
    /// From where to where the y axis goes.
    pub y: (f64, f64),
    /// Whether the y axis is logarithmic; it then begins above 0.
    pub log: bool,
    /// What is drawn.
    pub content: Drawn,
}

/// What a picture shows.
#[derive(Clone, Debug)]
pub enum Drawn {
    /// Lines.
    Lines {
        /// From where to where the x axis goes.
        x: (f64, f64),
        /// Stretches of the x axis that are shaded.
        bands: Vec<Band>,
        /// Lines, the later ones above the earlier ones.
        lines: Vec<Line>,
    },
    /// Bars in groups.
    Bars {
        /// What stands below each group.
        groups: Vec<String>,
        /// A bar in each group.
        series: Vec<Bars>,
    },
}

/// Stretches of the x axis of one kind.
#[derive(Clone, Debug)]
pub struct Band {
    /// In the legend.
    pub name: String,
    /// A colour.
    pub colour: Colour,
    /// From where to where.
    pub stretches: Vec<(f64, f64)>,
}

/// A line through points.
#[derive(Clone, Debug)]
pub struct Line {
    /// In the legend; empty: not there.
    pub name: String,
    /// A colour.
    pub colour: Colour,
    /// Whether it is dashed.
    pub dashed: bool,
    /// Whether the points are marked.
    pub marked: bool,
    /// The points, in order.
    pub points: Vec<(f64, f64)>,
}

/// Bars of one colour, one in each group.
#[derive(Clone, Debug)]
pub struct Bars {
    /// In the legend.
    pub name: String,
    /// A colour.
    pub colour: Colour,
    /// How high; not there where it is not a number.
    pub heights: Vec<f64>,
    /// Where a paper has the end of the bar, if it says so.
    pub papers: Vec<Option<f64>>,
}

/// Lines over an x axis.
pub fn lines(title: &str, (x_label, y_label): (&str, &str), series: Vec<(String, Vec<(f64, f64)>)>) -> Chart {
    let points = || series.iter().flat_map(|(_, points)| points);
    let left = points().map(|point| point.0).fold(f64::MAX, f64::min);
    let right = points().map(|point| point.0).fold(f64::MIN, f64::max);
    let highest = points().map(|point| point.1).fold(0.0, f64::max);
    let lowest = points().map(|point| point.1).fold(0.0, f64::min);
    let line = |(at, (name, points)): (usize, (String, Vec<(f64, f64)>))| Line {
        name,
        colour: COLOURS[at % COLOURS.len()],
        dashed: at >= COLOURS.len(),
        marked: points.len() < 20,
        points,
    };
    Chart {
        title: title.into(),
        x_label: x_label.into(),
        y_label: y_label.into(),
        y: (if lowest < 0.0 { -round_up(-lowest) } else { 0.0 }, round_up(highest)),
        log: false,
        content: Drawn::Lines {
            x: if left < right { (left, right) } else { (0.0, 1.0) },
            bands: Vec::new(),
            lines: series.into_iter().enumerate().map(line).collect(),
        },
    }
}

/// A name, a bar in each group, and the paper's value beside it.
pub type Series<'a> = (&'a str, Vec<f64>, Vec<Option<f64>>);

/// Bars in groups; some have a paper's value beside them.
pub fn bars(title: &str, y_label: &str, groups: Vec<String>, series: Vec<Series<'_>>) -> Chart {
    let values = || {
        series.iter().flat_map(|(_, heights, papers)| heights.iter().copied().chain(papers.iter().flatten().copied()))
    };
    let (highest, lowest) = (values().fold(0.0, f64::max), values().fold(0.0, f64::min));
    let made = series.into_iter().enumerate().map(|(at, (name, heights, papers))| Bars {
        name: name.into(),
        colour: COLOURS[at % COLOURS.len()],
        papers: if papers.is_empty() { vec![None; heights.len()] } else { papers },
        heights,
    });
    Chart {
        title: title.into(),
        x_label: String::new(),
        y_label: y_label.into(),
        y: (if lowest < 0.0 { -round_up(-lowest) } else { 0.0 }, round_up(highest.max(0.1))),
        log: false,
        content: Drawn::Bars { groups, series: made.collect() },
    }
}

impl Chart {
    /// The picture as the text of an SVG file.
    pub fn svg(&self) -> String {
        let mut text = String::new();
        self.draw(SVGBackend::with_string(&mut text, SIZE).into_drawing_area()).expect("a text takes any picture");
        text.push('\n');
        text
    }

    /// Writes the picture as a PNG file.
    pub fn png(&self, path: &Path) -> Result<(), Box<dyn Error>> {
        self.draw(BitMapBackend::new(path, SIZE).into_drawing_area()).map_err(|error| error.to_string().into())
    }

    fn draw<B: DrawingBackend>(&self, area: DrawingArea<B, Shift>) -> Result<(), DrawingAreaErrorKind<B::ErrorType>> {
        register();
        area.fill(&WHITE)?;
        let title = (FONT, 16).into_font().color(&INK);
        area.draw(&Text::new(self.title.clone(), (LEGEND.0, 12), title))?;
        self.draw_legend(&area)?;
        let (_, plot) = area.split_vertically(HEAD);
        let scale = |y: f64| if self.log { y.max(1e-9).log10() } else { y };
        let (low, high) = (scale(self.y.0), scale(self.y.1));
        let (left, right) = match &self.content {
            Drawn::Lines { x, .. } => *x,
            Drawn::Bars { groups, .. } => (0.0, groups.len().max(1) as f64),
        };
        let mut chart = ChartBuilder::on(&plot)
            .margin_left(10)
            .margin_right(20)
            .margin_bottom(6)
            .x_label_area_size(46)
            .y_label_area_size(62)
            .build_cartesian_2d(left..right, low..high)?;
        let is_lines = matches!(self.content, Drawn::Lines { .. });
        let label = |y: &f64| number(if self.log { 10f64.powf(*y) } else { *y });
        let mut mesh = chart.configure_mesh();
        mesh.disable_x_mesh()
            .bold_line_style(PALE)
            .light_line_style(TRANSPARENT)
            .axis_style(INK)
            .x_desc(&self.x_label)
            .y_desc(&self.y_label)
            .label_style((FONT, 13).into_font().color(&INK))
            .x_labels(if is_lines { 11 } else { 0 })
            .x_label_formatter(&|x| number(*x))
            .y_label_formatter(&label)
            .y_labels(if self.log { (high - low).ceil() as usize + 1 } else { 7 });
        mesh.draw()?;
        match &self.content {
            Drawn::Lines { bands, lines, .. } => {
                for band in bands {
                    let fill = rgb(band.colour).filled();
                    let shade = |&(from, to): &(f64, f64)| Rectangle::new([(from, low), (to, high)], fill);
                    chart.draw_series(band.stretches.iter().map(shade))?;
                }
                for line in lines {
                    let style = rgb(line.colour).stroke_width(2);
                    let points: Vec<(f64, f64)> =
                        line.points.iter().map(|&(x, y)| (x, scale(y).clamp(low, high))).collect();
                    if line.dashed {
                        chart.draw_series([DashedPathElement::new(points.clone(), 6, 4, style)])?;
                    } else {
                        chart.draw_series([PathElement::new(points.clone(), style)])?;
                    }
                    if line.marked {
                        chart.draw_series(
                            points.iter().map(|&point| Circle::new(point, 3, rgb(line.colour).filled())),
                        )?;
                    }
                }
            }
            Drawn::Bars { groups, series } => {
                let width = 0.84 / series.len().max(1) as f64;
                let base = if self.log { low } else { low.max(0.0).min(high) };
                for (at, bars) in series.iter().enumerate() {
                    let place = |group: usize| group as f64 + 0.08 + at as f64 * width;
                    let shown = bars.heights.iter().enumerate().filter(|(_, height)| height.is_finite());
                    chart.draw_series(shown.map(|(group, &height)| {
                        let (x, y) = (place(group), scale(height).clamp(low, high));
                        Rectangle::new([(x + 0.06 * width, base), (x + 0.94 * width, y)], rgb(bars.colour).filled())
                    }))?;
                    let papers = bars.papers.iter().enumerate().filter_map(|(group, paper)| Some((group, (*paper)?)));
                    chart.draw_series(papers.map(|(group, paper)| {
                        let (x, y) = (place(group), scale(paper).clamp(low, high));
                        PathElement::new([(x, y), (x + width, y)], BLACK.stroke_width(3))
                    }))?;
                }
                let style = (FONT, 13).into_font().color(&INK).pos(Pos::new(HPos::Center, VPos::Top));
                for (at, group) in groups.iter().enumerate() {
                    let (x, y) = chart.backend_coord(&(at as f64 + 0.5, low));
                    area.draw(&Text::new(group.clone(), (x, y + 8), style.clone()))?;
                }
            }
        }
        area.present()
    }

    fn draw_legend<B: DrawingBackend>(
        &self,
        area: &DrawingArea<B, Shift>,
    ) -> Result<(), DrawingAreaErrorKind<B::ErrorType>> {
        let style = (FONT, 13).into_font().color(&INK);
        let (mut x, mut y) = (LEGEND.0, 38);
        let mut entry = |colour: Colour, name: &str, mark: Mark| {
            let width = 40 + LETTER * name.chars().count() as i32;
            if x + width > LEGEND.1 {
                (x, y) = (LEGEND.0, y + 20);
            }
            let fill = rgb(colour).filled();
            match mark {
                Mark::Area => area.draw(&Rectangle::new([(x, y), (x + 18, y + 12)], fill))?,
                Mark::Line | Mark::Points => area.draw(&Rectangle::new([(x, y + 5), (x + 18, y + 7)], fill))?,
                Mark::Dashes => {
                    for dash in [x, x + 7, x + 14] {
                        area.draw(&Rectangle::new([(dash, y + 5), (dash + 4, y + 7)], fill))?;
                    }
                }
            }
            if mark == Mark::Points {
                area.draw(&Circle::new((x + 9, y + 6), 3, fill))?;
            }
            area.draw(&Text::new(name.to_string(), (x + 24, y), style.clone()))?;
            x += width;
            Ok(())
        };
        match &self.content {
            Drawn::Lines { bands, lines, .. } => {
                for line in lines.iter().filter(|line| !line.name.is_empty()) {
                    let mark = match line {
                        Line { dashed: true, .. } => Mark::Dashes,
                        Line { marked: true, .. } => Mark::Points,
                        _ => Mark::Line,
                    };
                    entry(line.colour, &line.name, mark)?;
                }
                for band in bands {
                    entry(band.colour, &band.name, Mark::Area)?;
                }
            }
            Drawn::Bars { series, .. } => {
                for bars in series {
                    entry(bars.colour, &bars.name, Mark::Area)?;
                }
                if series.iter().flat_map(|bars| &bars.papers).any(Option::is_some) {
                    entry((0, 0, 0), "the paper", Mark::Line)?;
                }
            }
        }
        Ok(())
    }
}

/// What stands before a name of the legend.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Mark {
    Area,
    Line,
    Dashes,
    Points,
}

fn rgb((red, green, blue): Colour) -> RGBColor {
    RGBColor(red, green, blue)
}

/// The font of pictures, for those backends that draw letters themselves.
fn register() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        // It fails for what is no font; this is one.
        let _ = register_font(FONT, FontStyle::Normal, dejavu::sans::regular());
    });
}

/// A number of an axis, as short as it can be.
pub fn number(value: f64) -> String {
    let digits = match value.abs() {
        size if size >= 100.0 || size == 0.0 => 0,
        size if size >= 1.0 => 1,
        _ => 3,
    };
    let text = format!("{value:.digits$}");
    match text.contains('.') {
        true => text.trim_end_matches('0').trim_end_matches('.').to_string(),
        false => text,
    }
}

/// A round number that is not less: the end of an axis.
pub fn round_up(value: f64) -> f64 {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_picture_has_its_words_and_its_bars() {
        let bars = |name: &str, colour, heights: &[f64]| Bars {
            name: name.into(),
            colour,
            heights: heights.to_vec(),
            papers: vec![Some(30.0), None],
        };
        let chart = Chart {
            title: "A < B & C".into(),
            x_label: String::new(),
            y_label: "percent".into(),
            y: (0.0, 100.0),
            log: false,
            content: Drawn::Bars {
                groups: vec!["web-vm".into(), "mail".into()],
                series: vec![bars("one", COLOURS[0], &[40.0, 60.0]), bars("other", COLOURS[1], &[f64::NAN, 20.0])],
            },
        };
        let svg = chart.svg();
        for word in ["A &lt; B &amp; C", "web-vm", "mail", "other", "percent", "the paper"] {
            assert!(svg.contains(word), "{word}");
        }
        // Three bars, and three marks of the legend.
        assert_eq!(svg.matches("fill=\"#0072B2\"").count(), 3);
        assert_eq!(svg.matches("fill=\"#D55E00\"").count(), 2);
    }

    #[test]
    fn ends_of_axes_are_round() {
        assert_eq!([0.0, 0.7, 1.0, 19.0, 430.0].map(round_up), [1.0, 0.8, 1.0, 20.0, 500.0]);
        assert_eq!([0.0, 0.25, 2.5, 1200.0].map(number), ["0", "0.25", "2.5", "1200"]);
    }
}
