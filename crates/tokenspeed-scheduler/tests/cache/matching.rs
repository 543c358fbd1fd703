//! Matching (`cache.md` §5).

use tokenspeed_scheduler::cache::geometry::Geometry;
use tokenspeed_scheduler::cache::matcher::{Bounds, Hit, probe};
use tokenspeed_scheduler::cache::tier::{BlockKey, EntryFacts, Tier, TierKind};
use tokenspeed_scheduler::config::CacheGroupConfig;
use tokenspeed_scheduler::identity::{ContentHash, PageId, PrefixPages};

use crate::bench::{full, sliding, state, tokens};

/// Two tiers in which chosen slots of one prompt are cached.
struct Shelf {
    geometries: Vec<Geometry>,
    device: Tier,
    host: Tier,
    pages: PrefixPages,
    prompt: Vec<PageId>,
}

impl Shelf {
    /// For a prompt of so many pages of `p` tokens.
    fn new(p: i64, groups: &[CacheGroupConfig], prompt_pages: i32) -> Shelf {
        let geometries: Vec<Geometry> =
            groups.iter().map(|group| Geometry::new(group, p)).collect();
        let mut pages = PrefixPages::default();
        let hashes = ContentHash::pages_of(&tokens(1, prompt_pages * p as i32), p as usize);
        Shelf {
            device: Tier::new(TierKind::Device, 64, &geometries),
            host: Tier::new(TierKind::Host, 64, &geometries),
            prompt: hashes.into_iter().map(|hash| pages.intern(hash)).collect(),
            geometries,
            pages,
        }
    }

    /// Caches the slots that the mask, one digit a slot of the group, marks with 1.
    fn on_device(mut self, group: usize, mask: &str) -> Shelf {
        put(&mut self.device, &mut self.pages, &self.geometries, &self.prompt, group, mask);
        self
    }

    fn on_host(mut self, group: usize, mask: &str) -> Shelf {
        put(&mut self.host, &mut self.pages, &self.geometries, &self.prompt, group, mask);
        self
    }

    fn hit(&self) -> Hit {
        self.hit_of(self.prompt.len())
    }

    fn hit_of(&self, pages: usize) -> Hit {
        let pages = &self.prompt[..pages];
        probe(&self.geometries, &self.device, Some(&self.host), pages, Bounds::all_of(pages))
    }

    /// Device pages, all pages.
    fn lengths(&self) -> (usize, usize) {
        let hit = self.hit();
        (hit.device_pages, hit.total_pages)
    }
}

fn put(
    tier: &mut Tier,
    pages: &mut PrefixPages,
    geometries: &[Geometry],
    prompt: &[PageId],
    group: usize,
    mask: &str,
) {
    let per_page = geometries[group].blocks_per_page;
    for (slot, _) in mask.chars().enumerate().filter(|&(_, mark)| mark == '1') {
        let key = BlockKey { page: prompt[slot / per_page], ordinal: (slot % per_page) as u16 };
        let block = tier.acquire(group).expect("the tier is large");
        let facts = EntryFacts { slot: slot as u32, ..EntryFacts::default() };
        tier.publish(pages, group, block, key, facts);
    }
}

#[test]
fn a_full_group_matches_up_to_its_first_miss() {
    let shelf = |mask| Shelf::new(4, &[full(4, 1)], 4).on_device(0, mask);
    assert_eq!(shelf("1111").lengths(), (4, 4));
    assert_eq!(shelf("1101").lengths(), (2, 2));
    assert_eq!(shelf("0111").lengths(), (0, 0));
    assert_eq!(shelf("1111").hit_of(3).device_pages, 3, "any shorter match is valid too");
    assert_eq!(shelf("1101").hit().groups[0].device, 0..2);
}

#[test]
fn a_page_counts_only_whole() {
    let shelf = Shelf::new(4, &[full(2, 1)], 3).on_device(0, "111101");
    assert_eq!(shelf.lengths(), (2, 2));
    assert_eq!(shelf.hit().groups[0].device, 0..4);
}

#[test]
fn a_window_of_one_resumes_at_every_boundary() {
    let shelf = Shelf::new(4, &[sliding(2, 1, 1)], 3);
    let hit = shelf.hit();
    assert_eq!((hit.device_pages, hit.total_pages), (3, 3));
    assert_eq!(hit.groups[0].device, 6..6, "nothing is claimed, all slots are holes");
    assert_eq!(hit.promotion_boundary_pages, None);
}

#[test]
fn a_window_of_one_leaves_the_length_to_the_others() {
    let shelf = Shelf::new(4, &[sliding(4, 1, 1), full(4, 1)], 3).on_device(1, "110");
    let hit = shelf.hit();
    assert_eq!(hit.device_pages, 2);
    assert_eq!(hit.groups[0].device, 2..2);
    assert_eq!(hit.groups[1].device, 0..2);
}

/// The mask of `scheduler.md` §1: a five-token window and two-token blocks require two blocks.
#[test]
fn a_truncated_window_hit_can_lose_its_run() {
    let shelf = Shelf::new(2, &[sliding(2, 1, 5)], 3).on_device(0, "011");
    let hit = shelf.hit();
    assert_eq!(hit.device_pages, 3);
    assert_eq!(hit.groups[0].device, 1..3, "below the run lies a hole");
    assert_eq!(shelf.hit_of(2).device_pages, 0, "[0, 1] has no run of two, nor one from the start");
}

#[test]
fn a_window_reads_the_blocks_behind_its_boundary_and_no_more() {
    let shelf = |window, mask| Shelf::new(4, &[sliding(2, 1, window)], 3).on_device(0, mask);
    // Four slots and two: ceil((W - 1) / 2) of them behind a boundary.
    assert_eq!(shelf(2, "000001").lengths(), (3, 3));
    assert_eq!(shelf(3, "000001").lengths(), (3, 3));
    assert_eq!(shelf(4, "000001").lengths(), (0, 0));
    assert_eq!(shelf(5, "000011").lengths(), (3, 3));
    assert_eq!(shelf(6, "000011").lengths(), (0, 0));
    assert_eq!(shelf(7, "000111").lengths(), (3, 3));
    assert_eq!(shelf(5, "001101").lengths(), (2, 2), "the highest boundary with its run behind it");
    assert_eq!(shelf(5, "011110").lengths(), (2, 2), "a run ends at a page, not within one");
}

#[test]
fn a_window_longer_than_the_prompt_needs_a_run_from_the_start() {
    let shelf = |mask| Shelf::new(4, &[sliding(2, 1, 100)], 3).on_device(0, mask);
    assert_eq!(shelf("111111").lengths(), (3, 3));
    assert_eq!(shelf("111111").hit().groups[0].device, 0..6);
    assert_eq!(shelf("111101").lengths(), (2, 2));
    assert_eq!(shelf("011111").lengths(), (0, 0));
}

#[test]
fn a_state_group_needs_one_block() {
    let shelf = |mask| Shelf::new(4, &[state(2, 1)], 3).on_device(0, mask);
    assert_eq!(shelf("000100").lengths(), (2, 2));
    assert_eq!(shelf("000100").hit().groups[0].device, 3..4);
    assert_eq!(shelf("001010").lengths(), (0, 0), "snapshots inside a page resume nothing");
}

#[test]
fn groups_converge_and_what_the_closed_ones_cover_is_the_promotion_boundary() {
    let groups = [sliding(4, 1, 5), full(4, 1), state(4, 1)];
    let shelf =
        Shelf::new(4, &groups, 5).on_device(0, "00110").on_device(1, "11110").on_device(2, "01010");
    // The full group covers 4; the window resumes at 4 and 3, the state at 4 and 2.
    assert_eq!(shelf.lengths(), (4, 4));
    assert_eq!(shelf.hit().promotion_boundary_pages, None);
    assert_eq!(shelf.hit_of(3).total_pages, 0, "3 for the window, 2 for the state");
    assert_eq!(shelf.hit_of(3).promotion_boundary_pages, Some(3), "within the probe's bound");
    let shelf = shelf.on_device(0, "01000");
    assert_eq!(shelf.hit_of(3).total_pages, 2);
    assert_eq!(shelf.hit_of(3).promotion_boundary_pages, Some(3));
}

#[test]
fn without_a_closed_group_nothing_is_promoted() {
    let shelf =
        Shelf::new(4, &[sliding(4, 1, 5), state(4, 1)], 3).on_device(0, "111").on_device(1, "010");
    assert_eq!(shelf.lengths(), (2, 2));
    assert_eq!(shelf.hit().promotion_boundary_pages, None);
}

#[test]
fn the_host_goes_on_where_the_device_ends() {
    let shelf = Shelf::new(4, &[full(4, 1), sliding(4, 1, 9)], 5)
        .on_device(0, "11000")
        .on_device(1, "11000")
        .on_host(0, "00110")
        .on_host(1, "00010");
    // The window's run behind 4 is slots 2 and 3: 2 is missing. Behind 3 it is 1 and 2: missing too.
    assert_eq!(shelf.lengths(), (2, 2));
    assert_eq!(shelf.hit().promotion_boundary_pages, Some(4));
    let shelf = shelf.on_host(1, "00100");
    let hit = shelf.hit();
    assert_eq!((hit.device_pages, hit.total_pages), (2, 4));
    assert_eq!(hit.groups[0].device, 0..2);
    assert_eq!(hit.groups[0].host, 2..4);
    assert_eq!(hit.groups[1].host, 2..4);
    assert_eq!((hit.host_blocks(0), hit.host_blocks(1)), (2, 2));
    assert_eq!(hit.promotion_boundary_pages, None);
}

#[test]
fn what_lies_below_the_device_length_is_taken_as_present() {
    let shelf = Shelf::new(4, &[sliding(4, 1, 9)], 3).on_device(0, "110").on_host(0, "001");
    let hit = shelf.hit();
    assert_eq!((hit.device_pages, hit.total_pages), (2, 3));
    assert_eq!(hit.groups[0].device, 0..2);
    assert_eq!(hit.groups[0].host, 2..3, "slot 1 is on the Device, and needs no load");
}

#[test]
fn each_tier_claims_the_run_behind_its_own_length() {
    let shelf = Shelf::new(4, &[sliding(4, 1, 5)], 4).on_device(0, "0100").on_host(0, "0001");
    let hit = shelf.hit();
    assert_eq!((hit.device_pages, hit.total_pages), (2, 4));
    assert_eq!((hit.groups[0].device.clone(), hit.groups[0].host.clone()), (1..2, 3..4));
}

#[test]
fn what_only_the_device_has_beyond_its_length_is_no_host_hit() {
    let shelf = Shelf::new(4, &[full(4, 1), state(4, 1)], 2)
        .on_device(0, "11")
        .on_host(0, "10")
        .on_host(1, "01");
    assert_eq!(shelf.lengths(), (0, 0));
    assert_eq!(shelf.hit().promotion_boundary_pages, Some(2));
    let shelf = shelf.on_host(0, "01");
    assert_eq!(shelf.lengths(), (0, 2));
    assert_eq!(shelf.hit().groups[0].host, 0..2);
    assert_eq!(shelf.hit().groups[1].host, 1..2);
}
