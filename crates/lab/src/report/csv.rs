//! Tables as CSV (RFC 4180), for who computes with them.

use std::fmt::Write as _;

use super::Table;

impl Table {
    /// The heads and the rows. Columns in which a cell is a value with its interval, as `1.5 [1.2 to 1.8]`, are three: `X`, `X low` and
    /// `X high`. What is not known is empty.
    pub fn csv(&self) -> String {
        let has_intervals = |at: usize| self.rows.iter().any(|row| interval(&row[at]).is_some());
        let split: Vec<bool> = (0..self.heads.len()).map(has_intervals).collect();
        let mut out = String::new();
        let mut line = |cells: Vec<String>| {
            let _ = writeln!(out, "{}", cells.iter().map(|cell| csv_cell(cell)).collect::<Vec<_>>().join(","));
        };
        let head = |(head, is_split): (&String, &bool)| {
            let ends = if *is_split { &[" low", " high"][..] } else { &[] };
            [""].iter().chain(ends).map(|end| format!("{head}{end}")).collect::<Vec<_>>()
        };
        line(self.heads.iter().zip(&split).flat_map(head).collect());
        for row in &self.rows {
            line(row.iter().zip(&split).flat_map(|(cell, is_split)| columns(cell, *is_split)).collect());
        }
        out
    }
}

/// A cell, or its three.
fn columns(cell: &str, is_split: bool) -> Vec<String> {
    let known = |cell: &str| if cell == "-" || cell.starts_with("n/a") { String::new() } else { cell.to_owned() };
    match interval(cell) {
        Some(three) if is_split => three.map(known).to_vec(),
        _ if is_split => vec![known(cell), String::new(), String::new()],
        _ => vec![known(cell)],
    }
}

/// The value, and the ends of its interval.
fn interval(cell: &str) -> Option<[&str; 3]> {
    let (value, ends) = cell.strip_suffix(']')?.split_once(" [")?;
    let (low, high) = ends.split_once(" to ")?;
    let is_number = |text: &str| text == "-" || text.parse::<f64>().is_ok();
    [value, low, high].iter().all(|text| is_number(text)).then_some([value, low, high])
}

/// A cell of a CSV file, in quotes where it needs them (RFC 4180).
pub fn csv_cell(text: &str) -> String {
    if text.contains([',', '"', '\n']) { format!("\"{}\"", text.replace('"', "\"\"")) } else { text.to_owned() }
}

/// The most bytes of a caption in the name of a file.
const SLUG: usize = 60;

/// A caption as a part of a file's name: its letters and digits in lower case, a dash between words.
pub(super) fn slug(caption: &str) -> String {
    let mut slug = String::new();
    for word in caption.split(|c: char| !c.is_ascii_alphanumeric()).filter(|word| !word.is_empty()) {
        if slug.len() + word.len() > SLUG {
            break;
        }
        slug.push_str(if slug.is_empty() { "" } else { "-" });
        slug.push_str(&word.to_ascii_lowercase());
    }
    slug
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn intervals_are_columns() {
        let mut table = Table::new("Ratios", &["over DRILL(2,1)", "load, %", "here", "why [x to y]"]);
        let row = |cells: [&str; 4]| cells.map(String::from).to_vec();
        table.rows.push(row(["ecmp, \"mean\"", "80", "0.722 [-1.10 to 2.54]", "a [b to c]"]));
        table.rows.push(row(["conga, mean", "-", "1.5", "n/a (full)"]));
        table.rows.push(row(["presto, mean", "80", "n/a (full)", "-1.5"]));
        let expected = "\"over DRILL(2,1)\",\"load, %\",here,here low,here high,why [x to y]\n\
                        \"ecmp, \"\"mean\"\"\",80,0.722,-1.10,2.54,a [b to c]\n\
                        \"conga, mean\",,1.5,,,\n\
                        \"presto, mean\",80,,,,-1.5\n";
        assert_eq!(table.csv(), expected);
    }

    #[test]
    fn captions_name_files() {
        assert_eq!(slug("Flow completion time, p99.99, us"), "flow-completion-time-p99-99-us");
        assert_eq!(slug("../é & <b>"), "b");
        assert_eq!(slug(&"word ".repeat(30)), ["word"; 12].join("-"));
    }
}
