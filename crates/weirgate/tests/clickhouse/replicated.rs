//! Tables of two replicas, with Apache ZooKeeper: those of `weirgate store init --cluster` on two servers of 25.8, and the lease's on
//! Debian's server twice, which is older than the others. That one is made here on each: one run in five had no answer to `ON CLUSTER`.

use std::net::TcpListener;
use std::time::Instant;

use weirgate_store::clickhouse::Server as Database;
use weirgate_store::clickhouse::standby::{Holder, Lease};
use weirgate_store::export::Form;
use weirgate_units::Duration;

use crate::failover::the_other_goes_on;
use crate::fleet::{CONNECTIONS, send, until};
use crate::server::{Server, Service, done, said};

/// What a server is told that is the replica `number` of the cluster `fleet`. The servers' `ports` are free ones: of each, what others fetch
/// from, and the native protocol's.
fn configuration(keeper: &str, number: usize, ports: &[[u16; 2]]) -> String {
    let (host, keeper) = keeper.split_once(':').unwrap();
    let [fetch, native] = ports[number];
    let replica = |[_, native]: &[u16; 2]| format!("<replica><host>127.0.0.1</host><port>{native}</port></replica>");
    let replicas: String = ports.iter().map(replica).collect();
    format!(
        "<yandex><interserver_http_host>127.0.0.1</interserver_http_host><interserver_http_port>{fetch}</interserver_http_port>\
         <tcp_port>{native}</tcp_port><macros><shard>1</shard><replica>{number}</replica></macros>\
         <zookeeper><node><host>{host}</host><port>{keeper}</port></node></zookeeper>\
         <remote_servers><fleet><shard><internal_replication>true</internal_replication>{replicas}</shard></fleet></remote_servers>\
         <distributed_ddl><path>/ddl</path></distributed_ddl></yandex>"
    )
}

/// Free ports of so many servers.
fn ports<const N: usize>() -> [[u16; 2]; N] {
    let listeners = [(); N].map(|()| [(); 2].map(|()| TcpListener::bind("127.0.0.1:0").unwrap()));
    listeners.each_ref().map(|two| two.each_ref().map(|one| one.local_addr().unwrap().port()))
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
    let Some(keeper) = Service::zookeeper() else { return };
    let ports = ports::<2>();
    let start = |number| Server::debian_with(&configuration(&keeper.address, number, &ports));
    let (Some(first), Some(second)) = (start(0), start(1)) else { return };
    for server in [&first, &second] {
        server.ask("CREATE DATABASE weirgate");
        server.ask(
            "CREATE TABLE weirgate.controller_lease (name String, epoch UInt64, holder String, since UInt32, renewed UInt32) \
             ENGINE = ReplicatedReplacingMergeTree('/{shard}/controller_lease', '{replica}', renewed) \
             ORDER BY (name, epoch, holder, since)",
        );
        server.ask(
            "CREATE TABLE weirgate.controller_memory (pop String, version UInt64, memory String) \
             ENGINE = ReplicatedReplacingMergeTree('/{shard}/controller_memory', '{replica}', version) ORDER BY pop",
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

#[test]
fn a_cluster_takes_what_came_by_kafka_and_one_of_its_controllers_decides() {
    let (Some(keeper), Some(broker)) = (Service::zookeeper(), Service::kafka()) else { return };
    let ports = ports::<3>();
    let start = |number, others| Server::current_with(&configuration(&keeper.address, number, &ports[..others]));
    let (Some(first), Some(second)) = (start(0, 2), start(1, 2)) else { return };
    let servers = [first, second];
    let [first, second] = &servers;
    servers.iter().for_each(Server::put_schemas);
    let wanted = [
        "--cluster",
        "fleet",
        "--kafka",
        &broker.address,
        "--topic",
        "records",
        "--tallies",
        "tallies",
        "--ttl",
        "3650 d",
    ];
    let made = done(&first.init(&wanted));
    assert!(made.contains("applied  001_sockets\n") && made.contains("applied  901_tallies_kafka\n"), "{made}");
    let replicated = "SELECT count() FROM system.tables WHERE database = 'weirgate' AND engine LIKE 'Replicated%'";
    let of_kafka = "SELECT count() FROM system.tables WHERE database = 'weirgate' AND engine = 'Kafka'";
    for server in &servers {
        assert_eq!((server.ask(replicated), server.ask(of_kafka)), ("10\n".to_owned(), "2\n".to_owned()));
        assert!(done(&server.init(&wanted)).contains("nothing to do"), "the other one knows what was applied");
    }
    a_server_that_lacks_rows_waits_for_them(&servers, &wanted);
    // One of them reads what is sent, and both have it, once.
    send(&broker, "records", "records", Form::Delimited, 0);
    for server in &servers {
        until(server, "SELECT count() FROM weirgate.sockets FINAL", CONNECTIONS);
        until(server, "SELECT sum(closes) FROM weirgate.networks_1m", CONNECTIONS);
    }
    assert!(done(&second.init(&["--cluster", "fleet", "--ttl", "90 d"])).contains("90 d"));
    let longer =
        "SELECT count() FROM system.tables WHERE database = 'weirgate' AND engine_full LIKE '%toIntervalDay(90)%'";
    assert_eq!(first.ask(longer), "5\n");
    done(&first.init(&["--cluster", "fleet", "--ttl", "3650 d"]));

    // One that comes later has all that the others have.
    let third = start(2, 3).unwrap();
    third.put_schemas();
    let joined = done(&third.init(&wanted));
    assert!(joined.contains("joined   controller_lease, ") && !joined.contains("applied"), "{joined}");
    until(&third, "SELECT count() FROM weirgate.sockets FINAL", CONNECTIONS);
    assert!(done(&third.init(&wanted)).contains("nothing to do"));
    third.ask("DROP DATABASE weirgate SYNC");
    third.ask("CREATE DATABASE weirgate");
    third.ask("CREATE TABLE weirgate.migrations (number UInt32) ENGINE = MergeTree ORDER BY number");
    let apart = said(&third.init(&wanted), 1);
    assert!(apart.contains("drop it on the one that is wrong"), "{apart}");
    drop(third);
    the_other_goes_on([first, second]);
}

/// What `servers`, made as `wanted`, do with a note of what was applied that only the first of them has.
fn a_server_that_lacks_rows_waits_for_them([first, second]: &[Server; 2], wanted: &[&str]) {
    let more = [wanted, &["--consumers", "2"]].concat();
    second.ask("SYSTEM STOP FETCHES weirgate.migrations");
    assert!(done(&first.init(&more)).contains("applied  901_tallies_kafka\n"));
    let made = std::thread::scope(|scope| {
        let init = scope.spawn(|| done(&second.init(&more)));
        until(second, "SELECT count() FROM system.processes WHERE query LIKE 'SYSTEM SYNC REPLICA%'", 1);
        second.ask("SYSTEM START FETCHES weirgate.migrations");
        init.join().unwrap()
    });
    assert!(made.contains("nothing to do"), "{made}");
    done(&first.init(wanted));
}
