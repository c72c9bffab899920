//! A flow: its two ends, and how its host chooses paths.

use weirgate_balance::{Cells, FiveTuple, FlowHash, Label, LabelSettings, Reps};

use crate::chance::Chance;
use crate::measure::Finished;
use crate::packet::{Kind, NO_FEEDBACK, Packet};
use crate::routes::Group;
use crate::simulation::Settings;
use crate::tcp::{Receiver, Reply, Sender};
use crate::workload::Start;
use crate::{Scheme, Span, TcpSettings, Time};

/// A flow that is under way.
#[derive(Debug)]
pub(crate) struct Flow {
    pub(crate) sender: Sender,
    pub(crate) receiver: Receiver,
    /// The numbers of its hosts.
    pub(crate) source: u32,
    pub(crate) destination: u32,
    hash: u32,
    /// Payload of the last segment.
    last: u16,
    /// With Presto: the turn of the way back that all its ACKs take, a cell that does not end.
    pub(crate) ack_turn: Option<u16>,
    class: u8,
    pub(crate) is_measured: bool,
    pub(crate) is_waking: bool,
    /// All has arrived, and is counted.
    pub(crate) is_finished: bool,
    /// Packets and timers that will come to it.
    pub(crate) events: u32,
    /// Segments that were dropped or lost.
    pub(crate) lost: u32,
    /// Which flow this is of those that had its place.
    pub(crate) generation: u32,
    /// When its last packet leaves its host.
    pub(crate) leaves_at: Time,
    /// What its timer, and its shim's, is set to.
    pub(crate) armed_at: Time,
    pub(crate) shim_at: Time,
    pub(crate) began: Time,
    bytes: u64,
    path: Path,
}

/// How a host chooses paths.
#[derive(Debug)]
enum Path {
    /// It does not.
    Switches,
    Cells(Cells),
    Label(Box<LabelPath>),
    Reps(Box<Reps>),
}

#[derive(Debug)]
struct LabelPath {
    settings: LabelSettings,
    label: Label,
    acked: u64,
    marked: u64,
    /// The round trip ends with this segment.
    round: u32,
}

/// How long REPS uses old entropies only, after a timeout: what it takes routing to find a failure.
const REPS_PAUSE: Span = Span::from_micros(1_000);

impl Flow {
    pub(crate) fn new(settings: &Settings, chance: &mut Chance, now: Time, start: &Start, is_measured: bool) -> Self {
        let (total, last) = settings.tcp.segments(start.bytes);
        let port = chance.bits();
        let tuple = FiveTuple {
            source: address(start.source),
            destination: address(start.destination),
            protocol: 6,
            source_port: port as u16,
            destination_port: (port >> 16) as u16,
        };
        let path = match settings.scheme {
            Scheme::Presto => Path::Cells(Cells::new(u64::from(chance.bits()))),
            Scheme::Label(settings) => {
                let label = Label::new(chance);
                Path::Label(Box::new(LabelPath { settings, label, acked: 0, marked: 0, round: 0 }))
            }
            Scheme::Reps => Path::Reps(Box::new(Reps::new(u32::from(settings.tcp.initial_window)))),
            _ => Path::Switches,
        };
        Self {
            sender: Sender::new(&settings.tcp, total),
            receiver: Receiver::new(total),
            source: start.source,
            destination: start.destination,
            hash: FlowHash::new(&tuple, settings.seed).as_u64() as u32,
            last,
            ack_turn: matches!(path, Path::Cells(_)).then(|| chance.bits() as u16),
            class: start.class,
            is_measured,
            is_waking: false,
            is_finished: false,
            events: 0,
            lost: 0,
            generation: 0,
            leaves_at: Time::ZERO,
            armed_at: Time::MAX,
            shim_at: Time::MAX,
            began: now,
            bytes: start.bytes,
            path,
        }
    }

    /// The packet of a segment. `group`: the uplinks of its leaf, if it goes to another one.
    pub(crate) fn packet(
        &mut self,
        settings: &TcpSettings,
        chance: &mut Chance,
        now: Time,
        segment: u32,
        group: Option<&Group>,
    ) -> Packet {
        let payload = if segment + 1 == self.sender.total() { self.last } else { settings.mss };
        let (mut hash, mut tree) = (self.hash, 0);
        match &mut self.path {
            Path::Switches => {}
            Path::Cells(cells) => {
                if let Some(schedule) = group.and_then(|group| group.schedule.as_ref()) {
                    let cell = cells.next(schedule, weirgate_units::Bytes::new(u64::from(payload)));
                    tree = cell.tree;
                    // Above its leaf each flow begins with another one, as it does there.
                    hash = hash.wrapping_add((cell.number / schedule.turns().len() as u64) as u32);
                }
            }
            Path::Label(path) => hash ^= path.label.get() << 12,
            Path::Reps(reps) => hash = u32::from(reps.next(now.to_instant(), chance)),
        }
        Packet {
            line: 0,
            flow: 0,
            seq: segment,
            hash,
            host: self.destination,
            sent: (now.as_picos() / 1_000) as u32,
            leaf: 0,
            from_leaf: 0,
            wire: payload + settings.overhead,
            tree,
            epoch: 0,
            kind: Kind::Data,
            ce: false,
            uplink: 0,
            congestion: 0,
            feedback: NO_FEEDBACK,
            sack: [(0, 0); 3],
        }
    }

    /// What switches hash of an ACK: REPS sends the entropy back that the segment had.
    pub(crate) const fn ack_hash(&self, reply: &Reply) -> u32 {
        match self.path {
            Path::Reps(_) => reply.entropies[0],
            // Ports the other way around.
            _ => self.hash.rotate_left(16),
        }
    }

    /// What an ACK says beside that: REPS has it say what the segment before had, too.
    pub(crate) const fn ack_tree(&self, reply: &Reply) -> Option<u16> {
        match self.path {
            Path::Reps(_) => Some(reply.entropies[1] as u16),
            _ => None,
        }
    }

    /// An ACK says what the paths are like. Before the sender has it.
    pub(crate) fn handle_path(&mut self, chance: &mut Chance, now: Time, ack: &Packet) {
        let (una, next) = self.sender.window();
        match &mut self.path {
            Path::Switches | Path::Cells(_) => {}
            Path::Label(path) => {
                let new = u64::from(ack.seq.saturating_sub(una));
                path.acked += new;
                path.marked += if ack.ce { new } else { 0 };
                if ack.seq >= path.round {
                    let is_idle = ack.seq >= next;
                    path.label.handle_round(now.to_instant(), &path.settings, path.acked, path.marked, is_idle, chance);
                    (path.acked, path.marked, path.round) = (0, 0, next + 1);
                }
            }
            Path::Reps(reps) => {
                let last = ack.hash as u16;
                if ack.tree != last {
                    reps.handle_ack(ack.tree, ack.ce);
                }
                reps.handle_ack(last, ack.ce);
            }
        }
    }

    /// The sender's timer ran out.
    pub(crate) fn handle_path_timeout(&mut self, chance: &mut Chance, now: Time) {
        match &mut self.path {
            Path::Switches | Path::Cells(_) => {}
            Path::Label(path) => path.label.handle_timeout(now.to_instant(), &path.settings, chance),
            Path::Reps(reps) => {
                reps.handle_timeout(now.to_instant(), weirgate_units::Duration::from_nanos(REPS_PAUSE.as_nanos()));
            }
        }
    }

    /// Payload that its receiver has in order, in bytes.
    pub(crate) fn delivered(&self, settings: &TcpSettings) -> u64 {
        (u64::from(self.receiver.expected()) * u64::from(settings.mss)).min(self.bytes)
    }

    /// What is to be said of it when all has arrived.
    pub(crate) const fn finished(&self, now: Time) -> Finished {
        Finished {
            bytes: self.bytes,
            time: now.saturating_since(self.began),
            began: self.began,
            source: self.source,
            destination: self.destination,
            class: self.class,
            lost: self.lost,
            dup_acks: self.receiver.seen.dup_acks,
            dup_acks_of_short_last: self.receiver.seen.dup_acks_of_short_last,
            dup_ack_row: self.receiver.seen.dup_ack_row,
            sent_again: self.sender.sent_again,
            timeouts: self.sender.timeouts,
            batches: self.receiver.seen.batches,
        }
    }
}

/// A host's address: 10.0.0.0/8 by its number.
fn address(host: u32) -> core::net::IpAddr {
    let [_, b, c, d] = host.to_be_bytes();
    [10, b, c, d].into()
}

/// The flows that are under way, by number.
#[derive(Debug, Default)]
pub(crate) struct Flows {
    places: Vec<Option<Flow>>,
    free: Vec<u32>,
    generation: u32,
}

impl Flows {
    pub(crate) fn insert(&mut self, flow: Flow) -> u32 {
        self.generation = self.generation.wrapping_add(1);
        let flow = Some(Flow { generation: self.generation, ..flow });
        match self.free.pop() {
            Some(at) => {
                self.places[at as usize] = flow;
                at
            }
            None => {
                self.places.push(flow);
                (self.places.len() - 1) as u32
            }
        }
    }

    pub(crate) fn remove(&mut self, at: u32) {
        self.places[at as usize] = None;
        self.free.push(at);
    }

    /// The flow, if it is still that one.
    pub(crate) fn get_mut(&mut self, at: u32, generation: u32) -> Option<&mut Flow> {
        self.places[at as usize].as_mut().filter(|flow| flow.generation == generation)
    }

    /// Reads what the next packet to a flow will look at first.
    #[inline]
    pub(crate) fn fetch(&self, at: u32) -> u32 {
        let flow = self.places.get(at as usize).and_then(Option::as_ref);
        flow.map_or(0, |flow| flow.events.wrapping_add(flow.sender.total()).wrapping_add(flow.receiver.seen.batches))
    }

    /// All of them.
    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = &mut Flow> {
        self.places.iter_mut().flatten()
    }

    pub(crate) const fn len(&self) -> usize {
        self.places.len() - self.free.len()
    }
}

impl core::ops::Index<u32> for Flows {
    type Output = Flow;

    fn index(&self, at: u32) -> &Flow {
        self.places[at as usize].as_ref().expect("what comes to a flow keeps it")
    }
}

impl core::ops::IndexMut<u32> for Flows {
    fn index_mut(&mut self, at: u32) -> &mut Flow {
        self.places[at as usize].as_mut().expect("what comes to a flow keeps it")
    }
}
