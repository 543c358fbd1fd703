//! The block tables of batches, written into the memory of plans that are gone (`cache.md` §9).
//!
//! A batch in the next round is mostly the batch of this one, and so are its tables. Once a plan was let
//! go, its tables are brought up to date in place: rows of other requests are written anew, blocks that
//! requests gained are appended, and nothing else is touched. A plan that is still held keeps its own.

use std::sync::Arc;

use crate::cache::GroupIndex;
use crate::request::{Handle, RequestKey, RequestSet};

/// A group's table of a batch: `[requests, columns]`, row-major; slots absolute, hole 0, padding -1.
#[derive(Debug, Default, Clone, PartialEq)]
pub struct BlockTable {
    /// Row-major cells, `requests * columns` of them.
    pub cells: Arc<Vec<i32>>,
    /// Slots of the longest table in the batch.
    pub columns: usize,
}

/// Tables that were handed out, by group, the latest last.
#[derive(Debug)]
pub struct BatchTables {
    groups: Vec<Vec<Written>>,
}

/// Tables of a group that are remembered: those of the plan that is being carried out, of one planned
/// ahead of its results, and of one to write to.
const REMEMBERED_MAX: usize = 3;

#[derive(Debug, Default)]
struct Written {
    table: BlockTable,
    /// What each row shows.
    rows: Vec<Shown>,
}

/// What a row of a table shows.
#[derive(Debug, PartialEq, Eq)]
struct Shown {
    handle: Handle,
    /// How often slots of the request's table had changed
    /// ([`Table::rewrites`](crate::cache::table::Table::rewrites)).
    rewrites: u32,
    slots: usize,
}

impl BatchTables {
    /// For so many groups.
    pub fn new(groups: usize) -> BatchTables {
        BatchTables { groups: (0..groups).map(|_| Vec::new()).collect() }
    }

    /// The tables of a batch of requests with these handles, one a group; none for a batch of nobody.
    pub fn of(
        &mut self,
        requests: &RequestSet,
        handles: &[Handle],
        keys: impl Iterator<Item = RequestKey> + Clone,
    ) -> Vec<BlockTable> {
        if handles.is_empty() {
            return Vec::new();
        }
        let groups = self.groups.iter_mut().enumerate();
        let table = |(group, remembered): (GroupIndex, &mut Vec<Written>)| {
            let idle =
                remembered.iter_mut().rposition(|w| Arc::get_mut(&mut w.table.cells).is_some());
            let mut written = match idle {
                Some(at) => remembered.remove(at),
                None => Written::default(),
            };
            written.show(requests, handles, keys.clone(), group);
            let table = written.table.clone();
            if remembered.len() == REMEMBERED_MAX {
                remembered.remove(0);
            }
            remembered.push(written);
            table
        };
        groups.map(table).collect()
    }
}

impl Written {
    fn show(
        &mut self,
        requests: &RequestSet,
        handles: &[Handle],
        keys: impl Iterator<Item = RequestKey> + Clone,
        group: GroupIndex,
    ) {
        let table_of = |key: RequestKey| &requests[key].holdings.groups[group].table;
        let columns = keys.clone().map(|key| table_of(key).len()).max().unwrap_or(0);
        if columns != self.table.columns {
            self.table.columns = columns;
            self.rows.clear();
        }
        self.rows.truncate(handles.len());
        let cells = Arc::get_mut(&mut self.table.cells).expect("nobody else holds it");
        cells.resize(handles.len() * columns, -1);
        for (at, (key, &handle)) in keys.zip(handles).enumerate() {
            let table = table_of(key);
            let shown = Shown { handle, rewrites: table.rewrites(), slots: table.len() };
            let from = match self.rows.get(at) {
                Some(before) if *before == shown => continue,
                Some(before)
                    if (before.handle, before.rewrites) == (shown.handle, shown.rewrites) =>
                {
                    before.slots
                }
                _ => 0,
            };
            let cells = &mut cells[at * columns..(at + 1) * columns];
            for (cell, &block) in cells[from..].iter_mut().zip(&table.slots()[from..]) {
                *cell = block as i32;
            }
            if from == 0 {
                cells[shown.slots..].fill(-1);
            }
            match self.rows.get_mut(at) {
                Some(before) => *before = shown,
                None => self.rows.push(shown),
            }
        }
    }
}
