//! Commands by their bytes, as code above `/dev/neuron*` sends them; and a process that dies with what
//! it has, while its child has the same file open.

use glia::machine::Machine;
use glia_abi::handle::{DeviceId, Pid};
use glia_abi::ioctl::{self, MemAllocV2Mt64, MemFree};
use glia_abi::transport::{Lent, OpenMode, Transport as _, user_addr};
use zerocopy::IntoBytes as _;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let machine = Machine::trn2()?;
    let device = DeviceId::new(0);
    let chunks = || machine.driver().memory(device).map(|it| it.stats().chunks);
    let before = chunks();
    let process = machine.process(Pid::new(7));
    let fd = process.open(device, OpenMode::ReadWrite)?;

    // The struct's pointer leads to memory that is lent with the call.
    let mut handle = [0; 8];
    let mut alloc = MemAllocV2Mt64 {
        size: 1 << 20,
        mem_type: 9, // a tensor
        mem_handle: user_addr(&handle).get(),
        ..MemAllocV2Mt64::default()
    };
    let lent = &mut [Lent::Out(&mut handle)];
    process.ioctl(fd, ioctl::MEM_ALLOC_V2MT64, alloc.as_mut_bytes(), lent)?;
    println!("a chunk with handle {}", u64::from_ne_bytes(handle));

    let mut nobody = MemFree { mem_handle: 4711 };
    let freed = process.ioctl(fd, ioctl::MEM_FREE, nobody.as_mut_bytes(), &mut []);
    println!("a free of handle 4711: {freed:?}");

    let child = process.fork(Pid::new(8))?;
    process.kill();
    println!("the child closes: {:?}", child.close(fd));
    println!("all as before: {}", chunks() == before);
    Ok(())
}
