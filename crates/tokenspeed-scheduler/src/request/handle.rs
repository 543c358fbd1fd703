//! A request as the array path names it: its row, and which tenant of the row it is.

use serde::{Deserialize, Serialize};

/// Row of the request pool in the low half, generation of the row in the high half. A row is used
/// again and a handle never is, so that a late result cannot reach the row's next tenant.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[repr(transparent)]
pub struct Handle(pub u64);

impl Handle {
    /// The handle of a row's tenant.
    pub fn new(row: i32, generation: u32) -> Handle {
        Handle(u64::from(generation) << 32 | row as u64)
    }

    /// The row, from 1.
    pub fn row(self) -> usize {
        (self.0 & u64::from(u32::MAX)) as usize
    }

    /// The tenant's number.
    pub fn generation(self) -> u32 {
        (self.0 >> 32) as u32
    }
}
