//! Messages `Socket`, written by the schema that `weirgate store proto` prints: what a message holds is not the exporter's word alone.

use std::collections::HashMap;

use crate::server::{done, weirgate};

/// The fields' numbers, by name.
pub(crate) struct Schema {
    numbers: HashMap<String, u64>,
}

impl Schema {
    pub(crate) fn load() -> Self {
        let text = done(&weirgate(&["store", "proto"]));
        let numbers = text
            .lines()
            .filter_map(|line| {
                let (left, number) = line.trim().strip_prefix("optional ")?.split_once(" = ")?;
                Some((left.split(' ').nth(1)?.to_owned(), number.trim_end_matches(';').parse().ok()?))
            })
            .collect();
        Self { numbers }
    }

    pub(crate) fn message(&self) -> Message<'_> {
        Message { schema: self, bytes: Vec::new() }
    }
}

/// A message while it is written.
#[derive(Clone)]
pub(crate) struct Message<'a> {
    schema: &'a Schema,
    bytes: Vec<u8>,
}

impl Message<'_> {
    pub(crate) fn number(mut self, name: &str, value: u64) -> Self {
        self.key(name, 0);
        varint(&mut self.bytes, value);
        self
    }

    pub(crate) fn bytes(mut self, name: &str, value: &[u8]) -> Self {
        self.key(name, 2);
        varint(&mut self.bytes, value.len() as u64);
        self.bytes.extend_from_slice(value);
        self
    }

    fn key(&mut self, name: &str, wire_type: u64) {
        varint(&mut self.bytes, self.schema.numbers[name] << 3 | wire_type);
    }

    /// By itself.
    pub(crate) fn single(&self) -> Vec<u8> {
        self.bytes.clone()
    }

    /// Behind its length.
    pub(crate) fn delimited(&self) -> Vec<u8> {
        let mut out = Vec::new();
        varint(&mut out, self.bytes.len() as u64);
        out.extend_from_slice(&self.bytes);
        out
    }
}

fn varint(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}
