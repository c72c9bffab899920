//! Plots, as SVG.

use anyhow::{Result, anyhow};
use plotters::prelude::*;

/// Colours that are told apart in print and by most colour-blind readers (Okabe and Ito, 2008).
const COLOURS: [RGBColor; 6] = [
    RGBColor(0, 114, 178),
    RGBColor(213, 94, 0),
    RGBColor(0, 158, 115),
    RGBColor(204, 121, 167),
    RGBColor(230, 159, 0),
    RGBColor(86, 180, 233),
];

/// Cumulative distributions over a logarithmic axis; each line is a name and its values in ascending order.
pub fn cumulative(axis: &str, lines: &[(String, Vec<f64>)]) -> Result<String> {
    let all = || lines.iter().flat_map(|(_, v)| v).copied().filter(|v| *v > 0.0);
    let (low, high) = (all().fold(f64::INFINITY, f64::min), all().fold(0.0, f64::max));
    let range = if low < high { low..high } else { 0.1..1.0 };
    let series = |values: &[f64]| {
        let n = values.len().max(1) as f64;
        values.iter().enumerate().map(|(i, v)| (*v, 100.0 * (i + 1) as f64 / n)).collect::<Vec<_>>()
    };
    let mut svg = String::new();
    draw(&mut svg, axis, range, lines, series).map_err(|e| anyhow!("cannot draw the plot: {e}"))?;
    Ok(svg)
}

/// Curves through points; `is_log`: of y, whose values are above 0 then.
pub fn curves(x: &str, y: &str, is_log: bool, lines: &[(String, Vec<(f64, f64)>)]) -> Result<String> {
    let points = || lines.iter().flat_map(|(_, points)| points).filter(|(x, y)| x.is_finite() && y.is_finite());
    let span = |of: fn(&(f64, f64)) -> f64| {
        let (low, high) =
            points().map(of).fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), v| (low.min(v), high.max(v)));
        if low < high { low..high } else { 0.5..1.5 }
    };
    let (across, up) = (span(|(x, _)| *x), span(|(_, y)| *y));
    let mut svg = String::new();
    let drawn = if is_log {
        let up = (up.start.max(f64::MIN_POSITIVE) / 1.2..up.end * 1.2).log_scale();
        draw_curves(&mut svg, [x, y], (across, up), lines)
    } else {
        draw_curves(&mut svg, [x, y], (across, 0.0..up.end * 1.1), lines)
    };
    drawn.map_err(|e| anyhow!("cannot draw the plot: {e}"))?;
    Ok(svg)
}

fn draw_curves<Y>(
    svg: &mut String,
    [x, y]: [&str; 2],
    (across, up): (std::ops::Range<f64>, Y),
    lines: &[(String, Vec<(f64, f64)>)],
) -> Result<(), Box<dyn std::error::Error>>
where
    Y: plotters::coord::ranged1d::AsRangedCoord<Value = f64>,
    Y::CoordDescType: plotters::coord::ranged1d::ValueFormatter<f64>,
{
    let root = SVGBackend::with_string(svg, (860, 420)).into_drawing_area();
    root.fill(&WHITE)?;
    let mut chart = ChartBuilder::on(&root)
        .margin(12)
        .x_label_area_size(44)
        .y_label_area_size(70)
        .build_cartesian_2d(across, up)?;
    chart
        .configure_mesh()
        .light_line_style(WHITE)
        .x_desc(x)
        .y_desc(y)
        .label_style(("sans-serif", 14))
        .axis_desc_style(("sans-serif", 15))
        .draw()?;
    for (index, (name, points)) in lines.iter().enumerate() {
        let colour = COLOURS[index % COLOURS.len()];
        let points = || points.iter().copied().filter(|(x, y)| x.is_finite() && y.is_finite());
        chart
            .draw_series(LineSeries::new(points(), colour.stroke_width(2)))?
            .label(name)
            .legend(move |(x, y)| PathElement::new([(x, y), (x + 18, y)], colour.stroke_width(2)));
        chart.draw_series(points().map(|point| Circle::new(point, 3, colour.filled())))?;
    }
    legend(&mut chart)?;
    root.present()?;
    Ok(())
}

fn legend<'a, X, Y>(
    chart: &mut ChartContext<'a, SVGBackend<'a>, Cartesian2d<X, Y>>,
) -> Result<(), Box<dyn std::error::Error>>
where
    X: Ranged + 'a,
    Y: Ranged + 'a,
{
    chart
        .configure_series_labels()
        .position(SeriesLabelPosition::UpperLeft)
        .background_style(WHITE.mix(0.8))
        .border_style(BLACK.mix(0.2))
        .label_font(("sans-serif", 14))
        .draw()?;
    Ok(())
}

fn draw(
    svg: &mut String,
    axis: &str,
    range: std::ops::Range<f64>,
    lines: &[(String, Vec<f64>)],
    series: impl Fn(&[f64]) -> Vec<(f64, f64)>,
) -> Result<(), Box<dyn std::error::Error>> {
    let root = SVGBackend::with_string(svg, (860, 420)).into_drawing_area();
    root.fill(&WHITE)?;
    let mut chart = ChartBuilder::on(&root)
        .margin(12)
        .x_label_area_size(44)
        .y_label_area_size(56)
        .build_cartesian_2d(range.log_scale(), 0.0..100.0)?;
    chart
        .configure_mesh()
        .light_line_style(WHITE)
        .x_desc(axis)
        .y_desc("percent")
        .label_style(("sans-serif", 14))
        .axis_desc_style(("sans-serif", 15))
        .draw()?;
    for (index, (name, values)) in lines.iter().enumerate() {
        let colour = COLOURS[index % COLOURS.len()];
        chart
            .draw_series(LineSeries::new(series(values), colour.stroke_width(2)))?
            .label(name)
            .legend(move |(x, y)| PathElement::new([(x, y), (x + 18, y)], colour.stroke_width(2)));
    }
    legend(&mut chart)?;
    root.present()?;
    Ok(())
}
