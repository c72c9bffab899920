//! What is shown of an uplink.

use weirgate_linux::clock;
use weirgate_units::{BitRate, Duration, Instant};

use super::driver::Driver;
use crate::uplink::measure::Direction;
use crate::uplink::{Family, Kind, Place, Transport};
use crate::view::api;

impl Driver {
    pub(super) fn row(&self, at: Instant, place: Place) -> api::Uplink {
        let uplink = &self.fleet.uplinks()[place];
        let (_, why, since) = uplink.health_of(uplink.best()).state();
        let weight = self.fleet.weight(place);
        let flows = |transport: Transport| {
            let its = Kind::ALL.iter().filter(|kind| kind.transport == transport);
            its.map(|kind| u64::from(uplink.flows[kind.index()])).sum()
        };
        let micros = |time: Option<Duration>| time.map(Duration::as_micros);
        let bits = |rate: Option<BitRate>| rate.map(BitRate::as_bits_per_sec);
        let [asked, missed] = uplink.counts();
        let sockets = uplink.measured.sockets();
        let [rate_up, rate_down] = uplink.measured.rates().map(BitRate::as_bits_per_sec);
        let unix_ms =
            |since| clock::unix().as_nanos().saturating_sub(at.saturating_since(since).as_nanos()) / 1_000_000;
        let families = Family::ALL.into_iter().filter(|family| uplink.site.families[*family as usize]).map(|family| {
            let health = uplink.health_of(family);
            let (state, why, since) = health.state();
            api::UplinkFamily {
                family: family.name().to_owned(),
                state: state.name().to_owned(),
                why: why.to_string(),
                since_ms: unix_ms(since),
                rtt_us: micros(health.srtt()),
            }
        });
        api::Uplink {
            name: uplink.settings.name.clone(),
            device: uplink.settings.device.clone(),
            state: uplink.state().name().to_owned(),
            why: uplink.site.trouble.clone().unwrap_or_else(|| why.to_string()),
            since_ms: unix_ms(since),
            families: families.collect(),
            drained: uplink.is_drained,
            backup: uplink.settings.is_backup,
            metered: uplink.settings.measure.is_metered,
            weight: uplink.weight,
            weight_why: weight.why.to_owned(),
            class: self.fleet.classes()[place],
            flows_tcp: flows(Transport::Tcp),
            flows_other: flows(Transport::Other),
            sent_packets: uplink.passed[0].packets,
            sent_bytes: uplink.passed[0].bytes,
            received_packets: uplink.passed[1].packets,
            received_bytes: uplink.passed[1].bytes,
            rate_up_bits_per_s: rate_up,
            rate_down_bits_per_s: rate_down,
            capacity_up_bits_per_s: bits(uplink.measured.capacity(Direction::Up)),
            capacity_down_bits_per_s: bits(uplink.measured.capacity(Direction::Down)),
            rtt_us: micros(uplink.srtt()),
            min_rtt_us: micros(uplink.measured.min_rtt(at)),
            asked,
            missed,
            own_connections: sockets.open,
            resent_share: (sockets.sent > 0).then(|| sockets.resent as f64 / sockets.sent as f64),
            addresses: uplink.site.addresses.iter().map(ToString::to_string).collect(),
            gateways: self.gateways(place),
        }
    }
}
