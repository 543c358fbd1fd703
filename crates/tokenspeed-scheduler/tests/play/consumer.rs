//! Who reads the cache events: a router that knows nothing but what they tell.

use std::collections::{BTreeMap, BTreeSet};

use tokenspeed_scheduler::KvEvent;
use tokenspeed_scheduler::identity::ContentHash;

/// The prompts that it holds to be cached.
#[derive(Debug, Default)]
pub struct Consumer {
    /// By name: the page's prompt, from its first token to the page's last.
    held: BTreeMap<u64, Vec<i32>>,
    parents: BTreeMap<u64, Option<u64>>,
}

impl Consumer {
    /// Applies one drain, whose pages have `p` tokens.
    pub fn apply(&mut self, events: &[KvEvent], p: usize) {
        let mut stores = false;
        let mut told = BTreeSet::new();
        for event in events {
            match event {
                KvEvent::BlockRemoved { hash } => {
                    assert!(!stores, "removals come first");
                    assert!(told.insert(*hash), "one event a page");
                    assert!(self.held.remove(hash).is_some(), "{hash} was not held");
                    self.parents.remove(hash);
                    let orphan = self.parents.values().any(|parent| *parent == Some(*hash));
                    assert!(!orphan, "a leaf is removed before its parent");
                }
                KvEvent::BlockStored { hash, parent, tokens } => {
                    stores = true;
                    assert!(told.insert(*hash), "one event a page");
                    assert_eq!(tokens.len(), p);
                    let mut prompt = match parent {
                        Some(parent) => self.held.get(parent).expect("its parent is held").clone(),
                        None => Vec::new(),
                    };
                    prompt.extend(tokens.iter());
                    let name = ContentHash::pages_of(&prompt, p).last().expect("a page").short();
                    assert_eq!(*hash, name, "the name covers the whole prompt");
                    assert!(self.held.insert(*hash, prompt).is_none(), "{hash} is held already");
                    self.parents.insert(*hash, *parent);
                }
            }
        }
    }

    /// The prompts, in order.
    pub fn prompts(&self) -> BTreeSet<Vec<i32>> {
        self.held.values().cloned().collect()
    }
}
