//! Figures for the documents, as SVG: lines over two axes, with a legend below the title.

use std::fmt::Write;

const WIDTH: f64 = 760.0;
const HEIGHT: f64 = 420.0;
/// What is around the plot itself: left, right, top, bottom.
const LEFT: f64 = 70.0;
const RIGHT: f64 = 24.0;
const TOP: f64 = 74.0;
const BOTTOM: f64 = 56.0;
/// Room for a letter of the legend.
const LETTER: f64 = 7.0;
/// Colours that can be told apart, also without seeing red or green (Okabe and Ito).
pub const COLOURS: [&str; 6] = ["#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9"];
/// Light ones, for what is behind lines.
pub const SHADES: [&str; 2] = ["#dbe9f6", "#fbe3d3"];

/// One figure.
pub struct Figure {
    /// What it shows.
    pub title: String,
    /// What the axes are, with units.
    pub x_label: String,
    /// The other one.
    pub y_label: String,
    /// From where to where the axes go.
    pub x: (f64, f64),
    /// The other one.
    pub y: (f64, f64),
    /// Stretches of the x axis that are shaded.
    pub bands: Vec<Band>,
    /// Lines, the later ones above the earlier ones.
    pub lines: Vec<Line>,
}

/// Stretches of the x axis of one kind.
pub struct Band {
    /// In the legend.
    pub name: String,
    /// A colour.
    pub colour: &'static str,
    /// From where to where.
    pub stretches: Vec<(f64, f64)>,
}

/// A line through points.
pub struct Line {
    /// In the legend; empty: not there.
    pub name: String,
    /// A colour.
    pub colour: &'static str,
    /// Whether it is dashed.
    pub dashed: bool,
    /// Whether the points are marked.
    pub marked: bool,
    /// The points, in order.
    pub points: Vec<(f64, f64)>,
}

impl Figure {
    /// The figure as the text of an SVG file.
    pub fn svg(&self) -> String {
        let mut text = String::new();
        let _ = writeln!(
            text,
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" width=\"{WIDTH}\" height=\"{HEIGHT}\" \
             font-family=\"Helvetica, Arial, sans-serif\" font-size=\"13\" fill=\"#222\">"
        );
        let _ = writeln!(text, "<rect width=\"{WIDTH}\" height=\"{HEIGHT}\" fill=\"#fff\"/>");
        let _ = writeln!(text, "<text x=\"{LEFT}\" y=\"24\" font-size=\"16\">{}</text>", escaped(&self.title));
        self.draw_bands(&mut text);
        self.draw_axes(&mut text);
        for line in &self.lines {
            self.draw_line(&mut text, line);
        }
        self.draw_legend(&mut text);
        text.push_str("</svg>\n");
        text
    }

    fn place_x(&self, x: f64) -> f64 {
        let (from, to) = self.x;
        LEFT + (x - from) / (to - from) * (WIDTH - LEFT - RIGHT)
    }

    fn place_y(&self, y: f64) -> f64 {
        let (from, to) = self.y;
        HEIGHT - BOTTOM - (y - from) / (to - from) * (HEIGHT - TOP - BOTTOM)
    }

    fn draw_bands(&self, text: &mut String) {
        for band in &self.bands {
            for &(from, to) in &band.stretches {
                let (from, to) = (self.place_x(from), self.place_x(to));
                let (width, height) = (to - from, HEIGHT - TOP - BOTTOM);
                let colour = band.colour;
                let _ = writeln!(
                    text,
                    "<rect x=\"{from:.1}\" y=\"{TOP}\" width=\"{width:.1}\" height=\"{height:.1}\" fill=\"{colour}\"/>"
                );
            }
        }
    }

    fn draw_axes(&self, text: &mut String) {
        let (left, right) = (LEFT, WIDTH - RIGHT);
        let (top, bottom) = (TOP, HEIGHT - BOTTOM);
        for y in ticks(self.y) {
            let at = self.place_y(y);
            let _ = writeln!(
                text,
                "<path d=\"M{left} {at:.1}H{right}\" stroke=\"#bbb\" stroke-width=\"0.6\"/>\
                 <text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{}</text>",
                left - 8.0,
                at + 4.5,
                number(y)
            );
        }
        for x in ticks(self.x) {
            let at = self.place_x(x);
            let _ = writeln!(
                text,
                "<path d=\"M{at:.1} {bottom}v5\" stroke=\"#222\"/>\
                 <text x=\"{at:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{}</text>",
                bottom + 20.0,
                number(x)
            );
        }
        let _ = writeln!(text, "<path d=\"M{left} {top}V{bottom}H{right}\" fill=\"none\" stroke=\"#222\"/>");
        let (middle_x, middle_y) = ((left + right) / 2.0, (top + bottom) / 2.0);
        let (x_label, y_label) = (escaped(&self.x_label), escaped(&self.y_label));
        let _ = writeln!(
            text,
            "<text x=\"{middle_x:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{x_label}</text>\
             <text transform=\"translate(18 {middle_y:.1}) rotate(-90)\" text-anchor=\"middle\">{y_label}</text>",
            HEIGHT - 14.0
        );
    }

    fn draw_line(&self, text: &mut String, line: &Line) {
        let place = |&(x, y): &(f64, f64)| (self.place_x(x), self.place_y(y));
        let mut path = String::new();
        for (at, (x, y)) in line.points.iter().map(place).enumerate() {
            let _ = write!(path, "{}{x:.1} {y:.1}", if at == 0 { 'M' } else { 'L' });
        }
        let (colour, dashes) = (line.colour, dashes(line));
        let _ = writeln!(text, "<path d=\"{path}\" fill=\"none\" stroke=\"{colour}\" stroke-width=\"2\"{dashes}/>");
        for (x, y) in line.points.iter().map(place).filter(|_| line.marked) {
            let _ = writeln!(text, "<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"3.5\" fill=\"{colour}\"/>");
        }
    }

    fn draw_legend(&self, text: &mut String) {
        let y = 50.0;
        let mut x = LEFT;
        for line in self.lines.iter().filter(|line| !line.name.is_empty()) {
            let (colour, dashes) = (line.colour, dashes(line));
            let _ = writeln!(
                text,
                "<path d=\"M{x:.1} {y}h26\" stroke=\"{colour}\" stroke-width=\"2\"{dashes}/>\
                 <text x=\"{:.1}\" y=\"{:.1}\">{}</text>",
                x + 32.0,
                y + 4.5,
                escaped(&line.name)
            );
            x += 50.0 + LETTER * line.name.chars().count() as f64;
        }
        for band in &self.bands {
            let _ = writeln!(
                text,
                "<rect x=\"{x:.1}\" y=\"{:.1}\" width=\"18\" height=\"12\" fill=\"{}\" stroke=\"#bbb\"/>\
                 <text x=\"{:.1}\" y=\"{:.1}\">{}</text>",
                y - 6.0,
                band.colour,
                x + 24.0,
                y + 4.5,
                escaped(&band.name)
            );
            x += 42.0 + LETTER * band.name.chars().count() as f64;
        }
    }
}

fn dashes(line: &Line) -> &'static str {
    if line.dashed { " stroke-dasharray=\"7 5\"" } else { "" }
}

/// Round numbers, some five to ten of them, in a range.
fn ticks((from, to): (f64, f64)) -> Vec<f64> {
    let rough = (to - from) / 8.0;
    let power = 10f64.powf(rough.log10().floor());
    let step = [1.0, 2.0, 5.0, 10.0].into_iter().map(|factor| factor * power).find(|&step| step >= rough);
    let step = step.unwrap_or(rough);
    let first = (from / step).ceil() as i64;
    (first..).map(|at| at as f64 * step).take_while(|&at| at <= to + step / 1000.0).collect()
}

/// A number without more digits than it needs.
fn number(value: f64) -> String {
    let text = format!("{value:.3}");
    text.trim_end_matches('0').trim_end_matches('.').to_string()
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_are_round_and_within_the_range() {
        assert_eq!(ticks((0.0, 100.0)), [0.0, 20.0, 40.0, 60.0, 80.0, 100.0]);
        assert_eq!(ticks((35.0, 71.0)), [35.0, 40.0, 45.0, 50.0, 55.0, 60.0, 65.0, 70.0]);
        assert_eq!(number(20.0), "20");
        assert_eq!(number(0.25), "0.25");
    }

    #[test]
    fn a_figure_places_its_points_between_the_axes_and_escapes_its_words() {
        let line = Line {
            name: "a < b".into(),
            colour: COLOURS[0],
            dashed: false,
            marked: true,
            points: vec![(0.0, 0.0), (10.0, 1.0)],
        };
        let figure = Figure {
            title: "R&D".into(),
            x_label: "x".into(),
            y_label: "y".into(),
            x: (0.0, 10.0),
            y: (0.0, 1.0),
            bands: vec![Band { name: "band".into(), colour: SHADES[0], stretches: vec![(0.0, 5.0)] }],
            lines: vec![line],
        };
        let svg = figure.svg();
        assert!(svg.contains("M70.0 364.0L736.0 74.0"), "{svg}");
        assert!(svg.contains("a &lt; b") && svg.contains("R&amp;D"), "{svg}");
        assert!(svg.contains("x=\"70.0\" y=\"74\" width=\"333.0\""), "{svg}");
    }
}
