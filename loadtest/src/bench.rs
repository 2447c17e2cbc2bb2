//! The set of `make bench`: bounded, beside its denominators, in rounds, on private servers with
//! durability on; a table of targets and verdicts (`architecture.md` §9).
//!
//! What is repeated is repeated in rounds, so that a denominator and what is divided by it meet the
//! same machine; the ratio of each round is taken, and of those the median.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

use crate::error::Error;
use crate::local::Local;
use crate::plot;
use crate::report::{self, Finding, Report};
use crate::scenarios::{
    Size, chains, contention, fan_in, fleet, history, hot_run, lifecycle, limit, races,
};

/// How large the set is.
#[derive(Debug, Clone, clap::Args)]
pub struct Options {
    /// Rounds of what is repeated
    #[arg(long, default_value_t = 5)]
    pub rounds: usize,
    /// Everything smaller by this factor
    #[arg(long, default_value_t = 1)]
    pub smaller: usize,
    /// Settled calls of the history
    #[arg(long, default_value_t = 1_000_000)]
    pub settled: usize,
    /// Idle sockets
    #[arg(long, default_value_t = 5_000)]
    pub sockets: usize,
    /// Write the page here, its plots and the JSON report beside it
    #[arg(long)]
    pub page: Option<PathBuf>,
}

/// One target.
struct Verdict {
    work: &'static str,
    target: String,
    measured: String,
    met: Option<bool>,
}

/// Runs the set.
///
/// # Errors
/// A fault that ends it.
pub async fn bench(local: &mut Local, options: &Options) -> Result<Report, Error> {
    let began = Instant::now();
    let size = |units: usize, runners: usize| Size {
        units: (units / options.smaller).max(runners * 4),
        runners,
        seconds: 60,
    };
    let mut findings: Vec<Finding> = Vec::new();
    let note = |finding: Finding, all: &mut Vec<Finding>| {
        eprint!("{}", report::text(&finding));
        all.push(finding);
    };
    let idle = local.pids().first().copied().and_then(fleet::resident);

    for _ in 0..options.rounds {
        let target = local.target();
        note(
            limit::minimal(&target, size(12_000, 8), 8).await?,
            &mut findings,
        );
        note(
            lifecycle::single(&target, size(8_000, 64), None).await?,
            &mut findings,
        );
        note(
            lifecycle::batch(&target, size(8_000, 8), 64).await?,
            &mut findings,
        );
        note(
            hot_run::hot_run(
                &target,
                size(4_000, 64),
                4usize.div_ceil(options.smaller),
                1000,
            )
            .await?,
            &mut findings,
        );
        note(
            chains::chains(&target, size(1_500, 64)).await?,
            &mut findings,
        );
        note(
            limit::minimal(&target, size(1_500, 1), 1).await?,
            &mut findings,
        );
        note(
            lifecycle::single(&target, size(1_000, 1), None).await?,
            &mut findings,
        );
    }
    let target = local.target();
    note(
        limit::batched(&target, size(40_000, 4), 4, 32).await?,
        &mut findings,
    );
    note(
        limit::commands(&target, size(8_000, 64)).await?,
        &mut findings,
    );
    let peak = median(
        findings
            .iter()
            .filter(|f| f.name == "lifecycle/single")
            .map(|f| f.rate),
    );
    note(
        lifecycle::single(&target, size(4_000, 64), Some(peak / 2.0)).await?,
        &mut findings,
    );
    note(
        contention::race(&target, size(320, 64)).await?,
        &mut findings,
    );
    note(
        contention::one_inbox(&target, size(16_000, 64), 4, 16).await?,
        &mut findings,
    );
    note(
        contention::one_inbox(&target, size(16_000, 64), 64, 16).await?,
        &mut findings,
    );
    note(
        fan_in::fan_in(&target, size(3_200, 64)).await?,
        &mut findings,
    );
    note(races::races(&target, size(600, 32)).await?, &mut findings);
    note(
        fleet::herd(&target, size(0, 500 / options.smaller), 10).await?,
        &mut findings,
    );
    let server = local.pids().first().copied();
    note(
        fleet::sockets(
            &target,
            size(0, 32),
            options.sockets / options.smaller,
            server,
        )
        .await?,
        &mut findings,
    );

    local.replicate(2).await?;
    let target = local.target();
    note(fleet::push(&target, size(400, 1)).await?, &mut findings);
    let mut two = lifecycle::single(&target, size(8_000, 64), None).await?;
    two.name = "scale/2".to_owned();
    note(two, &mut findings);
    local.replicate(1).await?;
    let target = local.target();
    let mut one = lifecycle::single(&target, size(8_000, 64), None).await?;
    one.name = "scale/1".to_owned();
    note(one, &mut findings);
    if options.settled > 0 {
        let (before, after) =
            history::history(&target, size(6_000, 64), options.settled / options.smaller).await?;
        note(before, &mut findings);
        note(after, &mut findings);
    }

    let mut environment = environment(&target).await?;
    if let Some(idle) = idle {
        environment.insert(
            "idle replica".to_owned(),
            format!("{:.1} MB resident", idle as f64 / 1e6),
        );
    }
    environment.insert(
        "took".to_owned(),
        format!("{:.0} s", began.elapsed().as_secs_f64()),
    );
    let report = Report {
        command: std::env::args().skip(1).collect::<Vec<_>>().join(" "),
        environment,
        findings,
    };
    let verdicts = verdicts(&report, idle);
    print!("{}", table(&verdicts));
    if let Some(page) = &options.page {
        write_page(page, &report, &verdicts)?;
    }
    Ok(report)
}

fn median(values: impl Iterator<Item = f64>) -> f64 {
    let mut all: Vec<f64> = values.collect();
    all.sort_by(f64::total_cmp);
    match all.len() {
        0 => f64::NAN,
        n if n % 2 == 1 => all[n / 2],
        n => f64::midpoint(all[n / 2 - 1], all[n / 2]),
    }
}

/// What a report holds of one name, in the order of the rounds.
struct Rounds<'a>(&'a Report);

impl<'a> Rounds<'a> {
    fn of(&self, name: &str) -> Vec<&'a Finding> {
        let all = self.0.findings.iter();
        all.filter(|f| f.name == name).collect()
    }

    /// By round, `value(above) / value(below)`: median, lowest, highest.
    fn ratio(&self, above: &str, below: &str, value: impl Fn(&Finding) -> f64) -> Ratio {
        let pairs = self.of(above).into_iter().zip(self.of(below));
        let all: Vec<f64> = pairs.map(|(a, b)| value(a) / value(b)).collect();
        Ratio {
            median: median(all.iter().copied()),
            low: all.iter().copied().fold(f64::NAN, f64::min),
            high: all.iter().copied().fold(f64::NAN, f64::max),
        }
    }

    fn number(&self, name: &str, number: &str) -> f64 {
        median(
            self.of(name)
                .iter()
                .filter_map(|f| f.numbers.get(number).copied()),
        )
    }
}

#[derive(Clone, Copy)]
struct Ratio {
    median: f64,
    low: f64,
    high: f64,
}

impl std::fmt::Display for Ratio {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if self.low == self.high {
            write!(f, "{:.2}", self.median)
        } else {
            write!(f, "{:.2} ({:.2}–{:.2})", self.median, self.low, self.high)
        }
    }
}

fn at_least(work: &'static str, least: f64, of: &str, ratio: Ratio) -> Verdict {
    Verdict {
        work,
        target: format!("≥ {least} {of}"),
        measured: ratio.to_string(),
        met: ratio.median.is_finite().then_some(ratio.median >= least),
    }
}

fn at_most(work: &'static str, most: f64, of: &str, ratio: Ratio) -> Verdict {
    Verdict {
        work,
        target: format!("≤ {most} {of}"),
        measured: ratio.to_string(),
        met: ratio.median.is_finite().then_some(ratio.median <= most),
    }
}

fn single(value: f64) -> Ratio {
    Ratio {
        median: value,
        low: value,
        high: value,
    }
}

fn verdicts(report: &Report, idle: Option<u64>) -> Vec<Verdict> {
    let rounds = Rounds(report);
    let rate = |f: &Finding| f.rate;
    let p50 = |f: &Finding| f.latencies.get("both").map_or(f64::NAN, |l| l.p50);
    let quantile = |name: &str, verb: &str, of: fn(&report::Latency) -> f64| {
        let found = rounds.of(name).into_iter().next();
        found
            .and_then(|f| f.latencies.get(verb))
            .map_or(f64::NAN, of)
    };
    let paced = quantile("lifecycle/paced", "claim", |l| l.p99)
        / quantile("lifecycle/paced", "claim", |l| l.p50);
    let push = |of| quantile("push", "call to frame", of);
    vec![
        at_least(
            "claim + commit of independent calls, single doors, 64 runners",
            0.6,
            "× (a)",
            rounds.ratio("lifecycle/single", "limit/minimal-8", rate),
        ),
        at_least(
            "the same by inbox/claims and inbox/commits",
            2.0,
            "× (a)",
            rounds.ratio("lifecycle/batch", "limit/minimal-8", rate),
        ),
        at_most(
            "one client alone, claim + commit, p50",
            2.5,
            "× (a) alone",
            rounds.ratio("lifecycle/alone", "limit/alone", p50),
        ),
        at_least(
            "one hot run, fan of 1,000, 64 runners",
            1.0,
            "× separate runs",
            rounds.ratio("hot-run", "lifecycle/single", rate),
        ),
        at_most(
            "a three-step chain end to end",
            4.5,
            "× one lifecycle",
            rounds.ratio("lifecycle/single", "chains", rate),
        ),
        at_most(
            "a refusal, 64 runners racing by single claims",
            0.3,
            "× a grant",
            single(rounds.number("contention/race", "refusal_cost_in_grants")),
        ),
        at_least(
            "64 callers of inbox/claims on one inbox",
            0.9,
            "× 4 callers",
            rounds.ratio("contention/inbox-64", "contention/inbox-4", rate),
        ),
        at_most(
            "p99 of a claim at half the peak rate",
            10.0,
            "× its p50",
            single(paced),
        ),
        at_least(
            "10⁶ settled calls in the account",
            0.9,
            "× none",
            rounds.ratio("history/after", "history/before", rate),
        ),
        at_most(
            "commit to frame on another replica, p50 (upper bound: call to frame)",
            5.0,
            "ms",
            single(push(|l| l.p50)),
        ),
        at_most(
            "commit to frame on another replica, p99 (upper bound: call to frame)",
            25.0,
            "ms",
            single(push(|l| l.p99)),
        ),
        at_most(
            "an idle socket",
            30.0,
            "kB",
            single(rounds.number("sockets", "bytes_per_socket") / 1000.0),
        ),
        at_least(
            "two replicas on one Postgres",
            0.95,
            "× one",
            rounds.ratio("scale/2", "scale/1", rate),
        ),
        at_most(
            "resident memory of an idle replica",
            60.0,
            "MB",
            single(idle.map_or(f64::NAN, |bytes| bytes as f64 / 1e6)),
        ),
    ]
}

fn table(verdicts: &[Verdict]) -> String {
    let mut out = String::from("| work | target | measured | |\n|---|---|---|---|\n");
    for v in verdicts {
        let verdict = match v.met {
            Some(true) => "met",
            Some(false) => "**missed**",
            None => "not measured",
        };
        let _ = writeln!(
            out,
            "| {} | {} | {} | {verdict} |",
            v.work, v.target, v.measured
        );
    }
    out
}

/// The first line that a program prints, or nothing.
fn said(program: &str, arguments: &[&str]) -> String {
    let output = Command::new(program).args(arguments).output();
    let text = output.map(|o| String::from_utf8_lossy(&o.stdout).into_owned());
    text.unwrap_or_default()
        .lines()
        .next()
        .unwrap_or_default()
        .to_owned()
}

/// Machine, versions, settings.
async fn environment(target: &crate::world::Target) -> Result<BTreeMap<String, String>, Error> {
    let cpu = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = cpu
        .lines()
        .find_map(|l| l.strip_prefix("model name"))
        .unwrap_or_default();
    let cores = std::thread::available_parallelism().map_or(0, usize::from);
    let memory = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let memory = memory
        .lines()
        .find_map(|l| l.strip_prefix("MemTotal:"))
        .unwrap_or_default()
        .trim()
        .to_owned();
    let database = target.database("the environment").await?;
    let mut all = BTreeMap::from([
        (
            "processor".to_owned(),
            format!("{cores} × {}", model.trim_start_matches([' ', '\t', ':'])),
        ),
        ("memory".to_owned(), memory),
        ("system".to_owned(), said("uname", &["-sr"])),
        ("compiler".to_owned(), said("rustc", &["--version"])),
        (
            "revision".to_owned(),
            said("git", &["rev-parse", "--short", "HEAD"]),
        ),
    ]);
    for name in [
        "server_version",
        "fsync",
        "synchronous_commit",
        "full_page_writes",
        "shared_buffers",
    ] {
        let row = database
            .client
            .query_one("SELECT current_setting($1)", &[&name])
            .await?;
        all.insert(format!("PostgreSQL {name}"), row.get(0));
    }
    Ok(all)
}

fn write_page(page: &Path, report: &Report, verdicts: &[Verdict]) -> Result<(), Error> {
    let beside = page.with_extension("");
    std::fs::create_dir_all(&beside).map_err(Error::file(&beside))?;
    report.write(&beside.join("report.json"))?;
    let rounds = Rounds(report);
    let first = |names: &[&str]| -> Vec<&Finding> {
        names
            .iter()
            .filter_map(|n| rounds.of(n).into_iter().next())
            .collect()
    };
    plot::throughput(
        &beside.join("throughput.svg"),
        &first(&[
            "limit/minimal-8",
            "lifecycle/single",
            "lifecycle/batch",
            "hot-run",
        ]),
    )?;
    plot::latency(
        &beside.join("claim.svg"),
        "claim",
        &first(&[
            "lifecycle/single",
            "lifecycle/paced",
            "lifecycle/alone",
            "limit/alone",
        ]),
    )?;
    plot::latency(
        &beside.join("commit.svg"),
        "commit",
        &first(&[
            "lifecycle/single",
            "lifecycle/paced",
            "lifecycle/alone",
            "limit/alone",
        ]),
    )?;
    let folder = beside.file_name().unwrap_or_default().to_string_lossy();

    let mut text = String::from(
        "# Benchmarks\n\nWritten by `make bench`; do not edit. Server, generator, PostgreSQL and Redis share the machine, so \
         only ratios within one run mean anything. *(a)* is the minimal lifecycle without HTTP, one at a time \
         on each of 8 connections (`limit/minimal-8`; `loadtest/src/scenarios/limit.rs` says what it does). Ratios are \
         medians of the rounds, lowest and highest in brackets: that is the noise of this machine. Every scenario was followed by its \
         checks (each row granted once, each result stored once, each run ended, no follower lost, feeds contiguous).\n\n",
    );
    text.push_str(&table(verdicts));
    let breaches = report.breaches();
    let _ = writeln!(
        text,
        "\nChecks: {}.\n",
        if breaches.is_empty() {
            "all held".to_owned()
        } else {
            format!("**broken**: {}", breaches.join("; "))
        }
    );
    text.push_str("## Where\n\n| | |\n|---|---|\n");
    for (name, value) in &report.environment {
        let _ = writeln!(text, "| {name} | {value} |");
    }
    let _ = writeln!(text, "| command | `nexus-loadtest {}` |", report.command);
    text.push_str("\n## What each scenario found\n\nThe first round; latencies in ms. `lifecycle/paced` is an open load: its latencies count from when a call was due. \
        The others are closed: service times under saturation.\n\n| scenario | units/s | | p50 | p90 | p99 | max |\n|---|---|---|---|---|---|---|\n");
    let mut told = std::collections::BTreeSet::new();
    for f in report
        .findings
        .iter()
        .filter(|f| told.insert(f.name.clone()))
    {
        let _ = writeln!(text, "| {} | {:.0} {} | | | | | |", f.name, f.rate, f.unit);
        for (verb, l) in &f.latencies {
            let _ = writeln!(
                text,
                "| | | {verb} | {:.2} | {:.2} | {:.2} | {:.2} |",
                l.p50, l.p90, l.p99, l.max
            );
        }
    }
    let _ = writeln!(
        text,
        "\n![Throughput]({folder}/throughput.svg)\n\n![Claims]({folder}/claim.svg)\n\n![Commits]({folder}/commit.svg)\n\nAll numbers: [{folder}/report.json]({folder}/report.json); `nexus-loadtest compare A.json B.json` sets two side by side."
    );
    std::fs::write(page, text).map_err(Error::file(page))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ratio_is_the_median_of_its_rounds() {
        let finding = |name: &str, rate| Finding {
            name: name.to_owned(),
            rate,
            ..Finding::default()
        };
        let report = Report {
            findings: vec![
                finding("b", 100.0),
                finding("a", 50.0),
                finding("b", 10.0),
                finding("a", 9.0),
                finding("b", 100.0),
                finding("a", 60.0),
            ],
            ..Report::default()
        };
        let ratio = Rounds(&report).ratio("a", "b", |f| f.rate);
        assert_eq!(ratio.to_string(), "0.60 (0.50–0.90)");
        let verdict = at_least("work", 0.6, "× b", ratio);
        assert_eq!(verdict.met, Some(true));
    }
}
