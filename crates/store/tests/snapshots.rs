//! Snapshots by a real broker: Apache Kafka, started by `scripts/services.sh`.
#![allow(clippy::disallowed_methods, reason = "a real broker on loopback, by the real clock")]

mod broker;

use std::time::{Duration, Instant};

use rdkafka::config::ClientConfig;
use rdkafka::producer::{BaseProducer, BaseRecord, Producer};
use weirgate_store::snapshots::{CheckError, PublishError, Publisher, Subscription, Topic, check};
use weirgate_tune::snapshot::SIZE_MAX;

use crate::broker::Broker;

/// How long anything may take on a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);

fn topic(broker: &Broker, name: &str) -> Topic {
    Topic { brokers: vec![broker.env("KAFKA_TLS")], security: broker.security(), name: name.to_owned() }
}

/// What comes next, within `PATIENCE`.
fn next(subscription: &mut Subscription) -> Vec<u8> {
    let next = subscription.next(PATIENCE);
    next.unwrap_or_else(|| panic!("nothing came: {:?}", subscription.trouble()))
}

/// Waits until `is_so` of the subscription, for which nothing comes meanwhile.
fn until(subscription: &mut Subscription, what: &str, is_so: impl Fn(&Subscription) -> bool) {
    let patience = Instant::now() + PATIENCE;
    while !is_so(subscription) {
        assert_eq!(subscription.next(Duration::from_millis(100)), None);
        assert!(Instant::now() < patience, "{what}: {:?}", subscription.trouble());
    }
}

/// Writes as somebody else would.
fn write(broker: &Broker, topic: &str, key: &str, payload: &[u8]) {
    let producer: BaseProducer = ClientConfig::new()
        .set("bootstrap.servers", broker.env("KAFKA"))
        .set("message.max.bytes", "100000000")
        .set("compression.type", "zstd")
        .create()
        .unwrap();
    producer.send(BaseRecord::to(topic).key(key).payload(payload)).unwrap();
    producer.flush(PATIENCE).unwrap();
}

#[test]
fn an_edge_gets_its_snapshots_and_the_newest_last() {
    let Some(broker) = Broker::start() else { return };
    let topic = topic(&broker, "weirgate.policies");
    // Before there is a topic.
    let mut early = Subscription::open(&topic, "ams").unwrap();
    until(&mut early, "it is said", |early| early.trouble().is_some_and(|why| why.contains("there is no topic")));

    let mut publisher = Publisher::new(topic.clone());
    publisher.publish("ams", b"first").unwrap();
    publisher.publish("fra", b"of others").unwrap();
    // Larger than brokers take unless the topic says so, and not to be made smaller.
    let mut large = vec![0; 3 << 20];
    let mut x = 1_u64;
    large.iter_mut().for_each(|byte| {
        x = x.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        *byte = (x >> 56) as u8;
    });
    publisher.publish("ams", &large).unwrap();
    assert_eq!(next(&mut early), b"first");
    assert_eq!(next(&mut early), large);
    until(&mut early, "all is well", |early| early.trouble().is_none());

    // While nobody is there, nothing is published, and that is said.
    broker.script("kill");
    until(&mut early, "it is said", |early| early.trouble().is_some_and(|why| why.contains("are the brokers there")));
    let away = publisher.publish("ams", b"lost").unwrap_err();
    assert!(matches!(away, PublishError::Away(_)) && away.to_string().contains("within 30s"), "{away}");
    broker.script("start");
    publisher.publish("ams", b"second").unwrap();
    assert_eq!(next(&mut early), b"second", "nothing comes twice");
    until(&mut early, "all is well", |early| early.trouble().is_none());

    // Who comes later begins with the oldest that is there and ends with the newest; others' are others'.
    let read = |pop: &str| {
        let mut subscription = Subscription::open(&topic, pop).unwrap();
        let mut all = vec![next(&mut subscription)];
        while let Some(bytes) = subscription.next(Duration::from_secs(3)) {
            all.push(bytes);
        }
        all
    };
    assert_eq!(read("ams"), [b"first".to_vec(), large, b"second".to_vec()]);
    assert_eq!(read("fra"), [b"of others"]);
    let mut stranger = Subscription::open(&topic, "arn").unwrap();
    let is_said = |why: String| why.contains("no policy of point of presence `arn`, but of `ams`, `fra`");
    until(&mut stranger, "it is said", |stranger| stranger.trouble().is_some_and(is_said));
    publisher.publish("arn", b"the first").unwrap();
    assert_eq!((next(&mut stranger), stranger.trouble()), (b"the first".to_vec(), None));

    // Nobody takes what is larger than any; what comes after it is taken.
    let max = SIZE_MAX.as_u64() as usize;
    assert!(matches!(publisher.publish("ams", &vec![0; max + 1]), Err(PublishError::TooLarge(_))));
    write(&broker, "weirgate.policies", "ams", &vec![0; max + 1]);
    until(&mut early, "it is counted", |early| early.refused() == 1);
    assert!(early.trouble().is_some_and(|why| why.contains("is larger than any (16 MiB)")), "{:?}", early.trouble());
    publisher.publish("ams", &vec![0; max]).unwrap();
    assert_eq!(next(&mut early).len(), max);
    assert_eq!((early.refused(), early.trouble()), (1, None));
}

#[test]
fn a_topic_that_forgets_and_a_wrong_password_are_said_with_what_to_do() {
    let Some(broker) = Broker::start() else { return };
    // A topic that a broker made by itself keeps everything for a week.
    write(&broker, "forgets", "ams", b"x");
    let said = Publisher::new(topic(&broker, "forgets")).publish("ams", b"y").unwrap_err().to_string();
    assert!(said.contains("cleanup.policy=delete") && said.contains("kafka-configs.sh"), "{said}");
    assert!(matches!(check(&topic(&broker, "forgets")), Err(CheckError::NotCompacted(_))));
    assert!(matches!(check(&topic(&broker, "nowhere")), Err(CheckError::NoTopic(_))));
    Publisher::new(topic(&broker, "keeps")).publish("ams", b"y").unwrap();
    check(&topic(&broker, "keeps")).unwrap();

    let mut wrong = topic(&broker, "weirgate.policies");
    wrong.security.sasl.as_mut().unwrap().password = "wrong".into();
    let said = Publisher::new(wrong.clone()).publish("ams", b"y").unwrap_err().to_string();
    assert!(said.to_lowercase().contains("authentication") && said.contains("`sasl`"), "{said}");
    let said = check(&wrong).unwrap_err().to_string();
    assert!(said.to_lowercase().contains("authentication") && said.contains("`sasl`"), "{said}");
    let mut subscription = Subscription::open(&wrong, "ams").unwrap();
    let is_said = |why: String| why.to_lowercase().contains("authentication");
    until(&mut subscription, "it is said", |subscription| subscription.trouble().is_some_and(is_said));
}
