//! When may this packet leave? Buckets, meters, gates and a timing wheel, handed the time by their caller.
//!
//! Nothing here reads a clock or allocates per packet, and threads that share a limit wait for each other for some instructions at most,
//! but while its rate is changed: then for as long as the thread that changes it is held up.
//!
//! - [`Bucket`] says from which instant on an amount of data conforms to a rate; [`take_all`] asks several limits and charges
//!   all or none. [`Aggregate`] is one limit for many threads, without a lock; [`Division`] one for many that pace.
//! - [`SrTcm`], [`TrTcm`] and [`EfTcm`] colour packets as RFC 2697, 2698 and 4115 have it.
//! - [`Gate`] holds back those who can be held back: it says which queue may be read now, and how much.
//!   [`Borrow`] is how it began, kept to be compared with.
//! - [`Pacer`] delays everybody else: flow queues, [`Codel`], chains of limits, and the timing [`Wheel`], which holds things
//!   until their instant and says when to ask again.
#![forbid(unsafe_code)]

mod aggregate;
mod borrow;
mod bucket;
mod chain;
mod codel;
mod division;
mod gate;
mod meter;
mod pacer;
mod sync;
mod wheel;

pub use aggregate::{Aggregate, LEASE_TIME, Member};
pub use borrow::Borrow;
pub use bucket::{Amount, Bucket, Short};
pub use chain::{Limit, Refused, take_all};
pub use codel::{Codel, Settings as CodelSettings};
pub use division::{Division, INTERVAL, Want, max_min};
pub use gate::{Gate, QueueId, quantum};
pub use meter::{Color, EfTcm, SrTcm, TrTcm};
pub use pacer::{ClassId, ClassSettings, Fate, Flow, LimitId, Load, Out, Pacer, Signal, granularity};
pub use wheel::{Bitmap, Wheel};
