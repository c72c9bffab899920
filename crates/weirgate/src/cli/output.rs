//! Where results go: text for people, JSON for programs. Every write can fail, and a closed pipe is no failure.

use std::io::{self, IsTerminal, Write};

use serde::Serialize;

/// Standard output, buffered; or memory, for tests.
pub(super) struct Output {
    to: To,
}

enum To {
    Stdout(io::BufWriter<io::Stdout>),
    #[cfg(test)]
    Memory(Vec<u8>),
}

impl Output {
    pub(super) fn stdout() -> Self {
        Self { to: To::Stdout(io::BufWriter::new(io::stdout())) }
    }

    #[cfg(test)]
    pub(super) fn memory() -> Self {
        Self { to: To::Memory(Vec::new()) }
    }

    #[cfg(test)]
    pub(super) fn into_text(self) -> String {
        match self.to {
            To::Memory(bytes) => String::from_utf8(bytes).unwrap(),
            To::Stdout(_) => String::new(),
        }
    }

    /// One line of text.
    pub(super) fn line(&mut self, text: &str) -> io::Result<()> {
        self.bytes(text.as_bytes())?;
        self.bytes(b"\n")
    }

    /// One JSON document, on one line.
    pub(super) fn json(&mut self, value: &impl Serialize) -> io::Result<()> {
        let text = serde_json::to_vec(value)?;
        self.bytes(&text)?;
        self.bytes(b"\n")
    }

    /// Columns under `heads`, as wide as they need to be. Numbers, by their first character, stand at the right.
    pub(super) fn table(&mut self, heads: &[&str], rows: &[Vec<String>]) -> io::Result<()> {
        let mut widths: Vec<usize> = heads.iter().map(|head| head.chars().count()).collect();
        for row in rows {
            for (width, cell) in widths.iter_mut().zip(row) {
                *width = (*width).max(cell.chars().count());
            }
        }
        let right: Vec<bool> = (0..heads.len())
            .map(|n| {
                let mut cells = rows
                    .iter()
                    .filter_map(|row| row.get(n))
                    .filter(|cell| !matches!(cell.as_str(), "-" | "n/a"))
                    .peekable();
                cells.peek().is_some() && cells.all(|cell| cell.starts_with(|c: char| c.is_ascii_digit()))
            })
            .collect();
        let heads: Vec<String> = heads.iter().map(|head| (*head).to_owned()).collect();
        for row in std::iter::once(&heads).chain(rows) {
            let mut line = String::new();
            for ((cell, width), right) in row.iter().zip(&widths).zip(&right) {
                let pad = " ".repeat(width.saturating_sub(cell.chars().count()));
                if !line.is_empty() {
                    line.push_str("  ");
                }
                if *right {
                    line.push_str(&pad);
                    line.push_str(cell);
                } else {
                    line.push_str(cell);
                    line.push_str(&pad);
                }
            }
            self.line(line.trim_end())?;
        }
        Ok(())
    }

    pub(super) fn bytes(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.writer().write_all(bytes).map_err(named)
    }

    pub(super) fn writer(&mut self) -> &mut dyn Write {
        match &mut self.to {
            To::Stdout(stdout) => stdout,
            #[cfg(test)]
            To::Memory(bytes) => bytes,
        }
    }

    pub(super) fn flush(&mut self) -> io::Result<()> {
        self.writer().flush().map_err(named)
    }
}

/// Whose a full disk is.
fn named(error: io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("standard output: {error}"))
}

/// A bar on the terminal for what takes longer than two seconds; nothing elsewhere, and nothing before.
pub(super) fn progress(len: Option<u64>, what: &'static str) -> indicatif::ProgressBar {
    if !io::stderr().is_terminal() {
        return indicatif::ProgressBar::hidden();
    }
    let bar = indicatif::ProgressBar::with_draw_target(len, indicatif::ProgressDrawTarget::hidden());
    bar.set_message(what);
    let template = if len.is_some() { "{msg} {wide_bar} {pos}/{len} {eta}" } else { "{pos} {msg} in {elapsed}" };
    if let Ok(style) = indicatif::ProgressStyle::with_template(template) {
        bar.set_style(style);
    }
    let shown = bar.clone();
    // The thread ends with the process at the latest; it does nothing but make the bar visible once.
    std::thread::spawn(move || {
        std::thread::sleep(std::time::Duration::from_secs(2));
        if !shown.is_finished() {
            shown.set_draw_target(indicatif::ProgressDrawTarget::stderr());
        }
    });
    bar
}

/// A share as `1.2 %`.
pub(super) fn share(share: Option<f64>) -> String {
    share.map_or_else(|| "-".to_owned(), |share| format!("{:.2} %", share * 100.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantities_are_written_for_people() {
        assert_eq!(share(Some(0.0123)), "1.23 %");
    }

    #[test]
    fn a_table_lines_up() {
        let mut out = Output::memory();
        out.table(&["name", "n"], &[vec!["a".into(), "10".into()], vec!["long".into(), "2".into()]]).unwrap();
        assert_eq!(out.into_text(), "name   n\na     10\nlong   2\n");
    }
}
