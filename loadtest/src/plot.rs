//! SVG plots of throughput over time and of latencies.

use std::path::Path;

use plotters::prelude::*;

use crate::error::Error;
use crate::report::Finding;

/// One named line.
type Line = (String, Vec<(f64, f64)>);

const COLORS: [RGBColor; 6] = [
    RGBColor(31, 119, 180),
    RGBColor(214, 39, 40),
    RGBColor(44, 160, 44),
    RGBColor(148, 103, 189),
    RGBColor(255, 127, 14),
    RGBColor(23, 190, 207),
];

/// Throughput over time of these findings.
///
/// # Errors
/// [`Error::File`].
pub fn throughput(path: &Path, findings: &[&Finding]) -> Result<(), Error> {
    let lines = findings
        .iter()
        .map(|f| {
            let points = f.series.iter().map(|p| (p.seconds, p.rate)).collect();
            (f.name.clone(), points)
        })
        .collect();
    draw(path, "Throughput", ("seconds", "units a second"), lines)
}

/// Latency by percentile of one verb of these findings.
///
/// # Errors
/// [`Error::File`].
pub fn latency(path: &Path, verb: &str, findings: &[&Finding]) -> Result<(), Error> {
    let lines = findings
        .iter()
        .filter_map(|f| {
            let l = f.latencies.get(verb)?;
            // Nines: 0.5 is 0.3, 0.9 is 1, 0.99 is 2.
            let points = vec![(0.3, l.p50), (1.0, l.p90), (2.0, l.p99), (3.0, l.p999)];
            Some((f.name.clone(), points))
        })
        .collect();
    let title = format!("Latency of a {verb}");
    draw(
        path,
        &title,
        ("nines (1 = p90, 2 = p99, 3 = p99.9)", "milliseconds"),
        lines,
    )
}

fn draw(path: &Path, title: &str, axes: (&str, &str), lines: Vec<Line>) -> Result<(), Error> {
    let file = path.display().to_string();
    try_draw(path, title, axes, lines).map_err(|e| Error::File {
        path: file,
        why: e.to_string(),
    })
}

fn try_draw(
    path: &Path,
    title: &str,
    axes: (&str, &str),
    lines: Vec<Line>,
) -> Result<(), Box<dyn std::error::Error>> {
    let all = || lines.iter().flat_map(|(_, points)| points);
    let right = all().map(|p| p.0).fold(1.0, f64::max);
    let top = all().map(|p| p.1).fold(1.0, f64::max) * 1.05;
    let area = SVGBackend::new(path, (900, 420)).into_drawing_area();
    area.fill(&WHITE)?;
    let mut chart = ChartBuilder::on(&area)
        .caption(title, ("sans-serif", 20))
        .margin(12)
        .x_label_area_size(40)
        .y_label_area_size(60)
        .build_cartesian_2d(0.0..right, 0.0..top)?;
    chart
        .configure_mesh()
        .x_desc(axes.0)
        .y_desc(axes.1)
        .light_line_style(WHITE)
        .draw()?;
    for (i, (name, points)) in lines.into_iter().enumerate() {
        let color = COLORS[i % COLORS.len()];
        chart
            .draw_series(LineSeries::new(points, color.stroke_width(2)))?
            .label(name)
            .legend(move |(x, y)| PathElement::new(vec![(x, y), (x + 18, y)], color));
    }
    chart
        .configure_series_labels()
        .background_style(WHITE.mix(0.8))
        .border_style(BLACK.mix(0.3))
        .draw()?;
    area.present()?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::Point;

    #[test]
    fn a_plot_is_an_svg_with_its_lines_by_name() {
        let series = (0..10).map(|i| Point {
            seconds: f64::from(i),
            rate: 100.0,
        });
        let finding = Finding {
            name: "lifecycle/single".to_owned(),
            series: series.collect(),
            ..Finding::default()
        };
        let path = std::env::temp_dir().join(format!("nexus-plot-{}.svg", std::process::id()));
        throughput(&path, &[&finding]).unwrap();
        let text = std::fs::read_to_string(&path).unwrap();
        std::fs::remove_file(&path).unwrap();
        assert!(
            text.starts_with("<svg") && text.contains("lifecycle/single"),
            "{text}"
        );
    }
}
