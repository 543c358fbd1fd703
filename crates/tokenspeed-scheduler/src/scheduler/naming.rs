//! Names for the complete pages of requests: each page of tokens is hashed once while a live request has it
//! (`cache.md` §4).

use super::Scheduler;
use crate::growth::make_room;
use crate::identity::PageId;
use crate::request::RequestKey;

impl Scheduler {
    /// Names the complete pages of a prompt. Where a live request begins with the same tokens, its names
    /// are taken: comparing tokens costs a fiftieth of hashing them. So a page is hashed where the prompt
    /// parts from those before it, and from there on.
    pub(super) fn name_prompt(&mut self, tokens: &[i32]) -> Vec<PageId> {
        let granularity = self.rules.granularity as usize;
        let mut pages = Vec::with_capacity(tokens.len() / granularity);
        let mut rest = tokens.chunks_exact(granularity);
        while let Some(page_tokens) = rest.next() {
            let page = self.cache.name_next_page(pages.last().copied(), page_tokens);
            pages.push(page);
            let Some(other) = self.requests.with_page(page, pages.len() - 1) else {
                continue;
            };
            let from = pages.len();
            let theirs = other.tokens.settled()[from * granularity..].chunks_exact(granularity);
            let shared =
                rest.clone().zip(theirs).take_while(|(mine, theirs)| mine == theirs).count();
            for &page in &other.pages[from..from + shared] {
                self.cache.share_page(page);
                pages.push(page);
            }
            rest = tokens[pages.len() * granularity..].chunks_exact(granularity);
        }
        pages
    }

    /// Names the pages that a request's last tokens completed.
    pub(super) fn name_new_pages(&mut self, key: RequestKey) {
        let granularity = self.rules.granularity as usize;
        let request = &mut self.requests[key];
        let named = request.pages.len() * granularity;
        if request.tokens.len() < named + granularity {
            return;
        }
        for tokens in request.tokens.settle()[named..].chunks_exact(granularity) {
            let page = self.cache.name_next_page(request.pages.last().copied(), tokens);
            make_room(&mut request.pages, 1);
            request.pages.push(page);
        }
    }
}
