//! Two sides over emulated paths, in virtual time.

mod datagrams;
mod hostile;
mod net;
mod objects;
mod paths;

use proptest::prelude::*;
use weirgate_units::Duration;

use self::net::{Link, Net, at, ms};
use crate::connection::{Event, Settings};
use crate::control::Algorithm;
use crate::ranges::Ranges;
use crate::wire::PathId;

fn any_link() -> impl Strategy<Value = Link> {
    let outage = prop::option::of((0_u64..3_000, 1_u64..3_000));
    (1_u64..100, 1_u64..200, 0_u64..200, 0_u64..50, 5_u64..300, (1_228_usize..1_500, outage), 0_u64..300_000).prop_map(
        |(mbit, rtt, per_mille, jitter, queue_ms, (mtu, outage), doubled)| {
            let link = Link::of(mbit, rtt).with_loss(per_mille);
            Link {
                jitter: ms(jitter),
                queue: link.rate.bytes_in(ms(queue_ms)).as_u64().max(15_000),
                mtu,
                outage: outage.map(|(from, len)| (at(from), at(from + len))),
                doubled,
                ..link
            }
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]

    /// Losses of up to 20 %, outages, packets that overtake and come twice, sizes that do not pass, clocks that jump.
    #[test]
    fn everything_arrives_whatever_the_paths_do(
        links in prop::collection::vec(any_link(), 1..4),
        lens in prop::collection::vec((any::<bool>(), 0_u64..300_000), 1..6),
        seed in any::<u64>(),
        cubic in any::<bool>(),
        jump in prop::option::of(1_u64..20_000),
    ) {
        let algorithm = if cubic { Algorithm::Cubic } else { Algorithm::Bbr };
        let patience = Duration::from_secs(60);
        let settings = Settings { algorithm, idle_max: patience, call_max: patience, ..Settings::default() };
        let mut net = Net::new(settings, &links, seed);
        let mut wanted = Vec::new();
        for (is_back, len) in lens {
            if is_back {
                net.run(net.now + ms(500));
            }
            // Before there is another side, there is nobody who could send.
            let side = usize::from(is_back && net.is_answered);
            let object = net.sides[side].connection.open();
            net.sides[side].connection.provide(object, len, true);
            wanted.push((side, object, len));
            // Datagrams of any length, by any path: each comes once, or not.
            for (at, path) in [None, Some(PathId(0)), Some(PathId(9))].into_iter().enumerate() {
                let (now, bytes) = (net.now, vec![at as u8; (len as usize / 7 + at * 500) % 1_500]);
                let _too_long = net.sides[side].connection.send_datagram(now, path, &bytes);
            }
        }
        if let Some(jump) = jump {
            net.run(net.now + ms(300));
            net.now += ms(jump);
        }
        net.run(net.now + Duration::from_secs(120));
        for (side, object, len) in wanted {
            let got = net.sides[1 - side].store.received.get(&object).map_or(0, Ranges::count);
            prop_assert_eq!(got, len, "object {} of side {}: {:?}", object, side, net.sides[1 - side].events);
            prop_assert!(net.has(1 - side, &Event::Complete(object)).is_some());
            prop_assert!(net.has(side, &Event::Delivered(object)).is_some(), "{:?}", net.sides[side].events);
        }
    }
}
