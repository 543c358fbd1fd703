//! Prefix identity: the content hash of a prefix page, and the pages that anything still names
//! (`cache.md` §4).

use std::collections::VecDeque;
use std::num::NonZeroU32;

use hashbrown::HashTable;
use sha2::{Digest, Sha256};

use crate::growth::make_room;

/// SHA-256 over a prefix page and everything before it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct ContentHash(pub [u8; 32]);

impl ContentHash {
    /// The hash of the page that follows `prior` (none for the first) and holds `tokens`.
    ///
    /// Covers, in order: the byte length of the prior digest (u32 LE), the prior digest, the token
    /// count (u32 LE), the tokens (i32 LE each).
    pub fn chain(prior: Option<&ContentHash>, tokens: &[i32]) -> ContentHash {
        let mut sha = Sha256::new();
        match prior {
            Some(digest) => {
                sha.update(32u32.to_le_bytes());
                sha.update(digest.0);
            }
            None => sha.update(0u32.to_le_bytes()),
        }
        sha.update((tokens.len() as u32).to_le_bytes());
        // SHA-256 eats bytes; a small stack buffer turns tokens into them without a heap copy.
        let mut bytes = [0u8; 1024];
        for part in tokens.chunks(bytes.len() / 4) {
            for (slot, token) in bytes.chunks_exact_mut(4).zip(part) {
                slot.copy_from_slice(&token.to_le_bytes());
            }
            sha.update(&bytes[..part.len() * 4]);
        }
        ContentHash(sha.finalize().into())
    }

    /// The hashes of all complete pages of `tokens`, `granularity` tokens each.
    pub fn pages_of(tokens: &[i32], granularity: usize) -> Vec<ContentHash> {
        let mut hashes: Vec<ContentHash> = Vec::with_capacity(tokens.len() / granularity);
        for page in tokens.chunks_exact(granularity) {
            hashes.push(ContentHash::chain(hashes.last(), page));
        }
        hashes
    }

    /// Lower-case hex, as the public surface shows it.
    pub fn to_hex(&self) -> String {
        self.0.iter().map(|byte| format!("{byte:02x}")).collect()
    }

    /// The first 8 bytes, the first one highest: a page's name where one integer must do (`api.md`,
    /// `KVEvent`), the same on every engine. It is the first 16 digits of [`ContentHash::to_hex`].
    pub fn short(&self) -> u64 {
        u64::from_be_bytes(self.0[..8].try_into().expect("a digest has 32 bytes"))
    }

    /// Reads what [`ContentHash::to_hex`] wrote; `None` where `text` is anything else.
    pub fn from_hex(text: &str) -> Option<ContentHash> {
        let text = text.as_bytes();
        if text.len() != 64 {
            return None;
        }
        let digit = |c: u8| (c as char).to_digit(16).filter(|_| !c.is_ascii_uppercase());
        let mut out = [0u8; 32];
        for (byte, pair) in out.iter_mut().zip(text.chunks_exact(2)) {
            *byte = (digit(pair[0])? * 16 + digit(pair[1])?) as u8;
        }
        Some(ContentHash(out))
    }

    fn bucket(&self) -> u64 {
        u64::from_le_bytes(self.0[..8].try_into().expect("a digest has 32 bytes"))
    }
}

/// A prefix page that something names: a small stand-in for its content hash, so that probing an
/// index is an array access. Valid while a reference that [`PrefixPages`] counted is held.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PageId(NonZeroU32);

impl PageId {
    fn at(index: u32) -> PageId {
        PageId(NonZeroU32::MIN.saturating_add(index))
    }

    /// The page's place in arrays that are kept a page.
    pub fn index(self) -> usize {
        self.0.get() as usize - 1
    }
}

/// The pages that live requests and cached blocks name, each once.
#[derive(Debug, Default)]
pub struct PrefixPages {
    nodes: Vec<Node>,
    /// Places whose last reference went, oldest first; some may have been named again since. Their hashes
    /// stay in the map until the place is used again, so that letting a page go touches no far memory.
    idle: VecDeque<u32>,
    /// Places with a reference.
    named: usize,
    by_hash: HashTable<u32>,
}

#[derive(Debug)]
struct Node {
    hash: ContentHash,
    /// How many requests and cached blocks name the page, 0 for a free place; and [`Node::IDLE`].
    references: u32,
}

impl Node {
    /// It stands in `idle`.
    const IDLE: u32 = 1 << 31;

    fn references(&self) -> u32 {
        self.references & !Node::IDLE
    }
}

impl PrefixPages {
    /// The page with this hash, made if it is new, with one more reference.
    pub fn intern(&mut self, hash: ContentHash) -> PageId {
        let nodes = &self.nodes;
        if let Some(&at) = self.by_hash.find(hash.bucket(), |&at| nodes[at as usize].hash == hash) {
            self.retain(PageId::at(at));
            return PageId::at(at);
        }
        let at = self.place();
        self.nodes[at as usize].hash = hash;
        let nodes = &self.nodes;
        self.by_hash.insert_unique(hash.bucket(), at, |&at| nodes[at as usize].hash.bucket());
        self.retain(PageId::at(at));
        PageId::at(at)
    }

    fn place(&mut self) -> u32 {
        while let Some(at) = self.idle.pop_front() {
            let node = &mut self.nodes[at as usize];
            node.references &= !Node::IDLE;
            if node.references == 0 {
                let bucket = node.hash.bucket();
                self.by_hash.find_entry(bucket, |&other| other == at).expect("in the map").remove();
                return at;
            }
        }
        make_room(&mut self.nodes, 1);
        self.nodes.push(Node { hash: ContentHash([0; 32]), references: 0 });
        (self.nodes.len() - 1) as u32
    }

    /// The page with this hash, if anything names it; no reference is counted.
    pub fn find(&self, hash: &ContentHash) -> Option<PageId> {
        self.by_hash
            .find(hash.bucket(), |&at| self.nodes[at as usize].hash == *hash)
            .map(|&at| PageId::at(at))
            .filter(|&page| self.references(page) > 0)
    }

    /// Counts one more reference.
    pub fn retain(&mut self, page: PageId) {
        let node = &mut self.nodes[page.index()];
        node.references += 1;
        self.named += usize::from(node.references() == 1);
    }

    /// Gives one reference back; the last one frees the place.
    pub fn release(&mut self, page: PageId) {
        let node = &mut self.nodes[page.index()];
        node.references -= 1;
        if node.references() == 0 {
            self.named -= 1;
            if node.references & Node::IDLE == 0 {
                node.references |= Node::IDLE;
                self.idle.push_back(page.index() as u32);
            }
        }
    }

    /// The page's content hash.
    pub fn hash(&self, page: PageId) -> &ContentHash {
        &self.nodes[page.index()].hash
    }

    /// How many references a page has, for the checker.
    pub fn references(&self, page: PageId) -> u32 {
        self.nodes[page.index()].references()
    }

    /// How many pages are named at all.
    pub fn len(&self) -> usize {
        self.named
    }

    /// Whether no page is named.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// One more than the largest [`PageId::index`] ever given: the length for arrays kept a page.
    pub fn capacity(&self) -> usize {
        self.nodes.len()
    }
}
