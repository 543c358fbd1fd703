//! What names a prefix page (`cache.md` §4).

use proptest::prelude::*;
use sha2::{Digest, Sha256};
use tokenspeed_scheduler::identity::{ContentHash, PrefixPages};

/// The bytes that §4 lists, written out one by one.
fn layout(prior: &[u8], tokens: &[i32]) -> Vec<u8> {
    let mut bytes = Vec::new();
    bytes.extend((prior.len() as u32).to_le_bytes());
    bytes.extend(prior);
    bytes.extend((tokens.len() as u32).to_le_bytes());
    tokens.iter().for_each(|token| bytes.extend(token.to_le_bytes()));
    bytes
}

/// Digests computed outside this workspace, with Python's hashlib over struct-packed bytes; the first
/// is also what the published wheel answers for these tokens.
#[test]
fn the_digests_are_those_of_the_layout() {
    let first = ContentHash::chain(None, &[1, 2, 3, 4]);
    assert_eq!(first.to_hex(), "65a73aeec7de373d87d0bb665fb1b7e9c490f83287b644f3ea58f3eea1ee271f");
    let second = ContentHash::chain(Some(&first), &[-1, 0, i32::MAX, i32::MIN]);
    assert_eq!(second.to_hex(), "98eeb09fe33e0cdfae57e4ebd7d7b73a16dcebdd53edd2b7af6af911945eaf80");
    let long: Vec<i32> = (0..1000).collect();
    let long = ContentHash::chain(None, &long).to_hex();
    assert_eq!(long, "678271f2657f2d495b52b5e7300555c3c9dc4169927c9659aac56df9b4ccda47");
}

#[test]
fn the_first_page_has_an_empty_prior() {
    let bytes = [0, 0, 0, 0, 2, 0, 0, 0, 7, 0, 0, 0, 0xfe, 0xff, 0xff, 0xff];
    assert_eq!(layout(&[], &[7, -2]), bytes);
    assert_eq!(ContentHash::chain(None, &[7, -2]).0, <[u8; 32]>::from(Sha256::digest(bytes)));
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn every_page_covers_the_one_before(
        tokens in prop::collection::vec(any::<i32>(), 0..700),
        granularity in 1usize..300,
    ) {
        let hashes = ContentHash::pages_of(&tokens, granularity);
        prop_assert_eq!(hashes.len(), tokens.len() / granularity);
        let mut prior: Vec<u8> = Vec::new();
        for (page, hash) in hashes.iter().enumerate() {
            let page = &tokens[page * granularity..(page + 1) * granularity];
            prior = Sha256::digest(layout(&prior, page)).to_vec();
            prop_assert_eq!(hash.0.to_vec(), prior.clone());
        }
    }

    #[test]
    fn hex_comes_back(digest in any::<[u8; 32]>()) {
        let hex = ContentHash(digest).to_hex();
        prop_assert_eq!(hex.len(), 64);
        prop_assert!(hex.bytes().all(|c| c.is_ascii_digit() || (b'a'..=b'f').contains(&c)));
        prop_assert_eq!(ContentHash::from_hex(&hex), Some(ContentHash(digest)));
    }

    #[test]
    fn only_what_to_hex_writes_is_read(digest in any::<[u8; 32]>(), at in 0usize..64, other in any::<char>()) {
        let hex = ContentHash(digest).to_hex();
        let text: String =
            hex.chars().enumerate().map(|(place, c)| if place == at { other } else { c }).collect();
        if let Some(hash) = ContentHash::from_hex(&text) {
            prop_assert_eq!(hash.to_hex(), text);
        }
    }
}

#[test]
fn hex_of_known_bytes() {
    let mut digest = [0; 32];
    digest[0] = 0xab;
    digest[1] = 0x0c;
    digest[31] = 0x01;
    let hex = format!("ab0c{}01", "00".repeat(29));
    assert_eq!(ContentHash(digest).to_hex(), hex);
    assert_eq!(ContentHash::from_hex(&hex), Some(ContentHash(digest)));
    let refused = [
        String::new(),
        hex[1..].to_string(),
        format!("{hex}0"),
        hex.replace('c', "g"),
        hex.replace('c', "C"),
        hex.replace("ab", "+b"),
        format!("é{}", "0".repeat(62)),
    ];
    for text in refused {
        assert_eq!(ContentHash::from_hex(&text), None, "{text:?}");
    }
}

#[test]
fn a_page_keeps_its_name_while_anything_holds_it() {
    let mut pages = PrefixPages::default();
    let hashes = ContentHash::pages_of(&[1, 2, 3], 1);
    let first = pages.intern(hashes[0]);
    let second = pages.intern(hashes[1]);
    assert_ne!(first, second);
    assert_eq!(pages.intern(hashes[0]), first);
    assert_eq!(pages.references(first), 2);
    assert_eq!(pages.find(&hashes[2]), None);
    pages.release(first);
    assert_eq!(pages.find(&hashes[0]), Some(first));
    pages.release(first);
    assert_eq!(pages.find(&hashes[0]), None);
    assert_eq!(pages.len(), 1);
    // The place is used again, for another page.
    assert_eq!(pages.intern(hashes[2]), first);
    assert_eq!(*pages.hash(first), hashes[2]);
    assert_eq!(pages.capacity(), 2);
}
