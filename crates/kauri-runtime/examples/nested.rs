//! Blocks inside blocks: what fails inside vanishes, and the rest goes on.

use std::sync::Arc;

use kauri_runtime::substrate::TreeSubstrate;
use kauri_runtime::testing::VirtualClock;
use kauri_runtime::{Atomic, Error, Failure, Read, Runtime, Write};
use kauri_tree::{Store, Table};
use kauri_wire::{Message, MessageId, WorkerId};

const MAIL: WorkerId = WorkerId(1);
const SEATS: Table<str, str> = Table::new("seats");

/// Takes one seat and writes a letter about it.
fn book(block: &mut Atomic<'_>, seat: &str, who: &str) -> Result<(), Failure> {
    block.emit(&Message::command(MAIL, MessageId::new(format!("{who} has {seat}"))?, ""))?;
    match block.insert(&SEATS, seat, who)? {
        true => Ok(()),
        false => Err(Failure::fatal(format!("{seat} is taken"))),
    }
}

/// Takes all seats or none, and then the first of others that is free.
fn book_for(block: &mut Atomic<'_>, who: &str, wanted: &[&str], else_one_of: &[&str]) -> Result<(), Failure> {
    let all = block.nest(|block| wanted.iter().try_for_each(|seat| book(block, seat, who)));
    match all {
        Ok(()) => Ok(()),
        Err(_) => {
            let one = else_one_of.iter().find_map(|seat| block.nest(|block| book(block, seat, who)).ok());
            one.ok_or_else(|| Failure::fatal("no seat at all"))
        }
    }
}

pub(crate) fn main() -> Result<(), Failure> {
    let substrate = Arc::new(TreeSubstrate::new(Store::in_memory()?));
    let runtime = Runtime::builder(substrate, Arc::new(VirtualClock::default())).start()?;
    runtime.atomic(|block| book_for(block, "ann", &["1a", "1b"], &[]))?;
    runtime.atomic(|block| book_for(block, "bob", &["2a", "1b"], &["1a", "2b"]))?;
    let seats: Result<Vec<(String, String)>, Error> =
        runtime.read(|view| view.scan(&SEATS)?.map(|seat, who| (seat.to_owned(), who.into_owned())).collect());
    let expected = [("1a", "ann"), ("1b", "ann"), ("2b", "bob")].map(|(seat, who)| (seat.to_owned(), who.to_owned()));
    assert_eq!(seats?, expected, "bob did not keep 2a when 1b was taken");
    assert_eq!(runtime.depth(MAIL)?, 3, "and nobody wrote to him about it");
    Ok(())
}
