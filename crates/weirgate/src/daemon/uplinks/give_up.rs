//! The end of a silent uplink's flows, so that whoever has them tries again: TCP cannot live on with another source address.

use std::net::IpAddr;

use weirgate_linux::conntrack::{SYN_SENT, Tuple};

use super::driver::Driver;
use crate::uplink::{Family, Place};

/// So many are ended at a time: what is left is ended when the uplink is looked at again.
const FLOWS_MAX: usize = 100_000;

/// Which of an uplink's flows end.
#[derive(Clone, Copy)]
pub(super) enum Doom<'a> {
    /// Those of a family.
    Family(Family),
    /// Those that have one of these addresses here.
    Addresses(&'a [IpAddr]),
}

/// A flow that is to end.
struct Doomed {
    original: Tuple,
    reply: Tuple,
    is_tcp: bool,
    is_beginning: bool,
    key: Vec<u8>,
}

impl Driver {
    /// Ends the flows of an uplink: connections of this host by its own kernel, forwarded ones by resets to who is within, all others by
    /// forgetting them, so that their next packet goes by another uplink.
    pub(super) fn give_up(&mut self, place: Place, doom: Doom<'_>) {
        let marks = self.fleet.settings().marks;
        let mut doomed = Vec::new();
        let read = self.conntrack.flows(Some([marks.of(place), marks.names()]), &mut |flow| {
            // The daemon's own questions go on.
            let is_own = marks.read(flow.mark) != Some((place, false));
            let is_meant = match doom {
                Doom::Family(family) => Family::of(flow.original.source.ip()) == family,
                Doom::Addresses(own) => {
                    [flow.original.destination, flow.reply.destination].iter().any(|end| own.contains(&end.ip()))
                }
            };
            if !is_own && is_meant && doomed.len() < FLOWS_MAX && (flow.is_open_tcp() || !flow.is_tcp()) {
                doomed.push(Doomed {
                    original: flow.original,
                    reply: flow.reply,
                    is_tcp: flow.is_tcp(),
                    is_beginning: flow.tcp_state == SYN_SENT,
                    key: flow.key.to_vec(),
                });
            }
        });
        if let Err(error) = read {
            self.note(Some(format!("flows of `{}` cannot be ended: {error}", self.name(place))));
            return;
        }
        let [mut own, mut forwarded, mut forgotten] = [0_u32; 3];
        for flow in doomed {
            if !flow.is_tcp {
                let is_v4 = flow.original.source.is_ipv4();
                forgotten += u32::from(self.conntrack.remove(is_v4, &flow.key).unwrap_or(false));
            } else if self.kill(place, &flow) {
                own += 1;
            } else {
                forwarded += 1;
                self.nudge(place, &flow);
            }
        }
        if own + forwarded + forgotten > 0 {
            tracing::info!(
                "uplink `{}`: {own} connections of this host ended, {forwarded} forwarded ones are reset, {forgotten} other flows go elsewhere",
                self.name(place)
            );
        }
    }

    /// Whether it was a connection of this host.
    fn kill(&mut self, place: Place, flow: &Doomed) -> bool {
        let interface = self.devices[place].as_ref().map_or(0, |device| device.interface);
        for Tuple { source, destination } in [flow.original, flow.reply] {
            match self.killer.kill(source, destination, interface) {
                Ok(true) => return true,
                Ok(false) => {}
                Err(error) => tracing::debug!("uplink `{}`: {source} {destination}: {error}", self.name(place)),
            }
        }
        false
    }

    /// Makes who is within send something, which the rules answer with a reset. One that is still beginning does so by itself.
    fn nudge(&mut self, place: Place, flow: &Doomed) {
        if flow.is_beginning {
            return;
        }
        let own = &self.fleet.uplinks()[place];
        let address = flow.original.destination.ip();
        let is_from_without =
            own.site.addresses.contains(&address) || own.settings.prefixes.iter().any(|net| net.contains(address));
        let Tuple { source, destination } = if is_from_without { flow.reply } else { flow.original };
        if let Err(error) = self.nudger.nudge(source, destination) {
            tracing::debug!("uplink `{}`: {source} cannot be nudged: {error}", self.name(place));
        }
    }
}
