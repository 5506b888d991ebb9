//! From tables and values to rules.

use std::collections::BTreeSet;

use glia_abi::fault::{DELAY_MAX, FaultKind, FaultRule, InternalAlloc, Matching, Trigger};
use glia_abi::handle::{CoreId, DeviceId, EngineId, Pid};
use glia_abi::ioctl;
use glia_abi::sched::Micros;
use glia_abi::udma::DESC_BYTES_MAX;

use super::error::{nearest, shown};
use super::tree::{Key, Node, Value};
use super::{FaultsError, Ordered, Place, Refusal};

/// Keys of the document.
const DOCUMENT: &[&str] = &["seed", "fault"];
/// Keys of every fault.
const COMMON: &[&str] = &[
    "kind",
    "device",
    "core",
    "process",
    "command",
    "nth",
    "every",
    "after",
    "probability",
    "count",
    "sticky",
];
/// Keys of faults that happen at an engine.
const AT_ENGINE: &[&str] = &["engine", "queue"];
/// Every kind, with the keys that it has besides the common ones.
const KINDS: [(&str, [&[&str]; 2]); 16] = [
    ("reset-hang", [AT_ENGINE, &[]]),
    ("stuck-queue", [AT_ENGINE, &[]]),
    ("lost-marker", [AT_ENGINE, &[]]),
    ("late-marker", [AT_ENGINE, &["delay_us"]]),
    ("partial-batch", [AT_ENGINE, &["pairs"]]),
    (
        "flipped-bits",
        [AT_ENGINE, &["offset_bytes", "size_bytes", "mask"]],
    ),
    ("delayed-retirement", [AT_ENGINE, &["delay_us"]]),
    ("dma-abort", [AT_ENGINE, &[]]),
    ("uncorrectable-hbm", [AT_ENGINE, &[]]),
    ("failed-pin", [&[], &[]]),
    ("failed-host-alloc", [&[], &[]]),
    ("failed-internal-alloc", [&[], &["of"]]),
    ("fragmented-pages", [&[], &[]]),
    ("exhausted-handles", [&[], &[]]),
    ("exhausted-ring", [&[], &[]]),
    ("exhausted-process-slots", [&[], &[]]),
];
/// What kernel memory can be refused for.
const INTERNAL: [(&str, InternalAlloc); 5] = [
    ("request", InternalAlloc::Request),
    ("chunk-record", InternalAlloc::ChunkRecord),
    ("handle-table", InternalAlloc::HandleTable),
    ("handle-page", InternalAlloc::HandlePage),
    ("pool", InternalAlloc::Pool),
];
/// Linux has no larger process ids.
const PID_MAX: u64 = 1 << 22;

/// A plan, and its seed.
pub(super) fn plan(document: &Node) -> Result<(u64, Vec<Ordered>), FaultsError> {
    let place = Place::default();
    let Value::Table(entries) = &document.value else {
        return refuse(place, Refusal::Empty);
    };
    let fields = Fields { entries, place };
    fields.check_document()?;
    let seed = fields.whole("seed", 0, u64::MAX)?.unwrap_or(0);
    let Some((key, node)) = fields.find("fault") else {
        return refuse(place, Refusal::Empty);
    };
    let Value::List(faults) = &node.value else {
        return refuse(
            fields.at(key),
            Refusal::WrongType {
                key: "fault",
                found: shown(&node.value.what()),
                wanted: "a list: in TOML, write `[[fault]]`",
            },
        );
    };
    let rules: Result<Vec<_>, _> = (1..)
        .zip(faults)
        .map(|(n, node)| ordered(n, node))
        .collect();
    match rules? {
        rules if rules.is_empty() => refuse(place, Refusal::Empty),
        rules => Ok((seed, rules)),
    }
}

/// The fault that stands at this place of the list.
fn ordered(number: usize, node: &Node) -> Result<Ordered, FaultsError> {
    let place = Place {
        line: node.line,
        fault: Some(number),
    };
    let Value::Table(entries) = &node.value else {
        return refuse(
            place,
            Refusal::WrongType {
                key: "fault",
                found: shown(&node.value.what()),
                wanted: "a list of tables",
            },
        );
    };
    let fields = Fields { entries, place };
    let kind = fields.kind()?;
    let rule = FaultRule {
        kind,
        matching: fields.matching()?,
        trigger: fields.trigger()?,
    };
    match rule.check() {
        Err(error) => refuse(place, error.into()),
        Ok(()) => Ok(Ordered {
            rule,
            place,
            lines: fields.lines(),
        }),
    }
}

/// The keys of one table.
struct Fields<'a> {
    entries: &'a [(Key, Node)],
    place: Place,
}

impl<'a> Fields<'a> {
    /// Refuses keys that the document does not have.
    fn check_document(&self) -> Result<(), FaultsError> {
        for (key, _) in self.entries {
            if !DOCUMENT.contains(&key.name.as_str()) {
                return self.unknown(key, DOCUMENT.to_vec());
            }
        }
        self.check_twice()
    }

    /// Refuses keys that a fault does not have: one of this kind, or of any while it has none.
    fn check_fault(
        &self,
        kind: Option<(&'static str, [&[&'static str]; 2])>,
    ) -> Result<(), FaultsError> {
        let of_others = || KINDS.iter().flat_map(|(_, more)| more.concat());
        let mut allowed = COMMON.to_vec();
        match kind {
            Some((_, more)) => allowed.extend(more.concat()),
            None => allowed.extend(of_others()),
        }
        for (key, _) in self.entries {
            if allowed.contains(&key.name.as_str()) {
                continue;
            }
            return match (kind, of_others().find(|&other| other == key.name)) {
                (Some((kind, _)), Some(key_name)) => {
                    let misplaced = Refusal::Misplaced {
                        key: key_name,
                        kind,
                        allowed,
                    };
                    refuse(self.at(key), misplaced)
                }
                _ => self.unknown(key, allowed),
            };
        }
        self.check_twice()
    }

    fn unknown(&self, key: &Key, mut allowed: Vec<&'static str>) -> Result<(), FaultsError> {
        let nearest = nearest(&key.name, allowed.iter().copied());
        let mut told = BTreeSet::new();
        allowed.retain(|key| told.insert(*key));
        let unknown = Refusal::UnknownKey {
            key: shown(&key.name),
            nearest,
            allowed,
        };
        refuse(self.at(key), unknown)
    }

    /// Refuses keys that stand there twice, which only JSON lets through.
    fn check_twice(&self) -> Result<(), FaultsError> {
        for (number, (key, _)) in self.entries.iter().enumerate() {
            let mut before = self.entries[..number].iter();
            if before.any(|(other, _)| other.name == key.name) {
                let twice = Refusal::Twice {
                    key: key.name.clone(),
                };
                return refuse(self.at(key), twice);
            }
        }
        Ok(())
    }

    fn at(&self, key: &Key) -> Place {
        Place {
            line: key.line.or(self.place.line),
            ..self.place
        }
    }

    fn find(&self, name: &str) -> Option<&'a (Key, Node)> {
        self.entries.iter().find(|(key, _)| key.name == name)
    }

    /// Where each key stands.
    fn lines(&self) -> Vec<(String, Option<u64>)> {
        let keys = self.entries.iter();
        keys.map(|(key, _)| (key.name.clone(), key.line)).collect()
    }

    fn wrong_type<T>(
        &self,
        key: &'static str,
        entry: &(Key, Node),
        wanted: &'static str,
    ) -> Result<T, FaultsError> {
        let found = shown(&entry.1.value.what());
        refuse(self.at(&entry.0), Refusal::WrongType { key, found, wanted })
    }

    /// A whole number, if it is there.
    fn whole(&self, key: &'static str, least: u64, most: u64) -> Result<Option<u64>, FaultsError> {
        let Some(entry) = self.find(key) else {
            return Ok(None);
        };
        let Value::Number(number) = &entry.1.value else {
            return self.wrong_type(key, entry, "a whole number");
        };
        match number.whole {
            Some(whole) if (least..=most).contains(&whole) => Ok(Some(whole)),
            None if number.real.fract() != 0.0 || number.real.is_nan() => {
                self.wrong_type(key, entry, "a whole number")
            }
            _ => refuse(
                self.at(&entry.0),
                Refusal::OutOfRange {
                    key,
                    found: shown(&number.text),
                    least,
                    most,
                    machine: None,
                },
            ),
        }
    }

    /// The number of something of the machine, which is looked up later.
    fn number(&self, key: &'static str) -> Result<Option<u32>, FaultsError> {
        let number = self.whole(key, 0, u64::from(u32::MAX))?;
        Ok(number.and_then(|number| u32::try_from(number).ok()))
    }

    fn needed(
        &self,
        what: &'static str,
        key: &'static str,
        least: u64,
        most: u64,
    ) -> Result<u64, FaultsError> {
        match self.whole(key, least, most)? {
            Some(number) => Ok(number),
            None => refuse(self.place, Refusal::Missing { what, key }),
        }
    }

    /// One of these names, if it is there.
    fn name<T: Copy>(
        &self,
        key: &'static str,
        names: &[(&'static str, T)],
    ) -> Result<Option<(&'static str, T)>, FaultsError> {
        let Some(entry) = self.find(key) else {
            return Ok(None);
        };
        let Value::Text(found) = &entry.1.value else {
            return self.wrong_type(key, entry, "a name in quotes");
        };
        if let Some(&known) = names.iter().find(|(name, _)| name == found) {
            return Ok(Some(known));
        }
        let names: Vec<&'static str> = names.iter().map(|&(name, _)| name).collect();
        let unknown = Refusal::UnknownName {
            key,
            found: shown(found),
            nearest: nearest(found, names.iter().copied()),
            allowed: names.join(", "),
        };
        refuse(self.at(&entry.0), unknown)
    }

    fn kind(&self) -> Result<FaultKind, FaultsError> {
        let what = "a fault";
        let kind = self.name("kind", &KINDS)?;
        self.check_fault(kind)?;
        let Some((name, _)) = kind else {
            return refuse(self.place, Refusal::Missing { what, key: "kind" });
        };
        let delay = || {
            let delay = self.needed(name, "delay_us", 1, DELAY_MAX.0)?;
            Ok(Micros(delay))
        };
        Ok(match name {
            "reset-hang" => FaultKind::ResetHang,
            "stuck-queue" => FaultKind::StuckQueue,
            "lost-marker" => FaultKind::LostMarker,
            "late-marker" => FaultKind::LateMarker { delay: delay()? },
            "partial-batch" => FaultKind::PartialBatch {
                pairs: self.needed(name, "pairs", 1, u64::MAX)?,
            },
            "flipped-bits" => self.flipped_bits()?,
            "delayed-retirement" => FaultKind::DelayedRetirement { delay: delay()? },
            "dma-abort" => FaultKind::DmaAbort,
            "uncorrectable-hbm" => FaultKind::UncorrectableHbm,
            "failed-pin" => FaultKind::FailedPin,
            "failed-host-alloc" => FaultKind::FailedHostAlloc,
            "failed-internal-alloc" => match self.name("of", &INTERNAL)? {
                Some((_, of)) => FaultKind::FailedInternalAlloc(of),
                None => {
                    return refuse(
                        self.place,
                        Refusal::Missing {
                            what: name,
                            key: "of",
                        },
                    );
                }
            },
            "fragmented-pages" => FaultKind::FragmentedPages,
            "exhausted-handles" => FaultKind::ExhaustedHandles,
            "exhausted-ring" => FaultKind::ExhaustedRing,
            _ => FaultKind::ExhaustedProcessSlots,
        })
    }

    fn flipped_bits(&self) -> Result<FaultKind, FaultsError> {
        let offset_bytes = self.whole("offset_bytes", 0, DESC_BYTES_MAX - 1)?;
        let size_bytes = self.whole("size_bytes", 1, DESC_BYTES_MAX)?;
        let mask = self.whole("mask", 1, u64::from(u8::MAX))?;
        Ok(FaultKind::FlippedBits {
            offset_bytes: offset_bytes.unwrap_or(0),
            size_bytes: size_bytes.unwrap_or(1),
            mask: mask.and_then(|mask| u8::try_from(mask).ok()).unwrap_or(1),
        })
    }

    fn matching(&self) -> Result<Matching, FaultsError> {
        let process = self.whole("process", 1, PID_MAX)?;
        Ok(Matching {
            device: self.number("device")?.map(DeviceId::new),
            engine: self.number("engine")?.map(EngineId::new),
            queue: self.number("queue")?,
            core: self.number("core")?.map(CoreId::new),
            process: process
                .and_then(|process| u32::try_from(process).ok())
                .map(Pid::new),
            command: self.command()?,
        })
    }

    /// A command, by its name or its word.
    fn command(&self) -> Result<Option<u32>, FaultsError> {
        const KEY: &str = "command";
        let Some(entry) = self.find(KEY) else {
            return Ok(None);
        };
        let known = |word: u32| ioctl::name(word).map(|_| word);
        let (word, found) = match &entry.1.value {
            Value::Number(number) => {
                let word = number.whole.and_then(|word| u32::try_from(word).ok());
                (word.and_then(known), number.text.as_str())
            }
            Value::Text(text) => {
                let named = ioctl::COMMANDS.iter().find(|known| known.name == text);
                let hex = || u32::from_str_radix(text.strip_prefix("0x")?, 16).ok();
                let word = named.map(|known| known.word);
                (word.or_else(|| hex().and_then(known)), text.as_str())
            }
            _ => return self.wrong_type(KEY, entry, "the name of a command, or its word"),
        };
        if let Some(word) = word {
            return Ok(Some(word));
        }
        let names = ioctl::COMMANDS.iter().map(|known| known.name);
        let unknown = Refusal::UnknownName {
            key: KEY,
            found: shown(found),
            nearest: nearest(found, names),
            allowed: "names such as MEM_ALLOC_V2MT64, or the command's word, \"0x80384e66\" in hex"
                .to_owned(),
        };
        refuse(self.at(&entry.0), unknown)
    }

    fn trigger(&self) -> Result<Trigger, FaultsError> {
        let sticky = match self.find("sticky") {
            None => false,
            Some((
                _,
                Node {
                    value: Value::Flag(flag),
                    ..
                },
            )) => *flag,
            Some(entry) => return self.wrong_type("sticky", entry, "true or false"),
        };
        let probability = match self.find("probability") {
            None => None,
            Some((
                _,
                Node {
                    value: Value::Number(number),
                    ..
                },
            )) if (0.0..=1.0).contains(&number.real) => Some(number.real),
            Some(entry) => return self.wrong_type("probability", entry, "a number from 0 to 1"),
        };
        Ok(Trigger {
            after: self.whole("after", 0, u64::MAX)?.unwrap_or(0),
            every: self.whole("every", 1, u64::MAX)?,
            nth: self.whole("nth", 1, u64::MAX)?,
            probability,
            count: self.whole("count", 1, u64::MAX)?,
            sticky,
        })
    }
}

fn refuse<T>(place: Place, why: Refusal) -> Result<T, FaultsError> {
    Err(FaultsError { place, why })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_have_the_names_that_plans_tell_them_by() {
        for (name, _) in KINDS {
            let of = if name == "failed-internal-alloc" {
                "of = \"pool\""
            } else {
                ""
            };
            let own = match name {
                "late-marker" | "delayed-retirement" => "delay_us = 1",
                "partial-batch" => "pairs = 1",
                _ => of,
            };
            let text = format!("[[fault]]\nkind = \"{name}\"\n{own}");
            let document = super::super::tree::from_toml(&text).unwrap();
            let (_, rules) = plan(&document).unwrap();
            assert_eq!(rules[0].rule.kind.name(), name);
        }
    }
}
