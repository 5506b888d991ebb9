//! `PROGRAM_ENGINE` in its three forms.

use glia_abi::addr::BusAddr;
use glia_abi::arch::Arch;
use glia_abi::errno::Errno;
use glia_abi::handle::FileId;
use glia_abi::ioctl::{self, ProgramEngine, ProgramEngineNc, ProgramEngineNc64};
use glia_abi::transport::OpenMode;

use crate::client::{Client, NOWHERE, device_memory};
use crate::queue_rig::ARCHES;
use crate::support::{MIB, PAGE, Rig};

/// A form: the command with these numbers.
type Form = fn(&Client<'_>, FileId, ProgramEngineNc64) -> Result<(), Errno>;

fn oldest(client: &Client<'_>, file: FileId, want: ProgramEngineNc64) -> Result<(), Errno> {
    let argument = ProgramEngine {
        dst: want.dst,
        buffer: want.buffer,
        size: want.size as u32,
        offset: want.offset as u32,
    };
    client
        .ioctl(file, ioctl::PROGRAM_ENGINE, argument)
        .map(drop)
}

fn of_core(client: &Client<'_>, file: FileId, want: ProgramEngineNc64) -> Result<(), Errno> {
    let argument = ProgramEngineNc {
        nc_id: want.nc_id,
        pad: 0,
        dst: want.dst,
        buffer: want.buffer,
        size: want.size as u32,
        offset: want.offset as u32,
    };
    client
        .ioctl(file, ioctl::PROGRAM_ENGINE_NC, argument)
        .map(drop)
}

fn wide(client: &Client<'_>, file: FileId, want: ProgramEngineNc64) -> Result<(), Errno> {
    client
        .ioctl(file, ioctl::PROGRAM_ENGINE_NC64, want)
        .map(drop)
}

const FORMS: [Form; 3] = [oldest, of_core, wide];

#[test]
fn the_offset_counts_on_both_sides_in_every_form() {
    for arch in ARCHES {
        for form in FORMS {
            let rig = Rig::new(arch);
            let (client, file) = Client::attached(&rig, 7);
            let mem_handle = client.alloc(file, device_memory(MIB)).unwrap();
            let dst = client.get_pa(file, mem_handle).unwrap();
            let bytes: Vec<u8> = (0..3 * PAGE).map(|at| (at % 251) as u8).collect();
            let want = ProgramEngineNc64 {
                nc_id: 1,
                dst,
                buffer: client.space.put(&bytes),
                size: 2 * PAGE,
                offset: PAGE,
                ..ProgramEngineNc64::default()
            };
            form(&client, file, want).unwrap();
            let written = rig.port.peek(BusAddr::new(dst + PAGE), 2 * PAGE);
            assert_eq!(written, bytes[PAGE as usize..]);
            assert_ne!(
                rig.port.peek(BusAddr::new(dst), 1),
                bytes[..1],
                "nothing before it"
            );
            let host_bytes = rig.memory().stats().host_bytes;
            form(&client, file, want).unwrap();
            assert_eq!(
                rig.memory().stats().host_bytes,
                host_bytes,
                "no buffer stays behind"
            );
        }
    }
}

#[test]
fn a_target_outside_of_hbm_has_no_memory_and_comes_before_everything_else() {
    for arch in ARCHES {
        let rig = Rig::new(arch);
        let (client, file) = Client::attached(&rig, 7);
        let end = 32 * MIB;
        let ask = |dst, offset, size| {
            let want = ProgramEngineNc64 {
                nc_id: 99,
                dst,
                buffer: NOWHERE,
                size,
                offset,
                ..ProgramEngineNc64::default()
            };
            wide(&client, file, want)
        };
        for (dst, offset, size) in [
            (end, 0, 1),
            (end - 1, 0, 2),
            (end - 2, 1, 2),
            (arch.profile().host_base, 0, 1),
            (u64::MAX, 1, 0),
            (u64::MAX - 8, 4, 16),
            (4, u64::MAX - 2, 1),
            (0, 0, u64::MAX),
        ] {
            assert_eq!(
                ask(dst, offset, size),
                Err(Errno::ENOMEM),
                "{dst:#x} {offset} {size}"
            );
        }
        assert_eq!(ask(0, 0, 1), Err(Errno::EINVAL), "no such core to charge");
        assert_eq!(ask(0, 0, 0), Ok(()), "nothing to move");
    }
}

#[test]
fn the_buffer_of_the_driver_comes_before_that_of_the_caller() {
    for arch in ARCHES {
        for form in FORMS {
            let rig = Rig::new(arch);
            let (client, file) = Client::attached(&rig, 7);
            let want = ProgramEngineNc64 {
                dst: 16 * MIB,
                buffer: NOWHERE,
                size: PAGE,
                ..ProgramEngineNc64::default()
            };
            rig.host.set_full(true);
            assert_eq!(form(&client, file, want), Err(Errno::ENOMEM));
            rig.host.set_full(false);
            assert_eq!(form(&client, file, want), Err(Errno::EFAULT));
        }
    }
    let rig = Rig::new(Arch::V2);
    let (client, file) = Client::attached(&rig, 7);
    let misc = client.open(OpenMode::WriteOnly).unwrap();
    let words = [
        ioctl::PROGRAM_ENGINE,
        ioctl::PROGRAM_ENGINE_NC,
        ioctl::PROGRAM_ENGINE_NC64,
    ];
    for word in words {
        assert_eq!(client.raw_ioctl(file, word, NOWHERE), Err(Errno::EFAULT));
        assert_eq!(client.raw_ioctl(misc, word, NOWHERE), Err(Errno::EINVAL));
        let other_form = client.raw_ioctl(file, word + (4 << 16), NOWHERE);
        assert_eq!(other_form, Err(Errno::EINVAL));
    }
}
