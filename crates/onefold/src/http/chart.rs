//! Charts as SVG: bars, and events over time. Colours are classes of the page's styles.

use std::fmt::Write;

/// Size of a picture in its own units; the page stretches it.
const WIDTH: f64 = 600.0;
const HEIGHT: f64 = 120.0;
/// Shortest time that a picture shows, in seconds.
const LEAST_SECONDS: f64 = 60.0;

/// Classes of the colours of series, in order.
pub const COLOURS: [&str; 3] = ["one", "two", "three"];

/// Values of N series at one moment.
pub struct Point<const N: usize> {
    /// Age in seconds.
    pub age: f64,
    /// Value of each series; none if there is none.
    pub values: [Option<f64>; N],
}

/// Draws a part of a whole as a bar, with this label for readers who do not see it.
pub fn bar(part: f64, label: &str) -> String {
    let width = (part.clamp(0.0, 1.0) * 100.0).round();
    format!(
        "<svg class=\"bar\" viewBox=\"0 0 100 10\" preserveAspectRatio=\"none\" role=\"img\" aria-label=\"{label}\">\
         <rect class=\"track\" width=\"100\" height=\"10\"/><rect class=\"one\" width=\"{width}\" height=\"10\"/></svg>"
    )
}

/// Draws a square in the colour of a series, for the words beside it.
pub fn swatch(colour: &str) -> String {
    format!("<svg viewBox=\"0 0 1 1\" aria-hidden=\"true\"><rect class=\"{colour}\" width=\"1\" height=\"1\"/></svg>")
}

/// Draws lines over time, the oldest point first, up to `most` at the top, with a gap if there is no value.
pub fn lines<const N: usize>(points: &[Point<N>], most: f64, label: &str) -> String {
    let mut text = begin(label);
    let across = seconds_across(points);
    for (series, colour) in (0..N).zip(COLOURS) {
        let mut path = String::new();
        let mut is_drawn = false;
        for point in points {
            match point.values[series] {
                Some(value) => {
                    let _ =
                        write!(path, "{}{}", if is_drawn { 'L' } else { 'M' }, place(point.age, across, value, most));
                    is_drawn = true;
                }
                None => is_drawn = false,
            }
        }
        let _ = write!(text, "<path class=\"line {colour}\" d=\"{path}\"/>");
    }
    text + "</svg>"
}

/// Draws areas over time, one on the other, the oldest point first, up to `most` at the top.
pub fn areas<const N: usize>(points: &[Point<N>], most: f64, label: &str) -> String {
    let mut text = begin(label);
    let across = seconds_across(points);
    let up_to = |point: &Point<N>, series: usize| point.values[..series].iter().flatten().sum::<f64>();
    for (series, colour) in (0..N).zip(COLOURS) {
        let upper = points.iter().map(|point| place(point.age, across, up_to(point, series + 1), most));
        let lower = points.iter().rev().map(|point| place(point.age, across, up_to(point, series), most));
        let around: Vec<String> = upper.chain(lower).collect();
        let _ = write!(text, "<polygon class=\"{colour}\" points=\"{}\"/>", around.join(" "));
    }
    text + "</svg>"
}

/// Returns the time that a picture of these points shows, in seconds: the age of the oldest, at least `LEAST_SECONDS`.
pub fn seconds_across<const N: usize>(points: &[Point<N>]) -> f64 {
    points.first().map_or(0.0, |oldest| oldest.age).max(LEAST_SECONDS)
}

fn begin(label: &str) -> String {
    let middle = HEIGHT / 2.0;
    format!(
        "<svg class=\"chart\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" preserveAspectRatio=\"none\" role=\"img\" aria-label=\"{label}\">\
         <line class=\"grid\" x2=\"{WIDTH}\" y1=\"{middle}\" y2=\"{middle}\"/>"
    )
}

fn place(age: f64, across: f64, value: f64, most: f64) -> String {
    let high = (value / most.max(f64::MIN_POSITIVE)).clamp(0.0, 1.0);
    format!("{:.1},{:.1}", (1.0 - age / across).clamp(0.0, 1.0) * WIDTH, (1.0 - high) * HEIGHT)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_has_a_gap_where_there_is_no_value() {
        let values = [Some(1.0), None, Some(2.0), Some(4.0)];
        let points: Vec<Point<1>> =
            values.iter().zip([60.0, 40.0, 20.0, 0.0]).map(|(&value, age)| Point { age, values: [value] }).collect();
        let text = lines(&points, 4.0, "");
        assert!(text.contains("d=\"M0.0,90.0M400.0,60.0L600.0,0.0\""), "{text}");
    }

    #[test]
    fn areas_lie_on_each_other() {
        let points =
            [Point { age: 60.0, values: [Some(1.0), Some(2.0)] }, Point { age: 0.0, values: [Some(2.0), Some(2.0)] }];
        let text = areas(&points, 4.0, "");
        assert!(text.contains("points=\"0.0,90.0 600.0,60.0 600.0,120.0 0.0,120.0\""), "{text}");
        assert!(text.contains("points=\"0.0,30.0 600.0,0.0 600.0,60.0 0.0,90.0\""), "{text}");
    }

    #[test]
    fn what_is_out_of_range_stays_in_the_picture() {
        assert_eq!(place(100.0, 60.0, f64::MAX, 0.0), "0.0,0.0");
        assert_eq!(place(0.0, 60.0, -1.0, 1.0), "600.0,120.0");
    }
}
