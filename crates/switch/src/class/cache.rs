//! Remembering the classes of flows.
//!
//! Whether it pays is a matter of the rules. `cargo bench -p weirgate-switch class`, 1,000 rules, 64 to 4,096 flows, 4,096
//! places, two cores of an AMD EPYC with other work on them: by VLAN 19 to 37 ns without and 31 to 63 with, by source networks of
//! one length 90 and 31 to 109, of nine lengths, with protocol and ports, 220 to 310 and 34 to 180. So: where rules ask for
//! networks of several lengths, and nowhere else ([`Cached::where_it_pays`]).

use super::Classifier;
use crate::frame::{FlowKey, Fragment, Frame};

/// A [`Classifier`] that remembers its last answers: of each frame that hashes to the same place, the last one's.
///
/// An answer is found by comparing all that rules can ask about, so a wrong one is impossible; frames that are not whole IP
/// packets are not remembered. Constant memory, and constant time beside that of the classifier.
#[derive(Clone, Debug)]
pub struct Cached<C> {
    classifier: Classifier<C>,
    places: Box<[Option<Answer<C>>]>,
    seed: u64,
}

#[derive(Clone, Copy, Debug)]
struct Answer<C> {
    key: Key,
    class: Option<C>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Key {
    flow: FlowKey,
    port: u16,
    vlan: u16,
    dscp: u8,
}

/// Places where remembering pays: 300 KB.
const PLACES: u32 = 4_096;

impl<C: Copy> Cached<C> {
    /// One that remembers if its rules ask for networks of several lengths, and else asks the classifier each time.
    pub fn where_it_pays(classifier: Classifier<C>, seed: u64) -> Self {
        if classifier.lengths() > 1 {
            Self::new(classifier, PLACES, seed)
        } else {
            Self { classifier, places: Box::default(), seed }
        }
    }

    /// Room for `places` answers, rounded up to a power of two, at most 65,536. `seed` keeps others from choosing flows that
    /// share a place.
    pub fn new(classifier: Classifier<C>, places: u32, seed: u64) -> Self {
        let places = places.clamp(1, 65_536).next_power_of_two() as usize;
        Self { classifier, places: vec![None; places].into_boxed_slice(), seed }
    }

    /// As [`Classifier::classify`], from memory where it is there.
    #[inline]
    pub fn classify(&mut self, port: u16, frame: &Frame) -> Option<C> {
        if self.places.is_empty() { self.classifier.classify(port, frame) } else { self.remembered(port, frame) }
    }

    fn remembered(&mut self, port: u16, frame: &Frame) -> Option<C> {
        let whole = frame.ip.as_ref().filter(|ip| ip.fragment == Fragment::Whole);
        let Some((ip, flow)) = whole.zip(frame.flow()) else {
            return self.classifier.classify(port, frame);
        };
        let key = Key { flow, port, vlan: frame.vlan(), dscp: ip.dscp };
        let hash = flow.hash(self.seed ^ u64::from(port) << 32 ^ u64::from(key.vlan) << 8 ^ u64::from(ip.dscp));
        let place = &mut self.places[hash as usize & (self.places.len() - 1)];
        match place {
            Some(answer) if answer.key == key => answer.class,
            _ => {
                let class = self.classifier.classify(port, frame);
                *place = Some(Answer { key, class });
                class
            }
        }
    }

    /// The classifier.
    pub const fn classifier(&self) -> &Classifier<C> {
        &self.classifier
    }
}
