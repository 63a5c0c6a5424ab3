//! Leases that blocks acquire on names of their own: who may use something outside, and until when.
//!
//! ```text
//!  0      32              40
//!  | lease | deadline i64 |   little-endian, milliseconds since the epoch
//! ```
//!
//! Within one incarnation the lease's own deadline counts, on the monotonic clock. Whoever looks after a restart has only the wall clock,
//! so both are kept: a lease that was acquired for an hour is not free because the program was started again. A lease that was given
//! back stays as a row of incarnation 0, which is nobody's, so that its token never goes back.

use std::time::Duration;

use kauri_wire::Timestamp;

use crate::atomic::{Atomic, Setting};
use crate::error::{Error, Result};
use crate::lease::{LEASE_BYTES, Lease};
use crate::read::Read;
use crate::schema::NAMED_LEASES;

/// What became of a wish for a lease.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[must_use]
pub enum Acquired {
    /// It is this worker's, once the block commits. The number is a fencing token: it grows with each acquisition.
    Yes {
        /// How often the lease was acquired or renewed.
        token: u32,
    },
    /// Another worker has it.
    Busy {
        /// The other worker, as its key bits.
        owner: u64,
    },
}

/// What became of giving a lease back.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[must_use]
pub enum Released {
    /// It is free, once the block commits.
    Yes,
    /// Nobody had it.
    Missing,
    /// Another worker has it.
    NotOwner,
}

#[derive(Debug)]
pub(crate) struct NamedLease {
    lease: Lease,
    deadline: Timestamp,
}

impl NamedLease {
    pub(crate) fn encode(&self) -> Vec<u8> {
        [&self.lease.encode()[..], &self.deadline.0.to_le_bytes()].concat()
    }

    pub(crate) fn decode(bytes: &[u8]) -> Result<Self> {
        let damaged = || Error::damaged("named_leases", "a lease and a deadline, 40 bytes");
        let (lease, deadline) = bytes.split_at_checked(LEASE_BYTES).ok_or_else(damaged)?;
        let deadline = i64::from_le_bytes(deadline.try_into().map_err(|_| damaged())?);
        Ok(Self { lease: Lease::decode(lease)?, deadline: Timestamp(deadline) })
    }

    fn is_live(&self, setting: &Setting) -> bool {
        match self.lease.incarnation == setting.incarnation {
            true => self.lease.is_live(setting.now.mono, setting.incarnation),
            false => setting.now.wall < self.deadline,
        }
    }
}

fn find(block: &Atomic<'_>, name: &[u8]) -> Result<Option<NamedLease>> {
    block.row(&NAMED_LEASES, name)?.map(|bytes| NamedLease::decode(&bytes)).transpose()
}

fn put(block: &mut Atomic<'_>, name: &[u8], lease: Lease, deadline: i64) -> Result<()> {
    let row = NamedLease { lease, deadline: Timestamp(deadline) };
    block.stage(&NAMED_LEASES, name, Some(&row.encode()))
}

/// The incarnation of a lease that was given back.
const NOBODYS: u64 = 0;

/// The worker of the block, as owner of leases; blocks without one share an owner.
fn owner(block: &Atomic<'_>) -> u64 {
    block.worker().map_or(u64::MAX, kauri_wire::WorkerId::key_bits)
}

pub(crate) fn acquire(block: &mut Atomic<'_>, name: &[u8], term: Duration) -> Result<Acquired> {
    let (present, owner, setting) = (find(block, name)?, owner(block), *block.setting());
    if let Some(present) = &present
        && present.lease.owner != owner
        && present.is_live(&setting)
    {
        return Ok(Acquired::Busy { owner: present.lease.owner });
    }
    let token = present.map_or(0, |present| present.lease.deliveries).saturating_add(1);
    let deadline = setting.now.mono + term;
    let lease = Lease { owner, deadline, deliveries: token, incarnation: setting.incarnation };
    let millis = i64::try_from(term.as_millis()).unwrap_or(i64::MAX);
    let wall = setting.now.wall.0.saturating_add(millis);
    put(block, name, lease, wall)?;
    Ok(Acquired::Yes { token })
}

pub(crate) fn release(block: &mut Atomic<'_>, name: &[u8]) -> Result<Released> {
    match find(block, name)? {
        None => Ok(Released::Missing),
        Some(present) if present.lease.incarnation == NOBODYS => Ok(Released::Missing),
        Some(present) if present.lease.owner != owner(block) => Ok(Released::NotOwner),
        Some(present) => {
            put(block, name, Lease { incarnation: NOBODYS, ..present.lease }, i64::MIN)?;
            Ok(Released::Yes)
        }
    }
}
