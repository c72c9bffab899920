//! The end of a silent uplink's flows, so that whoever has them tries again: TCP cannot live on with another source address.

use std::io;
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
    /// Ends the flows of an uplink: connections of this host by its own kernel, forwarded ones by resets to who is within. All others are
    /// forgotten, so that their next packet goes by another uplink: forwarded connections that nobody has answered yet as well, for which
    /// the next SYN is as good as the first.
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
            let killed = if flow.is_tcp { self.kill(place, &flow) } else { Ok(false) };
            match killed {
                Ok(true) => {
                    own += 1;
                    // The kernel sends no reset for one that was beginning, nor by a device that is down: tracking would know them on.
                    self.forget(place, &flow);
                }
                _ if !flow.is_tcp || flow.is_beginning => forgotten += u32::from(self.forget(place, &flow)),
                Ok(false) => forwarded += u32::from(self.nudge(place, &flow)),
                Err(error) => {
                    let Tuple { source, destination } = flow.original;
                    tracing::debug!("uplink `{}`: {source} {destination} cannot be ended: {error}", self.name(place));
                }
            }
        }
        if own + forwarded + forgotten > 0 {
            tracing::info!(
                "uplink `{}`: {own} connections of this host ended, {forwarded} forwarded ones are reset, {forgotten} other flows are \
                 forgotten: what they send next goes elsewhere",
                self.name(place)
            );
        }
    }

    /// Whether it was a connection of this host, which is ended.
    fn kill(&mut self, place: Place, flow: &Doomed) -> io::Result<bool> {
        let interface = self.devices[place].as_ref().map_or(0, |device| device.interface);
        let mut refused = None;
        // Who began it is here, or who was called.
        for Tuple { source, destination } in [flow.original, flow.reply] {
            match self.killer.kill(source, destination, interface) {
                Ok(true) => return Ok(true),
                Ok(false) => {}
                Err(error) => refused = Some(error),
            }
        }
        refused.map_or(Ok(false), Err)
    }

    /// Whether connection tracking knew it until now.
    fn forget(&mut self, place: Place, flow: &Doomed) -> bool {
        let source = flow.original.source;
        self.conntrack.remove(source.is_ipv4(), &flow.key).unwrap_or_else(|error| {
            tracing::debug!("uplink `{}`: {source} cannot be forgotten: {error}", self.name(place));
            false
        })
    }

    /// Makes who is within send something, which the rules answer with a reset. Whether that could be sent.
    fn nudge(&mut self, place: Place, flow: &Doomed) -> bool {
        let own = &self.fleet.uplinks()[place];
        let address = flow.original.destination.ip();
        let is_from_without =
            own.site.addresses.contains(&address) || own.settings.prefixes.iter().any(|net| net.contains(address));
        let Tuple { source, destination } = if is_from_without { flow.reply } else { flow.original };
        let nudged = self.nudger.nudge(source, destination);
        if let Err(error) = &nudged {
            tracing::debug!("uplink `{}`: {source} cannot be nudged: {error}", self.name(place));
        }
        nudged.is_ok()
    }
}
