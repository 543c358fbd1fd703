//! The request pool: rows `1..=max_batch_size`, given first in, first out. Row 0 is reserved.

use std::collections::VecDeque;

use super::handle::Handle;
use super::set::RequestKey;

/// Who sits where.
#[derive(Debug)]
pub struct Rows {
    free: VecDeque<i32>,
    /// By row.
    tenants: Vec<Option<RequestKey>>,
    /// By row: raised when a tenant leaves.
    generations: Vec<u32>,
}

impl Rows {
    /// Rows for that many requests.
    pub fn new(max_batch_size: usize) -> Rows {
        Rows {
            free: (1..=max_batch_size as i32).collect(),
            tenants: vec![None; max_batch_size + 1],
            generations: vec![0; max_batch_size + 1],
        }
    }

    /// The row that the next admission gets.
    pub fn next(&self) -> Option<i32> {
        self.free.front().copied()
    }

    /// Seats a request in the next row.
    pub fn take(&mut self, key: RequestKey) {
        let row = self.free.pop_front().expect("the caller has looked for a row");
        self.tenants[row as usize] = Some(key);
    }

    /// Frees a row; its handle is dead from here on.
    pub fn give_back(&mut self, row: i32) {
        self.tenants[row as usize] = None;
        self.generations[row as usize] = self.generations[row as usize].wrapping_add(1);
        self.free.push_back(row);
    }

    /// The handle of a row's tenant.
    pub fn handle(&self, row: i32) -> Handle {
        Handle::new(row, self.generations[row as usize])
    }

    /// The request that a handle names, if it is still seated.
    pub fn find(&self, handle: Handle) -> Option<RequestKey> {
        let current = self.generations.get(handle.row())? == &handle.generation();
        if current { self.tenants[handle.row()] } else { None }
    }

    /// Rows to be had.
    pub fn free(&self) -> usize {
        self.free.len()
    }

    /// Rows in use.
    pub fn in_use(&self) -> usize {
        self.tenants.len() - 1 - self.free.len()
    }
}
