//! Which variables of a model fit the shared range, and how much of it they need.

use crate::error::RuntimeError;

/// A variable that a model keeps in the scratchpad.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct ScratchVariable {
    /// Its offset in the shared range.
    pub offset_bytes: u64,
    /// Its bytes.
    pub size_bytes: u64,
}

impl ScratchVariable {
    /// Whether it lies on two pages of this size.
    fn crosses(&self, page_size_bytes: u64) -> bool {
        let room_bytes = page_size_bytes - self.offset_bytes % page_size_bytes;
        self.size_bytes > room_bytes
    }
}

/// The variables of a model over pages of one size.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Plan {
    /// Each with whether it needs a block of its own.
    pub(super) variables: Vec<(ScratchVariable, bool)>,
    /// Bytes of the shared range up to the end of the last variable, private ones included.
    pub(super) shared_bytes: u64,
}

impl Plan {
    pub(super) fn new(
        variables: &[ScratchVariable],
        page_size_bytes: u64,
        is_contiguous: bool,
    ) -> Result<Self, RuntimeError> {
        let mut shared_bytes = 0;
        for variable in variables {
            let end_bytes = variable.offset_bytes.checked_add(variable.size_bytes);
            let end_bytes = end_bytes.ok_or(RuntimeError::ScratchVariable(*variable))?;
            shared_bytes = end_bytes.max(shared_bytes);
        }
        let is_private =
            |variable: &ScratchVariable| !is_contiguous && variable.crosses(page_size_bytes);
        let variables = variables.iter().map(|one| (*one, is_private(one)));
        Ok(Self {
            variables: variables.collect(),
            shared_bytes,
        })
    }

    /// Whether nothing would be private with pages of another size.
    pub(super) fn fits_pages_of(&self, page_size_bytes: u64) -> bool {
        let mut variables = self.variables.iter();
        variables.all(|(variable, _)| !variable.crosses(page_size_bytes))
    }

    pub(super) fn private(&self) -> impl Iterator<Item = &ScratchVariable> {
        let variables = self.variables.iter();
        variables.filter_map(|(one, is_private)| is_private.then_some(one))
    }

    /// Bytes of the largest private variable, 0 if there is none.
    pub(super) fn largest_oversized_bytes(&self) -> u64 {
        self.private().map(|one| one.size_bytes).max().unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    fn split(variables: &[(u64, u64)], page_mib: u64) -> (u64, Vec<bool>) {
        let variables: Vec<_> = variables
            .iter()
            .map(|&(offset_mib, size_mib)| ScratchVariable {
                offset_bytes: offset_mib * MIB,
                size_bytes: size_mib * MIB,
            })
            .collect();
        let plan = Plan::new(&variables, page_mib * MIB, false).unwrap();
        let is_private = plan.variables.iter().map(|(_, is_private)| *is_private);
        (plan.shared_bytes / MIB, is_private.collect())
    }

    #[test]
    fn what_crosses_the_end_of_a_page_is_private_and_counts_as_shared_need() {
        assert_eq!(split(&[(0, 512), (512, 512)], 512), (1024, vec![false; 2]));
        assert_eq!(split(&[(1, 512)], 512), (513, vec![true]));
        assert_eq!(split(&[(511, 1), (511, 2)], 512), (513, vec![false, true]));
        assert_eq!(split(&[], 512), (0, vec![]));
    }

    #[test]
    fn a_variable_that_leaves_64_bits_is_refused() {
        let variable = ScratchVariable {
            offset_bytes: u64::MAX,
            size_bytes: 1,
        };
        let error = Plan::new(&[variable], 512 * MIB, true).unwrap_err();
        assert_eq!(
            error.to_string(),
            "a scratchpad variable of 1 bytes at offset 18446744073709551615 does not fit 64 bits"
        );
    }
}
