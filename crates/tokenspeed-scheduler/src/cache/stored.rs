//! Keys that an external store behind the Host tier (L3) is known to hold (`cache.md` §8).

use lru::LruCache;
use rustc_hash::FxBuildHasher;

use super::geometry::GroupIndex;
use crate::identity::ContentHash;

/// A block's content, as an external store names it: group, prefix page, ordinal in the page.
pub type StoredKey = (GroupIndex, ContentHash, u16);

/// The keys. Bounded: beyond [`STORED_KEYS_MAX`] the one whose registration is longest ago goes, as if
/// it had been unregistered.
#[derive(Debug)]
pub struct StoredKeys(LruCache<StoredKey, (), FxBuildHasher>);

/// About 100 MB of keys: the pages of some hundred million tokens.
pub const STORED_KEYS_MAX: usize = 1 << 20;

impl Default for StoredKeys {
    fn default() -> Self {
        StoredKeys(LruCache::unbounded_with_hasher(FxBuildHasher))
    }
}

impl StoredKeys {
    /// The store holds the block.
    pub fn insert(&mut self, key: StoredKey) {
        self.0.put(key, ());
        if self.0.len() > STORED_KEYS_MAX {
            self.0.pop_lru();
        }
    }

    /// It does not, or no more.
    pub fn remove(&mut self, key: &StoredKey) {
        self.0.pop(key);
    }

    /// Whether it does, for all that is known.
    pub fn contains(&self, key: &StoredKey) -> bool {
        self.0.contains(key)
    }

    /// Whether none is.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}
