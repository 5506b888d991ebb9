//! Tensor sets: tensors by name, as a model takes them.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::Tensor;
use crate::error::RuntimeError;

/// Tensors by the names that a model calls them. A set shares its tensors; dropping it frees none
/// that somebody else holds.
#[derive(Debug, Clone, Default)]
pub struct TensorSet(BTreeMap<String, Arc<Tensor>>);

impl TensorSet {
    /// A set without tensors.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a tensor under a name, in the place of one that had the name (uncertain: the
    /// reference's answer to a second one is not known).
    pub fn add(&mut self, name: &str, tensor: Arc<Tensor>) {
        self.0.insert(name.to_owned(), tensor);
    }

    /// The tensor of a name.
    ///
    /// # Errors
    /// [`RuntimeError::NoTensor`].
    pub fn get(&self, name: &str) -> Result<&Arc<Tensor>, RuntimeError> {
        self.0.get(name).ok_or_else(|| RuntimeError::NoTensor {
            name: name.to_owned(),
        })
    }

    /// Names and tensors, by name.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = (&str, &Arc<Tensor>)> {
        self.0.iter().map(|(name, tensor)| (name.as_str(), tensor))
    }
}
