//! NumPy arrays over memory that stays where it is: no copy, read-only.

use std::sync::Arc;
use std::sync::atomic::AtomicI32;

use numpy::ndarray::{ArrayView, ArrayView1, ArrayView2, Dimension};
use numpy::npyffi::flags::NPY_ARRAY_WRITEABLE;
use numpy::{Element, PyArray, PyArray1, PyArray2, PyUntypedArrayMethods};
use pyo3::PyClass;
use pyo3::prelude::*;
use pyo3::pyclass::boolean_struct::True;
use tokenspeed_scheduler::Handle;
use tokenspeed_scheduler::cache::PersistentTable;
use tokenspeed_scheduler::plan::output::ChangedCell;

use crate::errors;

/// An array over a slice inside `owner`, which the array keeps alive.
///
/// The slice's lifetime is that of a shared borrow of a frozen class, for as long as one likes: the
/// slice neither moves nor changes while `owner` lives.
pub fn vector<'py, O, T>(
    owner: &Bound<'py, O>,
    slice: impl for<'a> Fn(&'a O) -> &'a [T],
) -> Bound<'py, PyArray1<T>>
where
    O: PyClass<Frozen = True> + Sync,
    T: Element + Copy,
{
    let view = ArrayView1::from(slice(owner.get()));
    // SAFETY: `owner` is frozen and kept alive by the array, so the slice is (see above).
    unsafe { over(owner.as_any(), view) }
}

/// As [`vector`], of two dimensions, row-major; `slice` gives the cells and the number of columns.
pub fn matrix<'py, O, T>(
    owner: &Bound<'py, O>,
    rows: usize,
    slice: impl for<'a> Fn(&'a O) -> (&'a [T], usize),
) -> PyResult<Bound<'py, PyArray2<T>>>
where
    O: PyClass<Frozen = True> + Sync,
    T: Element + Copy,
{
    let (cells, columns) = slice(owner.get());
    let view = ArrayView2::from_shape((rows, columns), cells)
        .map_err(|error| errors::internal(owner.py(), &format!("{rows} x {columns}: {error}")))?;
    // SAFETY: as in `vector`.
    Ok(unsafe { over(owner.as_any(), view) })
}

/// The numbers of handles.
pub fn handle_bits(handles: &[Handle]) -> &[u64] {
    // SAFETY: `Handle` is a transparent `u64`.
    unsafe { std::slice::from_raw_parts(handles.as_ptr().cast(), handles.len()) }
}

/// Row, slot and block of each cell, one after the other.
pub fn cell_numbers(cells: &[ChangedCell]) -> &[i32] {
    // SAFETY: `ChangedCell` is `repr(C)`: three `i32` and no padding.
    unsafe { std::slice::from_raw_parts(cells.as_ptr().cast(), 3 * cells.len()) }
}

/// The cells of a persistent block table, shared with the scheduler that writes them.
#[pyclass(module = "tokenspeed.scheduler._core", frozen)]
pub struct TableCells(#[expect(dead_code, reason = "owns what arrays show")] Arc<Vec<AtomicI32>>);

/// The array over a table of `columns` columns; it keeps the cells alive, and shows each write.
pub fn table(py: Python<'_>, table: PersistentTable) -> PyResult<Bound<'_, PyArray2<i32>>> {
    let PersistentTable { cells, columns } = table;
    let rows = cells.len() / columns.max(1);
    let first = cells.as_ptr().cast::<i32>();
    let owner = Bound::new(py, TableCells(cells))?;
    // SAFETY: an `AtomicI32` has the layout of an `i32`; there are `rows * columns`, never moved, and
    // `owner` keeps them. The scheduler may write a cell (a relaxed, aligned, 4-byte store) while
    // NumPy reads it: such a read sees the old id or the new one. Nothing in Rust reads through this
    // view.
    unsafe {
        let view = ArrayView2::from_shape_ptr((rows, columns), first);
        Ok(over(owner.as_any(), view))
    }
}

/// A read-only array over `view`.
///
/// # Safety
/// What `view` shows stays where it is while `owner` lives.
unsafe fn over<'py, T: Element, D: Dimension>(
    owner: &Bound<'py, PyAny>,
    view: ArrayView<'_, T, D>,
) -> Bound<'py, PyArray<T, D>> {
    // SAFETY: the caller's promise. The array is new, so nobody else can look at its flags yet; NumPy
    // lets nobody set the flag again, as `owner` offers no writable buffer.
    unsafe {
        let array = PyArray::borrow_from_array(&view, owner.clone());
        (*array.as_array_ptr()).fields.flags &= !NPY_ARRAY_WRITEABLE;
        array
    }
}
