//! The eight bits of firewall and connection marks that are ours. The others are the admin's and stay as they are.
//!
//! The lower seven name an uplink, from 1; the highest says that the daemon itself sent it, so that its questions are no flows. All eight:
//! what connection tracking is not to see at all (see `linux::nudge`).

use super::UPLINKS_MAX;

/// Where the eight bits begin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Marks {
    shift: u8,
}

impl Default for Marks {
    /// The highest: others count from the lowest, or take the second byte from above (Tailscale) or the lower half (Kubernetes, WireGuard's
    /// `wg-quick`, mwan3).
    fn default() -> Self {
        Self { shift: Self::SHIFT_MAX }
    }
}

impl Marks {
    /// Of 32 bits the last eight.
    pub(crate) const SHIFT_MAX: u8 = 24;

    /// Bits from `shift` on, at most [`Self::SHIFT_MAX`].
    pub(crate) fn new(shift: u8) -> Self {
        Self { shift: shift.min(Self::SHIFT_MAX) }
    }

    /// All eight bits.
    pub(crate) const fn mask(self) -> u32 {
        0xff << self.shift
    }

    /// Those that name an uplink.
    pub(crate) const fn names(self) -> u32 {
        0x7f << self.shift
    }

    /// The bits of an uplink.
    pub(crate) const fn of(self, place: usize) -> u32 {
        (place as u32 + 1) << self.shift
    }

    /// The bits of what the daemon itself sends by it.
    pub(crate) const fn own(self, place: usize) -> u32 {
        self.of(place) | 0x80 << self.shift
    }

    /// The bits of what is not tracked.
    pub(crate) const fn untracked(self) -> u32 {
        self.mask()
    }

    /// Which uplink a mark names, and whether the daemon sent it; `None`: none.
    pub(crate) const fn read(self, mark: u32) -> Option<(usize, bool)> {
        let bits = (mark & self.mask()) >> self.shift;
        match (bits & 0x7f) as usize {
            name @ 1..=UPLINKS_MAX => Some((name - 1, bits & 0x80 != 0)),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn marks_name_uplinks_whatever_else_they_say() {
        for marks in [Marks::default(), Marks::new(0), Marks::new(13), Marks::new(200)] {
            for place in 0..UPLINKS_MAX {
                let others = !marks.mask();
                assert_eq!(marks.read(marks.of(place) | others), Some((place, false)));
                assert_eq!(marks.read(marks.own(place)), Some((place, true)));
                assert_eq!(marks.of(place) & others, 0);
                assert_ne!(marks.own(place), marks.untracked());
            }
            assert_eq!([marks.read(0), marks.read(!marks.mask()), marks.read(marks.untracked())], [None; 3]);
            assert_eq!(marks.read(marks.of(UPLINKS_MAX)), None);
        }
        assert_eq!((Marks::default().mask(), Marks::default().of(0)), (0xff00_0000, 0x0100_0000));
        // What looks routes up past ours names no uplink (`route_cc::LOOKUP_MARK`).
        assert_eq!(Marks::default().read(weirgate_linux::route_cc::LOOKUP_MARK), None);
    }
}
