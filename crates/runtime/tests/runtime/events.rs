//! What the runtime tells of itself.

use std::sync::{Arc, Mutex};

use glia_abi::arch::Arch;
use glia_abi::errno::Errno;
use glia_abi::event::{CopyPath, CopyWay, Detail, Event, Ids, NameId, Sink};
use glia_abi::handle::{Channel, CoreId, Pid};
use glia_abi::ioctl::{self, feature};
use glia_abi::mem::Location;
use glia_abi::mem_usage::MemUsage;
use glia_abi::nrt::NrtStatus;
use glia_abi::sched::Tick;
use glia_abi::transport::Transport;
use glia_runtime::dmem::AskedAt;
use glia_runtime::tensor::{Fencing, WriteBatch, WriteOp, write_batches};
use glia_runtime::{AllocSpec, Placement, Runtime, RuntimeConfig, Tensor};

use crate::fake::{DEVICE, Fake, core};

const PROCESS: Pid = Pid::new(4711);

/// Keeps what it hears, and names.
struct Heard {
    detail: Detail,
    events: Mutex<Vec<(Ids, Event)>>,
    names: Mutex<Vec<String>>,
}

impl Heard {
    fn new(detail: Detail) -> Arc<Self> {
        Arc::new(Self {
            detail,
            events: Mutex::default(),
            names: Mutex::default(),
        })
    }

    fn take(&self) -> Vec<(Ids, Event)> {
        std::mem::take(&mut *self.events.lock().unwrap())
    }

    fn events(&self) -> Vec<Event> {
        self.take().into_iter().map(|(_, event)| event).collect()
    }
}

impl Sink for Heard {
    fn detail(&self) -> Detail {
        self.detail
    }

    fn name(&self, text: &str) -> Option<NameId> {
        let mut names = self.names.lock().unwrap();
        let known = names.iter().position(|name| name == text);
        let number = known.unwrap_or_else(|| {
            names.push(text.to_owned());
            names.len() - 1
        });
        Some(NameId::new(number as u32))
    }

    fn event(&self, _at: Tick, ids: &Ids, event: &Event) {
        self.events.lock().unwrap().push((*ids, *event));
    }
}

fn open(fake: &Arc<Fake>, heard: &Arc<Heard>) -> Runtime {
    let config = RuntimeConfig {
        sink: Arc::clone(heard) as Arc<_>,
        process: Some(PROCESS),
        ..RuntimeConfig::default()
    };
    let transport = Arc::clone(fake) as Arc<dyn Transport>;
    Runtime::open(transport, &[DEVICE], config).unwrap()
}

fn opened(arch: Arch) -> (Arc<Fake>, Arc<Heard>, Runtime) {
    let (fake, heard) = (Fake::new(arch), Heard::new(Detail::Batches));
    let runtime = open(&fake, &heard);
    assert_eq!(heard.events(), [Event::RuntimeOpened]);
    (fake, heard, runtime)
}

#[test]
fn the_life_of_a_tensor_is_told_in_order_with_its_ids() {
    let (_fake, heard, runtime) = opened(Arch::V3);
    let tensor = Tensor::allocate(&runtime, core(5), Placement::Device, 5000, "kv cache").unwrap();
    tensor.write(8, &[1; 100]).unwrap();
    tensor.read(0, &mut [0; 5000]).unwrap();
    tensor.write(0, &[]).unwrap();
    assert!(tensor.write(4999, &[1; 2]).is_err());
    let at = tensor.memory().unwrap().pa();
    drop(tensor);
    drop(runtime);
    let heard = heard.take();
    let status = NrtStatus::Success;
    let (location, usage) = (Location::Device, MemUsage::Tensor);
    let copied = |way, offset_bytes, size_bytes| Event::Copied {
        way,
        path: CopyPath::Staged,
        offset_bytes,
        size_bytes,
        status,
    };
    let events: Vec<_> = heard.iter().map(|(_, event)| *event).collect();
    let wanted = [
        Event::Allocated {
            at,
            size_bytes: 5000,
            allocated_bytes: 5000,
            location,
            usage,
            model: None,
            model_name: None,
            hint: Some(NameId::new(0)),
            site: Some(NameId::new(1)),
        },
        copied(CopyWay::In, 8, 100),
        copied(CopyWay::Out, 0, 5000),
        Event::Freed {
            size_bytes: 5000,
            allocated_bytes: 5000,
            location,
            usage,
            status,
        },
        Event::RuntimeClosed,
    ];
    assert_eq!(events, wanted);

    let (last, of_the_tensor) = heard.split_last().unwrap();
    let of_device = Ids {
        process: Some(PROCESS),
        ..Ids::device(DEVICE)
    };
    assert_eq!(last.0, of_device);
    // Behind the copy buffers of eight cores.
    let handle = glia_abi::handle::McHandle::new(9);
    let of_tensor = Ids {
        core: Some(CoreId::new(5)),
        channel: Some(Channel::new(2)),
        handle,
        ..of_device
    };
    assert!(of_the_tensor.iter().all(|(ids, _)| *ids == of_tensor));
}

#[test]
fn host_memory_is_copied_through_a_mapping() {
    let (_fake, heard, runtime) = opened(Arch::V2);
    let tensor = Tensor::allocate(&runtime, core(0), Placement::Host, 64, "").unwrap();
    tensor.write(0, &[7; 64]).unwrap();
    let events = heard.events();
    assert!(matches!(
        events[..],
        [
            Event::Allocated {
                location: Location::Host,
                hint: None,
                ..
            },
            Event::Copied {
                path: CopyPath::Mapped,
                size_bytes: 64,
                ..
            }
        ]
    ));
}

/// The ways and ranges of the copies that were told.
fn copies(events: &[Event]) -> Vec<(CopyWay, CopyPath, u64, u64)> {
    let copies = events.iter().filter_map(|event| match *event {
        Event::Copied {
            way,
            path,
            offset_bytes,
            size_bytes,
            status: NrtStatus::Success,
        } => Some((way, path, offset_bytes, size_bytes)),
        _ => None,
    });
    copies.collect()
}

#[test]
fn host_memory_is_read_by_the_callers_pages_if_the_copy_buffer_is_not_to_be_used() {
    let (fake, heard) = (Fake::new(Arch::V3), Heard::new(Detail::Batches));
    fake.state().features |= feature::ZEROCOPY;
    let config = RuntimeConfig {
        sink: Arc::clone(&heard) as Arc<_>,
        zero_copy: true,
        ..RuntimeConfig::default()
    };
    let transport = Arc::clone(&fake) as Arc<dyn Transport>;
    let runtime = Runtime::open(transport, &[DEVICE], config).unwrap();
    let spec = AllocSpec {
        location: Location::Host,
        ..AllocSpec::device(64, MemUsage::Tensor)
    };
    let memory = runtime.allocate(core(0), &spec).unwrap();
    memory.write(8, b"bytes").unwrap();
    let mut back = [0; 5];
    memory.read(8, &mut back).unwrap();
    assert_eq!(&back, b"bytes");
    let wanted = [
        (CopyWay::In, CopyPath::Mapped, 8, 5),
        (CopyWay::Out, CopyPath::ZeroCopy, 8, 5),
    ];
    assert_eq!(copies(&heard.events()), wanted);
}

#[test]
fn fills_copies_and_batches_are_told_range_by_range() {
    let (fake, heard) = (Fake::new(Arch::V3), Heard::new(Detail::Batches));
    fake.state().features |= feature::ZEROCOPY;
    let runtime = open(&fake, &heard);
    let allocate = |name| Tensor::allocate(&runtime, core(0), Placement::Device, 1000, name);
    let (source, target) = (allocate("a").unwrap(), allocate("b").unwrap());
    source.fill(10, 20, 7).unwrap();
    source.copy_to(10, &target, 500, 20).unwrap();
    let view = target.slice(500, 100, "view").unwrap();
    let ops = [(3, &b"abc"[..]), (9, b""), (50, b"de")];
    let ops = ops.map(|(offset_bytes, bytes)| WriteOp {
        offset_bytes,
        bytes,
    });
    let batch = WriteBatch {
        tensor: &view,
        ops: &ops,
    };
    write_batches(&[batch], Fencing::Fenced).unwrap();
    let wanted = [
        (CopyWay::In, CopyPath::Filled, 10, 20),
        (CopyWay::In, CopyPath::Between, 500, 20),
        (CopyWay::In, CopyPath::ZeroCopy, 503, 3),
        (CopyWay::In, CopyPath::ZeroCopy, 550, 2),
    ];
    assert_eq!(copies(&heard.events()), wanted);
}

#[test]
fn what_the_runtime_aligns_by_itself_begins_behind_the_chunk() {
    let (_fake, heard, runtime) = opened(Arch::V2);
    let spec = AllocSpec {
        align_bytes: 0x10000,
        location: Location::Host,
        ..AllocSpec::device(4096, MemUsage::Tensor)
    };
    let memory = runtime.allocate(core(0), &spec).unwrap();
    let events = heard.events();
    let [
        Event::Allocated {
            at,
            size_bytes,
            allocated_bytes,
            ..
        },
    ] = events[..]
    else {
        panic!("{events:?}")
    };
    assert_eq!((size_bytes, allocated_bytes), (4096, 4096 + 0x10000));
    assert_eq!(at, memory.pa());
    assert_ne!(at, memory.facts().pa);
}

#[test]
fn an_allocation_that_fails_is_told_once_with_what_was_answered() {
    let (fake, heard, runtime) = opened(Arch::V3);
    let spec = AllocSpec {
        hint: Some("too much"),
        site: Some(AskedAt::Line(7)),
        align_bytes: 4096,
        ..AllocSpec::device(1 << 60, MemUsage::Weight)
    };
    let failed = |location, status| Event::AllocationFailed {
        size_bytes: 1 << 60,
        align_bytes: 4096,
        location,
        usage: MemUsage::Weight,
        hint: Some(NameId::new(0)),
        site: Some(NameId::new(1)),
        status,
    };
    assert!(runtime.allocate(core(7), &spec).is_err());
    let told = heard.take();
    assert_eq!(heard.names.lock().unwrap()[..], ["too much", "line 7"]);
    let ids = Ids {
        process: Some(PROCESS),
        core: Some(CoreId::new(7)),
        channel: Some(Channel::new(3)),
        ..Ids::device(DEVICE)
    };
    assert_eq!(told, [(ids, failed(Location::Device, NrtStatus::Resource))]);

    let location = Location::Host;
    let on_host = AllocSpec { location, ..spec };
    assert!(runtime.allocate(core(7), &on_host).is_err());
    assert_eq!(
        heard.events(),
        [failed(location, NrtStatus::FailHostMemAlloc)]
    );

    // A second try that succeeds, after the driver has refused to align, is no failure.
    fake.fail(ioctl::MEM_ALLOC_V2MT64, 0, Errno::EINVAL);
    let small = AllocSpec {
        size_bytes: 100,
        ..spec
    };
    runtime.allocate(core(7), &small).unwrap();
    let events = heard.events();
    assert!(matches!(
        events[..],
        [Event::Allocated { .. }, Event::Freed { .. }]
    ));
}

#[test]
fn memory_that_is_never_asked_for_is_a_failed_allocation_too() {
    let (_fake, heard, runtime) = opened(Arch::V3);
    let host_tensor = Tensor::allocate(&runtime, core(0), Placement::Host, 64, "t");
    assert!(host_tensor.is_err());
    let elsewhere = AllocSpec {
        channel: Some(Channel::new(9)),
        ..AllocSpec::device(64, MemUsage::Tensor)
    };
    assert!(runtime.allocate(core(0), &elsewhere).is_err());
    let mut sites = Vec::new();
    let statuses: Vec<_> = heard
        .take()
        .into_iter()
        .map(|(ids, event)| match event {
            Event::AllocationFailed { status, site, .. } => {
                sites.push(site.unwrap());
                (ids.channel.unwrap().get(), status)
            }
            other => panic!("{other:?}"),
        })
        .collect();
    // The lines above that asked.
    let names = heard.names.lock().unwrap();
    let here = sites.iter().map(|site| &names[site.get() as usize]);
    assert!(
        here.clone().all(|name| name.contains("events.rs:")),
        "{names:?}"
    );
    assert_ne!(sites[0], sites[1]);
    assert_eq!(
        statuses,
        [(0, NrtStatus::Resource), (9, NrtStatus::Invalid)]
    );
}

#[test]
fn a_model_names_what_it_owns_and_is_unloaded_behind_it() {
    let (_fake, heard, runtime) = opened(Arch::V2);
    let model = runtime.load_model(core(1), "llama").unwrap();
    let spec = AllocSpec {
        hint: Some("weights"),
        ..AllocSpec::device(4096, MemUsage::Weight)
    };
    let line = line!() + 1;
    let _left = model.allocate(&spec).unwrap();
    drop(model);
    let told = heard.take();
    let [
        (ids, loaded),
        (_, allocated),
        (_, Event::Freed { .. }),
        (_, unloaded),
    ] = told[..]
    else {
        panic!("{told:?}")
    };
    let (model, llama) = (1001, Some(NameId::new(0)));
    let model_name = llama;
    assert_eq!(loaded, Event::ModelLoaded { model, model_name });
    assert_eq!(unloaded, Event::ModelUnloaded { model });
    assert_eq!(ids.core, Some(CoreId::new(1)));
    assert!(matches!(
        allocated,
        Event::Allocated { model: Some(1001), model_name, hint, site, .. }
            if model_name == llama
                && (hint, site) == (Some(NameId::new(1)), Some(NameId::new(2)))
    ));
    let names = heard.names.lock().unwrap();
    assert_eq!(names[..2], ["llama", "weights"]);
    let line = format!("{}:{line}:", file!());
    assert!(names[2].starts_with(&line), "{names:?}");
}

#[test]
fn copies_and_frees_that_fail_say_so() {
    let (fake, heard, runtime) = opened(Arch::V3);
    let spec = AllocSpec::device(4096, MemUsage::Tensor);
    let memory = runtime.allocate(core(0), &spec).unwrap();
    heard.take();
    fake.fail(ioctl::MEM_COPY_ASYNC64, 0, Errno::EIO);
    fake.fail(ioctl::MEM_FREE, 0, Errno::EINVAL);
    assert!(memory.write(0, &[1; 16]).is_err());
    drop(memory);
    let events = heard.events();
    let status = NrtStatus::Failure;
    assert!(
        matches!(
            events[..],
            [Event::Copied { status: copied, .. }, Event::Freed { status: freed, .. }]
                if (copied, freed) == (status, status)
        ),
        "{events:?}"
    );
}

#[test]
fn a_sink_that_wants_nothing_is_told_nothing_and_asked_for_no_name() {
    let (fake, heard) = (Fake::new(Arch::V2), Heard::new(Detail::Nothing));
    let runtime = open(&fake, &heard);
    let model = runtime.load_model(core(0), "llama").unwrap();
    let tensor = Tensor::allocate(&runtime, core(0), Placement::Device, 64, "t").unwrap();
    tensor.write(0, &[1; 64]).unwrap();
    drop((tensor, model, runtime));
    assert_eq!(heard.take(), []);
    assert!(heard.names.lock().unwrap().is_empty());
}
