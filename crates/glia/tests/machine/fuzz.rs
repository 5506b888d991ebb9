//! Commands of every kind whose fields are drawn from what would hurt: handles that are stale, off
//! by one or nobody's, sizes around every limit, offsets that wrap, pointers to nowhere; and between
//! them mappings, copies of descriptors and closes. Whatever comes of them, nobody else's bytes
//! change, and when their processes have died nothing of them is left.

use std::collections::BTreeMap;
use std::sync::Arc;

use glia::machine::{Machine, MachineConfig, Model, Process, SchedMode};
use glia_abi::addr::HostPa;
use glia_abi::arch::{Arch, Scale};
use glia_abi::chance::Chance;
use glia_abi::errno::Errno;
use glia_abi::handle::{Channel, CoreId, DeviceId, Fd, McHandle, Pid};
use glia_abi::ioctl::{self, Argument, COMMANDS, Command};
use glia_abi::ioctl::{Field, Kind, Layout, MemGetExtendedInfo};
use glia_abi::mem::Location;
use glia_abi::transport::{Mapping, MappingError, OpenMode, Transport, UserBuffer};
use glia_abi::usage::Category;
use glia_runtime::ndl::{ChunkSpec, Device};

use crate::books::{Books, make_what_stays, send};
use crate::shadow::{Sent, Shadow, chain};

const DEVICE: DeviceId = DeviceId::new(0);
const COMMANDS_SENT: u64 = 40_000;
/// A process dies after so many commands, and another one takes its place.
const LIFE: u64 = 500;
const ROOM_BYTES: u64 = 256 << 10;
const VICTIM_BYTES: usize = 300_000;
/// A queue of this number keeps its ring, and the pins on it, when its process goes.
pub(crate) const KEPT_QUEUE: u64 = 14;

/// In virtual time, in which it costs nothing that somebody waits for a lock or for an engine until he
/// gives up.
fn machine(model: Model, seed: u64) -> Machine {
    let config = MachineConfig {
        scale: Scale::RegionSize {
            size_bytes: 64 << 20,
        },
        devices: 2,
        ..MachineConfig::new(model).with_mode(SchedMode::Virtual { seed })
    };
    Machine::new(config).unwrap()
}

/// A process that sends such commands.
struct Attacker {
    process: Arc<Process>,
    fds: Vec<(Fd, OpenMode)>,
    room: Arc<dyn UserBuffer>,
    /// Handles that it was given, live or not.
    handles: Vec<u64>,
    /// Where those chunks were.
    addresses: Vec<u64>,
    maps: Vec<Map>,
    /// A chunk that nobody else names; the child of a fork has none.
    shadow: Option<Shadow>,
}

/// A mapping, and whether it was to be of an own chunk.
struct Map {
    bytes: Arc<dyn Mapping>,
    is_own: bool,
}

impl Attacker {
    fn new(machine: &Machine, pid: u32, chance: &mut Chance) -> Self {
        let process = machine.process(Pid::new(pid));
        let modes = [OpenMode::ReadWrite, OpenMode::WriteOnly];
        let fds = modes.map(|mode| (process.open(DEVICE, mode).unwrap(), mode));
        let room = process.buffer(ROOM_BYTES).unwrap();
        let shadow = Shadow::new(&process, fds[0].0);
        let mut attacker = Self {
            process,
            fds: fds.into(),
            room,
            handles: Vec::new(),
            addresses: Vec::new(),
            maps: Vec::new(),
            shadow: Some(shadow),
        };
        attacker.fill_room(chance);
        attacker
    }

    /// A child, which has the parent's files and knows what the parent does; it is attached to nothing.
    fn fork(&self, pid: u32, chance: &mut Chance) -> Self {
        let process = self.process.fork(Pid::new(pid)).unwrap();
        let room = process.buffer(ROOM_BYTES).unwrap();
        let mut child = Self {
            process,
            fds: self.fds.clone(),
            room,
            handles: self.handles.clone(),
            addresses: self.addresses.clone(),
            maps: Vec::new(),
            shadow: None,
        };
        child.fill_room(chance);
        child
    }

    /// Sends commands that are in order, or nearly so, and looks at every byte of its shadow.
    fn work(&mut self, chance: &mut Chance) -> Vec<Sent> {
        let full = self
            .fds
            .iter()
            .find(|(_, mode)| *mode == OpenMode::ReadWrite);
        let (fd, _) = *full.unwrap();
        if chance.below(4) == 0 {
            return chain(&self.process, fd, chance);
        }
        let wild = [(); 2].map(|()| self.value(Kind::Size, chance));
        self.shadow = self.shadow.take().filter(Shadow::is_alive);
        match &mut self.shadow {
            Some(shadow) => shadow.step(&self.process, fd, wild, chance),
            None => Vec::new(),
        }
    }

    /// Makes what pointers lead to look like arguments, too.
    fn fill_room(&mut self, chance: &mut Chance) {
        let words = (0..ROOM_BYTES / 8).map(|_| self.value(Kind::Size, chance).to_le_bytes());
        let bytes: Vec<u8> = words.flatten().collect();
        self.room.write(0, &bytes).unwrap();
    }

    fn pick<T: Copy>(chance: &mut Chance, from: &[T]) -> T {
        from[usize::try_from(chance.below(from.len() as u64)).unwrap()]
    }

    fn handle(&self, chance: &mut Chance) -> u64 {
        let own = match self.handles.len() {
            0 => 0,
            _ => Self::pick(chance, &self.handles),
        };
        match chance.below(8) {
            0 => own.wrapping_add(1),
            1 => own.wrapping_sub(1),
            2 => own ^ 1 << chance.below(64),
            3 => chance.number(),
            4 => 0,
            _ => own,
        }
    }

    fn pointer(&self, chance: &mut Chance) -> u64 {
        let room = self.room.address().get();
        match chance.below(10) {
            0 => 0,
            1 => u64::MAX - chance.below(9),
            2 => room + ROOM_BYTES - chance.below(64),
            3 => chance.number(),
            _ => room + chance.below(ROOM_BYTES / 8) * 8,
        }
    }

    /// A value for a field that says such a thing.
    fn value(&self, kind: Kind, chance: &mut Chance) -> u64 {
        const SIZES: [u64; 14] = [
            0,
            1,
            3,
            4,
            64,
            4095,
            4096,
            8192,
            65_535,
            65_536,
            1 << 20,
            64 << 20,
            1 << 32,
            1 << 63,
        ];
        match kind {
            Kind::Handle => self.handle(chance),
            Kind::Pointer => self.pointer(chance),
            Kind::Address => match chance.below(3) {
                0 => chance.number(),
                1 => chance.below(1 << 40) & !4095,
                _ => self.pointer(chance),
            },
            Kind::Size => match chance.below(8) {
                0 => u64::MAX - chance.below(5000),
                1 => chance.below(1 << 17),
                2 => self.handle(chance),
                3 => self.pointer(chance),
                _ => Self::pick(chance, &SIZES),
            },
            Kind::Number | Kind::Signed | Kind::Wait => match chance.below(6) {
                0 => u64::MAX,
                1 => chance.number(),
                2 => 1 << chance.below(33),
                _ => chance.below(20),
            },
            Kind::Bits => match chance.below(3) {
                0 => u64::from(u32::MAX),
                1 => chance.number(),
                _ => 1 << chance.below(8),
            },
            Kind::Opaque | Kind::Structs(_) | Kind::Pad => chance.number(),
        }
    }

    /// A value that a field which says such a thing may well have.
    fn tame(&self, kind: Kind, chance: &mut Chance) -> u64 {
        match kind {
            Kind::Handle if !self.handles.is_empty() => Self::pick(chance, &self.handles),
            Kind::Pointer => self.room.address().get() + chance.below(ROOM_BYTES / 16) * 8,
            // By an address that is something, anybody may write to anybody's chunks.
            Kind::Address => self.value(kind, chance),
            Kind::Size => Self::pick(chance, &[0, 64, 4096, 4096]),
            Kind::Number | Kind::Bits | Kind::Wait => chance.below(4),
            Kind::Handle | Kind::Signed | Kind::Opaque | Kind::Structs(_) | Kind::Pad => 0,
        }
    }

    /// How often a field gets a value that would hurt: of eight times, so many.
    fn wildness(chance: &mut Chance) -> u64 {
        match chance.below(3) {
            0 => 8,
            _ => chance.below(2),
        }
    }

    fn fill(&self, layout: &Layout, bytes: &mut [u8], wildness: u64, chance: &mut Chance) {
        for field in layout.fields {
            self.fill_field(field, bytes, wildness, chance);
        }
        // An offset and a size that only together leave what they are in.
        let sizes = layout.fields.iter();
        let sizes: Vec<_> = sizes.filter(|it| matches!(it.kind, Kind::Size)).collect();
        if sizes.len() >= 2 && wildness > 0 && chance.below(6) == 0 {
            let (offset, size) = (Self::pick(chance, &sizes), Self::pick(chance, &sizes));
            let below_bytes = chance.below(70_000);
            put(bytes, offset, u64::MAX - below_bytes);
            put(bytes, size, below_bytes + 1 + chance.below(2));
        }
        if let Some(tail) = layout.tail {
            let entries = bytes[layout.size_bytes..].chunks_exact_mut(tail.entry.size_bytes);
            for entry in entries {
                self.fill(tail.entry, entry, wildness, chance);
            }
        }
    }

    fn fill_field(&self, field: &Field, bytes: &mut [u8], wildness: u64, chance: &mut Chance) {
        let there = &mut bytes[field.offset..field.offset + field.size_bytes];
        for element in there.chunks_exact_mut(field.element_size_bytes) {
            if let Kind::Structs(layout) = field.kind {
                self.fill(layout, element, wildness, chance);
                continue;
            }
            let value = match chance.below(8) < wildness {
                true => self.value(field.kind, chance),
                false => self.tame(field.kind, chance),
            };
            let is_kept = field.name == "qid" && value == KEPT_QUEUE;
            let value = if is_kept { value - 1 } else { value };
            element.copy_from_slice(&value.to_le_bytes()[..element.len()]);
        }
    }

    /// An address of a chunk, its own or a stranger's; sometimes inside or beside it.
    fn address(&self, strangers: &[u64], chance: &mut Chance) -> u64 {
        let base = match (self.addresses.len(), chance.below(3)) {
            (0, _) | (_, 0) => Self::pick(chance, strangers),
            _ => Self::pick(chance, &self.addresses),
        };
        match chance.below(6) {
            0 => base + 4096,
            1 => base.wrapping_sub(4096),
            2 => base + chance.below(8192),
            _ => base,
        }
    }

    /// A call that is no command; its answer.
    fn call(&mut self, strangers: &[u64], chance: &mut Chance) -> i32 {
        let which = |count: usize, chance: &mut Chance| {
            usize::try_from(chance.below(count as u64)).unwrap()
        };
        let answer = match chance.below(8) {
            0..=2 => self.map(strangers, chance),
            3 if !self.maps.is_empty() => {
                self.maps.swap_remove(which(self.maps.len(), chance));
                Ok(())
            }
            4 | 5 if !self.maps.is_empty() => {
                let map = &self.maps[which(self.maps.len(), chance)];
                Self::touch(map, chance);
                Ok(())
            }
            6 if self.fds.len() < 12 => {
                let (fd, mode) = Self::pick(chance, &self.fds);
                let copy = self.process.dup(fd);
                copy.map(|copy| self.fds.push((copy, mode)))
            }
            _ => {
                let (fd, _) = self.fds.swap_remove(which(self.fds.len(), chance));
                let closed = self.process.close(fd);
                for mode in [OpenMode::ReadWrite, OpenMode::WriteOnly] {
                    // Two closes of one file: the process is detached until it opens it again.
                    if chance.below(2) == 0 || self.fds.iter().all(|(_, known)| *known != mode) {
                        let fd = self.process.open(DEVICE, mode).unwrap();
                        self.fds.push((fd, mode));
                    }
                }
                closed
            }
        };
        answer.map_or_else(Errno::ret, |()| 0)
    }

    fn map(&mut self, strangers: &[u64], chance: &mut Chance) -> Result<(), Errno> {
        let offset = match chance.below(8) {
            0 => u64::MAX - chance.below(70_000),
            1 => chance.number() & !4095,
            _ => self.address(strangers, chance),
        };
        let size_bytes = match chance.below(4) {
            0 => self.value(Kind::Size, chance),
            1 => (VICTIM_BYTES as u64).next_multiple_of(4096),
            _ => Self::pick(chance, &[4096, 8192, 65_536, 1 << 20]),
        };
        let (fd, _) = Self::pick(chance, &self.fds);
        let bytes = self.process.mmap(fd, offset, size_bytes)?;
        assert!(bytes.size_bytes() >= size_bytes);
        let is_own = self.addresses.contains(&offset);
        if strangers.contains(&offset) {
            assert_eq!(bytes.write(0, &[0]), Err(MappingError::ReadOnly));
        }
        if self.maps.len() < 20 {
            self.maps.push(Map { bytes, is_own });
        }
        Ok(())
    }

    /// Reads through a mapping, and writes if it is its own.
    fn touch(map: &Map, chance: &mut Chance) {
        let mut bytes = [0xee; 64];
        let offset = match chance.below(4) {
            0 => u64::MAX - chance.below(70),
            _ => chance.below(8192),
        };
        let read = map.bytes.read(offset, &mut bytes);
        if map.is_own {
            let written = map.bytes.write(offset, &bytes);
            assert!(written == read || written == Err(MappingError::ReadOnly));
        }
    }

    /// Bends what would hurt everybody by right: a scrub overwrites a whole channel, which must not be
    /// the victim's. And who asks by address is to find something now and then.
    fn bend(&self, command: &Command, bytes: &mut [u8], strangers: &[u64], chance: &mut Chance) {
        let Argument::Struct(layout) = command.argument else {
            return;
        };
        let field = |name: &str| layout.fields.iter().find(|it| it.name == name);
        match command.word {
            ioctl::HBM_SCRUB_START => {
                let channel = field("hbm_index").unwrap();
                let number = &bytes[channel.offset..channel.offset + 4];
                if number == [0; 4] {
                    put(bytes, channel, 1);
                }
            }
            ioctl::MEM_MC_GET_INFO | ioctl::MEM_MC_GET_INFO_V2 if chance.below(4) != 0 => {
                put(bytes, field("pa").unwrap(), self.address(strangers, chance));
            }
            _ => {}
        }
    }

    /// Sends one: the word that it sent, and the answer.
    fn send(&mut self, command: &Command, victim: &Spared, chance: &mut Chance) -> (u32, i32) {
        let spared = &victim.handles;
        let mut bytes = match command.argument {
            Argument::Struct(layout) => {
                let mut bytes = vec![0; layout.full_size_bytes()];
                let wildness = Self::wildness(chance);
                self.fill(layout, &mut bytes, wildness, chance);
                bytes
            }
            _ => vec![0xa5; 64],
        };
        // Handles have no owner: by an exact one, anybody may do anything.
        for at in 0..bytes.len().saturating_sub(7) {
            let word = u64::from_le_bytes(bytes[at..at + 8].try_into().unwrap());
            if spared.contains(&word) {
                bytes[at..at + 8].fill(0);
            }
        }
        let alloc_out = is_alloc(command.word).then(|| {
            let at = chance.below(ROOM_BYTES / 8 - 1) * 8;
            let address = self.room.address().get() + at;
            point_out_to(command, &mut bytes, address);
            at
        });
        self.bend(command, &mut bytes, &victim.addresses, chance);
        let mut word = command.word;
        // (Of a scrub another word might be one of any channel.)
        if command.word != ioctl::HBM_SCRUB_START && chance.below(64) == 0 {
            word ^= 1 << chance.below(32);
        }
        if chance.below(32) == 0 {
            bytes.truncate(usize::try_from(chance.below(bytes.len() as u64)).unwrap());
        }
        let wanted = match chance.below(4) {
            0 => OpenMode::WriteOnly,
            _ => OpenMode::ReadWrite,
        };
        let fds: Vec<_> = self
            .fds
            .iter()
            .filter(|(_, mode)| *mode == wanted)
            .collect();
        let (fd, _) = *Self::pick(chance, &fds);
        let answer = self.process.ioctl(fd, word, &mut bytes, &mut []);
        if let (Ok(_), Some(at), true) = (answer, alloc_out, word == command.word) {
            let mut handle = [0; 8];
            self.room.read(at, &mut handle).unwrap();
            let handle = u64::from_le_bytes(handle);
            self.handles.push(handle);
            self.learn(fd, handle);
        }
        (word, answer.unwrap_or_else(|errno| errno.ret()))
    }
}

impl Attacker {
    /// Where a chunk of its is.
    fn learn(&mut self, fd: Fd, mem_handle: u64) {
        let argument = MemGetExtendedInfo {
            mem_handle,
            ..MemGetExtendedInfo::default()
        };
        let known = send(&self.process, fd, ioctl::MEM_GET_EXTENDED_INFO, argument);
        self.addresses.extend(known.map(|info| info.pa));
    }

    /// Dies; what it had mapped has ended.
    fn die(&self) {
        self.process.kill();
        for map in &self.maps {
            assert_eq!(map.bytes.read(0, &mut [0]), Err(MappingError::Gone));
        }
    }
}

/// What must not be named by right: handles have no owner, and by an exact one anybody may do
/// anything.
struct Spared {
    handles: Vec<u64>,
    /// Of the victim's chunks.
    addresses: Vec<u64>,
}

/// Gives every chunk that is there a handle, so that whoever finds it by its address gets one that is
/// spared.
fn publish_all(machine: &Machine) {
    const HOST_BYTES: u64 = 4 << 30;
    let memory = machine.driver().memory(DEVICE).unwrap();
    let profile = machine.arch().profile();
    let host = (0..HOST_BYTES)
        .step_by(4096)
        .map(|at| profile.host_to_bus(HostPa::new(at)));
    let channels = memory.insight().channels;
    let near = channels.iter().flat_map(|channel| &channel.chunks);
    for at in near.map(|chunk| chunk.span.start()).chain(host) {
        if let Some((chunk, _)) = memory.search(at) {
            memory.publish(chunk).unwrap();
        }
    }
}

fn put(bytes: &mut [u8], field: &Field, value: u64) {
    let there = &mut bytes[field.offset..field.offset + field.element_size_bytes];
    let size = there.len();
    there.copy_from_slice(&value.to_le_bytes()[..size]);
}

fn is_alloc(word: u32) -> bool {
    let forms = [
        ioctl::MEM_ALLOC,
        ioctl::MEM_ALLOC_V2,
        ioctl::MEM_ALLOC_V2MT,
        ioctl::MEM_ALLOC_V2MT64,
    ];
    forms.contains(&word)
}

/// Most allocations are to be answered where the answer can be read.
fn point_out_to(command: &Command, bytes: &mut [u8], address: u64) {
    if let Argument::Struct(layout) = command.argument {
        let mut fields = layout.fields.iter();
        if let Some(field) = fields.find(|it| matches!(it.kind, Kind::Pointer)) {
            put(bytes, field, address);
        }
    }
}

/// Somebody with bytes that are nobody else's.
struct Victim {
    device: Arc<Device>,
    chunks: [(McHandle, Vec<u8>); 2],
}

impl Victim {
    fn new(machine: &Machine) -> Self {
        let process = machine.process(Pid::new(99));
        let device = Device::open(process as Arc<_>, DEVICE).unwrap();
        let chunks = [Location::Device, Location::Host].map(|location| {
            let spec = ChunkSpec {
                size_bytes: VICTIM_BYTES as u64,
                align_bytes: 0,
                location,
                channel: Channel::new(0),
                core: CoreId::new(0),
                category: Category::TENSORS_DEVICE,
            };
            let chunk = device.allocate(&spec).unwrap();
            let mut chance = Chance::of(5, u64::from(chunk.get()));
            let bytes: Vec<u8> = (0..VICTIM_BYTES)
                .map(|_| chance.number().to_le_bytes()[0])
                .collect();
            device.buf_write(chunk, 0, &bytes).unwrap();
            (chunk, bytes)
        });
        Self { device, chunks }
    }

    /// All handles that there are, the driver's too, and where its own chunks are.
    fn spared(&self) -> Spared {
        let is_live = |&raw: &u64| {
            let handle = McHandle::from_raw(raw);
            handle.is_some_and(|handle| self.device.physical_address(handle).is_ok())
        };
        let live: Vec<_> = (0..1 << 17).filter(is_live).collect();
        let known = |(chunk, _): &(McHandle, _)| live.contains(&u64::from(chunk.get()));
        assert!(self.chunks.iter().all(known));
        let places = self.chunks.iter();
        let places = places.map(|(chunk, _)| self.device.physical_address(*chunk).unwrap().get());
        Spared {
            addresses: places.collect(),
            handles: live,
        }
    }

    fn is_unharmed(&self) -> bool {
        self.chunks.iter().all(|(chunk, bytes)| {
            let mut found = vec![0; bytes.len()];
            self.device.buf_read(*chunk, 0, &mut found).is_ok() && found == *bytes
        })
    }
}

/// Attacks a machine: the built commands of which none succeeded.
fn attack(model: Model, seed: u64) -> Vec<&'static str> {
    let machine = machine(model, seed);
    let victim = Victim::new(&machine);
    make_what_stays(&machine, DEVICE);
    publish_all(&machine);
    let mut spared = victim.spared();
    let always_spared = spared.handles.len();
    let books = || Books::of(&machine, DEVICE);
    let before = books();
    let mut chance = Chance::of(seed, 0);
    let commands: Vec<_> = COMMANDS.iter().collect();
    let mut answers: BTreeMap<i32, u64> = BTreeMap::new();
    let mut calls: BTreeMap<i32, u64> = BTreeMap::new();
    // Commands that succeeded, and how often.
    let mut done: BTreeMap<&'static str, u64> = BTreeMap::new();
    let (mut sent, mut pid) = (0, 1000);
    while sent < COMMANDS_SENT {
        let mut attackers: Vec<_> = (pid..pid + 3)
            .map(|pid| Attacker::new(&machine, pid, &mut chance))
            .collect();
        spared.handles.truncate(always_spared);
        let shadows = attackers.iter().filter_map(|it| it.shadow.as_ref());
        spared
            .handles
            .extend(shadows.map(|shadow| shadow.mem_handle));
        for step in 0..LIFE {
            if step == LIFE / 4 {
                attackers.push(attackers[0].fork(pid + 3, &mut chance));
            }
            let which = usize::try_from(chance.below(attackers.len() as u64)).unwrap();
            if chance.below(12) == 0 {
                let answer = attackers[which].call(&spared.addresses, &mut chance);
                *calls.entry(answer).or_default() += 1;
            }
            if chance.below(6) == 0 {
                for (word, answer) in attackers[which].work(&mut chance) {
                    if answer.is_ok() {
                        *done.entry(ioctl::name(word).unwrap()).or_default() += 1;
                    }
                }
            }
            let command = match chance.below(3) {
                0 => ioctl::command(ioctl::MEM_ALLOC_V2MT64).unwrap(),
                _ => Attacker::pick(&mut chance, &commands),
            };
            let (word, answer) = attackers[which].send(command, &spared, &mut chance);
            if answer >= 0 && word == command.word {
                *done.entry(command.name).or_default() += 1;
            }
            *answers.entry(answer.min(1)).or_default() += 1;
            sent += 1;
        }
        for attacker in &attackers {
            attacker.die();
        }
        drop(attackers);
        pid += 4;
        assert_eq!(books(), before, "{model:?}: after {sent} commands");
        assert!(victim.is_unharmed(), "{model:?}: after {sent} commands");
    }
    println!("{model:?}: {sent} commands, answers {answers:?}, other calls {calls:?}");
    println!("{model:?}: done {done:?}");
    assert!(calls[&0] > 500, "{calls:?}");
    let never = COMMANDS
        .iter()
        .filter(|command| is_built(command) && !done.contains_key(command.name));
    never.map(|command| command.name).collect()
}

/// Commands that are built, and refuse everything.
const ALWAYS_REFUSED: [&str; 3] = [
    "DMA_QUIESCE_QUEUES",
    "DRIVER_INFO_SET",
    "RESOURCE_MMAP_INFO",
];

/// On the first generation the processor stores what is small, and the rest is refused.
const SELDOM_ON_V2: [&str; 2] = ["MEM_BUF_ZEROCOPY64", "MEM_BUF_ZEROCOPY64_BATCHES"];

fn is_built(command: &Command) -> bool {
    const NOT_BUILT: [u32; 4] = [
        ioctl::MEM_BUF_ZEROCOPY64_2_24,
        ioctl::DMABUF_FD,
        ioctl::NC_MODEL_STARTED_COUNT,
        ioctl::GET_VA_PLACEMENT,
    ];
    !matches!(command.argument, Argument::NotCovered) && !NOT_BUILT.contains(&command.word)
}

#[test]
fn commands_of_any_content_harm_nobody_else_and_leave_nothing() {
    for (model, seed) in Model::ALL.into_iter().zip(1..) {
        let mut never = attack(model, seed);
        never.retain(|name| !ALWAYS_REFUSED.contains(name));
        if model.arch() == Arch::V2 {
            never.retain(|name| !SELDOM_ON_V2.contains(name));
        }
        assert_eq!(never, [""; 0], "{model:?}: good for nothing");
    }
}
