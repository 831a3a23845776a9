//! The barns: what the nodes keep of full and empty sheaves.

use super::Kind;
use super::stats::{Stat, Stats};
use super::types::{Barn, Sheaf, Sheaves};
use crate::design::Env;
use crate::machine::{Access, Guard, Line, Machine, NodeId, access};

/// Result of an attempt to put a full sheaf in the barn.
pub(super) enum Put {
    /// It is there, and this empty one came for it.
    Exchanged(Sheaf),
    /// The barn has room for it but no empty one to give.
    NoEmpty(Sheaf),
    /// The barn has enough full ones.
    Full(Sheaf),
}

impl<K: Kind> Sheaves<K> {
    /// A node's barn; `None` if the calling thread has its lock already.
    pub(super) fn barn<'a, M: Machine>(
        &'a self,
        env: Env<'a, M>,
        node: NodeId,
    ) -> Option<Guard<'a, M, Barn>> {
        let barn = self.barns[node.0 as usize].lock(env.machine())?;
        access(
            env.machine(),
            Line::Node,
            Access::Write,
            core::ptr::from_ref(&*barn),
        );
        Some(barn)
    }

    /// Takes a full sheaf of the barn, leaving the empty main one in its place whatever the limit.
    pub(super) fn exchange_empty<M: Machine>(
        &self,
        env: Env<'_, M>,
        node: NodeId,
        main: &mut Option<Sheaf>,
    ) -> Option<Sheaf> {
        let mut barn = self.barn(env, node)?;
        let full = barn.full.pop(env.machine())?;
        if let Some(main) = main.take() {
            barn.empty.push(env.machine(), main);
        }
        Some(full)
    }

    /// Takes an empty sheaf of the barn for a full one, if the barn wants that.
    pub(super) fn exchange_full<M: Machine>(
        &self,
        env: Env<'_, M>,
        node: NodeId,
        full: Sheaf,
    ) -> Put {
        let Some(mut barn) = self.barn(env, node) else {
            return Put::Full(full);
        };
        if barn.full.count() >= self.barn_full.get() {
            return Put::Full(full);
        }
        match barn.empty.pop(env.machine()) {
            Some(empty) => {
                barn.full.push(env.machine(), full);
                Put::Exchanged(empty)
            }
            None => Put::NoEmpty(full),
        }
    }

    /// An empty sheaf: the barn's, or a new one. `None` if there is no memory for one.
    pub(super) fn empty_sheaf<M: Machine>(
        &self,
        env: Env<'_, M>,
        node: NodeId,
        stats: &mut Stats,
    ) -> Option<Sheaf> {
        let kept = self
            .barn(env, node)
            .and_then(|mut barn| barn.empty.pop(env.machine()));
        kept.or_else(|| self.new_sheaf(env, stats))
    }

    /// Puts a sheaf with objects in the barn, whatever the limit. If the lock is re-entered the
    /// sheaf is dissolved.
    pub(super) fn put_full<M: Machine>(
        &self,
        env: Env<'_, M>,
        node: NodeId,
        mut full: Sheaf,
        stats: &mut Stats,
    ) {
        if let Some(mut barn) = self.barn(env, node) {
            barn.full.push(env.machine(), full);
            stats.count(Stat::BarnPut);
            return;
        }
        self.flush_sheaf(env, &mut full, stats);
        self.free_sheaf(env, full, stats);
    }

    /// Puts an empty sheaf in the barn; it is freed if no new one would be like it, or
    /// the lock is re-entered, or the barn has `limit` already.
    pub(super) fn put_empty<M: Machine>(
        &self,
        env: Env<'_, M>,
        node: NodeId,
        empty: Sheaf,
        limit: u32,
        stats: &mut Stats,
    ) {
        if self.keeps(empty.capacity())
            && let Some(mut barn) = self.barn(env, node)
            && barn.empty.count() < limit
        {
            barn.empty.push(env.machine(), empty);
            return;
        }
        self.free_sheaf(env, empty, stats);
    }
}
