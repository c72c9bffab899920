use std::collections::BTreeMap;
use std::path::PathBuf;

use proptest::prelude::*;

use super::*;

/// A kernel of values in a map.
#[derive(Clone, Default)]
struct MakeBelieve(BTreeMap<Object, String>);

impl Kernel for MakeBelieve {
    fn read(&mut self, object: &Object) -> Result<Option<String>, KernelError> {
        Ok(self.0.get(object).cloned())
    }

    fn write(&mut self, object: &Object, value: Option<&str>) -> Result<bool, KernelError> {
        match value {
            Some(value) => self.0.insert(object.clone(), value.to_owned()),
            None => self.0.remove(object),
        };
        Ok(true)
    }
}

/// The make-believe kernel keeps any value for it.
fn object(n: u8) -> Object {
    Object::Mount { path: PathBuf::from(format!("/test/{n}")) }
}

fn entry(sequence: u64, object: Object, before: Option<&str>, after: Option<&str>) -> Entry {
    let change = Change { object, before: before.map(Into::into), after: after.map(Into::into) };
    Entry { version: VERSION, sequence, time: 0, boot: "this".into(), actor: Actor::own("test"), change }
}

#[test]
fn what_was_written_is_read_back() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("state/journal.jsonl");
    assert_eq!(read(&path).unwrap(), Reading::default());
    let mut journal = Journal::open(&path).unwrap();
    let change = |n| Change { object: object(n), before: Some("a".into()), after: None };
    assert_eq!(journal.record(&Actor::own("start"), change(1)).unwrap(), 1);
    assert_eq!(journal.record(&Actor::own("round"), change(2)).unwrap(), 2);
    journal.mark(1, "undone").unwrap();
    drop(journal);
    let reading = read(&path).unwrap();
    assert_eq!(reading.open.len(), 1);
    assert_eq!(reading.open[0].change, change(2));
    assert_eq!(reading.open[0].actor, Actor::own("round"));
    assert_eq!((reading.closed, reading.torn), (1, false));
    assert_eq!(Journal::open(&path).unwrap().record(&Actor::own("x"), change(3)).unwrap(), 4, "numbers go on");
}

#[test]
fn two_that_write_at_once_count_together() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("journal.jsonl");
    let mut two = [Journal::open(&path).unwrap(), Journal::open(&path).unwrap()];
    let change = |n| Change { object: object(n), before: None, after: Some("b".into()) };
    let numbers: Vec<u64> =
        [0, 1, 1, 0].iter().map(|at| two[*at].record(&Actor::own("start"), change(1)).unwrap()).collect();
    assert_eq!(numbers, [1, 2, 3, 4]);
    two[1].mark(1, "undone").unwrap();
    two[0].mark(2, "undone").unwrap();
    let open: Vec<u64> = read(&path).unwrap().open.iter().map(|entry| entry.sequence).collect();
    assert_eq!(open, [3, 4]);
    assert_eq!(two[1].record(&Actor::own("start"), change(1)).unwrap(), 7);
}

#[test]
fn the_journal_is_for_its_owner_only() {
    use std::os::unix::fs::PermissionsExt;
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("journal.jsonl");
    Journal::open(&path).unwrap();
    assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
}

#[test]
fn a_torn_last_line_spoils_neither_what_came_before_nor_what_comes_after() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("journal.jsonl");
    let change = |n| Change { object: object(n), before: None, after: Some("b".into()) };
    let mut journal = Journal::open(&path).unwrap();
    journal.record(&Actor::own("start"), change(1)).unwrap();
    journal.record(&Actor::own("start"), change(2)).unwrap();
    drop(journal);
    let whole = std::fs::read(&path).unwrap();
    let first = whole.iter().position(|b| *b == b'\n').unwrap() + 1;
    for cut in first + 1..whole.len() {
        std::fs::write(&path, &whole[..cut]).unwrap();
        // All but the newline: the line says everything, so its change may have been made.
        let complete = usize::from(cut == whole.len() - 1);
        let reading = read(&path).unwrap();
        assert_eq!((reading.open.len(), reading.torn), (1 + complete, complete == 0), "cut at {cut}");
        let mut journal = Journal::open(&path).unwrap();
        journal.record(&Actor::own("start"), change(3)).unwrap();
        let reading = read(&path).unwrap();
        assert_eq!(reading.open.last().unwrap().change, change(3));
        assert_eq!(reading.open.len(), 2 + complete);
    }
}

#[test]
fn a_newer_version_s_lines_are_taken_as_far_as_they_go() {
    let text = concat!(
        r#"{"version":9,"sequence":1,"time":0,"boot":"this","actor":{"name":"start","uid":0,"pid":1,"who":"new"},"#,
        r#""object":{"kind":"mount","path":"/test/1"},"before":"a","after":"b","reason":"new"}"#,
        "\n",
        r#"{"version":9,"sequence":2,"time":0,"boot":"this","actor":{"name":"start","uid":0,"pid":1},"#,
        r#""object":{"kind":"wormhole","diameter":3},"before":null,"after":"open"}"#,
        "\n",
        r#"{"version":9,"sequence":3,"prophecy":true}"#,
        "\n",
    );
    let reading = parse(text.as_bytes());
    assert_eq!(reading.open.len(), 2);
    assert_eq!(reading.open[1].change.object, Object::Unknown);
    assert_eq!(reading.unreadable, [3]);
    let mut kernel = MakeBelieve([(object(1), "b".to_owned())].into());
    let undone = undo(&reading.open, "this", &mut kernel);
    assert!(matches!(&undone[0].outcome, Outcome::Failed(why) if why.contains("newer version")));
    assert_eq!(undone[1].outcome, Outcome::Undone);
}

#[test]
fn of_the_policies_in_one_place_the_last_is_in_force() {
    let policy = |dir: &str| Object::Policy { dir: dir.into() };
    let entries = [(policy("/a"), "1"), (policy("/b"), "1"), (policy("/a"), "2"), (policy("/a"), "3")];
    let mut text = Vec::new();
    for (at, (object, version)) in entries.into_iter().enumerate() {
        serde_json::to_writer(&mut text, &entry(at as u64 + 1, object, None, Some(version))).unwrap();
        text.push(b'\n');
    }
    let reading = parse(&text);
    let open: Vec<_> = reading.open.iter().map(|e| (e.sequence, e.change.after.as_deref().unwrap())).collect();
    assert_eq!((open, reading.closed), (vec![(2, "1"), (4, "3")], 2));
}

#[test]
fn the_admin_wins() {
    let mut kernel = MakeBelieve([(object(1), "admin".to_owned())].into());
    let undone = undo(&[entry(1, object(1), Some("a"), Some("b"))], "this", &mut kernel);
    assert!(matches!(&undone[0].outcome, Outcome::Left(why) if why.contains("`admin`")));
    assert_eq!(kernel.0[&object(1)], "admin");
}

#[test]
fn another_boot_s_changes_are_gone() {
    let mut kernel = MakeBelieve([(object(1), "b".to_owned())].into());
    let undone = undo(&[entry(1, object(1), Some("a"), Some("b"))], "another", &mut kernel);
    assert!(matches!(undone[0].outcome, Outcome::Gone(_)));
    assert_eq!(kernel.0[&object(1)], "b", "this boot's value is not ours");
}

#[test]
fn garbage_is_never_a_panic() {
    proptest!(|(bytes in proptest::collection::vec(any::<u8>(), 0..400))| {
        parse(&bytes);
    });
}

/// A day in the life of a host: changes of ours (the last one perhaps not made, for the crash came first), and an admin's.
#[derive(Clone, Debug)]
enum Event {
    Ours(u8, Option<u8>),
    /// Always a value of its own: an admin who sets what we set cannot be told from us.
    Admin(u8),
}

fn events() -> impl Strategy<Value = Vec<Event>> {
    let value = proptest::option::of(0..3u8);
    let event = prop_oneof![
        4 => (0..3u8, value).prop_map(|(o, v)| Event::Ours(o, v)),
        1 => (0..3u8).prop_map(Event::Admin),
    ];
    proptest::collection::vec(event, 0..20)
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn undo_restores_what_the_admin_had(events in events(), crashed in any::<bool>()) {
        let mut kernel = MakeBelieve::default();
        // What each object was before we first touched it since the admin last did.
        let mut admins: BTreeMap<Object, Option<String>> = BTreeMap::new();
        let mut entries = Vec::new();
        for (n, event) in events.iter().enumerate() {
            match event {
                Event::Ours(o, value) => {
                    let object = object(*o);
                    let (before, after) = (kernel.0.get(&object).cloned(), value.map(|v| format!("ours {v}")));
                    entries.push(entry(n as u64 + 1, object.clone(), before.as_deref(), after.as_deref()));
                    admins.entry(object.clone()).or_insert(before);
                    let made = !(crashed && n + 1 == events.len());
                    if made {
                        kernel.write(&object, after.as_deref()).unwrap();
                    }
                }
                Event::Admin(o) => {
                    let value = Some(format!("admin {n}"));
                    kernel.write(&object(*o), value.as_deref()).unwrap();
                    admins.insert(object(*o), value);
                }
            }
        }
        let undone = undo(&entries, "this", &mut kernel);
        prop_assert!(undone.iter().all(|one| one.outcome.is_settled()));
        for (object, value) in &admins {
            prop_assert_eq!(kernel.0.get(object), value.as_ref(), "{}", object);
        }
        let before = kernel.0.clone();
        undo(&entries, "this", &mut kernel);
        prop_assert_eq!(kernel.0, before, "a second undo changes nothing");
    }
}
