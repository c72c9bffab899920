//! Plots, as SVG.

use std::ops::Range;

use anyhow::{Result, anyhow};
use plotters::coord::ranged1d::{AsRangedCoord, ValueFormatter};
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

use crate::report::Table;
use crate::stats::Interval;

/// A plot, and what is drawn in it.
#[derive(Clone, Debug)]
pub struct Plot {
    /// An SVG document.
    pub svg: String,
    /// A row for each point: its series, where it is, and the ends of its interval, empty where it has none.
    pub points: Table,
}

/// A value that is drawn.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Point<X = f64> {
    /// Where.
    pub x: X,
    /// How high.
    pub y: f64,
    /// Drawn as an error bar.
    pub interval: Option<Interval>,
}

/// A curve and its name.
#[derive(Clone, Debug, PartialEq)]
pub struct Curve {
    /// As the legend has it.
    pub name: String,
    /// From left to right.
    pub points: Vec<Point>,
}

/// Without intervals.
impl From<(String, Vec<(f64, f64)>)> for Curve {
    fn from((name, points): (String, Vec<(f64, f64)>)) -> Self {
        Self { name, points: points.into_iter().map(|(x, y)| Point { x, y, interval: None }).collect() }
    }
}

impl<X> Point<X> {
    /// The interval, where it has two ends.
    fn ends(&self) -> Option<[f64; 2]> {
        let Interval { low, high } = self.interval?;
        (low.is_finite() && high.is_finite()).then_some([low, high])
    }

    /// All heights that are drawn.
    fn heights(&self) -> impl Iterator<Item = f64> {
        [self.y].into_iter().chain(self.ends().into_iter().flatten())
    }

    /// Its row among the points of a plot.
    fn row(&self, series: &str, x: String) -> Vec<String> {
        let [low, high] = self.ends().map_or([String::new(), String::new()], |ends| ends.map(|end| end.to_string()));
        vec![series.to_owned(), x, self.y.to_string(), low, high]
    }
}

fn points(x: &str, y: &str) -> Table {
    Table::new("", &["series", x, y, &format!("{y} low"), &format!("{y} high")])
}

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
pub fn cumulative(axis: &str, lines: &[(String, Vec<f64>)]) -> Result<Plot> {
    let all = || lines.iter().flat_map(|(_, v)| v).copied().filter(|v| *v > 0.0);
    let (low, high) = (all().fold(f64::INFINITY, f64::min), all().fold(0.0, f64::max));
    let range = if low < high { low..high } else { 0.1..1.0 };
    let series = |values: &[f64]| {
        let n = values.len().max(1) as f64;
        values.iter().enumerate().map(|(i, v)| (*v, 100.0 * (i + 1) as f64 / n)).collect::<Vec<_>>()
    };
    let mut svg = String::new();
    draw(&mut svg, axis, range, lines, series).map_err(|e| anyhow!("cannot draw the plot: {e}"))?;
    let mut points = Table::new("", &["series", axis, "percent"]);
    for (name, values) in lines {
        let row = |(value, share): (f64, f64)| vec![name.clone(), value.to_string(), share.to_string()];
        points.rows.extend(series(values).into_iter().map(row));
    }
    Ok(Plot { svg, points })
}

/// Curves through points; `is_log`: of y, whose values are above 0 then.
pub fn curves<L: Clone + Into<Curve>>(x: &str, y: &str, is_log: bool, lines: &[L]) -> Result<Plot> {
    let mut lines: Vec<Curve> = lines.iter().cloned().map(Into::into).collect();
    lines.iter_mut().for_each(|line| line.points.retain(|point| point.x.is_finite() && point.y.is_finite()));
    let all = || lines.iter().flat_map(|line| &line.points);
    let (across, up) = (span(all().map(|point| point.x)), span(all().flat_map(Point::heights)));
    let mut svg = String::new();
    let drawn = if is_log {
        // An interval of what is above 0 may begin below it.
        let least = all().flat_map(Point::heights).filter(|y| *y > 0.0).fold(up.end, f64::min).max(f64::MIN_POSITIVE);
        draw_curves(&mut svg, [x, y], (across, (least / 1.2..up.end * 1.2).log_scale()), least / 1.2, &lines)
    } else {
        draw_curves(&mut svg, [x, y], (across, up.start.min(0.0)..up.end * 1.1), f64::NEG_INFINITY, &lines)
    };
    drawn.map_err(|e| anyhow!("cannot draw the plot: {e}"))?;
    let mut points = points(x, y);
    for line in &lines {
        points.rows.extend(line.points.iter().map(|point| point.row(&line.name, point.x.to_string())));
    }
    Ok(Plot { svg, points })
}

/// A label of an axis: as many digits as it takes.
fn tick(value: &f64) -> String {
    format!("{value:.9e}").parse().unwrap_or(*value).to_string()
}

/// From the least to the largest.
fn span(values: impl Iterator<Item = f64>) -> Range<f64> {
    let (low, high) = values.fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), v| (low.min(v), high.max(v)));
    if low < high { low..high } else { 0.5..1.5 }
}

fn draw_curves<Y>(
    svg: &mut String,
    [x, y]: [&str; 2],
    (across, up): (Range<f64>, Y),
    least: f64,
    lines: &[Curve],
) -> Result<(), Box<dyn std::error::Error>>
where
    Y: AsRangedCoord<Value = f64>,
    Y::CoordDescType: ValueFormatter<f64>,
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
        .x_label_formatter(&tick)
        .y_label_formatter(&tick)
        .axis_desc_style(("sans-serif", 15))
        .draw()?;
    for (index, Curve { name, points }) in lines.iter().enumerate() {
        let colour = COLOURS[index % COLOURS.len()];
        let at = points.iter().map(|point| (point.x, point.y));
        chart
            .draw_series(LineSeries::new(at.clone(), colour.stroke_width(2)))?
            .label(name)
            .legend(move |(x, y)| PathElement::new([(x, y), (x + 18, y)], colour.stroke_width(2)));
        chart.draw_series(at.map(|point| Circle::new(point, 3, colour.filled())))?;
        let ends = points.iter().filter_map(|point| Some((point.x, point.ends()?)));
        error_bars(&mut chart, ends.map(|(x, ends)| (x, ends.map(|end| end.max(least)))), colour)?;
    }
    // In the upper corner that has fewer points.
    let pixels: Vec<_> = lines.iter().flat_map(|line| &line.points).map(|p| chart.backend_coord(&(p.x, p.y))).collect();
    let upper = |is_left: bool| pixels.iter().filter(|(x, y)| *y < 160 && (*x < 430) == is_left).count();
    let is_right = upper(true) > upper(false);
    legend(&mut chart, if is_right { SeriesLabelPosition::UpperRight } else { SeriesLabelPosition::UpperLeft })?;
    root.present()?;
    Ok(())
}

/// Error bars: lines with a short one across at either end.
fn error_bars<'a, Y>(
    chart: &mut ChartContext<'a, SVGBackend<'a>, Cartesian2d<plotters::coord::types::RangedCoordf64, Y>>,
    bars: impl Iterator<Item = (f64, [f64; 2])>,
    colour: RGBColor,
) -> Result<(), Box<dyn std::error::Error>>
where
    Y: Ranged<ValueType = f64> + 'a,
{
    for (x, [low, high]) in bars {
        chart.draw_series([PathElement::new([(x, low), (x, high)], colour.stroke_width(1))])?;
        let across = |y| EmptyElement::at((x, y)) + PathElement::new([(-4, 0), (4, 0)], colour.stroke_width(1));
        chart.draw_series([across(low), across(high)])?;
    }
    Ok(())
}

/// Bars side by side: `groups`, by name, each with a bar for each of `series`, in their order; a value that is no number has none.
pub fn bars(y: &str, series: &[String], groups: &[(String, Vec<Point<()>>)]) -> Result<Plot> {
    let mut svg = String::new();
    draw_bars(&mut svg, y, series, groups).map_err(|e| anyhow!("cannot draw the plot: {e}"))?;
    let mut points = points("group", y);
    for (group, bars) in groups {
        let bars = series.iter().zip(bars).filter(|(_, bar)| bar.y.is_finite());
        points.rows.extend(bars.map(|(name, bar)| bar.row(name, group.clone())));
    }
    Ok(Plot { svg, points })
}

/// What a letter of a label takes, in pixels.
const LETTER: usize = 8;

/// Pixels from a line of a name to the next one.
const LINE: usize = 17;

/// What a group's bars take of its room.
const BARS: f64 = 0.8;

/// A text in lines of so many letters, broken between words.
fn wrapped(text: &str, letters: usize) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for word in text.split_whitespace() {
        match lines.last_mut().filter(|line| line.chars().count() + 1 + word.chars().count() <= letters) {
            Some(line) => *line = format!("{line} {word}"),
            None => lines.push(word.to_owned()),
        }
    }
    lines
}

fn draw_bars(
    svg: &mut String,
    y: &str,
    series: &[String],
    groups: &[(String, Vec<Point<()>>)],
) -> Result<(), Box<dyn std::error::Error>> {
    let all = groups.iter().flat_map(|(_, bars)| bars).filter(|bar| bar.y.is_finite()).flat_map(Point::heights);
    let heights = span(all.chain([0.0]));
    // Room for the legend above them: 18 pixels of some 350 for each of the series.
    let room = 1.1 / (1.0 - 18.0 * series.len() as f64 / 350.0).max(0.3);
    let up = 1.1 * heights.start..room * heights.end;
    // Names that do not fit side by side have several lines.
    let letters = (760 / groups.len().max(1) / LETTER).max(8);
    let names: Vec<Vec<String>> = groups.iter().map(|(name, _)| wrapped(name, letters)).collect();
    let below = 14 + LINE * names.iter().map(Vec::len).max().unwrap_or(1);
    let root = SVGBackend::with_string(svg, (860, 376 + below as u32)).into_drawing_area();
    root.fill(&WHITE)?;
    let mut chart = ChartBuilder::on(&root)
        .margin(12)
        .x_label_area_size(below as u32)
        .y_label_area_size(70)
        .build_cartesian_2d(0.0..groups.len().max(1) as f64, up)?;
    chart
        .configure_mesh()
        .disable_x_mesh()
        .x_labels(0)
        .light_line_style(WHITE)
        .y_desc(y)
        .label_style(("sans-serif", 14))
        .x_label_formatter(&tick)
        .y_label_formatter(&tick)
        .axis_desc_style(("sans-serif", 15))
        .draw()?;
    let width = BARS / series.len().max(1) as f64;
    for (index, name) in series.iter().enumerate() {
        let colour = COLOURS[index % COLOURS.len()];
        let bars = groups.iter().enumerate().filter_map(|(at, (_, bars))| {
            let bar = bars.get(index).filter(|bar| bar.y.is_finite())?;
            Some((at as f64 + (1.0 - BARS) / 2.0 + index as f64 * width, bar))
        });
        let bar = |(x, bar): (f64, &Point<()>)| Rectangle::new([(x, 0.0), (x + 0.95 * width, bar.y)], colour.filled());
        chart
            .draw_series(bars.clone().map(bar))?
            .label(name)
            .legend(move |(x, y)| Rectangle::new([(x, y - 4), (x + 18, y + 4)], colour.filled()));
        error_bars(&mut chart, bars.filter_map(|(x, bar)| Some((x + 0.475 * width, bar.ends()?))), BLACK)?;
    }
    if series.len() > 1 {
        legend(&mut chart, SeriesLabelPosition::UpperLeft)?;
    }
    let style = ("sans-serif", 14).into_font().color(&BLACK).pos(Pos::new(HPos::Center, VPos::Top));
    let (_, bottom) = chart.plotting_area().get_pixel_range();
    for (at, lines) in names.into_iter().enumerate() {
        let (x, _) = chart.backend_coord(&(at as f64 + 0.5, 0.0));
        for (line, text) in lines.into_iter().enumerate() {
            root.draw(&Text::new(text, (x, bottom.end + 8 + (line * LINE) as i32), style.clone()))?;
        }
    }
    root.present()?;
    Ok(())
}

fn legend<'a, X, Y>(
    chart: &mut ChartContext<'a, SVGBackend<'a>, Cartesian2d<X, Y>>,
    position: SeriesLabelPosition,
) -> Result<(), Box<dyn std::error::Error>>
where
    X: Ranged + 'a,
    Y: Ranged + 'a,
{
    chart
        .configure_series_labels()
        .position(position)
        .background_style(WHITE.mix(0.8))
        .border_style(BLACK.mix(0.2))
        .label_font(("sans-serif", 14))
        .draw()?;
    Ok(())
}

fn draw(
    svg: &mut String,
    axis: &str,
    range: Range<f64>,
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
        .x_label_formatter(&tick)
        .y_label_formatter(&tick)
        .axis_desc_style(("sans-serif", 15))
        .draw()?;
    for (index, (name, values)) in lines.iter().enumerate() {
        let colour = COLOURS[index % COLOURS.len()];
        chart
            .draw_series(LineSeries::new(series(values), colour.stroke_width(2)))?
            .label(name)
            .legend(move |(x, y)| PathElement::new([(x, y), (x + 18, y)], colour.stroke_width(2)));
    }
    legend(&mut chart, SeriesLabelPosition::UpperLeft)?;
    root.present()?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn point<X>(x: X, y: f64, low: f64, high: f64) -> Point<X> {
        Point { x, y, interval: Some(Interval { low, high }) }
    }

    #[test]
    fn a_curve_has_its_points_and_their_intervals() {
        let unknown = point(3.0, 5.0, f64::NEG_INFINITY, f64::INFINITY);
        let points = vec![point(1.0, 2.0, -1.0, 5.0), unknown, point(4.0, f64::NAN, 0.0, 1.0)];
        let with = Curve { name: "drill(2,1)".into(), points };
        for is_log in [false, true] {
            let plot = curves("load", "us", is_log, std::slice::from_ref(&with)).unwrap();
            assert_eq!(plot.points.rows, [["drill(2,1)", "1", "2", "-1", "5"], ["drill(2,1)", "3", "5", "", ""]]);
            let plain =
                curves("load", "us", is_log, &[("drill(2,1)".to_owned(), vec![(1.0, 2.0), (3.0, 5.0)])]).unwrap();
            let thin = |line: &&str| line.contains("stroke=\"#0072B2\"") && line.contains("stroke-width=\"1\"");
            let bars = |plot: &Plot| plot.svg.lines().filter(thin).count();
            assert_eq!((bars(&plot), bars(&plain)), (3, 0), "one up, and two across");
        }
    }

    #[test]
    fn a_distribution_has_its_points() {
        let plot = cumulative("us", &[("a".into(), vec![1.0, 2.0, 4.0, 8.0])]).unwrap();
        assert_eq!(plot.points.csv(), "series,us,percent\na,1,25\na,2,50\na,4,75\na,8,100\n");
    }

    #[test]
    fn bars_are_as_high_as_their_values() {
        let groups = [
            ("with one".to_owned(), vec![point((), 4.0, 3.0, 5.0), point((), f64::NAN, 0.0, 0.0)]),
            ("with three".to_owned(), vec![Point { x: (), y: 2.0, interval: None }, point((), 1.0, 0.5, 1.5)]),
        ];
        let plot = bars("%", &["random".into(), "drill(2,1)".into()], &groups).unwrap();
        assert_eq!(
            plot.points.rows,
            [
                ["random", "with one", "4", "3", "5"],
                ["random", "with three", "2", "", ""],
                ["drill(2,1)", "with three", "1", "0.5", "1.5"]
            ]
        );
        let height = |colour: &str| -> Vec<u32> {
            let bars = plot.svg.lines().filter(|line| line.starts_with("<rect") && line.contains(colour));
            let height = |line: &str| line.split("height=\"").nth(1)?.split('"').next()?.parse().ok();
            bars.filter_map(height).filter(|height| *height > 8).collect()
        };
        let [random, drill] = [height("#0072B2"), height("#D55E00")];
        assert_eq!((random.len(), drill.len()), (2, 1), "{}", plot.svg);
        assert!(
            random[0].abs_diff(2 * random[1]) <= 2 && random[1].abs_diff(2 * drill[0]) <= 2,
            "{random:?} {drill:?}"
        );
        assert!(plot.svg.contains("with one") && plot.svg.contains("with three"));
    }
}
