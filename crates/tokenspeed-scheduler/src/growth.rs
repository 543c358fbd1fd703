//! Memory of tables that may be large: it grows by a sixteenth at a time, so that little of it stays unused.

/// Elements by which a small table grows.
const LEAST: usize = 4;

/// Makes room for `more` elements.
pub(crate) fn make_room<T>(vec: &mut Vec<T>, more: usize) {
    if vec.capacity() - vec.len() < more {
        vec.reserve_exact(more.max(vec.len() / 16).max(LEAST));
    }
}

/// Lengthens a table to at least `len`.
pub(crate) fn grow_to<T: Clone>(vec: &mut Vec<T>, len: usize, with: T) {
    if vec.len() < len {
        make_room(vec, len - vec.len());
        vec.resize(len, with);
    }
}
