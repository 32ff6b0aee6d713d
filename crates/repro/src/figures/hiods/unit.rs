//! Ablation of the unit of the error in the paper's feedback loop: requests, KiB or MiB a second.
//!
//! Listing 4.1 subtracts a "measured" from a "target throughput", and names no unit. The text suggests requests a second. That unit is judged; it was chosen
//! before this figure was made:
//!
//! - all goals are stated in operations a second (sections 5.3.1.3 and 5.4); the one of table 16 has MB/s in brackets behind them;
//! - Fig. 9 to 12 and their text have foreground, goal and background in operations a second;
//! - the controller counts requests for its other condition, stress (section 4.3);
//! - KiB are nowhere in the paper; MB/s are used in tables.
//!
//! Rates of the background suggest KiB: more of them are near the paper's. That is a fit to them, so no row here counts.

use super::phases::rates_in;
use crate::figures::claims::find;
use crate::figures::plot::{Bars, Chart};
use crate::figures::{Data, Entry, Figure, Row};
use crate::hiods_store::Unit;

pub(super) static UNIT: Entry = Entry {
    name: "hiods-unit",
    about: "HIODS, Fig. 9 to 12: the error of the loop in requests, KiB and MiB a second (model)",
    runs: Vec::new,
    make: |_| figure(),
};

const UNITS: [(&str, Unit); 3] = [("requests", Unit::Requests), ("KiB", Unit::Kibibytes), ("MiB", Unit::Mebibytes)];

fn figure() -> Figure {
    let mut rows = Vec::new();
    let (mut groups, mut papers, mut series) = (Vec::new(), Vec::new(), Vec::new());
    for (name, unit) in UNITS {
        let rates = rates_in(unit);
        let mut held = 0;
        for (id, rate) in &rates {
            let claim = find(id);
            let (low, high) = claim.band();
            let holds = (low..=high).contains(rate);
            held += usize::from(holds);
            let word = if holds { "in" } else { "not in" };
            rows.push(Row::new(format!("error in {name} a second: {}", claim.what), claim.unit, *rate).note(format!(
                "The paper's {:.0}; {word} its band of {low:.0} to {high:.0}.",
                claim.value.unwrap_or(f64::NAN)
            )));
            if unit == Unit::Requests {
                groups.push(claim.what.to_string());
                papers.push(claim.value);
            }
        }
        rows.push(Row::new(format!("error in {name} a second: rates in their bands"), "of 11", held as f64));
        series.push(
            Bars::new(format!("{name} a second"), rates.iter().map(|(_, rate)| *rate).collect()).papers(papers.clone()),
        );
    }
    for row in &mut rows {
        row.data = Data::Model;
    }
    Figure {
        name: UNIT.name,
        source: "HIODS, listing 4.1",
        title: "the background by the unit of the loop's error".into(),
        rows,
        chart: Chart::bars("HIODS: the background by the unit of the loop's error", "blocks a second", groups, series),
        notes: vec![
            "The paper names no unit. Its goals and figures are in operations a second, so the judged figures have that. Nothing here counts.".into(),
        ],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_what_the_judged_figures_have_and_kib_slow_the_background_more() {
        let [requests, kibibytes] = [Unit::Requests, Unit::Kibibytes].map(rates_in);
        assert_eq!(requests.len(), 11);
        let end = |rates: &[(String, f64)]| {
            rates.iter().find(|(id, _)| id == "hiods-mountain/phase-2-end").map_or(f64::NAN, |(_, rate)| *rate)
        };
        assert!(end(&kibibytes) < end(&requests), "{kibibytes:?} {requests:?}");
        assert_eq!(Unit::Kibibytes.of(35_000), 140_000);
        assert_eq!(Unit::Mebibytes.of(35_000), 136);
    }
}
