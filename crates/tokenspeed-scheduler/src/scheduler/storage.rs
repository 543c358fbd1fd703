//! What an external store holds (`api.md`, "The scheduler").

use serde::{Deserialize, Serialize};

use super::Scheduler;
use crate::error::{Error, Result};

/// Keys of blocks in an external store, as parallel lists.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct StorageKeys {
    /// Each block's group, by index in the configuration.
    pub group_ids: Vec<i64>,
    /// Content hash, in hex, of the prefix page that it belongs to.
    pub content_hashes: Vec<String>,
    /// Its ordinal in that page.
    pub page_offsets: Vec<i64>,
}

impl Scheduler {
    /// Tells that the external store holds these blocks.
    ///
    /// # Errors
    /// [`Error::UnsupportedFeature`]: there is no external store yet.
    pub fn register_storage_keys(&mut self, _keys: StorageKeys) -> Result<()> {
        unsupported("register_storage_keys")
    }

    /// Tells that the external store no longer holds these blocks.
    ///
    /// # Errors
    /// [`Error::UnsupportedFeature`]: there is no external store yet.
    pub fn unregister_storage_keys(&mut self, _keys: StorageKeys) -> Result<()> {
        unsupported("unregister_storage_keys")
    }
}

fn unsupported(call: &str) -> Result<()> {
    let feature = format!("`{call}` needs `enable_l3_storage`, which this version does not offer");
    Err(Error::UnsupportedFeature { feature })
}
