//! Records to Arrow columns: 64 rows are copied beside each other, then turned into columns at once.
//!
//! A record has more than seventy values. Appending each to its own builder as it comes touches seventy places per
//! record, each with a bounds check, a null bit and a length. Instead [`Encoder::push`] copies the record into a block
//! of 64 rows (29 KB, which stays in the first-level cache), and a full block is turned: one tight loop per column, and
//! one transposition of 64 x 64 bits that gives the null bits and the booleans of all columns together. Nothing is
//! allocated per record; a batch of [`BATCH_ROWS`] allocates each column once.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, BooleanArray, DictionaryArray, FixedSizeBinaryArray, PrimitiveArray, StringArray};
use arrow::buffer::{BooleanBuffer, Buffer, NullBuffer, ScalarBuffer};
use arrow::datatypes::{ArrowPrimitiveType, TimestampNanosecondType, UInt8Type, UInt16Type, UInt32Type, UInt64Type};
use arrow::record_batch::RecordBatch;
use weirgate_sockets::record::{Direction, Origin, Record};
use weirgate_sockets::sample::{Arm, CcName, Kind, Sample, state};

use crate::anonymise::Anonymise;
use crate::presence::validity::*;
use crate::presence::{bits, present};
use crate::schema::{FILE_SCHEMA, numbers};

/// Rows in one batch: 0.8 MB of columns, a few of which may wait for the disk at once.
pub(crate) const BATCH_ROWS: usize = 2_048;
/// Rows turned into columns at once: the bits of a word.
const BLOCK: usize = 64;

pub(crate) const KINDS: [&str; 2] = ["poll", "close"];
pub(crate) const DIRECTIONS: [&str; 2] = ["accepted", "connected"];
pub(crate) const ARMS: [&str; 2] = ["treated", "holdout"];
pub(crate) const CA_STATES: [&str; 6] = ["Open", "Disorder", "CWR", "Recovery", "Loss", "?"];

/// Number types of the columns.
pub(crate) trait Number: arrow::datatypes::ArrowNativeType {
    type Arrow: ArrowPrimitiveType<Native = Self>;
}
impl Number for u8 {
    type Arrow = UInt8Type;
}
impl Number for u16 {
    type Arrow = UInt16Type;
}
impl Number for u32 {
    type Arrow = UInt32Type;
}
impl Number for u64 {
    type Arrow = UInt64Type;
}

/// A record while its block fills: what [`Record`] borrows, copied.
#[derive(Clone, Copy)]
struct Row {
    sample: Sample,
    bits: u64,
    time_ns: i64,
    sequence: u32,
    delivery_rate_max: u64,
    asn: u32,
    listener_port: u16,
    network_len: u8,
    direction: u8,
    cc: u8,
    country: u8,
}

/// The columns of one batch that are not a copied number, while it grows; `network_len` and others as the files have
/// them.
#[derive(Default)]
struct Leading {
    time: Vec<i64>,
    boot_time_ns: Vec<u64>,
    kind: Vec<u8>,
    sequence: Vec<u32>,
    direction: Vec<u8>,
    local: Vec<i128>,
    local_port: Vec<u16>,
    remote: Vec<i128>,
    remote_port: Vec<u16>,
    listener_port: Vec<u16>,
    network_len: Vec<u8>,
    asn: Vec<u32>,
    country: Vec<u8>,
    state: Vec<u8>,
    cc: Vec<u8>,
    ca_state: Vec<u8>,
    arm: Vec<u8>,
    delivery_rate_max: Vec<u64>,
}

macro_rules! number_vecs {
    ($($name:ident: $type:ident, $valid:ident, $unit:literal, $source:literal, $about:literal;)*) => {
        /// The columns of one batch that are copied numbers, while it grows.
        #[derive(Default)]
        struct Numbers {
            $($name: Vec<$type>,)*
        }

        impl Numbers {
            fn reserve(&mut self) {
                $(self.$name.reserve_exact(BATCH_ROWS);)*
            }

            fn extend(&mut self, rows: &[Row]) {
                $(self.$name.extend(rows.iter().map(|r| r.sample.$name));)*
            }

            /// The columns, in the order of the schema.
            fn into_arrays(self, nulls: &mut Nulls<'_>, out: &mut Vec<ArrayRef>) {
                $(out.push(number(self.$name, nulls.of($valid)));)*
            }
        }
    };
}
numbers!(number_vecs);

/// Turns records into Arrow batches with the columns of the files ([`crate::schema::FILE_SCHEMA`]): what
/// [`Writer`](crate::Writer) does with them before it writes, and what anybody does who sends them elsewhere.
pub struct Encoder {
    block: Vec<Row>,
    leading: Leading,
    numbers: Numbers,
    bits: Vec<[u64; BLOCK]>,
    rows: usize,
    anonymise: Anonymise,
    ccs: Names,
    countries: Countries,
    /// The same text in every row, and the keys that say so.
    host: Arc<StringArray>,
    pop: Arc<StringArray>,
    boot_id: Arc<StringArray>,
    zeros: Buffer,
}

impl Encoder {
    /// An encoder of `origin`'s records.
    pub fn new(origin: &Origin, anonymise: Anonymise) -> Self {
        let one = |text: &str| Arc::new(StringArray::from(vec![text]));
        Self {
            block: Vec::with_capacity(BLOCK),
            leading: Leading::default(),
            numbers: Numbers::default(),
            bits: Vec::with_capacity(BATCH_ROWS / BLOCK),
            rows: 0,
            anonymise,
            ccs: Names::default(),
            countries: Countries::default(),
            host: one(&origin.host),
            pop: one(&origin.pop),
            boot_id: one(&origin.boot_id),
            zeros: Buffer::from(vec![0u8; BATCH_ROWS]),
        }
    }

    /// Adds `record`; true when the batch has 2,048 rows and must be [taken](Encoder::take).
    pub fn push(&mut self, record: &Record<'_>) -> bool {
        let sample = record.sample;
        let (cc, cc_known) = self.ccs.key(sample.cc);
        let (country, country_known) = self.countries.key(record.country);
        let row = Row {
            sample: *sample,
            bits: 0,
            time_ns: i64::try_from(record.time.as_nanos()).unwrap_or(i64::MAX),
            sequence: record.sequence,
            delivery_rate_max: record.delivery_rate_max,
            asn: record.asn,
            listener_port: record.listener_port,
            network_len: record.network.len(),
            direction: record.direction as u8,
            cc,
            country,
        };
        self.block.push(row);
        if let Some(row) = self.block.last_mut() {
            present(record, self.anonymise, &mut row.sample);
            row.bits = bits(record, &row.sample, cc_known, country_known);
        }
        if self.block.len() == BLOCK {
            self.turn();
        }
        self.rows + self.block.len() >= BATCH_ROWS
    }

    /// The rows so far as a batch, `None` where there are none; the next batch begins empty.
    pub fn take(&mut self) -> Option<RecordBatch> {
        self.turn();
        let rows = core::mem::take(&mut self.rows);
        if rows == 0 {
            return None;
        }
        let c = core::mem::take(&mut self.leading);
        let mut nulls = Nulls { bits: &self.bits, rows, made: vec![None; BLOCK] };
        let text = |keys: Vec<u8>, nulls: Option<NullBuffer>, values: &[&str]| {
            dictionary(keys.into(), nulls, Arc::new(StringArray::from(values.to_vec())))
        };
        let same = |values: &Arc<StringArray>| {
            let nulls = values.value(0).is_empty().then(|| NullBuffer::new_null(rows));
            dictionary(ScalarBuffer::new(self.zeros.clone(), 0, rows), nulls, Arc::clone(values))
        };
        let mut out: Vec<ArrayRef> = vec![
            Arc::new(PrimitiveArray::<TimestampNanosecondType>::new(c.time.into(), None).with_timezone("UTC")),
            number(c.boot_time_ns, None),
            same(&self.host),
            same(&self.pop),
            same(&self.boot_id),
            text(c.kind, None, &KINDS),
            number(c.sequence, None),
            text(c.direction, nulls.of(DIRECTION), &DIRECTIONS),
            addresses(c.local),
            number(c.local_port, nulls.of(LOCAL_PORT)),
            addresses(c.remote),
            number(c.remote_port, nulls.of(REMOTE_PORT)),
            number(c.listener_port, nulls.of(LISTENER_PORT)),
            number(c.network_len, None),
            number(c.asn, nulls.of(ASN)),
            dictionary(c.country.into(), nulls.of(COUNTRY), self.countries.values()),
            text(c.state, None, &states()),
            dictionary(c.cc.into(), nulls.of(CC_KNOWN), self.ccs.values()),
            text(c.ca_state, nulls.of(TCP_INFO), &CA_STATES),
            text(c.arm, nulls.of(ARM), &ARMS),
            booleans(nulls.bit(SWITCHED), None),
            booleans(nulls.bit(APP_LIMITED), nulls.of(DELIVERY_RATE)),
            booleans(nulls.bit(ECN), nulls.of(TCP_INFO)),
            booleans(nulls.bit(ECN_SEEN), nulls.of(TCP_INFO)),
            booleans(nulls.bit(TIMESTAMPS), nulls.of(TCP_INFO)),
            booleans(nulls.bit(SACK), nulls.of(TCP_INFO)),
            number(c.delivery_rate_max, nulls.of(DELIVERY_RATE_MAX)),
        ];
        core::mem::take(&mut self.numbers).into_arrays(&mut nulls, &mut out);
        self.bits.clear();
        Some(RecordBatch::try_new(FILE_SCHEMA.clone(), out).expect("the columns are made in the schema's order"))
    }

    /// Turns the block's rows into columns and empties it.
    fn turn(&mut self) {
        let rows = self.block.as_slice();
        if rows.is_empty() {
            return;
        }
        if self.rows == 0 {
            self.leading.reserve();
            self.numbers.reserve();
        }
        let mut bits = [0; BLOCK];
        for (to, row) in bits.iter_mut().zip(rows) {
            *to = row.bits;
        }
        transpose(&mut bits);
        self.bits.push(bits);
        self.leading.extend(rows);
        self.numbers.extend(rows);
        self.rows += rows.len();
        self.block.clear();
    }
}

impl Leading {
    fn reserve(&mut self) {
        self.time.reserve_exact(BATCH_ROWS);
        self.boot_time_ns.reserve_exact(BATCH_ROWS);
        self.kind.reserve_exact(BATCH_ROWS);
        self.sequence.reserve_exact(BATCH_ROWS);
        self.direction.reserve_exact(BATCH_ROWS);
        self.local.reserve_exact(BATCH_ROWS);
        self.local_port.reserve_exact(BATCH_ROWS);
        self.remote.reserve_exact(BATCH_ROWS);
        self.remote_port.reserve_exact(BATCH_ROWS);
        self.listener_port.reserve_exact(BATCH_ROWS);
        self.network_len.reserve_exact(BATCH_ROWS);
        self.asn.reserve_exact(BATCH_ROWS);
        self.country.reserve_exact(BATCH_ROWS);
        self.state.reserve_exact(BATCH_ROWS);
        self.cc.reserve_exact(BATCH_ROWS);
        self.ca_state.reserve_exact(BATCH_ROWS);
        self.arm.reserve_exact(BATCH_ROWS);
        self.delivery_rate_max.reserve_exact(BATCH_ROWS);
    }

    fn extend(&mut self, rows: &[Row]) {
        self.time.extend(rows.iter().map(|r| r.time_ns));
        self.boot_time_ns.extend(rows.iter().map(|r| r.sample.time_ns));
        self.kind.extend(rows.iter().map(|r| u8::from(r.sample.kind() == Kind::Close)));
        self.sequence.extend(rows.iter().map(|r| r.sequence));
        self.direction.extend(rows.iter().map(|r| u8::from(r.direction == Direction::Connected as u8)));
        self.local.extend(rows.iter().map(|r| i128::from_ne_bytes(r.sample.local)));
        self.local_port.extend(rows.iter().map(|r| r.sample.local_port));
        self.remote.extend(rows.iter().map(|r| i128::from_ne_bytes(r.sample.remote)));
        self.remote_port.extend(rows.iter().map(|r| r.sample.remote_port));
        self.listener_port.extend(rows.iter().map(|r| r.listener_port));
        self.network_len.extend(rows.iter().map(|r| r.network_len));
        self.asn.extend(rows.iter().map(|r| r.asn));
        self.country.extend(rows.iter().map(|r| r.country));
        self.state.extend(rows.iter().map(|r| if r.sample.state < STATES { r.sample.state } else { 0 }));
        self.cc.extend(rows.iter().map(|r| r.cc));
        self.ca_state.extend(rows.iter().map(|r| r.sample.ca_state.min(CA_STATES.len() as u8 - 1)));
        self.arm.extend(rows.iter().map(|r| u8::from(r.sample.arm() == Arm::Holdout)));
        self.delivery_rate_max.extend(rows.iter().map(|r| r.delivery_rate_max));
    }
}

/// The states that the kernel numbers; 0 is none of them.
pub(crate) const STATES: u8 = state::NEW_SYN_RECV + 1;

/// The names of all states, by number.
fn states() -> [&'static str; STATES as usize] {
    core::array::from_fn(|n| state::name(n as u8))
}

/// Mirrors a square of bits at its diagonal: bit `c` of word `r` becomes bit `r` of word `c`.
/// Hacker's Delight (Warren, 2nd ed.), figure 7-6, for 64 bits and with bit 0 first. 192 steps.
fn transpose(words: &mut [u64; BLOCK]) {
    let mut j = 32;
    let mut mask = u64::MAX >> 32;
    while j != 0 {
        let mut k = 0;
        while k < BLOCK {
            let t = (words[k] >> j ^ words[k + j]) & mask;
            words[k] ^= t << j;
            words[k + j] ^= t;
            k = ((k | j) + 1) & !j;
        }
        j >>= 1;
        mask ^= mask << j;
    }
}

/// The null bits of a batch, each made once and then shared by the columns that are given together.
struct Nulls<'a> {
    bits: &'a [[u64; BLOCK]],
    rows: usize,
    made: Vec<Option<Option<NullBuffer>>>,
}

impl Nulls<'_> {
    /// The null bits that are bit `bit` of each row; `None` where no row is NULL.
    fn of(&mut self, bit: u32) -> Option<NullBuffer> {
        if bit == ALWAYS {
            return None;
        }
        let bits = self.bit(bit);
        self.made[bit as usize]
            .get_or_insert_with(|| Some(NullBuffer::new(bits)).filter(|nulls| nulls.null_count() > 0))
            .clone()
    }

    /// Bit `bit` of each row.
    fn bit(&self, bit: u32) -> BooleanBuffer {
        let words: Vec<u64> = self.bits.iter().map(|block| block[bit as usize]).collect();
        BooleanBuffer::new(Buffer::from_vec(words), 0, self.rows)
    }
}

/// Congestion controls by name, in the order they were first seen; the 256th and later read as NULL.
#[derive(Default)]
struct Names {
    names: Vec<CcName>,
    last: u8,
    array: Option<Arc<StringArray>>,
}

impl Names {
    /// The name's key and whether it has one.
    fn key(&mut self, name: CcName) -> (u8, bool) {
        if self.names.get(self.last as usize) == Some(&name) {
            return (self.last, true);
        }
        let at = self.names.iter().position(|n| *n == name).unwrap_or_else(|| {
            if self.names.len() < 255 {
                self.names.push(name);
                self.array = None;
                return self.names.len() - 1;
            }
            usize::MAX
        });
        match u8::try_from(at) {
            Ok(key) => {
                self.last = key;
                (key, true)
            }
            Err(_) => (0, false),
        }
    }

    fn values(&mut self) -> Arc<StringArray> {
        let names = &self.names;
        Arc::clone(self.array.get_or_insert_with(|| Arc::new(names.iter().map(|n| Some(n.as_str())).collect())))
    }
}

/// Countries by code, in the order they were first seen; two capital letters or NULL, and the 256th is NULL (there are
/// 249).
struct Countries {
    /// One more than the key of each pair of letters, 0 where it was never seen.
    keys: [u8; 26 * 26],
    codes: Vec<[u8; 2]>,
    array: Option<Arc<StringArray>>,
}

impl Default for Countries {
    fn default() -> Self {
        Self { keys: [0; 26 * 26], codes: Vec::new(), array: None }
    }
}

impl Countries {
    /// The code's key and whether it has one.
    fn key(&mut self, code: [u8; 2]) -> (u8, bool) {
        let [a, b] = code.map(|letter| usize::from(letter.wrapping_sub(b'A')));
        if a >= 26 || b >= 26 {
            return (0, false);
        }
        let slot = &mut self.keys[a * 26 + b];
        if *slot == 0 {
            if self.codes.len() >= 255 {
                return (0, false);
            }
            self.codes.push(code);
            self.array = None;
            *slot = self.codes.len() as u8;
        }
        (*slot - 1, true)
    }

    fn values(&mut self) -> Arc<StringArray> {
        let codes = &self.codes;
        let text = |code: &[u8; 2]| code.iter().map(|b| char::from(*b)).collect::<String>();
        Arc::clone(self.array.get_or_insert_with(|| Arc::new(codes.iter().map(|c| Some(text(c))).collect())))
    }
}

fn number<T: Number>(values: Vec<T>, nulls: Option<NullBuffer>) -> ArrayRef {
    Arc::new(PrimitiveArray::<T::Arrow>::new(values.into(), nulls))
}

fn booleans(values: BooleanBuffer, nulls: Option<NullBuffer>) -> ArrayRef {
    Arc::new(BooleanArray::new(values, nulls))
}

fn addresses(values: Vec<i128>) -> ArrayRef {
    Arc::new(FixedSizeBinaryArray::new(16, Buffer::from_vec(values), None))
}

/// `keys` into `values`. Keys of NULL rows may be anything below 256, so an empty dictionary makes all rows NULL.
fn dictionary(keys: ScalarBuffer<u8>, nulls: Option<NullBuffer>, values: Arc<StringArray>) -> ArrayRef {
    let nulls = if values.is_empty() { Some(NullBuffer::new_null(keys.len())) } else { nulls };
    let keys = PrimitiveArray::<UInt8Type>::new(keys, nulls);
    Arc::new(DictionaryArray::try_new(keys, values).expect("keys are handed out with their values"))
}
