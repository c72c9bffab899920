//! Two controllers and one database: who of them decides, and what the other takes over.

use std::time::{Duration, Instant};

use weirgate_store::clickhouse::Server as Database;
use weirgate_store::clickhouse::standby::{Holder, Lease, memories, recall, remember, version};
use weirgate_units::{Duration as Length, UnixTime};

use crate::server::{Server, done};

const PATIENCE: Duration = Duration::from_secs(30);

fn lease(holder: &str, seconds: u64) -> Lease {
    let length = Length::from_secs(seconds);
    Lease { database: "weirgate".to_owned(), name: "ams".to_owned(), holder: holder.to_owned(), length }
}

/// Asks until `who` has the lease, and its epoch.
fn wait_for(database: &Database, who: &Lease) -> u64 {
    let begun = Instant::now();
    loop {
        match who.look(database).unwrap() {
            Holder::We(epoch) => return epoch,
            other => assert!(begun.elapsed() < PATIENCE, "{other:?}"),
        }
        std::thread::sleep(Duration::from_millis(300));
    }
}

#[test]
fn one_of_several_controllers_decides() {
    let Some(server) = Server::current() else { return };
    done(&server.init(&[]));
    let database = Database::new(&server.url, None, None).unwrap();
    let [a, b] = ["a", "b"].map(|holder| lease(holder, 60));
    assert_eq!(a.look(&database).unwrap(), Holder::Perhaps);
    assert_eq!(b.look(&database).unwrap(), Holder::Other("a".to_owned()));
    assert_eq!(wait_for(&database, &a), 1);
    assert_eq!(b.look(&database).unwrap(), Holder::Other("a".to_owned()));
    a.give_back(&database, 1).unwrap();
    assert_eq!(wait_for(&database, &b), 3, "at once, and not after a minute");
    assert_eq!(a.look(&database).unwrap(), Holder::Other("b".to_owned()));

    // Who claims a lease of another name has what is known: for more points of presence, for example.
    remember(&database, "weirgate", ("ams", version(7, UnixTime::from_nanos(5_000_000_000))), b"known").unwrap();
    assert_eq!(wait_for(&database, &Lease { name: "dub".to_owned(), ..lease("e", 60) }), 8);
    // But none for some of what another one decides for.
    let more = Lease { name: "ams,fra".to_owned(), ..lease("f", 60) };
    assert_eq!(more.look(&database).unwrap(), Holder::Part("b".to_owned(), "ams".to_owned()));

    // One that has died is waited for.
    let impatient = lease("c", 4);
    assert_eq!(impatient.look(&database).unwrap(), Holder::Other("b".to_owned()));
    assert_eq!(wait_for(&database, &impatient), 8, "beyond all that is known");
    assert_eq!(more.look(&database).unwrap(), Holder::Part("c".to_owned(), "ams".to_owned()));
    impatient.give_back(&database, 8).unwrap();
    assert_eq!(wait_for(&database, &more), 8);
    let part = Holder::Part("f".to_owned(), "ams,fra".to_owned());
    assert_eq!([lease("g", 60).look(&database).unwrap(), impatient.look(&database).unwrap()], [part.clone(), part]);
    assert_eq!(more.look(&database).unwrap(), Holder::We(8));
    more.give_back(&database, 8).unwrap();

    // Several claim what is nobody's at the same time: one has it.
    let claims: Vec<Lease> = (0..4).map(|n| Lease { name: "fra".to_owned(), ..lease(&format!("d{n}"), 60) }).collect();
    let claim = |lease: &Lease| {
        let database = Database::new(&server.url, None, None).unwrap();
        let deadline = Instant::now() + Duration::from_secs(8);
        let mut won = false;
        while Instant::now() < deadline {
            match lease.look(&database).unwrap() {
                Holder::We(epoch) => {
                    assert_eq!(epoch, 8);
                    won = true;
                }
                Holder::Other(_) => assert!(!won, "it was ours"),
                Holder::Perhaps | Holder::Part(..) => {}
            }
            std::thread::sleep(Duration::from_millis(100));
        }
        won
    };
    let won = std::thread::scope(|scope| {
        let threads: Vec<_> = claims.iter().map(|lease| scope.spawn(|| claim(lease))).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).filter(|won| *won).count()
    });
    assert_eq!(won, 1);
}

#[test]
fn what_one_knew_the_next_takes_up() {
    for server in Server::engines() {
        done(&server.init(&[]));
        let database = Database::new(&server.url, None, None).unwrap();
        assert_eq!(recall(&database, "weirgate", "ams").unwrap(), None);
        assert!(memories(&database, "weirgate").unwrap().is_empty());
        // All bytes, and as many as a point of presence of some thousand networks has.
        let long: Vec<u8> = (0..3_000_000_u32).map(|n| (n.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
        remember(&database, "weirgate", ("ams", 2), &long).unwrap();
        remember(&database, "weirgate", ("ams", 1), b"older, and later").unwrap();
        remember(&database, "weirgate", ("fra", 7), b"").unwrap();
        assert!(recall(&database, "weirgate", "ams").unwrap().as_deref() == Some(&long[..]));
        let mut known = memories(&database, "weirgate").unwrap();
        known.sort();
        assert_eq!(known, [("ams".to_owned(), 2), ("fra".to_owned(), 7)]);
    }
}
