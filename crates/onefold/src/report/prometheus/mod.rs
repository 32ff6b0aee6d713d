//! `status --prometheus`: the figures of `status` in Prometheus' text exposition format, version 0.0.4.
//!
//! [`metrics`] has each metric once; [`page`] makes the tables of docs/reference/metrics.md from it, and holds that each figure of `status --json` is a metric
//! or has a reason why it is none. This file has the shapes of samples, and the format.

use std::fmt::{Display, Write};

use crate::print::outside;
use crate::report::latency::{KindReport, bound_seconds};
use crate::report::status::{Report, VolumeReport};

mod metrics;
#[cfg(test)]
mod page;

/// Type of a metric: the way in which it changes.
#[derive(Clone, Copy, PartialEq)]
enum Kind {
    /// Grows, from 0 when the pool is opened.
    Counter,
    /// Grows and falls.
    Gauge,
    /// Counters of the requests up to each of several times, of all, and of the sum of their times.
    Histogram,
}

impl Kind {
    fn name(self) -> &'static str {
        match self {
            Kind::Counter => "counter",
            Kind::Gauge => "gauge",
            Kind::Histogram => "histogram",
        }
    }
}

/// Metric of a part of the report: of the pool or of a volume.
struct Metric<Part> {
    name: &'static str,
    kind: Kind,
    help: &'static str,
    /// The figure as its row has it: a path in the JSON of the part, with the shape of its samples.
    #[cfg(test)]
    figure: &'static str,
    samples: fn(&Part) -> Vec<Sample>,
}

/// A value with its labels, other than `pool`.
struct Sample {
    /// Suffix of the metric's name, for histograms.
    suffix: &'static str,
    labels: Vec<(&'static str, String)>,
    value: String,
}

/// Figure that a metric can be.
trait Figure {
    /// Returns the samples of the figure, without the labels of its pool and its volume.
    fn samples(&self) -> Vec<Sample>;
}

macro_rules! numbers {
    ($($number:ty),+) => {
        $(impl Figure for $number {
            fn samples(&self) -> Vec<Sample> {
                vec![Sample { suffix: "", labels: Vec::new(), value: self.to_string() }]
            }
        })+
    };
}

numbers!(u32, u64, i64, usize, f64);

/// 1 if it is true, else 0.
impl Figure for bool {
    fn samples(&self) -> Vec<Sample> {
        u32::from(*self).samples()
    }
}

/// No sample if there is no figure.
impl<Known: Figure> Figure for Option<Known> {
    fn samples(&self) -> Vec<Sample> {
        self.as_ref().map(Known::samples).unwrap_or_default()
    }
}

/// Histogram. The samples are cumulative: each bound counts the requests of the lower ones, too.
impl Figure for KindReport {
    fn samples(&self) -> Vec<Sample> {
        let mut so_far = 0;
        let buckets = self.buckets.iter().enumerate().flat_map(|(bucket, count)| {
            so_far += count;
            let bound = bound_seconds(bucket).map_or_else(|| "+Inf".into(), |seconds| seconds.to_string());
            labelled("le", &bound, with_suffix("_bucket", &so_far))
        });
        let mut samples: Vec<Sample> = buckets.collect();
        samples.extend(with_suffix("_sum", &self.seconds));
        samples.extend(with_suffix("_count", &self.requests));
        samples
    }
}

fn with_suffix(suffix: &'static str, figure: &impl Figure) -> Vec<Sample> {
    figure.samples().into_iter().map(|sample| Sample { suffix, ..sample }).collect()
}

/// Gives a label to all samples, before those that they have.
fn labelled(label: &'static str, value: &str, mut samples: Vec<Sample>) -> Vec<Sample> {
    samples.iter_mut().for_each(|sample| sample.labels.insert(0, (label, value.into())));
    samples
}

/// Returns a sample for each name: 1 for that of the present state, 0 for the others.
fn states(label: &'static str, names: &[&str], present: &str) -> Vec<Sample> {
    names.iter().flat_map(|name| labelled(label, name, (*name == present).samples())).collect()
}

/// Converts nanoseconds to seconds, the base unit of Prometheus.
fn seconds(nanoseconds: &(impl Into<Option<u64>> + Copy)) -> Option<f64> {
    (*nanoseconds).into().map(|nanoseconds| nanoseconds as f64 / 1e9)
}

/// Escapes the value of a label as it stands between quotes.
fn escaped(value: &str) -> String {
    let lines = value.split('\n').map(|line| outside(line).replace('\\', "\\\\").replace('"', "\\\""));
    lines.collect::<Vec<_>>().join("\\n")
}

impl<Part> Metric<Part> {
    /// Appends the metric, with its samples of all parts and `pool` as their first label.
    fn write(&self, text: &mut String, pool: &str, samples: Vec<Sample>) {
        let Metric { name, kind, help, .. } = self;
        let _ = writeln!(text, "# HELP {name} {help}\n# TYPE {name} {}", kind.name());
        for Sample { suffix, labels, value } in labelled("pool", pool, samples) {
            let labels = labels.iter().map(|(label, of)| format!("{label}=\"{}\"", escaped(of)));
            let _ = writeln!(text, "{name}{suffix}{{{}}} {value}", labels.collect::<Vec<_>>().join(","));
        }
    }
}

/// Formats all metrics of a pool, with `pool` as its label.
pub fn text(report: &Report, pool: impl Display) -> String {
    let pool = pool.to_string();
    let mut text = String::new();
    for metric in metrics::OF_POOL {
        metric.write(&mut text, &pool, (metric.samples)(report));
    }
    for metric in metrics::OF_VOLUME {
        let of_volume = |volume: &VolumeReport| labelled("volume", &volume.name, (metric.samples)(volume));
        metric.write(&mut text, &pool, report.volumes.iter().flat_map(of_volume).collect());
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_of_labels_are_escaped() {
        assert_eq!(escaped("a\"b\\c\nd é"), "a\\\"b\\\\c\\nd é");
    }
}
