//! A lease in a table of two replicas: Debian's server twice, with Apache ZooKeeper. That server is older than the tables that
//! `weirgate store init` replicates; the lease's own has nothing that it lacks, and is made here as `ON CLUSTER` makes it there.

use std::net::TcpListener;

use weirgate_store::clickhouse::Server as Database;
use weirgate_store::clickhouse::standby::{Holder, Lease};
use weirgate_units::Duration;

use crate::server::{Keeper, Server};

/// What each of two servers is told, whose ports for other servers and for clients of the native protocol are `ports`.
fn configuration(keeper: &str, number: usize, ports: &[[u16; 2]; 2]) -> String {
    let (host, port) = keeper.split_once(':').unwrap();
    let replica = |[_, native]: &[u16; 2]| format!("<replica><host>127.0.0.1</host><port>{native}</port></replica>");
    format!(
        "<yandex><interserver_http_host>127.0.0.1</interserver_http_host><interserver_http_port>{}</interserver_http_port>\
         <tcp_port>{}</tcp_port><macros><shard>1</shard><replica>{number}</replica></macros>\
         <zookeeper><node><host>{host}</host><port>{port}</port></node></zookeeper><distributed_ddl><path>/ddl</path></distributed_ddl>\
         <remote_servers><all><shard><internal_replication>true</internal_replication>{}</shard></all></remote_servers></yandex>",
        ports[number][0],
        ports[number][1],
        ports.iter().map(replica).collect::<String>(),
    )
}

fn lease(holder: &str) -> Lease {
    let length = Duration::from_secs(60);
    Lease { database: "weirgate".to_owned(), name: "ams".to_owned(), holder: holder.to_owned(), length }
}

#[test]
fn a_server_that_lacks_rows_lets_nobody_decide() {
    let Some(keeper) = Keeper::start() else { return };
    let listeners = [(); 4].map(|()| TcpListener::bind("127.0.0.1:0").unwrap());
    let free = listeners.each_ref().map(|listener| listener.local_addr().unwrap().port());
    drop(listeners);
    let ports = [[free[0], free[1]], [free[2], free[3]]];
    let start = |number| Server::debian_with(&configuration(&keeper.address, number, &ports));
    let (Some(first), Some(second)) = (start(0), start(1)) else { return };
    first.ask("CREATE DATABASE weirgate ON CLUSTER 'all'");
    first.ask(
        "CREATE TABLE weirgate.controller_lease ON CLUSTER 'all' \
         (name String, epoch UInt64, holder String, since UInt32, renewed UInt32) \
         ENGINE = ReplicatedReplacingMergeTree('/{shard}/controller_lease', '{replica}', renewed) \
         ORDER BY (name, epoch, holder, since)",
    );
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
    assert_eq!(b.look(&at_second).unwrap(), Holder::Other("a".to_owned()));
    // From now on the other server, and nothing is lost on the way.
    a.give_back(&at_first, 1).unwrap();
    assert_eq!(b.look(&at_second).unwrap(), Holder::Perhaps);
    assert_eq!(a.look(&at_first).unwrap(), Holder::Other("b".to_owned()));
}
