//! Who is let in where, command by command: the gate and the lane of each, by name.

use glia_abi::arch::Arch;
use glia_abi::errno::Errno;
use glia_abi::ioctl::{self, COMMANDS, Gate, Lane};
use glia_abi::transport::OpenMode;

use crate::client::{Client, NOWHERE};
use crate::support::Rig;

/// Commands that want an attached caller (driver 2.27: by their exact words).
const GATED: [u32; 19] = [
    ioctl::BAR_WRITE,
    ioctl::POST_METRIC,
    ioctl::MEM_ALLOC,
    ioctl::MEM_FREE,
    ioctl::MEM_COPY,
    ioctl::MEM_GET_PA,
    ioctl::MEM_GET_INFO,
    ioctl::DMA_ENG_INIT,
    ioctl::DMA_ENG_SET_STATE,
    ioctl::DMA_QUEUE_INIT,
    ioctl::DMA_QUEUE_RELEASE,
    ioctl::DMA_ACK_COMPLETED,
    ioctl::DMA_COPY_DESCRIPTORS,
    ioctl::NOTIFICATIONS_INIT_V1,
    ioctl::NOTIFICATIONS_INIT_V2,
    ioctl::NOTIFICATIONS_INIT_WITH_REALLOC_V2,
    ioctl::MEM_COPY_ASYNC,
    ioctl::MEM_COPY_ASYNC_WAIT,
    ioctl::DRIVER_INFO_SET,
];

/// Commands that a write-only file reaches.
const MISC: [u32; 20] = [
    ioctl::CRWL_NC_RANGE_MARK,
    ioctl::CRWL_NC_RANGE_MARK_EXT0,
    ioctl::CRWL_NC_RANGE_UNMARK,
    ioctl::CRWL_NC_RANGE_UNMARK_EXT0,
    ioctl::COMPATIBLE_VERSION,
    ioctl::DEVICE_BASIC_INFO,
    ioctl::DEVICE_BDF_EXT,
    ioctl::DMABUF_FD,
    ioctl::DRIVER_INFO_GET,
    ioctl::DRIVER_INFO_SET,
    ioctl::PRINTK,
    ioctl::HOST_DEVICE_ID_TO_RID_MAP,
    ioctl::NC_PID_STATE_DUMP,
    ioctl::GET_LOGICAL_TO_PHYSICAL_NC_MAP,
    ioctl::POD_INFO,
    ioctl::POD_STATUS,
    ioctl::POD_STATUS_V2,
    ioctl::POD_CTRL,
    ioctl::POD_CTRL_V2,
    ioctl::GET_VA_PLACEMENT,
];

#[test]
fn the_table_gates_and_lanes_each_command_as_the_reference_does() {
    for command in COMMANDS {
        let is_gated = GATED.contains(&command.word);
        assert_eq!(command.gate == Gate::Attached, is_gated, "{}", command.name);
        let is_misc = MISC.contains(&command.word);
        assert_eq!(command.lane == Lane::Misc, is_misc, "{}", command.name);
    }
}

/// The gate comes before the struct is looked at, and before the question whether the command is
/// built. (Two commands answer `EACCES` for a struct that cannot be read.)
#[test]
fn a_child_is_stopped_at_each_gate_and_nowhere_else() {
    for arch in Arch::ALL {
        // Resets are over at once, so that nobody waits for one.
        let rig = Rig::with(arch, |memory| memory.params.no_reset = true);
        let (_parent, file) = Client::attached(&rig, 7);
        let child = Client::new(&rig, 8);
        for command in COMMANDS {
            let answer = child.raw_ioctl(file, command.word, NOWHERE);
            let is_stopped = answer == Err(Errno::EACCES);
            let is_expected =
                GATED.contains(&command.word) || command.word == ioctl::DMA_QUEUE_INIT_BATCH;
            assert_eq!(is_stopped, is_expected, "{arch:?} {}", command.name);
        }
    }
}

#[test]
fn a_write_only_file_is_refused_each_command_of_the_main_lane() {
    for arch in Arch::ALL {
        let rig = Rig::new(arch);
        let client = Client::new(&rig, 8);
        let file = client.open(OpenMode::WriteOnly).unwrap();
        for command in COMMANDS {
            let answer = client.raw_ioctl(file, command.word, NOWHERE);
            if !MISC.contains(&command.word) {
                assert_eq!(answer, Err(Errno::EINVAL), "{arch:?} {}", command.name);
            } else {
                // Gates are of the other kind of file.
                assert_ne!(answer, Err(Errno::EACCES), "{arch:?} {}", command.name);
            }
        }
    }
}
