//! The ids of a batch, shared with the batch before where that has the same requests (`cache.md` §9).

use std::sync::Arc;

use crate::request::{Handle, RequestKey, RequestSet};

/// The ids that the last batch showed, and whose they are. To copy them anew would touch each id's memory
/// twice a round: when it is copied and when the plan is let go.
#[derive(Debug, Default)]
pub struct BatchNames {
    handles: Vec<Handle>,
    ids: Arc<Vec<Arc<str>>>,
}

impl BatchNames {
    /// The ids of these requests, whose handles are `handles`.
    pub fn of(
        &mut self,
        requests: &RequestSet,
        handles: &[Handle],
        keys: impl Iterator<Item = RequestKey>,
    ) -> Arc<Vec<Arc<str>>> {
        if self.handles != handles {
            self.handles.clear();
            self.handles.extend_from_slice(handles);
            self.ids = Arc::new(keys.map(|key| requests[key].id.clone()).collect());
        }
        self.ids.clone()
    }
}
