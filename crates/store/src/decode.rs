//! Arrow columns back to records: the inverse of [`crate::columns`], by the same list of columns.

use arrow::array::{Array, AsArray, BooleanArray, DictionaryArray, PrimitiveArray, StringArray};
use arrow::datatypes::{ArrowPrimitiveType, TimestampNanosecondType, UInt8Type, UInt16Type, UInt32Type, UInt64Type};
use arrow::error::ArrowError;
use arrow::record_batch::RecordBatch;
use weirgate_sockets::record::{Direction, Origin, Record};
use weirgate_sockets::sample::{Arm, CcName, Field, Kind, Sample, flag, state};
use weirgate_units::{Prefix, UnixTime};

use crate::columns::{ARMS, CA_STATES, DIRECTIONS, KINDS, Number, STATES};
use crate::merge::conform;
use crate::presence::validity::*;
use crate::schema::numbers;

/// One record with its sample, which a [`Record`] only borrows.
#[derive(Clone, Copy)]
struct Row {
    sample: Sample,
    time: UnixTime,
    sequence: u32,
    direction: Direction,
    listener_port: u16,
    network_len: u8,
    asn: u32,
    delivery_rate_max: u64,
    country: [u8; 2],
}

/// Rows that are made at once: a block stays in the first-level cache while seventy columns fill it.
const BLOCK: usize = 64;

/// Calls `each` with every record of `batch`, until it says false; that is returned.
pub(crate) fn records(
    batch: &RecordBatch,
    each: &mut dyn FnMut(&Record<'_>, &Origin) -> bool,
) -> Result<bool, ArrowError> {
    let batch = conform(batch)?;
    let leading = Leading::of(&batch);
    let numbers = Numbers::of(&batch);
    let mut origins = Origins::of(&batch);
    let blank = Row {
        sample: Sample { len: size_of::<Sample>() as u16, ..Sample::default() },
        time: UnixTime::default(),
        sequence: 0,
        direction: Direction::Unknown,
        listener_port: 0,
        network_len: 0,
        asn: 0,
        delivery_rate_max: 0,
        country: [0; 2],
    };
    for start in (0..batch.num_rows()).step_by(BLOCK) {
        let mut rows = [blank; BLOCK];
        let rows = &mut rows[..BLOCK.min(batch.num_rows() - start)];
        leading.fill(start, rows);
        numbers.fill(start, rows);
        for (n, row) in rows.iter().enumerate() {
            let record = Record {
                sample: &row.sample,
                time: row.time,
                sequence: row.sequence,
                direction: row.direction,
                listener_port: row.listener_port,
                network: Prefix::of(row.sample.remote().ip(), row.network_len),
                asn: row.asn,
                delivery_rate_max: row.delivery_rate_max,
                country: row.country,
            };
            if !each(&record, origins.at(start + n)) {
                return Ok(false);
            }
        }
    }
    Ok(true)
}

macro_rules! number_arrays {
    ($($name:ident: $type:ident, $valid:ident, $unit:literal, $source:literal, $about:literal;)*) => {
        struct Numbers {
            $($name: PrimitiveArray<<$type as Number>::Arrow>,)*
        }

        impl Numbers {
            fn of(batch: &RecordBatch) -> Self {
                Self { $($name: column(batch, stringify!($name)).as_primitive().clone(),)* }
            }

            fn fill(&self, start: usize, rows: &mut [Row]) {
                $(
                    for (row, value) in rows.iter_mut().zip(&self.$name.values()[start..]) {
                        row.sample.$name = *value;
                    }
                    if $valid != ALWAYS {
                        for (n, row) in rows.iter_mut().enumerate() {
                            let valid = self.$name.is_valid(start + n);
                            row.sample.given |= u64::from(valid) << ($valid % 64);
                            row.sample.$name = if valid { row.sample.$name } else { 0 };
                        }
                    }
                )*
            }
        }
    };
}
numbers!(number_arrays);

struct Leading {
    time: PrimitiveArray<TimestampNanosecondType>,
    boot_time_ns: PrimitiveArray<UInt64Type>,
    kind: Keys<u8>,
    sequence: PrimitiveArray<UInt32Type>,
    direction: Keys<Direction>,
    local: arrow::array::FixedSizeBinaryArray,
    local_port: PrimitiveArray<UInt16Type>,
    remote: arrow::array::FixedSizeBinaryArray,
    remote_port: PrimitiveArray<UInt16Type>,
    listener_port: PrimitiveArray<UInt16Type>,
    network_len: PrimitiveArray<UInt8Type>,
    asn: PrimitiveArray<UInt32Type>,
    country: Keys<[u8; 2]>,
    state: Keys<u8>,
    cc: Keys<CcName>,
    ca_state: Keys<u8>,
    arm: Keys<u8>,
    flags: [(BooleanArray, u8); 6],
    delivery_rate_max: PrimitiveArray<UInt64Type>,
}

impl Leading {
    fn of(batch: &RecordBatch) -> Self {
        let by_place = |names: &'static [&'static str]| {
            move |text: &str| names.iter().position(|n| *n == text).map_or(0, |n| n as u8)
        };
        let state = |text: &str| (0..STATES).find(|n| state::name(*n) == text).unwrap_or(0);
        let direction = |text: &str| match DIRECTIONS.iter().position(|n| *n == text) {
            Some(0) => Direction::Accepted,
            Some(_) => Direction::Connected,
            None => Direction::Unknown,
        };
        let arm = |text: &str| match ARMS.iter().position(|n| *n == text) {
            Some(0) => Arm::Treated as u8,
            Some(_) => Arm::Holdout as u8,
            None => Arm::None as u8,
        };
        let country = |text: &str| text.as_bytes().try_into().unwrap_or_default();
        let flag = |name, bit| (column(batch, name).as_boolean().clone(), bit);
        Self {
            time: column(batch, "time").as_primitive().clone(),
            boot_time_ns: column(batch, "boot_time_ns").as_primitive().clone(),
            kind: Keys::of(batch, "kind", by_place(&KINDS)),
            sequence: column(batch, "sequence").as_primitive().clone(),
            direction: Keys::of(batch, "direction", direction),
            local: column(batch, "local").as_fixed_size_binary().clone(),
            local_port: column(batch, "local_port").as_primitive().clone(),
            remote: column(batch, "remote").as_fixed_size_binary().clone(),
            remote_port: column(batch, "remote_port").as_primitive().clone(),
            listener_port: column(batch, "listener_port").as_primitive().clone(),
            network_len: column(batch, "network_len").as_primitive().clone(),
            asn: column(batch, "asn").as_primitive().clone(),
            country: Keys::of(batch, "country", country),
            state: Keys::of(batch, "state", state),
            cc: Keys::of(batch, "cc", |text| CcName::from_kernel(text.as_bytes())),
            ca_state: Keys::of(batch, "ca_state", by_place(&CA_STATES)),
            arm: Keys::of(batch, "arm", arm),
            flags: [
                flag("switched", flag::SWITCHED),
                flag("app_limited", flag::APP_LIMITED),
                flag("ecn", flag::ECN),
                flag("ecn_seen", flag::ECN_SEEN),
                flag("timestamps", flag::TIMESTAMPS),
                flag("sack", flag::SACK),
            ],
            delivery_rate_max: column(batch, "delivery_rate_max").as_primitive().clone(),
        }
    }

    fn fill(&self, start: usize, rows: &mut [Row]) {
        for (n, row) in rows.iter_mut().enumerate() {
            let at = start + n;
            let direction = self.direction.get(at).unwrap_or_default();
            let address = |a: &arrow::array::FixedSizeBinaryArray| a.value(at).try_into().unwrap_or_default();
            row.time = UnixTime::from_nanos(u64::try_from(self.time.value(at)).unwrap_or(0));
            row.sequence = self.sequence.value(at);
            row.direction = direction;
            row.listener_port = or_zero(&self.listener_port, at);
            row.network_len = self.network_len.value(at);
            row.asn = or_zero(&self.asn, at);
            row.delivery_rate_max = or_zero(&self.delivery_rate_max, at);
            row.country = self.country.get(at).unwrap_or_default();
            let sample = &mut row.sample;
            sample.time_ns = self.boot_time_ns.value(at);
            sample.kind = self.kind.get(at).unwrap_or(Kind::Poll as u8);
            sample.state = self.state.get(at).unwrap_or(0);
            sample.ca_state = self.ca_state.get(at).unwrap_or(0);
            sample.arm = self.arm.get(at).unwrap_or(Arm::None as u8);
            sample.local = address(&self.local);
            sample.remote = address(&self.remote);
            sample.local_port = or_zero(&self.local_port, at);
            sample.remote_port = or_zero(&self.remote_port, at);
            sample.family = if sample.remote().is_ipv4() { 4 } else { 6 };
            if let Some(cc) = self.cc.get(at) {
                sample.cc = cc;
                sample.set_given(Field::Cc);
            }
            for (column, bit) in &self.flags {
                sample.flags |= if column.is_valid(at) && column.value(at) { *bit } else { 0 };
            }
            sample.flags |= match direction {
                Direction::Accepted => flag::ACCEPTED,
                Direction::Connected => flag::CONNECTED,
                Direction::Unknown => 0,
            };
        }
    }
}

fn or_zero<T: ArrowPrimitiveType>(column: &PrimitiveArray<T>, at: usize) -> T::Native {
    if column.is_valid(at) { column.value(at) } else { T::Native::default() }
}

/// A dictionary column whose values were read once.
struct Keys<T> {
    keys: PrimitiveArray<UInt8Type>,
    values: Vec<T>,
}

impl<T: Copy> Keys<T> {
    fn of(batch: &RecordBatch, name: &str, read: impl Fn(&str) -> T) -> Self {
        let column: &DictionaryArray<UInt8Type> = column(batch, name).as_dictionary();
        let values = column.values().as_string::<i32>();
        let values = (0..values.len()).map(|n| read(values.value(n))).collect();
        Self { keys: column.keys().clone(), values }
    }

    fn get(&self, at: usize) -> Option<T> {
        if self.keys.is_valid(at) { self.values.get(usize::from(self.keys.value(at))).copied() } else { None }
    }
}

/// The origin of each row: the same for all of a file, unless files of several hosts were merged by hand.
struct Origins {
    columns: [(PrimitiveArray<UInt8Type>, StringArray); 3],
    last: Option<[Option<u8>; 3]>,
    origin: Origin,
}

impl Origins {
    fn of(batch: &RecordBatch) -> Self {
        let parts = |name| {
            let column: &DictionaryArray<UInt8Type> = column(batch, name).as_dictionary();
            (column.keys().clone(), column.values().as_string().clone())
        };
        let origin = Origin { host: String::new(), pop: String::new(), boot_id: String::new() };
        Self { columns: ["host", "pop", "boot_id"].map(parts), last: None, origin }
    }

    fn at(&mut self, at: usize) -> &Origin {
        let keys = [0, 1, 2].map(|n: usize| {
            let keys = &self.columns[n].0;
            keys.is_valid(at).then(|| keys.value(at))
        });
        if self.last != Some(keys) {
            let text = |n: usize| keys[n].map_or_else(String::new, |k| self.columns[n].1.value(k.into()).to_owned());
            self.origin = Origin { host: text(0), pop: text(1), boot_id: text(2) };
            self.last = Some(keys);
        }
        &self.origin
    }
}

fn column<'a>(batch: &'a RecordBatch, name: &str) -> &'a dyn Array {
    batch.column_by_name(name).expect("`conform` gives every column").as_ref()
}
