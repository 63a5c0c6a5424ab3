//! Pages that only pins see: the list of them, and what becomes of them when a pin goes.
//!
//! ```text
//! versions:   ... p ........ q ........... now              p and q are pinned
//! page A:       born ─────────────── died                   kept for q: its newest pin
//! page B:              born ──────── died                   kept for q
//! page C:              born ─ died                          seen by no pin: not here
//! unpin q:    A was born by p, and is kept for p; B was not, and is free
//! ```
//!
//! A page lives in one piece, from its birth to its death, so the pins that see it lie side by side, and the newest of them stands for
//! all. What dies is compared with the newest pin alone; what a pin kept is compared with the pin before it alone. So a death costs one
//! comparison, a pin costs nothing while it stands, and taking it away costs what died between it and the next.
//!
//! In a file the list is a tree of rows, drawn in `docs/format.md`, which is brought up to date by each checkpoint; the pager has what
//! died since. In memory the pager has all of it.

use kauri_arena::Stamp;

use crate::btree::{self, Of, Old, Root, Row};
use crate::catalog::Catalog;
use crate::error::{Error, Fault, Result};
use crate::node::Value;
use crate::pager::{Dead, Pager, Run};
use crate::read::Access;
use crate::store::State;

/// Brings the file's list up to date, in the transaction of a checkpoint, with what the catalog's tree gave up in it too.
pub(crate) fn write(pager: &mut Pager<Catalog>, list: &mut Root) -> Result<()> {
    if !planted!(ForgetKeptByCheckpoint) {
        pager.keep_seen();
    }
    let kept = pager.take_kept();
    pager.unseen(|pager| {
        for (pin, dead) in kept.into_iter().flat_map(|(pin, dead)| dead.into_iter().map(move |dead| (pin, dead))) {
            put(pager, list, pin, dead)?;
        }
        Ok(())
    })
}

/// Hands on what was kept for a pin that goes: to the pin before it, or to nobody.
pub(crate) fn release(state: &mut State, pin: Stamp, before: Option<Stamp>) -> Result<()> {
    let State { pager, turn, .. } = state;
    let before = before.filter(|_| !planted!(FreeForOlderPin));
    let Some(turn) = turn else {
        for dead in pager.take_kept_for(pin) {
            match before.filter(|before| dead.birth <= *before) {
                Some(before) => pager.keep_for(before, dead),
                None => pager.retire_kept(dead.run),
            }
        }
        return Ok(());
    };
    let kept = list(Access::Turn(pager), turn.kept, Some(pin))?;
    check(pager, &kept)?;
    pager.unseen(|pager| {
        for (_, dead) in kept {
            let old = btree::remove::<Of<[u8]>>(pager, &mut turn.kept, &key(pin, dead.run.first))?;
            if old != Old::Inline {
                return Err(wrong(turn.kept.page, "kept pages that are in order", &[]));
            }
            match before.filter(|before| dead.birth <= *before) {
                Some(before) => put(pager, &mut turn.kept, before, dead)?,
                None if planted!(LeakOnUnpin) => {}
                None => pager.retire_kept(dead.run),
            }
        }
        Ok(())
    })
}

/// What a file's list keeps, for one pin or for all, and for which.
pub(crate) fn list(access: Access<'_>, list: Root, pin: Option<Stamp>) -> Result<Vec<(Stamp, Dead)>> {
    let mut scan = btree::Scan::new(access);
    match pin {
        Some(pin) => scan.go_to::<Of<[u8]>>(list, &key(pin, 0))?,
        None => scan.go_first(list)?,
    }
    let (mut rows, mut found) = (Vec::new(), Vec::new());
    while let Some(Row { node, index }) = scan.next()? {
        found.clear();
        node.key_into(index, &mut found);
        let row = decode(&found, node.value(index)).ok_or_else(|| wrong(list.page, "a page that is kept", &found))?;
        if pin.is_some_and(|pin| pin != row.0) {
            break;
        }
        rows.push(row);
    }
    Ok(rows)
}

/// A list that came with a file may say anything: a page that is free, or named twice, is not given up.
fn check(pager: &Pager<Catalog>, kept: &[(Stamp, Dead)]) -> Result<()> {
    let mut end = 0;
    for (_, Dead { run, .. }) in kept {
        let is_inside = run.first >= end && run.pages > 0 && run.first.checked_add(run.pages) <= Some(pager.end());
        if !is_inside || run.iter().any(|page| pager.free().contains(page)) {
            let fault = Fault::new("kept pages that are in use", run.first.into());
            return Err(Error::Corrupt { page: run.first, fault });
        }
        end = run.iter().end;
    }
    Ok(())
}

fn put(pager: &mut Pager<Catalog>, list: &mut Root, pin: Stamp, dead: Dead) -> Result<()> {
    let value = [&dead.run.pages.to_le_bytes()[..], &dead.birth.number().to_le_bytes()].concat();
    let old = btree::put::<Of<[u8]>>(pager, list, &key(pin, dead.run.first), Value::Inline(&value))?;
    match old {
        Old::Missing => Ok(()),
        _ => Err(wrong(dead.run.first, "a page that is kept once", &[])),
    }
}

/// Pins in order, and for each its pages in order.
fn key(pin: Stamp, page: u32) -> Vec<u8> {
    [&pin.number().to_be_bytes()[..], &page.to_be_bytes()].concat()
}

fn decode(key: &[u8], value: Value<'_>) -> Option<(Stamp, Dead)> {
    let (pin, first) = key.split_first_chunk()?;
    let (pages, birth) = value.bytes().split_first_chunk()?;
    let pin = Stamp::new(u64::from_be_bytes(*pin))?;
    let run = Run { first: u32::from_be_bytes(first.try_into().ok()?), pages: u32::from_le_bytes(*pages) };
    let birth = Stamp::new(u64::from_le_bytes(birth.try_into().ok()?))?;
    Some((pin, Dead { run, birth }))
}

fn wrong(page: u32, expected: &'static str, found: &[u8]) -> Error {
    Error::Corrupt { page, fault: Fault::new(expected, found.len() as u64) }
}
