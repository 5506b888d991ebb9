//! The whole table of commands, one by one: each that is built does what it is for, and says that its
//! struct cannot be read where it cannot; nothing else of the table does anything.

use std::collections::BTreeSet;

use glia_abi::arch::Arch;
use glia_abi::errno::Errno;
use glia_abi::event::{CommandClass, Event};
use glia_abi::ioctl::{self, Argument, COMMANDS, Command};

use crate::by_layout::{Scene, commands};
use crate::client::NOWHERE;
use crate::support::Rig;

/// What a command that is in order answers.
fn good_answer(word: u32) -> Result<(), Errno> {
    match word {
        // User memory, which zero copies look at last of all, is not there.
        ioctl::MEM_BUF_ZEROCOPY64 | ioctl::MEM_BUF_ZEROCOPY64_BATCHES => Err(Errno::EFAULT),
        // These refuse everything.
        ioctl::DMA_QUIESCE_QUEUES => Err(Errno::ENOTTY),
        ioctl::DRIVER_INFO_SET => Err(Errno::ENOTSUPP),
        ioctl::RESOURCE_MMAP_INFO => Err(Errno::EINVAL),
        _ => Ok(()),
    }
}

/// What it answers if it looks for its struct where nothing is.
fn lost_answer(command: &Command) -> Result<(), Errno> {
    match command.word {
        ioctl::MEM_ALLOC | ioctl::DMA_QUEUE_INIT | ioctl::DMA_QUEUE_INIT_BATCH => {
            Err(Errno::EACCES)
        }
        ioctl::DMA_QUIESCE_QUEUES => Err(Errno::ENOTTY),
        ioctl::DRIVER_INFO_SET => Err(Errno::ENOTSUPP),
        // There is a struct, which it does not look at.
        ioctl::DMA_QUEUE_RELEASE => Ok(()),
        _ if matches!(command.argument, Argument::Nothing) => Ok(()),
        _ => Err(Errno::EFAULT),
    }
}

/// How the last command was taken.
fn class(rig: &Rig) -> CommandClass {
    let heard = rig.heard.take().into_iter().rev();
    let mut classes = heard.filter_map(|(_, event)| match event {
        Event::Ioctl { class, .. } => Some(class),
        _ => None,
    });
    classes.next().unwrap()
}

/// The names of what is built, by what a rig of this generation says of each command.
pub(crate) fn built(arch: Arch) -> BTreeSet<&'static str> {
    // Resets are over at once, so that nobody waits for one.
    let rig = Rig::with(arch, |memory| memory.params.no_reset = true);
    let scene = Scene::new(&rig);
    let is_built = |command: &&Command| {
        let answer = scene.client.raw_ioctl(scene.file, command.word, NOWHERE);
        let is_built = class(&rig) == CommandClass::Built;
        let expected = match is_built {
            true => lost_answer(command),
            false => Err(Errno::EINVAL),
        };
        assert_eq!(answer.map(drop), expected, "{arch:?} {}", command.name);
        is_built
    };
    let built = COMMANDS.iter().filter(is_built);
    built.map(|command| command.name).collect()
}

#[test]
fn every_command_that_is_built_says_where_its_struct_cannot_be_read() {
    for arch in Arch::ALL {
        let built = built(arch);
        assert_eq!(built.len(), 74, "{arch:?}");
        let with_struct: BTreeSet<_> = commands().map(|(command, _)| command.name).collect();
        assert!(with_struct.is_subset(&built), "{arch:?}");
        let rest: Vec<_> = built.difference(&with_struct).copied().collect();
        let expected = [
            "DEVICE_INIT",
            "DEVICE_RELEASE",
            "DEVICE_RESET",
            "DMA_ENG_INIT",
            "DMA_QUIESCE_QUEUES",
        ];
        assert_eq!(rest, expected, "{arch:?}");
    }
}

#[test]
fn every_command_that_is_built_succeeds_when_it_is_in_order() {
    for arch in Arch::ALL {
        let mut seen = BTreeSet::new();
        for command in COMMANDS {
            let rig = Rig::with(arch, |memory| memory.params.no_reset = true);
            let scene = Scene::new(&rig);
            scene.begin(command);
            let bytes = match command.argument {
                Argument::Struct(layout) if commands().any(|(it, _)| it.word == command.word) => {
                    scene.good(command, layout)
                }
                _ => vec![0; 64],
            };
            let answer = scene.send(command.word, &bytes);
            if class(&rig) == CommandClass::Built {
                let expected = good_answer(command.word);
                assert_eq!(answer, expected, "{arch:?} {}", command.name);
                seen.insert(command.name);
            } else {
                assert_eq!(answer, Err(Errno::EINVAL), "{arch:?} {}", command.name);
            }
        }
        assert_eq!(seen, built(arch));
    }
}
