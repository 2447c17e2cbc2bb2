//! What a run of scenarios found: JSON to keep and compare, text to read.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::Path;

use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};

use crate::error::Error;
use crate::measure::Outcome;

/// A latency's distribution, in milliseconds.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct Latency {
    /// How many.
    pub count: u64,
    /// The mean.
    pub mean: f64,
    /// The median.
    pub p50: f64,
    /// Nine of ten.
    pub p90: f64,
    /// 99 of 100.
    pub p99: f64,
    /// 999 of 1000.
    pub p999: f64,
    /// The longest.
    pub max: f64,
}

impl Latency {
    /// Of a histogram of microseconds.
    pub fn of(h: &Histogram<u64>) -> Self {
        let ms = |us: u64| us as f64 / 1000.0;
        Self {
            count: h.len(),
            mean: h.mean() / 1000.0,
            p50: ms(h.value_at_quantile(0.5)),
            p90: ms(h.value_at_quantile(0.9)),
            p99: ms(h.value_at_quantile(0.99)),
            p999: ms(h.value_at_quantile(0.999)),
            max: ms(h.max()),
        }
    }
}

/// Throughput at one moment.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub struct Point {
    /// Since the beginning.
    pub seconds: f64,
    /// Units a second.
    pub rate: f64,
}

/// What one scenario found.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct Finding {
    /// Its name, such as `lifecycle/single`.
    pub name: String,
    /// What a unit is.
    pub unit: String,
    /// Units a second in the measured window.
    pub rate: f64,
    /// Measured units.
    pub units: usize,
    /// The measured window.
    pub seconds: f64,
    /// Units that failed.
    pub errors: usize,
    /// Latencies by verb.
    pub latencies: BTreeMap<String, Latency>,
    /// Other numbers, by name.
    pub numbers: BTreeMap<String, f64>,
    /// Throughput over time.
    pub series: Vec<Point>,
    /// What was checked afterwards, each with what breaks it (empty: it holds).
    pub checks: BTreeMap<String, Vec<String>>,
}

impl Finding {
    /// Of an outcome.
    pub fn of(name: impl Into<String>, unit: &str, outcome: Outcome) -> Self {
        Self {
            name: name.into(),
            unit: unit.to_owned(),
            rate: outcome.rate,
            units: outcome.units,
            seconds: outcome.seconds,
            errors: outcome.errors,
            latencies: outcome.latencies,
            series: outcome.series,
            ..Self::default()
        }
    }

    /// What does not hold: failed units and breached checks.
    pub fn breaches(&self) -> Vec<String> {
        let mut all: Vec<String> = self
            .checks
            .iter()
            .flat_map(|(name, rows)| rows.iter().map(move |row| format!("{name}: {row}")))
            .collect();
        if self.errors > 0 {
            all.push(format!("{} units failed", self.errors));
        }
        all
    }
}

/// A whole run.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct Report {
    /// The command line.
    pub command: String,
    /// Machine, versions, settings.
    pub environment: BTreeMap<String, String>,
    /// In the order they ran.
    pub findings: Vec<Finding>,
}

impl Report {
    /// Reads one.
    ///
    /// # Errors
    /// [`Error::File`].
    pub fn read(path: &Path) -> Result<Self, Error> {
        let text = std::fs::read(path).map_err(Error::file(path))?;
        serde_json::from_slice(&text).map_err(|e| Error::File {
            path: path.display().to_string(),
            why: e.to_string(),
        })
    }

    /// Writes it.
    ///
    /// # Errors
    /// [`Error::File`].
    pub fn write(&self, path: &Path) -> Result<(), Error> {
        let text = serde_json::to_string_pretty(self).expect("a report is plain data");
        std::fs::write(path, text).map_err(Error::file(path))
    }

    /// Everything that does not hold.
    pub fn breaches(&self) -> Vec<String> {
        let each = |f: &Finding| -> Vec<String> {
            let rows = f.breaches();
            rows.iter().map(|b| format!("{}: {b}", f.name)).collect()
        };
        self.findings.iter().flat_map(each).collect()
    }

    /// For a person.
    pub fn text(&self) -> String {
        self.findings.iter().map(text).collect()
    }

    /// This one beside another: rates and medians, and how they changed.
    pub fn compare(&self, other: &Self) -> String {
        let mut out = format!(
            "{:32} {:>12} {:>12} {:>7}\n",
            "", "first", "second", "ratio"
        );
        let mut line = |name: String, a: f64, b: f64| {
            let ratio = if a > 0.0 { b / a } else { f64::NAN };
            let _ = writeln!(out, "{name:32} {a:>12.2} {b:>12.2} {ratio:>7.2}");
        };
        for a in &self.findings {
            let Some(b) = other.findings.iter().find(|b| b.name == a.name) else {
                continue;
            };
            line(format!("{} [1/s]", a.name), a.rate, b.rate);
            for (verb, first) in &a.latencies {
                if let Some(second) = b.latencies.get(verb) {
                    line(format!("  {verb} p50 [ms]"), first.p50, second.p50);
                    line(format!("  {verb} p99 [ms]"), first.p99, second.p99);
                }
            }
            for (name, first) in &a.numbers {
                if let Some(second) = b.numbers.get(name) {
                    line(format!("  {name}"), *first, *second);
                }
            }
        }
        out
    }
}

/// One finding for a person.
pub fn text(f: &Finding) -> String {
    let mut out = format!(
        "{}: {:.0} {}/s ({} in {:.1} s)\n",
        f.name, f.rate, f.unit, f.units, f.seconds
    );
    for (verb, l) in &f.latencies {
        let _ = writeln!(
            out,
            "  {verb:14} p50 {:>8.2} ms  p90 {:>8.2}  p99 {:>8.2}  p99.9 {:>8.2}  max {:>8.2}  ({})",
            l.p50, l.p90, l.p99, l.p999, l.max, l.count
        );
    }
    for (name, n) in &f.numbers {
        let _ = writeln!(out, "  {name} {n:.3}");
    }
    let breaches = f.breaches();
    if breaches.is_empty() && !f.checks.is_empty() {
        let names: Vec<&str> = f.checks.keys().map(String::as_str).collect();
        let _ = writeln!(out, "  holds: {}", names.join(", "));
    }
    for breach in breaches {
        let _ = writeln!(out, "  BROKEN {breach}");
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(rate: f64) -> Report {
        let finding = Finding {
            name: "lifecycle/single".to_owned(),
            rate,
            ..Finding::default()
        };
        Report {
            findings: vec![finding],
            ..Report::default()
        }
    }

    #[test]
    fn a_comparison_tells_how_a_rate_changed() {
        let text = report(100.0).compare(&report(150.0));
        let line = text.lines().nth(1).unwrap();
        assert!(
            line.starts_with("lifecycle/single [1/s]") && line.ends_with("1.50"),
            "{text}"
        );
    }

    #[test]
    fn a_breach_and_a_failed_unit_are_told() {
        let mut report = report(1.0);
        report.findings[0].errors = 2;
        let checks = &mut report.findings[0].checks;
        checks.insert("every run ended".to_owned(), vec!["run 7".to_owned()]);
        assert_eq!(
            report.breaches(),
            [
                "lifecycle/single: every run ended: run 7",
                "lifecycle/single: 2 units failed"
            ]
        );
    }
}
