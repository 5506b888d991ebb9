//! Bytes in use on a core, and the most that can be.

/// What `nrt_get_vnc_memory_stats` answers (runtime 2.27).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct MemoryStats {
    /// Bytes that are charged to the core.
    pub used_bytes: u64,
    /// Bytes of its HBM, which other cores may share.
    pub limit_bytes: u64,
}

impl MemoryStats {
    /// Bytes of the C struct. It grows at its end only, so that callers of another age can be
    /// served.
    pub const SIZE: usize = 16;

    /// Copies the C struct into `into`, as much of it as there is room for; how much that was.
    /// (Less than all of it: uncertain.)
    pub fn copy_to(&self, into: &mut [u8]) -> usize {
        let fields = [self.used_bytes, self.limit_bytes].map(u64::to_ne_bytes);
        let bytes = fields.as_flattened();
        let size = bytes.len().min(into.len());
        into[..size].copy_from_slice(&bytes[..size]);
        size
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_caller_gets_as_much_of_the_struct_as_it_has_room_for() {
        let stats = MemoryStats {
            used_bytes: 0x0101_0101_0101_0101,
            limit_bytes: 0x0202_0202_0202_0202,
        };
        let copied = |size: usize| {
            let mut into = vec![9; size];
            (stats.copy_to(&mut into), into)
        };
        let whole = [[1; 8], [2; 8]].as_flattened().to_vec();
        assert_eq!(copied(16), (MemoryStats::SIZE, whole.clone()));
        assert_eq!(copied(12), (12, whole[..12].to_vec()));
        assert_eq!(copied(20), (16, [whole, vec![9; 4]].concat()));
    }
}
