//! A lease in a table of two replicas: Debian's server twice, with Apache ZooKeeper. That server is older than the tables that
//! `weirgate store init` replicates; the lease's own has nothing that it lacks, and is made here on each: one run in five had no answer to `ON CLUSTER`.

use std::net::TcpListener;
use std::time::Instant;

use weirgate_store::clickhouse::Server as Database;
use weirgate_store::clickhouse::standby::{Holder, Lease};
use weirgate_units::Duration;

use crate::server::{Keeper, Server};

/// What a server is told that is the replica `number`, with free ports for other servers and the native protocol, which it has to
/// have to be fetched from.
fn configuration(keeper: &str, number: usize, [port, native]: [u16; 2]) -> String {
    let (host, keeper) = keeper.split_once(':').unwrap();
    format!(
        "<yandex><interserver_http_host>127.0.0.1</interserver_http_host><interserver_http_port>{port}</interserver_http_port>\
         <tcp_port>{native}</tcp_port><macros><shard>1</shard><replica>{number}</replica></macros>\
         <zookeeper><node><host>{host}</host><port>{keeper}</port></node></zookeeper></yandex>"
    )
}

fn lease(holder: &str) -> Lease {
    let length = Duration::from_secs(60);
    Lease { database: "weirgate".to_owned(), name: "ams".to_owned(), holder: holder.to_owned(), length }
}

/// Looks as a controller does, which goes on where it is not known: a server of 18.16 fetches what it failed to fetch some seconds later.
fn look_until_known(lease: &Lease, database: &Database) -> Holder {
    let begun = Instant::now();
    loop {
        match lease.look(database) {
            Ok(holder) => return holder,
            Err(error) => assert!(begun.elapsed().as_secs() < 60, "{error}"),
        }
    }
}

#[test]
fn a_server_that_lacks_rows_lets_nobody_decide() {
    let Some(keeper) = Keeper::start() else { return };
    let listeners = [(); 4].map(|()| TcpListener::bind("127.0.0.1:0").unwrap());
    let ports = listeners.each_ref().map(|listener| listener.local_addr().unwrap().port());
    drop(listeners);
    let start = |number: usize| {
        Server::debian_with(&configuration(&keeper.address, number, [ports[number], ports[number + 2]]))
    };
    let (Some(first), Some(second)) = (start(0), start(1)) else { return };
    for server in [&first, &second] {
        server.ask("CREATE DATABASE weirgate");
        server.ask(
            "CREATE TABLE weirgate.controller_lease (name String, epoch UInt64, holder String, since UInt32, renewed UInt32) \
             ENGINE = ReplicatedReplacingMergeTree('/{shard}/controller_lease', '{replica}', renewed) \
             ORDER BY (name, epoch, holder, since)",
        );
    }
    let [at_first, at_second] = [&first, &second].map(|server| Database::new(&server.url, None, None).unwrap());
    let [a, b] = ["a", "b"].map(lease);
    second.ask("SYSTEM STOP FETCHES weirgate.controller_lease");
    assert_eq!(a.look(&at_first).unwrap(), Holder::Perhaps);
    // Its own rows say that the lease is nobody's.
    assert_eq!(second.ask("SELECT count() FROM weirgate.controller_lease"), "0\n");
    let said = b.look(&at_second).unwrap_err().to_string();
    assert!(said.contains("timeout"), "{said}");
    assert_eq!(a.look(&at_first).unwrap(), Holder::We(1), "a server that has all rows goes on");
    second.ask("SYSTEM START FETCHES weirgate.controller_lease");
    assert_eq!(look_until_known(&b, &at_second), Holder::Other("a".to_owned()));
    // From now on the other server, and nothing is lost on the way.
    a.give_back(&at_first, 1).unwrap();
    assert_eq!(look_until_known(&b, &at_second), Holder::Perhaps);
    assert_eq!(look_until_known(&a, &at_first), Holder::Other("b".to_owned()));
}
