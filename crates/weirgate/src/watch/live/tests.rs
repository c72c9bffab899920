use std::io;

use ratatui::Terminal;
use ratatui::backend::TestBackend;

use super::*;
use crate::view::api::{Facts, Losses, Networks, Poll, Share, Status, Totals};

fn network(n: u64) -> Network {
    Network {
        name: if n == 2 { "2001:db8:1:100::/56".to_owned() } else { format!("192.0.{n}.0/24") },
        connections: 1_000 * n,
        sending: n,
        goodput_bits_per_s: (n != 3).then_some(12_340_000 / n),
        rtt_us: Some(20_000 * (n % 3 + 1)),
        min_rtt_us: Some(9_000),
        retransmit_share: Some(0.001 * n as f64),
        delivery_rate_bits_per_s: Some(55_500_000),
        congestion_controls: vec![Share { name: "cubic".to_owned(), connections: 1_000 * n }],
        decision: (n == 1).then(|| "select bbr".to_owned()),
        ..Network::default()
    }
}

fn look(rows: u64) -> Look {
    Look {
        source: "the daemon at 127.0.0.1:7070".to_owned(),
        status: Status {
            facts: Facts { host: "edge-03".to_owned(), ..Facts::default() },
            poll: Some(Poll { number: 9, time_ms: 100_000, ..Poll::default() }),
            totals: Totals {
                connections: 6_000,
                networks: 3,
                sending: 6,
                goodput_bits_per_s: Some(18_510_000),
                retransmit_share: Some(0.002),
                ..Totals::default()
            },
            ..Status::default()
        },
        networks: Networks { total: rows, networks: (1..=rows).map(network).collect(), ..Networks::default() },
    }
}

fn press(app: &mut App, keys: &[KeyCode]) {
    keys.iter().for_each(|code| app.handle_key(KeyEvent::new(*code, KeyModifiers::NONE)));
}

fn screen(app: &mut App, width: u16, height: u16) -> Vec<String> {
    let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
    terminal.draw(|frame| app.draw(frame, 103_000)).unwrap();
    let buffer = terminal.backend().buffer().clone();
    let line = |y| (0..width).map(|x| buffer[(x, y)].symbol()).collect::<String>().trim_end().to_owned();
    (0..height).map(line).collect()
}

#[test]
fn the_screen_is_this() {
    let mut app = App::default();
    app.handle_reading(Ok(look(3)));
    let expected = "\
edge-03  polled 3 s ago  the daemon at 127.0.0.1:7070
6,000 connections in 3 networks, 6 sending, 18.5 Mbit/s, 0.20 % sent again
client network             conns  sending     goodput deliv. rate      rtt  min rtt sent again congestion control   decision
192.0.1.0/24               1,000        1 12.3 Mbit/s 55.5 Mbit/s  40.0 ms  9.00 ms     0.10 % cubic                select bbr
2001:db8:1:100::/56        2,000        2 6.17 Mbit/s 55.5 Mbit/s  60.0 ms  9.00 ms     0.20 % cubic                -
192.0.3.0/24               3,000        3           - 55.5 Mbit/s  20.0 ms  9.00 ms     0.30 % cubic                -

sort: g goodput  c connections  r rtt  s sent again  n name   up/down scroll   q quit";
    assert_eq!(screen(&mut app, 132, 8).join("\n"), expected);
}

#[test]
fn keys_sort_scroll_and_quit() {
    let mut app = App::default();
    app.handle_reading(Ok(look(40)));
    let first = |app: &mut App| screen(app, 132, 14)[3].split(' ').next().unwrap().to_owned();
    assert_eq!(first(&mut app), "192.0.1.0/24");
    press(&mut app, &[KeyCode::Char('c')]);
    assert_eq!(first(&mut app), "192.0.40.0/24");
    press(&mut app, &[KeyCode::Char('r')]);
    assert_eq!(first(&mut app), "192.0.38.0/24", "equal round-trip times stay in the order they had");
    press(&mut app, &[KeyCode::Char('s'), KeyCode::Down, KeyCode::Down, KeyCode::Up]);
    assert_eq!(first(&mut app), "192.0.39.0/24");
    press(&mut app, &[KeyCode::PageDown]);
    assert_eq!(first(&mut app), "192.0.29.0/24");
    assert!(screen(&mut app, 132, 14)[13].ends_with("12-21 of 40"));
    press(&mut app, &[KeyCode::End]);
    assert_eq!(first(&mut app), "192.0.10.0/24");
    press(&mut app, &[KeyCode::End, KeyCode::Down, KeyCode::Char('n')]);
    assert_eq!(first(&mut app), "192.0.1.0/24");
    assert!(!app.quit);
    press(&mut app, &[KeyCode::Char('x'), KeyCode::Char('q')]);
    assert!(app.quit);
    let mut app = App::default();
    app.handle_key(KeyEvent::new(KeyCode::Char('c'), KeyModifiers::CONTROL));
    assert!(app.quit);
}

#[test]
fn the_order_outlives_a_reading() {
    let mut app = App::default();
    press(&mut app, &[KeyCode::Char('c')]);
    app.handle_reading(Ok(look(5)));
    assert!(screen(&mut app, 132, 14)[3].starts_with("192.0.5.0/24"));
}

#[test]
fn narrow_and_tiny_terminals_show_what_fits() {
    let mut app = App::default();
    app.handle_reading(Ok(look(3)));
    let narrow = screen(&mut app, 60, 10);
    assert_eq!(
        narrow[2].split_whitespace().collect::<Vec<_>>(),
        "client network conns goodput rtt sent again".split(' ').collect::<Vec<_>>()
    );
    for (width, height) in [(1, 1), (2, 5), (20, 3), (40, 4), (300, 100)] {
        screen(&mut app, width, height);
    }
}

#[test]
fn failures_and_losses_are_said_and_the_last_numbers_stay() {
    let mut app = App::default();
    assert_eq!(screen(&mut app, 80, 4)[1], "reading ...");
    let mut lossy = look(2);
    lossy.status.losses = Losses { close_ring_failures: 7, ..Losses::default() };
    app.handle_reading(Ok(lossy));
    let gone = ReadError::Daemon {
        address: ([127, 0, 0, 1], 7070).into(),
        error: io::Error::from(io::ErrorKind::ConnectionRefused),
    };
    app.handle_reading(Err(gone));
    let shown = screen(&mut app, 120, 10);
    assert_eq!(shown[2], "the daemon at 127.0.0.1:7070 does not answer any more: connection refused");
    assert_eq!(shown[3], "lost: 7 closes without room");
    assert!(shown[5].starts_with("192.0.1.0/24"));
    app.handle_reading(Ok(look(0)));
    assert_eq!(screen(&mut app, 120, 10)[2], "no open connections");
}
