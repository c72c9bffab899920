//! `--watch`: the table on a terminal, again and again. Reading happens in a thread of its own, so that a daemon that is
//! slow to answer never makes a key wait.

use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::thread;
use std::time::{Duration, Instant};

use crossterm::event::{self, Event, KeyCode, KeyEvent, KeyEventKind, KeyModifiers};
use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Modifier, Style, Stylize};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Cell, Paragraph, Row, Table};

use super::source::{OWN_INTERVAL, ReadError, Source, now};
use super::text::{cells, headline, integer, losses};
use super::{Look, SocketsError};
use crate::view::Order;
use crate::view::api::Network;

/// How long a key may wait to be looked at.
const KEY_WAIT: Duration = Duration::from_millis(100);

/// What is shown, and how. Knows no terminal and no clock.
#[derive(Default)]
struct App {
    look: Option<Look>,
    /// What went wrong with the last reading.
    failure: Option<String>,
    order: Order,
    /// The first row shown.
    top: usize,
    /// Rows that fitted when it was last drawn.
    page: usize,
    quit: bool,
}

/// A column, from left to right.
struct Column {
    title: &'static str,
    width: u16,
    right: bool,
    /// The key and the order it asks for.
    order: Option<Order>,
    /// Its place among [`cells`].
    cell: usize,
    /// Columns with higher numbers are left out first where the terminal is narrow.
    rank: u8,
}

const COLUMNS: [Column; 9] = [
    Column { title: "conns", width: 8, right: true, order: Some(Order::Connections), cell: 0, rank: 0 },
    Column { title: "sending", width: 8, right: true, order: None, cell: 1, rank: 6 },
    Column { title: "goodput", width: 11, right: true, order: Some(Order::Goodput), cell: 2, rank: 0 },
    Column { title: "deliv. rate", width: 11, right: true, order: None, cell: 3, rank: 4 },
    Column { title: "rtt", width: 8, right: true, order: Some(Order::Rtt), cell: 4, rank: 1 },
    Column { title: "min rtt", width: 8, right: true, order: None, cell: 5, rank: 5 },
    Column { title: "sent again", width: 10, right: true, order: Some(Order::Retransmits), cell: 6, rank: 1 },
    Column { title: "congestion control", width: 20, right: false, order: None, cell: 7, rank: 2 },
    Column { title: "decision", width: 16, right: false, order: None, cell: 8, rank: 3 },
];
/// `2001:db8:1234:5600::/56`.
const NAME_WIDTH: u16 = 23;
const NAME_WIDTH_MIN: u16 = 18;

/// Runs until `q`. The terminal is given back whatever happens, a panic included.
pub(super) fn run(source: Source) -> Result<(), SocketsError> {
    let (orders, wanted) = mpsc::channel();
    let (looks, arrived) = mpsc::channel();
    thread::spawn(move || read_on(source, &wanted, &looks));
    let mut app = App::default();
    let mut terminal = ratatui::try_init()?;
    let result = drive(&mut app, &mut terminal, &orders, &arrived);
    ratatui::restore();
    result
}

fn drive(
    app: &mut App,
    terminal: &mut ratatui::DefaultTerminal,
    orders: &Sender<Order>,
    arrived: &Receiver<Result<Look, ReadError>>,
) -> Result<(), SocketsError> {
    let mut drawn_second = 0;
    let mut changed = true;
    while !app.quit {
        for reading in arrived.try_iter() {
            app.handle_reading(reading);
            changed = true;
        }
        // Ages are in seconds.
        let now = now();
        if changed || now.as_secs() != drawn_second {
            terminal.draw(|frame| app.draw(frame, now.as_nanos() / 1_000_000))?;
            drawn_second = now.as_secs();
        }
        changed = event::poll(KEY_WAIT)?;
        if changed && let Event::Key(key) = event::read()? {
            let before = app.order;
            app.handle_key(key);
            if app.order != before {
                // The reader may have ended; the failure it ended with is shown.
                let _ = orders.send(app.order);
            }
        }
    }
    Ok(())
}

/// Reads every two seconds, and at once where another order is wanted, until nobody listens.
fn read_on(mut source: Source, wanted: &Receiver<Order>, looks: &Sender<Result<Look, ReadError>>) {
    let mut order = Order::default();
    loop {
        let began = Instant::now();
        if looks.send(source.read(order)).is_err() {
            return;
        }
        // An own poll is of two seconds, and is not made shorter by a key.
        let soon = matches!(source, Source::Daemon(_));
        loop {
            match wanted.recv_timeout(OWN_INTERVAL.saturating_sub(began.elapsed())) {
                Ok(new) => {
                    order = new;
                    if soon {
                        break;
                    }
                }
                Err(RecvTimeoutError::Timeout) => break,
                Err(RecvTimeoutError::Disconnected) => return,
            }
        }
    }
}

impl App {
    fn handle_reading(&mut self, reading: Result<Look, ReadError>) {
        match reading {
            Ok(mut look) => {
                sort(&mut look.networks.networks, self.order);
                self.look = Some(look);
                self.failure = None;
            }
            Err(error) => self.failure = Some(error.to_string()),
        }
    }

    fn handle_key(&mut self, key: KeyEvent) {
        if key.kind == KeyEventKind::Release {
            return;
        }
        let order = match key.code {
            KeyCode::Char('c') if key.modifiers.contains(KeyModifiers::CONTROL) => {
                self.quit = true;
                return;
            }
            KeyCode::Char('q') | KeyCode::Esc => {
                self.quit = true;
                return;
            }
            KeyCode::Char('g') => Order::Goodput,
            KeyCode::Char('c') => Order::Connections,
            KeyCode::Char('r') => Order::Rtt,
            KeyCode::Char('s') => Order::Retransmits,
            KeyCode::Char('n') => Order::Name,
            code => {
                let page = self.page.max(1);
                self.top = match code {
                    KeyCode::Down | KeyCode::Char('j') => self.top.saturating_add(1),
                    KeyCode::Up | KeyCode::Char('k') => self.top.saturating_sub(1),
                    KeyCode::PageDown | KeyCode::Char(' ') => self.top.saturating_add(page),
                    KeyCode::PageUp => self.top.saturating_sub(page),
                    KeyCode::Home => 0,
                    KeyCode::End => usize::MAX,
                    _ => self.top,
                };
                return;
            }
        };
        if order != self.order {
            self.order = order;
            self.top = 0;
            if let Some(look) = &mut self.look {
                sort(&mut look.networks.networks, order);
            }
        }
    }

    /// Draws at `now_ms`, Unix time in milliseconds.
    fn draw(&mut self, frame: &mut Frame<'_>, now_ms: u64) {
        let warnings = self.warnings();
        let [head, warned, body, foot] = Layout::vertical([
            Constraint::Length(2),
            Constraint::Length(u16::try_from(warnings.len()).unwrap_or(u16::MAX).min(4)),
            Constraint::Min(0),
            Constraint::Length(1),
        ])
        .areas(frame.area());
        frame.render_widget(Paragraph::new(self.head(now_ms)), head);
        frame.render_widget(Paragraph::new(warnings), warned);
        self.draw_table(frame, body);
        frame.render_widget(Paragraph::new(KEYS.dim()), foot);
    }

    fn head(&self, now_ms: u64) -> Vec<Line<'static>> {
        let Some(look) = &self.look else {
            return vec![Line::from("weirgate sockets".bold()), Line::from("reading ...")];
        };
        let host = &look.status.facts.host;
        let age = look.status.poll.map_or("no poll yet".to_owned(), |poll| {
            format!("polled {} s ago", now_ms.saturating_sub(poll.time_ms).div_ceil(1_000))
        });
        let title = if host.is_empty() { "weirgate sockets".to_owned() } else { host.clone() };
        let first = vec![title.bold(), Span::raw("  "), age.into(), Span::raw("  "), look.source.clone().dim()];
        vec![Line::from(first), Line::from(headline(look))]
    }

    fn warnings(&self) -> Vec<Line<'static>> {
        let warn = |text: String| Line::from(text).red();
        let mut lines: Vec<Line<'static>> = self.failure.iter().cloned().map(warn).collect();
        if let Some(look) = &self.look {
            lines.extend(losses(&look.status.losses).map(|lost| warn(format!("lost: {lost}"))));
            lines.extend(look.status.problems.iter().cloned().map(warn));
        }
        lines
    }

    fn draw_table(&mut self, frame: &mut Frame<'_>, area: Rect) {
        self.page = usize::from(area.height.saturating_sub(1));
        let Some(look) = &self.look else { return };
        let rows: Vec<&Network> = look.networks.networks.iter().chain(&look.networks.other).collect();
        self.top = self.top.min(rows.len().saturating_sub(self.page));
        if rows.is_empty() {
            frame.render_widget(Paragraph::new("no open connections"), area);
            return;
        }
        let (name_width, columns) = fitting(area.width);
        let align = |text: String, column: &Column| {
            let line = Line::from(text);
            Cell::from(if column.right { line.right_aligned() } else { line })
        };
        let title = |title: &str, order: Option<Order>| {
            let sorted = order == Some(self.order);
            let style = if sorted { Style::new().add_modifier(Modifier::UNDERLINED) } else { Style::new() };
            (title.to_owned(), style)
        };
        let (text, style) = title("client network", Some(Order::Name));
        let heads = columns.iter().map(|column| {
            let (text, style) = title(column.title, column.order);
            align(text, column).style(style)
        });
        let header = Row::new([Cell::from(text).style(style)].into_iter().chain(heads)).bold();
        let lines = rows.iter().skip(self.top).take(self.page).map(|row| {
            let mut texts = cells(row);
            let values = columns.iter().map(|column| align(std::mem::take(&mut texts[column.cell]), column));
            Row::new([Cell::from(row.name.clone())].into_iter().chain(values).collect::<Vec<_>>())
        });
        let widths = [name_width].into_iter().chain(columns.iter().map(|column| column.width));
        let table = Table::new(lines, widths.map(Constraint::Length)).header(header).column_spacing(1);
        frame.render_widget(table, area);
        let (first, last) = (self.top + 1, (self.top + self.page).min(rows.len()));
        if last - self.top < rows.len() {
            let place =
                format!(" {}-{} of {} ", integer(first as u64), integer(last as u64), integer(rows.len() as u64));
            let width = u16::try_from(place.len()).unwrap_or(0).min(area.width);
            let corner = Rect { x: area.right() - width, y: frame.area().bottom() - 1, width, height: 1 };
            frame.render_widget(Paragraph::new(place.dim()), corner);
        }
    }
}

const KEYS: &str = "sort: g goodput  c connections  r rtt  s sent again  n name   up/down scroll   q quit";

/// The columns that fit into `width`, and the width of the first.
fn fitting(width: u16) -> (u16, Vec<&'static Column>) {
    let mut columns: Vec<&Column> = COLUMNS.iter().collect();
    let name = if width < 80 { NAME_WIDTH_MIN } else { NAME_WIDTH };
    loop {
        let all: u16 = name + columns.iter().map(|column| column.width + 1).sum::<u16>();
        let last = columns.iter().map(|column| column.rank).max().unwrap_or(0);
        if all <= width || last == 0 {
            return (name, columns);
        }
        columns.retain(|column| column.rank != last);
    }
}

/// As the server sorts: the largest first, unknown last; equal ones stay as they are.
fn sort(rows: &mut [Network], order: Order) {
    use std::cmp::Reverse;
    match order {
        Order::Goodput => rows.sort_by_key(|row| Reverse(row.goodput_bits_per_s)),
        Order::Connections => rows.sort_by_key(|row| Reverse(row.connections)),
        Order::Rtt => rows.sort_by_key(|row| Reverse(row.rtt_us)),
        Order::Retransmits => rows.sort_by_key(|row| Reverse(row.retransmit_share.map(|share| (share * 1e9) as u64))),
        Order::Name => rows.sort_by_cached_key(|row| row.name.parse::<weirgate_units::Prefix>().ok()),
    }
}

#[cfg(test)]
mod tests;
