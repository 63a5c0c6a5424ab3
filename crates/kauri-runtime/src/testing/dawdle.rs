//! Handlers that take long: with somebody who renews their leases meanwhile, and without.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};

use kauri_wire::{InboxKey, Key, Seq, WorkerId};

use super::{FaultKind, Faulty, State, VirtualClock, interlude, lock};
use crate::error::{Error, Result};
use crate::lease::{Lease, decode_row};
use crate::observe::{Observation, Observer};
use crate::runtime::{Runtime, inbox_key};
use crate::schema::{INBOX, LEASES};
use crate::substrate::KeyRange;

/// How often a lease is renewed while a handler is slow.
const RENEWALS: usize = 4;

/// Lets time pass, and others run, when a step begins.
pub(super) struct Dawdle {
    pub(super) state: Arc<Mutex<State>>,
    pub(super) clock: VirtualClock,
    pub(super) ground: Arc<Faulty>,
}

impl Observer for Dawdle {
    fn observe(&self, observation: &Observation<'_>) {
        let Observation::StepBegan { key, delivery, .. } = observation else { return };
        let Some((kind, runtime)) = self.draw() else { return };
        let dawdled = match kind {
            FaultKind::Slow => self.slow(&runtime, *key, *delivery),
            _ => self.stall(&runtime),
        };
        let found = dawdled.and_then(|()| check_leases(&runtime));
        let mut state = lock(&self.state);
        if let Err(error) = found
            && state.crash.is_none()
        {
            // An observer has nobody to tell. The tick in which it happened tells.
            state.trouble.get_or_insert(error);
        }
    }
}

impl Dawdle {
    fn draw(&self) -> Option<(FaultKind, Runtime)> {
        let mut state = lock(&self.state);
        let runtime = state.runtime.clone().filter(|_| state.crash.is_none())?;
        let (slow, stall) = (state.faults.slow, state.faults.stall);
        let kind = match state.draw(FaultKind::Slow, slow) {
            true => Some(FaultKind::Slow),
            false => state.draw(FaultKind::Stall, stall).then_some(FaultKind::Stall),
        };
        Some((kind?, runtime))
    }

    /// The handler takes several terms of its lease, which is renewed.
    fn slow(&self, runtime: &Runtime, key: InboxKey, delivery: u32) -> Result<()> {
        self.ground.show_everything()?;
        let is_ours = |(worker, lease, seqs): &Leased| {
            *worker == key.worker && seqs.contains(&key.seq) && lease.deliveries == delivery
        };
        let is_there = runtime.substrate().snapshot()?.get(&INBOX, &InboxKey::encode(key))?.is_some();
        if !is_there || !leases(runtime)?.iter().any(is_ours) {
            // Somebody else has claimed it early, or has done it between the search and the claim: it was begun in vain.
            return Ok(());
        }
        // What may cost a lease besides.
        let others = || self.hits(|kind| kind != FaultKind::Slow);
        let before = others();
        for _ in 0..RENEWALS {
            self.clock.advance(runtime.policy().lease * 6 / 10);
            self.renew(runtime)?;
            interlude(&self.state, 1)?;
        }
        if others() == before && !is_leased(runtime, key)? {
            return Err(wrong(format!("message {key:?} lost its lease, which was renewed all the time")));
        }
        Ok(())
    }

    /// The handler takes several terms of its lease, and whoever should renew it comes too late.
    fn stall(&self, runtime: &Runtime) -> Result<()> {
        self.clock.advance(runtime.policy().lease * 3);
        interlude(&self.state, 2)?;
        self.renew(runtime)
    }

    /// Renews leases: that moves their deadlines, and changes nothing else.
    fn renew(&self, runtime: &Runtime) -> Result<()> {
        self.ground.show_everything()?;
        let (before, hits) = (leases(runtime)?, self.hits(|_| true));
        match runtime.renew_leases() {
            Err(Error::Store(kauri_tree::Error::Full)) if lock(&self.state).forgive() => return Ok(()),
            renewed => drop(renewed?),
        }
        let messages = |(worker, lease, seqs): &Leased| (*worker, lease.owner, seqs.clone());
        let is_same = leases(runtime)?.iter().map(messages).eq(before.iter().map(messages));
        match is_same || self.hits(|_| true) != hits {
            true => Ok(()),
            false => Err(wrong("whoever renewed a lease took messages that it did not have".to_owned())),
        }
    }

    /// How often something went wrong, of such a kind.
    fn hits(&self, is_meant: impl Fn(FaultKind) -> bool) -> u64 {
        let state = lock(&self.state);
        state.hits.iter().filter(|(kind, _)| is_meant(**kind)).map(|(_, count)| count).sum()
    }
}

fn wrong(what: String) -> Error {
    Error::Substrate(what.into())
}

/// Whose messages, the lease on them, and which.
type Leased = (WorkerId, Lease, Vec<Seq>);

fn leases(runtime: &Runtime) -> Result<Vec<Leased>> {
    let rows = runtime.substrate().snapshot()?;
    let mut scan = rows.scan(&LEASES, KeyRange::ALL)?;
    let mut leases = Vec::new();
    while let Some((key, row)) = scan.next()? {
        let (lease, seqs) = decode_row(&row)?;
        leases.push((inbox_key(&key)?.worker, lease, seqs));
    }
    Ok(leases)
}

/// Whether somebody has a live lease on a message.
fn is_leased(runtime: &Runtime, key: InboxKey) -> Result<bool> {
    let (now, incarnation) = (runtime.now().mono, runtime.incarnation());
    let is_on = |(worker, lease, seqs): &Leased| {
        *worker == key.worker && seqs.contains(&key.seq) && lease.is_live(now, incarnation)
    };
    Ok(leases(runtime)?.iter().any(is_on))
}

/// No message is under two leases.
fn check_leases(runtime: &Runtime) -> Result<()> {
    let mut seen = BTreeSet::new();
    for (worker, lease, seqs) in leases(runtime)? {
        for seq in seqs {
            if !seen.insert(InboxKey { worker, seq }) {
                return Err(wrong(format!(
                    "{seq:?} of {worker:?} is under two leases, one of them of {}",
                    lease.owner
                )));
            }
        }
    }
    Ok(())
}
