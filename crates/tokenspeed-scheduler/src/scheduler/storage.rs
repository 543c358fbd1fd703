//! What an external store (L3) holds (`api.md`, "The scheduler"; `cache.md` §8).

use serde::{Deserialize, Serialize};

use super::Scheduler;
use crate::cache::stored::StoredKey;
use crate::error::{Error, Result};
use crate::identity::ContentHash;

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
    /// Every block of the prefix pages of these content hashes, group by group.
    ///
    /// # Errors
    /// [`Error::BadArrays`] for a hash that no page could have.
    pub fn expand_prefix_keys(&self, content_hashes: &[String]) -> Result<StorageKeys> {
        content_hashes.iter().try_for_each(|hash| content_hash(hash).map(drop))?;
        let mut keys = StorageKeys::default();
        for (group, geometry) in self.cache.geometries().iter().enumerate() {
            for hash in content_hashes {
                for ordinal in 0..geometry.blocks_per_page {
                    keys.group_ids.push(group as i64);
                    keys.content_hashes.push(hash.clone());
                    keys.page_offsets.push(ordinal as i64);
                }
            }
        }
        Ok(keys)
    }

    /// Tells that the external store holds these blocks: from now on a probe counts them as Host hits
    /// that must be fetched. Known keys are told again for free; beyond
    /// [`STORED_KEYS_MAX`](crate::cache::stored::STORED_KEYS_MAX) those told longest ago are forgotten.
    ///
    /// # Errors
    /// [`Error::BadArrays`] for keys that no block of this configuration could have; then none is taken.
    /// [`Error::UnsupportedFeature`] without `enable_l3_storage`.
    pub fn register_storage_keys(&mut self, keys: StorageKeys) -> Result<()> {
        for key in self.stored_keys(&keys)? {
            self.cache.register_stored(key);
        }
        self.verify()
    }

    /// Tells that the external store no longer holds these blocks. Unknown keys are ignored.
    ///
    /// # Errors
    /// As [`Scheduler::register_storage_keys`].
    pub fn unregister_storage_keys(&mut self, keys: StorageKeys) -> Result<()> {
        for key in self.stored_keys(&keys)? {
            self.cache.unregister_stored(&key);
        }
        self.verify()
    }

    fn stored_keys(&self, keys: &StorageKeys) -> Result<Vec<StoredKey>> {
        if !self.rules.config.enable_l3_storage {
            let feature = "storage keys without `enable_l3_storage`; set it True";
            return Err(Error::UnsupportedFeature { feature: feature.into() });
        }
        let StorageKeys { group_ids, content_hashes, page_offsets } = keys;
        let count = group_ids.len();
        for (array, len) in
            [("content_hashes", content_hashes.len()), ("page_offsets", page_offsets.len())]
        {
            if len != count {
                let rule = format!("have as many as `group_ids` ({count})");
                return Err(bad(array, format!("{len} entries"), rule));
            }
        }
        let parts = group_ids.iter().zip(content_hashes).zip(page_offsets);
        parts.map(|((&group, hash), &offset)| self.stored_key(group, hash, offset)).collect()
    }

    fn stored_key(&self, group: i64, hash: &str, offset: i64) -> Result<StoredKey> {
        let geometries = self.cache.geometries();
        let Some(geometry) = usize::try_from(group).ok().and_then(|at| geometries.get(at)) else {
            let rule = format!("name groups by index, 0 to {}", geometries.len() - 1);
            return Err(bad("group_ids", format!("the entry {group}"), rule));
        };
        let content = content_hash(hash)?;
        let blocks = geometry.blocks_per_page;
        match u16::try_from(offset) {
            Ok(ordinal) if usize::from(ordinal) < blocks => Ok((group as usize, content, ordinal)),
            _ => {
                let rule = format!("hold ordinals in a page, 0 to {} in that group", blocks - 1);
                Err(bad("page_offsets", format!("the entry {offset}"), rule))
            }
        }
    }
}

fn content_hash(hex: &str) -> Result<ContentHash> {
    ContentHash::from_hex(hex).ok_or_else(|| {
        let rule = "hold content hashes of 64 hexadecimal digits".into();
        bad("content_hashes", format!("the entry '{hex}'"), rule)
    })
}

fn bad(array: &str, value: String, rule: String) -> Error {
    Error::BadArrays { array: array.into(), value, rule }
}
