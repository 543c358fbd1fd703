//! The persistent block tables: every request's slots, in arrays that an engine reads in place
//! (`api.md`, "Beyond that surface").

use std::sync::Arc;
use std::sync::atomic::{AtomicI32, Ordering};

use super::geometry::{BlockId, GroupIndex};

/// A cell of a persistent block table: `tables[group][row, slot] = block`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(C)]
pub struct ChangedCell {
    /// Request-pool row, 1-based (row 0 is reserved).
    pub row: i32,
    /// Absolute slot: tokens `[slot * g, (slot + 1) * g)`.
    pub slot: i32,
    /// Block id, 0 for a hole.
    pub block: i32,
}

/// For each group one array `[rows, columns]` of block ids, kept current in place.
///
/// A cell that a forward reads may be read from another thread while a later plan is made: cells are
/// relaxed atomics, so such a read sees the old id or the new one.
#[derive(Debug)]
pub struct PersistentTables {
    groups: Vec<PersistentTable>,
    rows: usize,
    /// `(row, slot)` of the cells written since the last drain, by group; repeats possible.
    written: Vec<Vec<(i32, i32)>>,
}

/// One group's array.
#[derive(Debug, Clone)]
pub struct PersistentTable {
    /// Row-major cells, `rows * columns`.
    pub cells: Arc<Vec<AtomicI32>>,
    /// Slots a row has room for: a multiple of 16, half as many more when a request outgrows it.
    pub columns: usize,
}

/// Columns of a fresh persistent table, and what every width is a multiple of: a cache line of cells.
const COLUMNS_STEP: usize = 16;

impl PersistentTable {
    fn new(rows: usize, columns: usize) -> PersistentTable {
        let cells = (0..rows * columns).map(|_| AtomicI32::new(0)).collect();
        PersistentTable { cells: Arc::new(cells), columns }
    }

    /// The block id in a cell.
    pub fn get(&self, row: usize, slot: usize) -> i32 {
        self.cells[row * self.columns + slot].load(Ordering::Relaxed)
    }

    fn with_columns(&self, rows: usize, columns: usize) -> PersistentTable {
        let wider = PersistentTable::new(rows, columns);
        for row in 0..rows {
            for slot in 0..self.columns {
                wider.cells[row * columns + slot].store(self.get(row, slot), Ordering::Relaxed);
            }
        }
        wider
    }
}

impl PersistentTables {
    /// Empty tables for rows `0..rows`.
    pub fn new(groups: usize, rows: usize) -> PersistentTables {
        PersistentTables {
            groups: (0..groups).map(|_| PersistentTable::new(rows, COLUMNS_STEP)).collect(),
            rows,
            written: vec![Vec::new(); groups],
        }
    }

    /// The current array of a group.
    pub fn group(&self, group: GroupIndex) -> &PersistentTable {
        &self.groups[group]
    }

    /// Writes to one row of one group.
    pub fn row(&mut self, group: GroupIndex, row: i32) -> RowCells<'_> {
        RowCells {
            table: &mut self.groups[group],
            rows: self.rows,
            row,
            written: &mut self.written[group],
        }
    }

    /// Moves the cells written since the last drain into `changed`, with the ids they hold now.
    pub fn drain_changes(&mut self, changed: &mut Vec<Vec<ChangedCell>>) {
        changed.resize_with(self.groups.len(), Vec::new);
        for ((table, written), changed) in self.groups.iter().zip(&mut self.written).zip(changed) {
            changed.clear();
            changed.extend(written.drain(..).map(|(row, slot)| ChangedCell {
                row,
                slot,
                block: table.get(row as usize, slot as usize),
            }));
        }
    }
}

/// The cells of one row of one group.
#[derive(Debug)]
pub struct RowCells<'a> {
    table: &'a mut PersistentTable,
    rows: usize,
    row: i32,
    written: &'a mut Vec<(i32, i32)>,
}

impl RowCells<'_> {
    /// Sets a cell and notes it as changed.
    pub fn set(&mut self, slot: usize, block: BlockId) {
        if slot >= self.table.columns {
            let wider = (self.table.columns * 3 / 2).max(slot + 1);
            let columns = wider.next_multiple_of(COLUMNS_STEP);
            *self.table = self.table.with_columns(self.rows, columns);
        }
        let at = self.row as usize * self.table.columns + slot;
        self.table.cells[at].store(block as i32, Ordering::Relaxed);
        self.written.push((self.row, slot as i32));
    }
}
