//! What an experiment leaves behind: `result.json` for programs, `report.html` for people.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use anyhow::{Context, Result};
use serde::Serialize;
use serde_json::{Map, Value, json};

use crate::expectation::{Expectation, Expectations};
use crate::experiment::{Form, Options, date};
use crate::machine::Machine;
use crate::plot::Plot;

mod csv;

pub use self::csv::csv_cell;
use self::csv::slug;

/// A finished experiment.
#[derive(Debug, Serialize)]
pub struct Report {
    /// The experiment's name.
    pub name: String,
    /// The title of the page.
    pub title: String,
    /// UTC, RFC 3339, when it began.
    pub date: String,
    /// Whether this was the short form.
    pub quick: bool,
    /// The seed of everything random in it.
    pub seed: u64,
    /// Where it ran, and how noisy it was there.
    pub machine: Machine,
    /// Whether its numbers depend on the machine, as all do that are taken by a clock of its.
    #[serde(skip)]
    pub is_timed: bool,
    /// What was measured, how, and what was not: one paragraph.
    pub method: String,
    /// Where that differs from what an article says, and why: a sentence or a few each.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub differs: Vec<String>,
    /// Settings, as data.
    pub settings: Value,
    /// Every number.
    pub numbers: Map<String, Value>,
    /// Measured values beside their bounds.
    pub expectations: Vec<Expectation>,
    /// Tables of the page; their cells are in `numbers` too.
    #[serde(skip)]
    pub tables: Vec<Table>,
    /// Plots of the page, with their captions.
    #[serde(skip)]
    pub plots: Vec<(String, Plot)>,
}

/// A table of the page.
#[derive(Clone, Debug)]
pub struct Table {
    /// What stands above it.
    pub caption: String,
    /// Column heads; the first column is left-aligned, the others are numbers.
    pub heads: Vec<String>,
    /// Rows, each as long as `heads`.
    pub rows: Vec<Vec<String>>,
}

impl Report {
    /// A report that begins now, and looks at the machine.
    pub fn begin(options: &Options, name: &str, title: &str) -> Self {
        Self {
            name: name.into(),
            title: title.into(),
            date: date(),
            quick: options.form != Form::Full,
            seed: options.seed,
            machine: Machine::look(),
            is_timed: true,
            method: String::new(),
            differs: Vec::new(),
            settings: Value::Null,
            numbers: Map::new(),
            expectations: Vec::new(),
            tables: Vec::new(),
            plots: Vec::new(),
        }
    }

    /// What was found, and how; the cells of the tables are its numbers.
    ///
    /// # Errors
    /// Where a bound was forgotten.
    pub fn finish(
        self,
        method: String,
        settings: Value,
        expectations: Expectations,
        tables: Vec<Table>,
    ) -> Result<Self> {
        let numbers = tables.iter().map(|table| (table.caption.clone(), table.json())).collect();
        Ok(Self { method, settings, numbers, expectations: expectations.finish()?, tables, ..self })
    }

    /// With where it differs from an article.
    #[must_use]
    pub fn differing(mut self, differs: impl IntoIterator<Item = String>) -> Self {
        self.differs.extend(differs);
        self
    }

    /// Numbers that are in no table.
    pub fn add_numbers<const N: usize>(&mut self, numbers: [(&str, Value); N]) {
        self.numbers.extend(numbers.map(|(name, value)| (name.to_owned(), value)));
    }

    /// One table more, and its numbers.
    pub fn add_table(&mut self, table: Table) {
        self.numbers.insert(table.caption.clone(), table.json());
        self.tables.push(table);
    }

    /// Writes `new` where `old` is, in all that is said: cells, their numbers, explanations.
    pub fn reword(&mut self, old: &str, new: &str) {
        for table in &mut self.tables {
            table.rows.iter_mut().flatten().for_each(|cell| *cell = cell.replace(old, new));
            self.numbers.insert(table.caption.clone(), table.json());
        }
        let explanations = self.expectations.iter_mut().filter_map(|of| of.explanation.as_mut());
        for said in explanations.chain(&mut self.differs) {
            *said = said.replace(old, new);
        }
    }

    /// This report and the parts of another, each with the name of its part before its captions; the expectations are this one's.
    #[must_use]
    pub fn beside(mut self, name: &str, other: Self, other_name: &str) -> Self {
        let rename = |caption: &mut String, name: &str| *caption = format!("{name}: {caption}");
        let mut tables = std::mem::take(&mut self.tables);
        tables.iter_mut().for_each(|table| rename(&mut table.caption, name));
        self.plots.iter_mut().for_each(|(caption, _)| rename(caption, name));
        self.differs.iter_mut().for_each(|said| rename(said, name));
        self.differs.extend(other.differs.into_iter().map(|mut said| {
            rename(&mut said, other_name);
            said
        }));
        self.numbers.clear();
        tables.extend(other.tables.into_iter().map(|mut table| {
            rename(&mut table.caption, other_name);
            table
        }));
        self.plots.extend(other.plots.into_iter().map(|(mut caption, plot)| {
            rename(&mut caption, other_name);
            (caption, plot)
        }));
        tables.into_iter().for_each(|table| self.add_table(table));
        self
    }

    /// Tables in which there is something.
    fn filled(&self) -> impl Iterator<Item = &Table> {
        self.tables.iter().filter(|table| !table.rows.is_empty())
    }

    /// Writes each table as CSV, and each plot as SVG and its points as CSV, into `dir`: numbered in their order, and named by their
    /// captions, as `table-1-flow-completion-time-mean-us.csv`.
    ///
    /// # Errors
    /// Where a file cannot be written.
    pub fn write_parts(&self, dir: &Path) -> Result<()> {
        let name = |kind: &str, at: usize, caption: &str| format!("{kind}-{}-{}", at + 1, slug(caption));
        let tables = self.filled().enumerate();
        let tables = tables.map(|(at, table)| (format!("{}.csv", name("table", at, &table.caption)), table.csv()));
        let plots = self.plots.iter().enumerate().flat_map(|(at, (caption, plot))| {
            let name = name("plot", at, caption);
            [(format!("{name}.svg"), plot.svg.clone()), (format!("{name}.csv"), plot.points.csv())]
        });
        for (file, text) in tables.chain(plots) {
            let path = dir.join(file);
            fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))?;
        }
        Ok(())
    }

    /// Whether every expectation holds, or is an article's that an explained run contradicts.
    pub fn holds(&self) -> bool {
        self.expectations.iter().all(Expectation::is_settled)
    }

    /// Writes `result.json` and `report.html` into `dir`, which is made.
    pub fn write(&self, dir: &Path) -> Result<()> {
        fs::create_dir_all(dir).with_context(|| format!("cannot make {}", dir.display()))?;
        let mut result = serde_json::to_string_pretty(self)?;
        result.push('\n');
        for (file, text) in [("result.json", result), ("report.html", self.html())] {
            let path = dir.join(file);
            fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))?;
        }
        Ok(())
    }

    /// The expectations and tables as plain text, for the terminal.
    pub fn text(&self) -> String {
        let mut out = String::new();
        for table in self.filled() {
            let _ = writeln!(out, "{}\n{}", table.caption, table.text());
        }
        if !self.expectations.is_empty() {
            let _ = write!(out, "{}", self.expectation_table().text());
        }
        out
    }

    fn expectation_table(&self) -> Table {
        Table {
            caption: "Expectations".into(),
            heads: ["expectation", "measured", "bound", ""].map(String::from).to_vec(),
            rows: self
                .expectations
                .iter()
                .map(|e| {
                    let verdict = match e {
                        Expectation { holds: true, undecided: false, .. } => "holds",
                        Expectation { holds: true, .. } => "undecided: too short a run",
                        Expectation { contradicts: true, .. } => "the article's; contradicted, and explained",
                        Expectation { .. } => "DOES NOT HOLD",
                    };
                    vec![e.name.clone(), number(e.measured), e.bound.clone(), verdict.into()]
                })
                .collect(),
        }
    }

    fn html(&self) -> String {
        let mut out = String::from("<!doctype html>\n<html lang=\"en\"><meta charset=\"utf-8\">");
        let _ = write!(
            out,
            "<meta name=\"viewport\" content=\"width=device-width\"><title>{0}</title>\n<style>{STYLE}</style>\n<main><h1>{0}</h1>",
            escape(&self.title)
        );
        let form = if self.quick { "quick form" } else { "full form" };
        let _ = write!(
            out,
            "<p class=\"meta\">{} · {form} · seed {} · {}</p>",
            self.date,
            self.seed,
            escape(&self.machine.line(self.is_timed))
        );
        if !self.expectations.is_empty() {
            out.push_str(&self.expectation_table().html());
        }
        for e in self.expectations.iter().filter(|e| e.explanation.is_some()) {
            let _ =
                write!(out, "<p><b>{}</b>: {}</p>", escape(&e.name), escape(e.explanation.as_deref().unwrap_or("")));
        }
        let _ = write!(out, "<h2>What was measured, and what was not</h2><p>{}</p>", escape(&self.method));
        if !self.differs.is_empty() {
            out.push_str("<h2>Where this differs from the article</h2><ul>");
            for said in &self.differs {
                let _ = write!(out, "<li>{}</li>", escape(said));
            }
            out.push_str("</ul>");
        }
        for (caption, Plot { svg, .. }) in &self.plots {
            let _ = write!(out, "<figure>{svg}<figcaption>{}</figcaption></figure>", escape(caption));
        }
        for table in self.filled() {
            out.push_str(&table.html());
        }
        let settings = serde_json::to_string_pretty(&self.settings).unwrap_or_default();
        let _ = writeln!(
            out,
            "<details><summary>Settings</summary><pre>{}</pre></details></main></html>",
            escape(&settings)
        );
        out
    }
}

impl Table {
    /// A table with these heads and no rows yet.
    pub fn new(caption: &str, heads: &[&str]) -> Self {
        Self { caption: caption.into(), heads: heads.iter().map(|h| (*h).into()).collect(), rows: Vec::new() }
    }

    /// The rows as JSON objects, for `result.json`.
    pub fn json(&self) -> Value {
        let cell = |text: &String| text.parse::<f64>().map_or_else(|_| json!(text), |n| json!(n));
        let object = |row: &Vec<String>| -> Value {
            Value::Object(self.heads.iter().cloned().zip(row.iter().map(cell)).collect::<Map<_, _>>())
        };
        Value::Array(self.rows.iter().map(object).collect())
    }

    fn text(&self) -> String {
        let width = |i: usize| {
            let cells = self.rows.iter().map(|r| r[i].chars().count());
            cells.chain([self.heads[i].chars().count()]).max().unwrap_or(0)
        };
        let widths: Vec<usize> = (0..self.heads.len()).map(width).collect();
        let mut out = String::new();
        for row in std::iter::once(&self.heads).chain(&self.rows) {
            for (i, (cell, width)) in row.iter().zip(&widths).enumerate() {
                let _ = if i == 0 { write!(out, "  {cell:<width$}") } else { write!(out, "  {cell:>width$}") };
            }
            out.push('\n');
        }
        out
    }

    fn html(&self) -> String {
        let mut out = format!("<div class=\"scroll\"><table><caption>{}</caption><tr>", escape(&self.caption));
        for head in &self.heads {
            let _ = write!(out, "<th>{}</th>", escape(head));
        }
        for row in &self.rows {
            let class = if row.iter().any(|c| c == "DOES NOT HOLD") { " class=\"bad\"" } else { "" };
            let _ = write!(out, "</tr><tr{class}>");
            for cell in row {
                let _ = write!(out, "<td>{}</td>", escape(cell));
            }
        }
        out.push_str("</tr></table></div>");
        out
    }
}

/// A number for a person: three significant digits, whole numbers whole.
pub fn number(value: f64) -> String {
    if !value.is_finite() {
        return "-".into();
    }
    if value == value.trunc() && value.abs() < 1e15 {
        return format!("{value:.0}");
    }
    let digits = (2 - value.abs().log10().floor() as i32).clamp(0, 9) as usize;
    format!("{value:.digits$}")
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

const STYLE: &str = "
:root { color-scheme: light dark; --line: #8884; --bad: #d33; }
body { font: 16px/1.55 system-ui, sans-serif; margin: 0; }
main { max-width: 60rem; margin: 2rem auto; padding: 0 1rem; }
h1 { font-size: 1.6rem; line-height: 1.2; } h2 { font-size: 1.1rem; } .meta { opacity: .7; font-size: .9rem; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; font-size: .92rem; }
caption { text-align: left; font-weight: 600; padding: .8rem 0 .3rem; }
th, td { padding: .25rem .8rem .25rem 0; border-bottom: 1px solid var(--line); text-align: right; }
th:first-child, td:first-child { text-align: left; } .bad td { color: var(--bad); font-weight: 600; }
.scroll { overflow-x: auto; } figure { margin: 1.5rem 0; } figure svg { max-width: 100%; height: auto; background: #fff; }
figcaption { font-size: .9rem; opacity: .8; } pre { overflow-x: auto; font-size: .85rem; }
";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_short() {
        let texts = [0.0, 12.0, 0.1234, 1234.6, 0.000123, -2.5, f64::NAN].map(number);
        assert_eq!(texts, ["0", "12", "0.123", "1235", "0.000123", "-2.50", "-"]);
    }

    /// A report of nothing yet.
    fn report() -> Report {
        let weirgate = "weirgate".into();
        Report::begin(
            &Options { form: Form::Quick, seed: 1, out: "out".into(), weirgate, chatty: false },
            "name",
            "Title",
        )
    }

    #[test]
    fn what_is_empty_is_not_printed() {
        let mut report = report();
        report.add_table(Table::new("Nothing", &["a", "b"]));
        for said in [report.text(), report.html()] {
            assert!(
                !said.contains("Nothing") && !said.contains("Expectations") && !said.contains("expectation"),
                "{said}"
            );
        }
        report.tables[0].rows.push(vec!["x".into(), "1".into()]);
        assert!(report.text().contains("Nothing") && report.html().contains("Nothing"));
    }

    #[test]
    fn tables_and_plots_are_files_by_their_captions() {
        let mut report = report();
        let mut table = Table::new("Flow completion time, mean, us", &["balancer", "80 % load"]);
        table.rows.push(vec!["drill(2,1)".into(), "1.5".into()]);
        report.tables.extend([Table::new("Nothing", &["a"]), table]);
        let line = ("drill(2,1)".to_owned(), vec![(80.0, 1.5), (90.0, 2.25)]);
        report.plots.push(("By load.".into(), crate::plot::curves("load, %", "us", false, &[line]).unwrap()));
        let folder = tempfile::tempdir().unwrap();
        report.write_parts(folder.path()).unwrap();
        let read = |file: &str| fs::read_to_string(folder.path().join(file)).unwrap_or_else(|e| panic!("{file}: {e}"));
        assert_eq!(read("table-1-flow-completion-time-mean-us.csv"), "balancer,80 % load\n\"drill(2,1)\",1.5\n");
        assert_eq!(
            read("plot-1-by-load.csv"),
            "series,\"load, %\",us,us low,us high\n\"drill(2,1)\",80,1.5,,\n\"drill(2,1)\",90,2.25,,\n"
        );
        assert!(read("plot-1-by-load.svg").starts_with("<svg"));
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 3);
    }

    #[test]
    fn text_from_outside_is_escaped() {
        let mut table = Table::new("<b>", &["a", "b"]);
        table.rows.push(vec!["x & <y>".into(), "1.5".into()]);
        assert!(table.html().contains("x &amp; &lt;y&gt;") && table.html().contains("&lt;b&gt;"));
        assert_eq!(table.json(), json!([{ "a": "x & <y>", "b": 1.5 }]));
    }
}
