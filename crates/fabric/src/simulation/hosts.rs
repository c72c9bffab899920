//! The hosts: flows that begin and end, what they send, what comes to them, and their timers.

use weirgate_units::Instant;

use super::{ALL, Simulation};
use crate::events::EventId;
use crate::flow::Flow;
use crate::packet::{Event, Kind, NO_FEEDBACK, Packet};
use crate::tcp::{Ack, Reply, Segment};
use crate::workload::Start;
use crate::{Span, Time};

impl Simulation {
    /// A packet has come to the host that it goes to.
    pub(super) fn receive(&mut self, now: Time, id: EventId) {
        let Event::Packet(packet) = self.events.take(id) else { return };
        let at = packet.flow;
        let flow = &mut self.flows[at];
        flow.events -= 1;
        match packet.kind {
            Kind::Data => {
                let segment = Segment {
                    number: packet.seq,
                    payload: packet.wire - self.settings.tcp.overhead,
                    is_marked: packet.ce,
                    sent: packet.sent,
                    entropy: packet.hash,
                };
                let had = flow.delivered(&self.settings.tcp);
                flow.receiver.handle_segment(&self.settings.tcp, now, &segment, &mut self.replies);
                self.measures.delivered += flow.delivered(&self.settings.tcp) - had;
                self.answer(now, at);
            }
            Kind::Ack => {
                let sent = packet.sent;
                let elapsed = ((now.as_picos() / 1_000) as u32).wrapping_sub(sent);
                let ack = Ack {
                    expected: packet.seq,
                    blocks: packet.sack,
                    is_marked: packet.ce,
                    rtt: Span::from_nanos(u64::from(elapsed)),
                };
                flow.handle_path(&mut self.hosts[flow.source as usize].chance, now, &packet);
                flow.sender.handle_ack(&self.settings.tcp, now, &ack);
                self.pump(now, at);
                self.end(at);
            }
        }
    }

    /// A flow's receiver has replied, or not; perhaps all of the flow is there.
    pub(super) fn answer(&mut self, now: Time, at: u32) {
        let mut replies = std::mem::take(&mut self.replies);
        for reply in replies.drain(..) {
            self.acknowledge(now, at, &reply);
        }
        self.replies = replies;
        let flow = &mut self.flows[at];
        if flow.receiver.is_done() && !flow.is_finished {
            flow.is_finished = true;
            let finished = flow.finished(now);
            if flow.is_measured {
                self.measures.finished.push(finished);
            }
            self.workload.handle_finished(now, &finished);
            self.arm_arrival();
        }
        self.arm(at);
        self.arm_shim(at);
        self.end(at);
    }

    pub(super) fn acknowledge(&mut self, now: Time, at: u32, reply: &Reply) {
        let flow = &mut self.flows[at];
        let [leaf, from_leaf] = [flow.source, flow.destination].map(|host| self.hosts[host as usize].leaf);
        let tree = flow.ack_turn.and_then(|turn| {
            let group = self.switches[self.leaf_switches[usize::from(from_leaf)] as usize].table.group(leaf)?;
            let turns = group.schedule.as_ref()?.turns();
            Some(turns[usize::from(turn) % turns.len()])
        });
        let packet = Packet {
            line: 0,
            flow: at,
            seq: reply.expected,
            hash: flow.ack_hash(reply),
            host: flow.source,
            sent: reply.sent,
            leaf,
            from_leaf,
            wire: self.settings.tcp.ack_wire,
            tree: tree.or(flow.ack_tree(reply)).unwrap_or(0),
            epoch: 0,
            kind: Kind::Ack,
            ce: reply.is_marked,
            uplink: 0,
            congestion: 0,
            feedback: NO_FEEDBACK,
            sack: reply.blocks,
        };
        flow.events += 1;
        let line = self.hosts[flow.destination as usize].line;
        let id = self.events.hold(Event::Packet(packet));
        self.send(now, now, id, line, ALL);
    }

    /// A flow's sender sends what it may.
    pub(super) fn pump(&mut self, now: Time, at: u32) {
        loop {
            let flow = &mut self.flows[at];
            let line = self.hosts[flow.source as usize].line;
            if flow.leaves_at > now + self.settings.tcp.host_queue {
                if !flow.is_waking && flow.sender.has_more() {
                    flow.is_waking = true;
                    flow.events += 1;
                    let waited = self.settings.tcp.host_queue.as_picos();
                    self.events.schedule(Time::from_picos(flow.leaves_at.as_picos() - waited), Event::Wake(at));
                }
                break;
            }
            let Some(segment) = flow.sender.poll_segment(&self.settings.tcp, now) else { break };
            let leaf = self.hosts[flow.destination as usize].leaf;
            let host = &mut self.hosts[flow.source as usize];
            let from_leaf = host.leaf;
            let group = self.switches[self.leaf_switches[usize::from(from_leaf)] as usize].table.group(leaf);
            let flow = &mut self.flows[at];
            let packet = flow.packet(&self.settings.tcp, &mut host.chance, now, segment, group);
            let packet = Packet { flow: at, leaf, from_leaf, ..packet };
            flow.events += 1;
            let id = self.events.hold(Event::Packet(packet));
            self.send(now, now, id, line, ALL);
            self.flows[at].leaves_at = self.lines[line as usize].free_at();
        }
        self.arm(at);
    }

    /// The flow's timer is set to what runs out first, unless it is set to something before.
    pub(super) fn arm(&mut self, at: u32) {
        let flow = &mut self.flows[at];
        let due = flow.sender.poll_at().min(flow.receiver.ack_at());
        if due >= flow.armed_at {
            return;
        }
        flow.armed_at = due;
        // Rounded up: what came out before it is due would go in again for the same nanosecond, for ever.
        let nanos = due.as_picos().div_ceil(1_000);
        self.timers.insert(Instant::from_nanos(nanos), (at, flow.generation));
        self.arm_timers();
    }

    pub(super) fn arm_timers(&mut self) {
        let Some(due) = self.timers.poll_at() else { return };
        let due = (Time::ZERO + Span::from_nanos(due.as_nanos())).max(self.now);
        if due < self.timers_at {
            self.timers_at = due;
            self.events.schedule(due, Event::Timers);
        }
    }

    pub(super) fn handle_timers(&mut self, now: Time) {
        if self.timers_at <= now {
            self.timers_at = Time::MAX;
        }
        while let Some((at, generation)) = self.timers.poll(now.to_instant()) {
            let Some(flow) = self.flows.get_mut(at, generation) else { continue };
            // What was set for later is set again.
            flow.armed_at = Time::MAX;
            if flow.receiver.ack_at() <= now {
                flow.receiver.handle_ack_due(&mut self.replies);
            }
            if flow.sender.poll_at() <= now {
                flow.sender.handle_timeout(&self.settings.tcp, now);
                flow.handle_path_timeout(&mut self.hosts[flow.source as usize].chance, now);
                self.pump(now, at);
            }
            self.answer(now, at);
        }
        self.arm_timers();
    }

    pub(super) fn arm_shim(&mut self, at: u32) {
        let flow = &mut self.flows[at];
        let due = flow.receiver.release_at();
        if due < flow.shim_at {
            flow.shim_at = due;
            flow.events += 1;
            self.events.schedule(due, Event::Shim(at));
        }
    }

    pub(super) fn handle_shim(&mut self, now: Time, at: u32) {
        let flow = &mut self.flows[at];
        flow.events -= 1;
        if flow.shim_at <= now {
            flow.shim_at = Time::MAX;
        }
        if flow.receiver.release_at() <= now {
            flow.receiver.handle_release(&self.settings.tcp, now, &mut self.replies);
        }
        self.answer(now, at);
    }

    /// Forgets a flow of which nothing is left.
    pub(super) fn end(&mut self, at: u32) {
        let flow = &self.flows[at];
        if flow.events == 0 && flow.sender.is_done() && flow.is_finished {
            self.flows.remove(at);
        }
    }

    pub(super) fn arm_arrival(&mut self) {
        let Some(due) = self.workload.poll_at().filter(|_| !self.measures.is_enough(self.now)) else { return };
        let due = due.max(self.now);
        if due < self.arrival_at {
            self.arrival_at = due;
            self.events.schedule(due, Event::Arrival);
        }
    }

    pub(super) fn start(&mut self, now: Time, start: Start) {
        let hosts = self.hosts.len() as u32;
        debug_assert!(start.source < hosts && start.destination < hosts && start.source != start.destination);
        let is_measured = self.measures.begin(now);
        if is_measured && self.measures.started == self.measures.limit {
            self.measures.carried = Some(self.carried_until_now());
        }
        let chance = &mut self.hosts[start.source as usize].chance;
        let at = self.flows.insert(Flow::new(&self.settings, chance, now, &start, is_measured));
        self.pump(now, at);
    }
}
