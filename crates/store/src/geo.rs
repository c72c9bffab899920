//! Autonomous system and country of a client network, out of files in MaxMind's format.
//!
//! Read first: the MaxMind DB file format, version 2.0 (a binary trie over address bits, records as maps).
//!
//! Any file of the format will do, from whomever: `autonomous_system_number`, `country.iso_code` and
//! `registered_country.iso_code` are looked for, and `asn` and `country` or `country_code` as plain text, as some
//! vendors write them. Several files complete each other, the first that knows wins. A file is read into memory
//! whole (the free ones are about 10 MB each), and again when it changed.
//!
//! One answer per client network, that of its first address, so that answers can be remembered: looking one up takes a
//! few microseconds, remembering it a few nanoseconds. A database that splits a /24 is followed to the /24 only.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use hashbrown::HashMap;
use maxminddb::{MaxMindDbError, PathElement, Reader};
use weirgate_units::Prefix;

/// Networks whose answer is remembered; then all is forgotten and asked again. 2.6 MB, more networks than an edge talks
/// to in an hour.
const REMEMBERED_MAX: usize = 1 << 16;

/// Where a network is. What no file knows is zero, as in a [`Record`](weirgate_sockets::record::Record).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Place {
    /// Autonomous system number.
    pub asn: u32,
    /// ISO 3166-1 alpha-2, two capital letters.
    pub country: [u8; 2],
}

/// Why a database cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum GeoError {
    /// It is not there or cannot be read.
    #[error("cannot read the geo database {}: {source}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// What the operating system said.
        source: io::Error,
    },
    /// It is something else, or half of it.
    #[error("{} is not a database in MaxMind's format ({source}): download it again", path.display())]
    Format {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        source: MaxMindDbError,
    },
}

/// The databases and what they answered lately.
pub struct Geo {
    databases: Vec<Database>,
    remembered: HashMap<Prefix, Place>,
    last: Option<(Prefix, Place)>,
}

struct Database {
    path: PathBuf,
    stamp: Stamp,
    reader: Reader<Vec<u8>>,
}

/// By which a changed file is known.
type Stamp = (u64, Option<SystemTime>);

impl Geo {
    /// Reads the files at `paths`; any that cannot be used is an error.
    pub fn open(paths: &[PathBuf]) -> Result<Self, GeoError> {
        let databases = paths.iter().map(|path| Database::open(path)).collect::<Result<_, _>>()?;
        Ok(Self { databases, remembered: HashMap::new(), last: None })
    }

    /// Where `network` is.
    pub fn place(&mut self, network: Prefix) -> Place {
        if let Some((last, place)) = self.last
            && last == network
        {
            return place;
        }
        if self.remembered.len() >= REMEMBERED_MAX {
            self.remembered.clear();
        }
        let databases = &self.databases;
        let place = *self.remembered.entry(network).or_insert_with(|| look_up(databases, network));
        self.last = Some((network, place));
        place
    }

    /// To be called every minute or so: reads the files again that changed, and says how many. A file that has become
    /// unusable is reported at each call, and what was read of it before stays in use.
    pub fn handle_tick(&mut self) -> Result<usize, GeoError> {
        let mut read = 0;
        let mut wrong = None;
        for database in &mut self.databases {
            match stamp(&database.path) {
                Ok(stamp) if stamp == database.stamp => {}
                _ => match Database::open(&database.path) {
                    Ok(new) => {
                        *database = new;
                        read += 1;
                    }
                    Err(error) => wrong = wrong.or(Some(error)),
                },
            }
        }
        if read > 0 {
            self.remembered.clear();
            self.last = None;
        }
        wrong.map_or(Ok(read), Err)
    }
}

impl Database {
    fn open(path: &Path) -> Result<Self, GeoError> {
        let failed = |source| GeoError::Read { path: path.to_owned(), source };
        // The stamp is taken first: a file that changes meanwhile is read once more, never once too few.
        let stamp = stamp(path).map_err(failed)?;
        let bytes = fs::read(path).map_err(failed)?;
        let reader = Reader::from_source(bytes).map_err(|source| GeoError::Format { path: path.to_owned(), source })?;
        Ok(Self { path: path.to_owned(), stamp, reader })
    }
}

fn stamp(path: &Path) -> io::Result<Stamp> {
    let metadata = fs::metadata(path)?;
    Ok((metadata.len(), metadata.modified().ok()))
}

fn look_up(databases: &[Database], network: Prefix) -> Place {
    let mut place = Place::default();
    for database in databases {
        // An address of a family that the file does not hold is an error of the format's; here it is just not known.
        let Ok(found) = database.reader.lookup(network.address()) else { continue };
        let text = |path: &[&'static str]| {
            let path: Vec<_> = path.iter().map(|key| PathElement::Key(key)).collect();
            found.decode_path::<&str>(&path).ok().flatten()
        };
        if place.asn == 0 {
            let number = found.decode_path::<u32>(&[PathElement::Key("autonomous_system_number")]).ok().flatten();
            let written = || text(&["asn"])?.trim_start_matches("AS").parse().ok();
            place.asn = number.or_else(written).unwrap_or(0);
        }
        if place.country == [0; 2] {
            let code = text(&["country", "iso_code"])
                .or_else(|| text(&["registered_country", "iso_code"]))
                .or_else(|| text(&["country_code"]))
                .or_else(|| text(&["country"]));
            let code = code.and_then(|c| <[u8; 2]>::try_from(c.as_bytes()).ok());
            place.country = code.filter(|c| c.iter().all(u8::is_ascii_uppercase)).unwrap_or_default();
        }
    }
    place
}
