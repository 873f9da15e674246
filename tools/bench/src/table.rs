//! The table: what was measured, against what, and whether the goal is reached. Also pastes into Markdown as it is.

use std::io::Write as _;

use anyhow::Result;

const HEAD: [&str; 8] = ["what", "ours", "raw limit", "ratio", "peer", "ratio", "goal", "reached?"];

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Unit {
    PerSecond,
    Milliseconds,
    Mebibytes,
}

impl Unit {
    fn show(self, value: f64) -> String {
        match self {
            Unit::PerSecond if value >= 10_000.0 => format!("{:.1} k/s", value / 1000.0),
            Unit::PerSecond if value >= 1000.0 => format!("{:.2} k/s", value / 1000.0),
            Unit::PerSecond => format!("{value:.0} /s"),
            Unit::Milliseconds => format!("{value:.1} ms"),
            Unit::Mebibytes => format!("{value:.1} MiB"),
        }
    }
}

/// What ours should be.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Goal {
    /// At least this part of the raw limit.
    OfRaw(f64),
    /// At most this many times the figure beside it.
    AtMostRaw(f64),
    /// At least this many times the best peer.
    OfPeer(f64),
    AtLeast(f64),
    Below(f64),
}

#[derive(Debug, Clone)]
pub(crate) struct Row {
    what: String,
    unit: Unit,
    ours: Option<f64>,
    raw: Option<f64>,
    peers: Vec<(String, f64)>,
    goals: Vec<Goal>,
}

impl Row {
    pub(crate) fn new(what: impl Into<String>, unit: Unit) -> Row {
        Row { what: what.into(), unit, ours: None, raw: None, peers: Vec::new(), goals: Vec::new() }
    }

    pub(crate) fn ours(mut self, ours: f64) -> Row {
        self.ours = Some(ours);
        self
    }

    pub(crate) fn raw(mut self, raw: f64) -> Row {
        self.raw = Some(raw);
        self
    }

    pub(crate) fn peer(mut self, name: impl Into<String>, value: f64) -> Row {
        self.peers.push((name.into(), value));
        self
    }

    pub(crate) fn goal(mut self, goal: Goal) -> Row {
        self.goals.push(goal);
        self
    }

    /// The fastest: being faster than the others is no achievement.
    fn best_peer(&self) -> Option<&(String, f64)> {
        self.peers.iter().max_by(|a, b| a.1.total_cmp(&b.1))
    }

    fn ratio(&self, to: Option<f64>) -> Option<f64> {
        let (ours, to) = (self.ours?, to?);
        (to > 0.0).then(|| ours / to)
    }

    /// Unknown when what the goal speaks of was not measured.
    fn reached(&self, goal: Goal) -> Option<bool> {
        let at_least = |ratio: Option<f64>, wanted: f64| ratio.map(|ratio| ratio >= wanted);
        match goal {
            Goal::OfRaw(wanted) => at_least(self.ratio(self.raw), wanted),
            Goal::AtMostRaw(wanted) => self.ratio(self.raw).map(|ratio| ratio <= wanted),
            Goal::OfPeer(wanted) => at_least(self.ratio(self.best_peer().map(|(_, rate)| *rate)), wanted),
            Goal::AtLeast(wanted) => self.ours.map(|ours| ours >= wanted),
            Goal::Below(wanted) => self.ours.map(|ours| ours < wanted),
        }
    }

    fn show_goal(&self, goal: Goal) -> String {
        match goal {
            Goal::OfRaw(wanted) => format!(">= {wanted} raw"),
            Goal::AtMostRaw(wanted) => format!("<= {wanted} raw"),
            Goal::OfPeer(wanted) => format!(">= {wanted} peer"),
            Goal::AtLeast(wanted) => format!(">= {}", self.unit.show(wanted)),
            Goal::Below(wanted) => format!("< {}", self.unit.show(wanted)),
        }
    }

    fn verdict(&self) -> String {
        let verdicts: Vec<&str> = self
            .goals
            .iter()
            .map(|goal| match self.reached(*goal) {
                Some(true) => "yes",
                Some(false) => "no",
                None => "not measured",
            })
            .collect();
        if verdicts.windows(2).all(|pair| pair[0] == pair[1]) {
            return verdicts.first().copied().unwrap_or_default().to_owned();
        }
        verdicts.join(", ")
    }

    fn cells(&self) -> [String; 8] {
        let value = |value: Option<f64>| value.map(|value| self.unit.show(value)).unwrap_or_default();
        let ratio = |ratio: Option<f64>| ratio.map(|ratio| format!("{ratio:.2}")).unwrap_or_default();
        let peer = self.best_peer();
        [
            self.what.clone(),
            value(self.ours),
            value(self.raw),
            ratio(self.ratio(self.raw)),
            peer.map(|(name, rate)| format!("{} ({name})", self.unit.show(*rate))).unwrap_or_default(),
            ratio(self.ratio(peer.map(|(_, rate)| *rate))),
            self.goals.iter().map(|goal| self.show_goal(*goal)).collect::<Vec<_>>().join(", "),
            self.verdict(),
        ]
    }

    /// The row while the others are still being measured, with every peer.
    pub(crate) fn line(&self) -> String {
        let mut parts = vec![self.what.clone()];
        let mut add = |name: &str, value: Option<f64>| {
            parts.extend(value.map(|value| format!("{name} {}", self.unit.show(value))));
        };
        add("ours", self.ours);
        add("raw", self.raw);
        self.peers.iter().for_each(|(name, rate)| add(name, Some(*rate)));
        parts.join(" | ")
    }
}

pub(crate) fn print(rows: &[Row]) -> Result<()> {
    let cells: Vec<[String; 8]> = rows.iter().map(Row::cells).collect();
    let width = |column: usize| {
        let widths = cells.iter().map(|row| row[column].chars().count());
        widths.chain([HEAD[column].len()]).max().unwrap_or_default()
    };
    let widths: [usize; 8] = std::array::from_fn(width);
    let line = |row: [&str; 8]| {
        let padded = row.iter().zip(widths).map(|(cell, width)| format!("{cell:<width$}"));
        format!("| {} |", padded.collect::<Vec<_>>().join(" | "))
    };
    let mut out = std::io::stdout().lock();
    writeln!(out, "{}", line(HEAD))?;
    let rules = widths.map(|width| "-".repeat(width));
    writeln!(out, "{}", line(rules.each_ref().map(String::as_str)))?;
    for row in &cells {
        writeln!(out, "{}", line(row.each_ref().map(String::as_str)))?;
    }
    Ok(())
}

/// The middle of what the rounds gave: one disturbed round does not count.
pub(crate) fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let middle = sorted.len() / 2;
    match sorted.len() {
        0 => 0.0,
        odd if odd % 2 == 1 => sorted[middle],
        _ => f64::midpoint(sorted[middle - 1], sorted[middle]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_goal_is_judged_by_the_ratio_to_the_best_peer() {
        let row =
            Row::new("queue", Unit::PerSecond).ours(2600.0).raw(2800.0).peer("a", 1500.0).peer("b", 2100.0);
        let row = row.goal(Goal::OfRaw(0.9)).goal(Goal::OfPeer(1.3));
        assert_eq!(row.verdict(), "yes, no");
        assert_eq!(
            row.cells(),
            [
                "queue",
                "2.60 k/s",
                "2.80 k/s",
                "0.93",
                "2.10 k/s (b)",
                "1.24",
                ">= 0.9 raw, >= 1.3 peer",
                "yes, no"
            ]
        );
    }

    #[test]
    fn a_goal_against_what_was_not_measured_is_not_reached() {
        let row = Row::new("queue", Unit::PerSecond).ours(5.0).goal(Goal::OfRaw(0.9));
        assert_eq!(row.verdict(), "not measured");
        assert_eq!(Row::new("limit", Unit::PerSecond).raw(5.0).verdict(), "");
        assert_eq!(
            Row::new("latency", Unit::Milliseconds).ours(49.9).goal(Goal::Below(50.0)).verdict(),
            "yes"
        );
    }

    #[test]
    fn memory_is_flat_when_it_is_little_more_than_it_was() {
        let row = |late: f64| {
            let row = Row::new("memory", Unit::Mebibytes).ours(late).raw(100.0);
            row.goal(Goal::AtMostRaw(1.2)).goal(Goal::Below(192.0))
        };
        assert_eq!(row(119.0).verdict(), "yes");
        assert_eq!(row(121.0).verdict(), "no, yes");
        assert_eq!(row(121.0).cells()[6], "<= 1.2 raw, < 192.0 MiB");
    }

    #[test]
    fn the_median_ignores_one_disturbed_round() {
        assert!((median(&[3.0, 900.0, 1.0]) - 3.0).abs() < f64::EPSILON);
        assert!((median(&[1.0, 2.0]) - 1.5).abs() < f64::EPSILON);
        assert!(median(&[]).abs() < f64::EPSILON);
    }
}
