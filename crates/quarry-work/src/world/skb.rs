//! Heads of socket buffers and their caches, of both kinds of kernels.

use quarry_core::design::CacheSpec;
use quarry_core::geometry::CacheFlags;

use crate::net::NetRules;

/// Cache that a head is from.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum HeadKind {
    /// Alone.
    Plain,
    /// With its clone.
    Fclone,
}

/// The caches of socket buffers, by handles.
#[derive(Clone, Copy)]
pub(crate) struct SkbCaches<C> {
    head: C,
    fclone: C,
    /// Data areas of short packets; `None` in releases without such a cache.
    pub(crate) small_head: Option<C>,
}

impl<C> SkbCaches<C> {
    /// Makes them. `None` if there is no room.
    pub(crate) fn new(
        rules: &NetRules,
        mut create: impl FnMut(&CacheSpec<'_>) -> Option<C>,
    ) -> Option<Self> {
        let mut make = |name, bytes| {
            create(&CacheSpec {
                flags: CacheFlags::HWCACHE_ALIGN,
                ..CacheSpec::new(name, bytes)
            })
        };
        Some(Self {
            head: make("skbuff_head_cache", rules.head_bytes)?,
            fclone: make("skbuff_fclone_cache", rules.fclone_bytes)?,
            small_head: match rules.small_head {
                0 => None,
                bytes => Some(make("skbuff_small_head", bytes)?),
            },
        })
    }

    /// The cache of a kind of heads.
    pub(crate) fn of_head(&self, kind: HeadKind) -> &C {
        match kind {
            HeadKind::Plain => &self.head,
            HeadKind::Fclone => &self.fclone,
        }
    }
}
