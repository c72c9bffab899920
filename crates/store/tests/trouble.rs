//! Torn files, crashes, full disks: what is lost is counted and named, what is not lost is found.
#![allow(clippy::disallowed_methods, reason = "this room touches the world: clocks, files, threads are its work")]

mod common;

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};

use common::{append, at, files, number, origin};
use weirgate_store::{BadFile, Options, QueryError, TimeRange, Writer, for_each_record, query};
use weirgate_units::{Bytes, Duration};

const COUNT: &str = "SELECT count(*) AS n FROM sockets";

fn options() -> Options {
    Options { keep_free: Bytes::ZERO, ..Options::default() }
}

fn open(dir: &Path) -> Writer {
    Writer::open(dir, &origin(), options()).unwrap()
}

/// A store of two files: 100 records, and 50.
fn two_files(dir: &Path) {
    let mut writer = open(dir);
    append(&mut writer, 0, 100, at(0));
    writer.flush(at(60));
    append(&mut writer, 100, 50, at(60));
    writer.close();
}

#[test]
fn a_torn_file_costs_a_warning() {
    let dir = tempfile::tempdir().unwrap();
    two_files(dir.path());
    let torn = files(dir.path())[0].clone();
    let whole = fs::read(&torn).unwrap();
    for sixteenth in 0..16 {
        fs::write(&torn, &whole[..whole.len() * sixteenth / 16]).unwrap();
        let table = query(dir.path(), COUNT).unwrap();
        assert!(table.to_text().unwrap().contains("| 50 |"), "{sixteenth}");
        assert_eq!(table.warnings.len(), 1);
        let text = table.warnings[0].to_string();
        assert!(text.contains("part-00000001.parquet") && text.contains("torn"), "{text}");

        let mut n = 0;
        let done = for_each_record(dir.path(), TimeRange::ALL, &mut |_, _| {
            n += 1;
            true
        });
        let done = done.unwrap();
        assert_eq!((n, done.records, done.warnings.len()), (50, 50, 1));
    }
}

#[test]
fn a_file_damaged_within_costs_a_warning() {
    let dir = tempfile::tempdir().unwrap();
    two_files(dir.path());
    let damaged = files(dir.path())[0].clone();
    let mut bytes = fs::read(&damaged).unwrap();
    let (rest, magic) = bytes.split_at(bytes.len() - 8);
    let footer = u32::from_le_bytes(magic[..4].try_into().unwrap()) as usize;
    let data = rest.len() - footer;
    bytes[4..data].fill(0xff);
    fs::write(&damaged, &bytes).unwrap();
    let table = query(dir.path(), "SELECT count(*) AS n, max(time) AS last, max(boot_time_ns) FROM sockets").unwrap();
    assert!(table.to_text().unwrap().contains("| 50 |"), "{}", table.to_text().unwrap());
    assert!(matches!(&table.warnings[..], [w] if matches!(w.why, BadFile::Damaged(_))), "{:?}", table.warnings);
}

#[test]
fn foreign_files_are_named() {
    let dir = tempfile::tempdir().unwrap();
    two_files(dir.path());
    let hour = files(dir.path())[0].parent().unwrap().to_owned();
    fs::write(hour.join("part-00000007.parquet"), "PAR1 and no more").unwrap();
    fs::write(hour.join("notes.txt"), "").unwrap();
    fs::write(dir.path().join("backup.tar"), "").unwrap();
    fs::create_dir(hour.join("part-00000008.parquet")).unwrap();
    fs::create_dir(dir.path().join("hour=tomorrow")).unwrap();
    let table = query(dir.path(), COUNT).unwrap();
    assert!(table.to_text().unwrap().contains("| 150 |"));
    let text: String = table.warnings.iter().map(|w| format!("{w}\n")).collect();
    for name in ["part-00000007.parquet", "part-00000008.parquet", "notes.txt", "backup.tar", "hour=tomorrow"] {
        assert!(text.contains(name), "{name} is not in {text}");
    }
    // The writer leaves them alone too, and works on.
    let mut writer = open(dir.path());
    append(&mut writer, 150, 10, at(120));
    writer.flush(at(7_200));
    assert_eq!(writer.close().written, 10);
    assert!(hour.join("notes.txt").exists() && hour.join("part-00000007.parquet").exists());
    assert_eq!(number(dir.path(), COUNT), 160);
}

#[test]
fn only_bad_files_are_an_empty_result_with_warnings() {
    let dir = tempfile::tempdir().unwrap();
    two_files(dir.path());
    for file in files(dir.path()) {
        fs::write(file, "").unwrap();
    }
    let table = query(dir.path(), COUNT).unwrap();
    assert!(table.to_text().unwrap().contains("| 0 |") && table.warnings.len() == 2);
}

#[test]
fn a_crash_between_a_merge_and_its_clearing_up_counts_nothing_twice() {
    let dir = tempfile::tempdir().unwrap();
    two_files(dir.path());
    let inputs: Vec<_> = files(dir.path()).into_iter().map(|f| (fs::read(&f).unwrap(), f)).collect();
    let mut writer = open(dir.path());
    append(&mut writer, 150, 1, at(3_700));
    writer.flush(at(3_800));
    assert_eq!(writer.close().files, 2);
    // As if the inputs had not been deleted yet.
    inputs.iter().for_each(|(bytes, path)| fs::write(path, bytes).unwrap());
    assert_eq!(number(dir.path(), COUNT), 151);
    // The next start clears up.
    open(dir.path()).close();
    assert_eq!(files(dir.path()).len(), 2);
    assert_eq!(number(dir.path(), COUNT), 151);
}

#[test]
fn late_records_and_a_clock_set_back_lose_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let mut writer = open(dir.path());
    append(&mut writer, 0, 5, at(3_605));
    append(&mut writer, 5, 5, at(3_595));
    append(&mut writer, 10, 5, at(3_606));
    writer.handle_tick(at(3_610));
    // Two hours back: the file is closed at once, and the old hour goes on.
    writer.handle_tick(at(10));
    append(&mut writer, 15, 5, at(11));
    let status = writer.close();
    assert_eq!((status.written, status.files_written), (20, 2));
    assert_eq!(number(dir.path(), "SELECT count(*) AS n FROM sockets WHERE hour = '2026-11-21T21'"), 15);
    assert_eq!(number(dir.path(), COUNT), 20);
}

/// Not a test of its own: the process that `a_killed_writer_loses_its_last_interval_only` kills. It writes a file of
/// 1,000 records per second of its own clock, says so, and then hangs with 500 records in the open file.
#[test]
fn child_that_is_killed() {
    let Some(dir) = std::env::var_os("WEIRGATE_TEST_STORE") else { return };
    let mut writer = open(Path::new(&dir));
    for file in 0..3 {
        append(&mut writer, file * 1_000, 1_000, at(file * 60));
        writer.flush(at(file * 60 + 60));
    }
    append(&mut writer, 3_000, 17_000, at(180));
    // Without the interval's end: a row group is on the disk, the file is unfinished.
    while files(Path::new(&dir)).len() < 4 {
        std::thread::yield_now();
    }
    println!("ready");
    loop {
        std::thread::park();
    }
}

#[test]
fn a_killed_writer_loses_its_last_interval_only() {
    let dir = tempfile::tempdir().unwrap();
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "child_that_is_killed", "--nocapture"])
        .env("WEIRGATE_TEST_STORE", dir.path())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let said = BufReader::new(child.stdout.take().unwrap()).lines().map_while(Result::ok).any(|l| l.contains("ready"));
    child.kill().unwrap();
    child.wait().unwrap();
    assert!(said, "the child ended by itself");

    let table = query(dir.path(), COUNT).unwrap();
    assert!(table.to_text().unwrap().contains("| 3000 |"), "{}", table.to_text().unwrap());
    assert!(table.warnings.is_empty(), "{:?}", table.warnings);
    assert_eq!(files(dir.path()).len(), 4, "the unfinished file lies beside the finished ones");
    // The next writer clears it away and goes on.
    let mut writer = open(dir.path());
    append(&mut writer, 3_000, 10, at(240));
    writer.close();
    assert_eq!(files(dir.path()).len(), 4);
    assert_eq!(number(dir.path(), COUNT), 3_010);
}

/// A file system of `size` bytes at a fresh folder, unmounted when dropped; `None`, with a line that says so, where
/// this process may not mount.
struct SmallDisk(tempfile::TempDir);

impl SmallDisk {
    fn mount(size: u64) -> Option<Self> {
        let dir = tempfile::tempdir().unwrap();
        let mounted = Command::new("mount")
            .args(["-t", "tmpfs", "-o", &format!("size={size}"), "tmpfs"])
            .arg(dir.path())
            .stderr(Stdio::null())
            .status();
        if mounted.is_ok_and(|s| s.success()) {
            Some(Self(dir))
        } else {
            println!("SKIPPED: a small tmpfs cannot be mounted here (root is needed)");
            None
        }
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg(self.0.path()).status();
    }
}

#[test]
fn a_full_disk_costs_nothing_while_records_can_wait() {
    let Some(disk) = SmallDisk::mount(8 << 20) else { return };
    let store = disk.0.path().join("store");
    let mut writer = open(&store);
    append(&mut writer, 0, 100, at(0));
    writer.flush(at(60));
    let ballast = disk.0.path().join("ballast");
    let _ = fs::write(&ballast, vec![1; 16 << 20]);

    // Many small intervals, and row groups that fill.
    for interval in 0..200 {
        append(&mut writer, 100 + 100 * interval, 100, at(60 + interval));
        writer.flush(at(61 + interval));
    }
    let status = writer.status();
    assert_eq!((status.written, status.lost_disk, status.pending), (100, 0, 20_000), "{status:?}");
    let why = status.trouble.as_deref().unwrap();
    assert!(why.contains("wait in memory") && why.contains("No space left on device"), "{why}");
    assert_eq!((number(&store, COUNT), files(&store).len()), (100, 1));

    // Room again, and it works again; nothing unfinished lies about.
    fs::remove_file(&ballast).unwrap();
    append(&mut writer, 20_100, 200, at(300));
    writer.flush(at(360));
    let status = writer.close();
    assert_eq!((status.appended, status.written, status.lost_disk), (20_300, 20_300, 0));
    assert_eq!(status.trouble, None);
    assert_eq!((number(&store, COUNT), files(&store).len()), (20_300, 2));
}

#[test]
fn what_waits_is_bounded_and_the_oldest_is_given_up_and_counted() {
    let Some(disk) = SmallDisk::mount(8 << 20) else { return };
    let store = disk.0.path().join("store");
    let mut writer =
        Writer::open(&store, &origin(), Options { hold_up_to: Bytes::new(4_000_000), ..options() }).unwrap();
    let ballast = disk.0.path().join("ballast");
    let _ = fs::write(&ballast, vec![1; 16 << 20]);
    append(&mut writer, 0, 100_000, at(0));
    writer.flush(at(60));
    let status = writer.status();
    assert!(status.lost_disk > 0 && status.pending >= 16_384, "{status:?}");
    assert_eq!((status.written, status.lost_disk + status.pending), (0, 100_000), "{status:?}");
    assert!(status.trouble.as_deref().is_some_and(|t| t.contains("loses records")), "{status:?}");
    let waited = status.pending;

    fs::remove_file(&ballast).unwrap();
    writer.flush(at(120));
    let status = writer.status();
    assert_eq!((status.written, status.pending, status.trouble), (waited, 0, None));
    let newest = "SELECT count(*) AS n FROM sockets WHERE cookie = 1099999";
    assert_eq!((number(&store, COUNT), number(&store, newest)), (waited, 1));
}

#[test]
fn a_full_disk_is_said_at_the_start_and_what_waits_at_the_end_is_counted() {
    let Some(disk) = SmallDisk::mount(1 << 20) else { return };
    let store = disk.0.path().join("store");
    let mut writer = Writer::open(&store, &origin(), Options::default()).unwrap();
    let status = writer.status();
    assert!(status.trouble.as_deref().is_some_and(|t| t.contains("lower [store] keep_free")), "{status:?}");
    append(&mut writer, 0, 300, at(0));
    writer.flush(at(60));
    let status = writer.close();
    assert_eq!((status.appended, status.written, status.lost_disk, status.pending), (300, 0, 300, 0), "{status:?}");
}

#[test]
fn a_reservation_is_given_back() {
    use std::os::unix::fs::MetadataExt;
    let dir = tempfile::tempdir().unwrap();
    let mut writer = open(dir.path());
    append(&mut writer, 0, 17_000, at(0));
    writer.close();
    let meta = fs::metadata(&files(dir.path())[0]).unwrap();
    assert!(meta.blocks() * 512 < meta.len() + 2 * meta.blksize(), "{} blocks for {} B", meta.blocks(), meta.len());
}

#[test]
fn what_was_written_before_the_room_ended_is_saved() {
    let Some(disk) = SmallDisk::mount(8 << 20) else { return };
    let store = disk.0.path().join("store");
    let options = Options { keep_free: Bytes::new(4 << 20), ..options() };
    let mut writer = Writer::open(&store, &origin(), options).unwrap();
    append(&mut writer, 0, 20_000, at(0));
    while files_below(&store) == 0 {
        std::thread::yield_now();
    }
    fs::write(disk.0.path().join("ballast"), vec![1; 5 << 20]).unwrap();
    append(&mut writer, 20_000, 40_000, at(1));
    writer.flush(at(60));
    let status = writer.close();
    assert_eq!((status.appended, status.pending, status.files_written), (60_000, 0, 1));
    // At least what was in the file when the room ended.
    assert!(status.written >= 2_048 && status.lost_disk > 0, "{status:?}");
    assert!(status.trouble.as_deref().is_some_and(|t| t.contains("must stay free")), "{status:?}");
    assert_eq!(number(&store, COUNT), status.written);
}

fn files_below(store: &Path) -> usize {
    if store.is_dir() { files(store).len() } else { 0 }
}

#[test]
fn a_folder_that_cannot_be_used_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("file");
    fs::write(&file, "").unwrap();
    let error = Writer::open(&file.join("store"), &origin(), options()).err().unwrap();
    assert!(error.to_string().contains("choose a folder"), "{error}");
    let error = query(&file, COUNT).unwrap_err();
    assert!(matches!(error, QueryError::Io(_)), "{error}");
}

#[test]
fn the_folder_is_not_for_everybody() {
    use std::os::unix::fs::PermissionsExt;
    let dir = tempfile::tempdir().unwrap();
    let store = dir.path().join("store");
    drop(open(&store));
    assert_eq!(fs::metadata(&store).unwrap().permissions().mode() & 0o007, 0);
}

#[test]
fn names_with_odd_characters_work() {
    let dir = tempfile::tempdir().unwrap();
    let odd = dir.path().join("a b%20c#d?e[1]*ü");
    let mut writer = open(&odd);
    append(&mut writer, 0, 10, at(0));
    writer.close();
    assert_eq!(number(&odd, COUNT), 10);
}

#[test]
fn older_files_lack_columns_that_newer_ones_have() {
    use parquet::arrow::ArrowWriter;
    use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;
    use parquet::file::metadata::KeyValue;
    use parquet::file::properties::WriterProperties;

    let dir = tempfile::tempdir().unwrap();
    two_files(dir.path());
    // The first file as an older version would have written it: without `rtt_us` and `cc`, in another order.
    let old = files(dir.path())[0].clone();
    let builder = ParquetRecordBatchReaderBuilder::try_new(fs::File::open(&old).unwrap()).unwrap();
    let batch = builder.build().unwrap().next().unwrap().unwrap();
    let left: Vec<usize> = (0..batch.num_columns())
        .rev()
        .filter(|n| !["rtt_us", "cc"].contains(&batch.schema().field(*n).name().as_str()))
        .collect();
    let batch = batch.project(&left).unwrap();
    let mark = KeyValue::new("weirgate.sockets".to_owned(), "1".to_owned());
    let properties = WriterProperties::builder().set_key_value_metadata(Some(vec![mark])).build();
    let file = fs::File::create(&old).unwrap();
    let mut writer = ArrowWriter::try_new(file, batch.schema(), Some(properties)).unwrap();
    writer.write(&batch).unwrap();
    writer.close().unwrap();

    for merged in [false, true] {
        if merged {
            let mut writer = open(dir.path());
            writer.flush(at(3_700));
            assert_eq!(writer.close().files, 1);
        }
        assert_eq!(number(dir.path(), COUNT), 150);
        assert_eq!(number(dir.path(), "SELECT count(rtt_us) AS n FROM sockets"), 50);
        assert_eq!(number(dir.path(), "SELECT count(*) AS n FROM sockets WHERE cc IS NULL"), 100);
        let mut without = 0;
        let done = for_each_record(dir.path(), TimeRange::ALL, &mut |record, _| {
            without += u32::from(record.sample.cc.as_str().is_empty());
            true
        });
        assert_eq!((done.unwrap().records, without), (150, 100));
    }
}

#[test]
fn a_short_interval_is_a_short_loss() {
    let dir = tempfile::tempdir().unwrap();
    let options = Options { interval: Duration::from_secs(5), ..options() };
    let mut writer = Writer::open(dir.path(), &origin(), options).unwrap();
    for second in 0..21 {
        writer.handle_tick(at(second));
        append(&mut writer, second, 1, at(second));
    }
    writer.flush(at(21));
    let status = writer.status();
    assert_eq!((status.written, status.files_written), (21, 5));
}
