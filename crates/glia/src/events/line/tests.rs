use std::collections::BTreeMap;
use std::sync::Mutex;

use glia_abi::conformance::sink::check;
use glia_abi::event::{Detail, Sink};
use serde_json::{Map, Value};

use super::*;

type Table<'a> = Vec<(&'a str, Vec<&'a str>)>;

const DOCUMENT: &str = include_str!("../../../../../docs/formats/events.md");
/// Keys of every event, or of those that are about such a thing.
const COMMON: [&str; 11] = [
    "n", "t_ns", "event", "process", "device", "core", "channel", "chunk", "handle", "engine",
    "queue",
];

fn table<T: Told>() -> Table<'static> {
    T::TABLE
        .iter()
        .map(|&(name, keys)| (name, keys.to_vec()))
        .collect()
}

/// The rows of the table under a heading: a name, and its keys.
fn documented(heading: &str) -> Table<'static> {
    let (_, section) = DOCUMENT.split_once(heading).unwrap();
    let section = section.split("\n#").next().unwrap();
    let quoted = |cell: &'static str| cell.split('`').skip(1).step_by(2).collect::<Vec<_>>();
    section
        .lines()
        .filter(|line| line.starts_with("| `"))
        .map(|line| {
            let mut cells = line.split('|').skip(1);
            let name = quoted(cells.next().unwrap())[0];
            (name, quoted(cells.next().unwrap()))
        })
        .collect()
}

/// The lines of the document that are events.
fn examples() -> impl Iterator<Item = Map<String, Value>> {
    let lines = DOCUMENT.lines().filter(|line| line.starts_with("{\"n\":"));
    lines.map(|line| serde_json::from_str(line).unwrap())
}

/// The keys of an object that are its own.
fn own<'a>(object: &'a Map<String, Value>) -> Vec<&'a str> {
    let keys = object.keys().map(String::as_str);
    let mut own: Vec<&'a str> = keys
        .filter(|key| !COMMON.contains(key) && *key != "kind")
        .collect();
    own.sort_unstable();
    own
}

fn sorted<'a>(keys: &[&'a str]) -> Vec<&'a str> {
    let mut keys = keys.to_vec();
    keys.sort_unstable();
    keys
}

/// What every event of the abi's checks becomes.
#[derive(Default)]
struct Written(Mutex<Vec<Map<String, Value>>>);

impl Sink for Written {
    fn detail(&self) -> Detail {
        Detail::Descriptors
    }

    fn event(&self, at: Tick, ids: &Ids, event: &Event) {
        let line = Line {
            n: 3,
            at,
            ids,
            event,
        };
        let text = serde_json::to_string(&line).unwrap();
        self.0
            .lock()
            .unwrap()
            .push(serde_json::from_str(&text).unwrap());
    }
}

#[test]
fn the_document_lists_exactly_these_with_their_fields() {
    assert_eq!(documented("\n## Events\n"), table::<Event>());
    assert_eq!(
        documented("\n### What stops a queue\n"),
        table::<EngineFault>()
    );
    assert_eq!(
        documented("\n### What a plan orders\n"),
        table::<PairFault>()
    );
}

#[test]
fn the_document_has_an_example_of_each_event_with_its_fields() {
    let mut missing: BTreeMap<&str, Vec<&str>> = table::<Event>().into_iter().collect();
    for example in examples() {
        let name = example["event"].as_str().unwrap();
        let keys = missing.remove(name).unwrap_or_default();
        assert_eq!(own(&example), sorted(&keys), "{name}");
    }
    assert_eq!(missing, BTreeMap::new());
}

#[test]
fn every_event_is_written_with_its_fields_and_no_other() {
    let written = Written::default();
    check(&written).unwrap();
    let mut unseen = [
        table::<Event>(),
        table::<PairFault>(),
        table::<EngineFault>(),
    ];
    let [events, orders, faults] = &mut unseen;
    let seen = |unseen: &mut Table<'_>, name: &str| unseen.retain(|(other, _)| *other != name);
    let keys = |table: Table<'static>, name: &str| {
        let row = table.into_iter().find(|(other, _)| *other == name);
        sorted(&row.unwrap().1)
    };
    for object in written.0.lock().unwrap().iter() {
        let name = object["event"].as_str().unwrap();
        assert_eq!(own(object), keys(table::<Event>(), name), "{name}");
        seen(events, name);
        let Some(fault) = object.get("fault").and_then(Value::as_object) else {
            continue;
        };
        let kind = fault["kind"].as_str().unwrap();
        let table = match name {
            "ordered" => {
                seen(orders, kind);
                table::<PairFault>()
            }
            _ => {
                seen(faults, kind);
                table::<EngineFault>()
            }
        };
        assert_eq!(own(fault), keys(table, kind), "{kind}");
    }
    assert_eq!(unseen, [vec![], vec![], vec![]], "never written");
}

#[test]
fn ids_that_are_not_known_are_left_out_and_the_others_stand_before_the_fields() {
    let ids = Ids {
        process: Some(Pid::new(1000)),
        chunk: Some(ChunkId {
            slot: 12,
            generation: 3,
        }),
        ..Ids::device(DeviceId::new(1))
    };
    let event = Event::ChunkTaken {
        at: glia_abi::addr::BusAddr::new(0x40_0000_1000),
        size_bytes: 4096,
        location: glia_abi::mem::Location::Device,
        category: glia_abi::usage::Category::TENSORS_DEVICE,
        site: Some(NameId::new(0)),
    };
    let line = Line {
        n: 9,
        at: Tick(u64::MAX),
        ids: &ids,
        event: &event,
    };
    assert_eq!(
        serde_json::to_string(&line).unwrap(),
        r#"{"n":9,"t_ns":18446744073709551615,"event":"chunk_taken","process":1000,"device":1,"chunk":"12.3","at":"0x4000001000","size_bytes":4096,"location":"device","category":9,"counter":"tensors_device","site":0}"#
    );
}

#[test]
fn no_field_has_the_name_of_an_id() {
    for (name, keys) in table::<Event>() {
        assert!(keys.iter().all(|key| !COMMON.contains(key)), "{name}");
    }
}
