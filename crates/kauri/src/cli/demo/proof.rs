//! The proof: what must be in the home when the demo is over, compared with what is there.
//!
//! Nothing is taken from the demo's memory. What must come out follows from the plan; what came out is read from the store, the ledger,
//! the artifacts, the audit and the post office, when nobody works there any more.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Display;

use kauri::Layout;
use kauri::ledger::{ActionRow, Look as LedgerLook, Status};
use kauri::runtime::run::{Outcome, Run};
use kauri::runtime::substrate::{KeyRange, Rows, Substrate as _, TableName};
use kauri::runtime::{Look, Reason};
use kauri::tree::Table;
use kauri::wire::MessageRef;
use serde_json::{Value, json};

use super::desk::{first_number, letters_path};
use super::order::{ACCOUNTS, BOOKS, INVOICES, ORDERS, Plan, number};

/// One thing that must be so.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Line {
    pub(super) what: &'static str,
    pub(super) expected: String,
    pub(super) found: String,
}

impl Line {
    pub(super) fn holds(&self) -> bool {
        self.expected == self.found
    }

    pub(super) fn to_json(&self) -> Value {
        json!({ "what": self.what, "expected": self.expected, "found": self.found, "holds": self.holds() })
    }
}

/// What came out.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(super) struct Proof {
    pub(super) lines: Vec<Line>,
    pub(super) shipped: u64,
    pub(super) buried: u64,
    pub(super) apples: u64,
    pub(super) cents: u64,
    pub(super) invoices: u64,
    pub(super) runs: u64,
    pub(super) actions: u64,
    /// A run with others under it, to be looked at.
    pub(super) closing: Option<String>,
    /// The dead letter, to be looked at.
    pub(super) dead_letter: Option<String>,
}

impl Proof {
    pub(super) fn holds(&self) -> bool {
        self.lines.iter().all(Line::holds)
    }

    fn expect(&mut self, what: &'static str, expected: impl Display, found: impl Display) {
        self.lines.push(Line { what, expected: expected.to_string(), found: found.to_string() });
    }

    /// That two sets of things are the same; if not, how many of each are too many, and the first.
    fn expect_same<T: Ord + Display>(&mut self, what: &'static str, expected: &BTreeSet<T>, found: &BTreeSet<T>) {
        let missing = expected.difference(found).collect::<Vec<_>>();
        let surplus = found.difference(expected).collect::<Vec<_>>();
        let first = |things: &[&T]| things.first().map_or_else(String::new, |thing| format!(" such as {thing}"));
        let told = match (missing.len(), surplus.len()) {
            (0, 0) => found.len().to_string(),
            (few, many) => {
                let (missing, surplus) = (first(&missing), first(&surplus));
                format!("{}, but {few} missing{missing}, {many} too many{surplus}", found.len())
            }
        };
        self.expect(what, expected.len(), told);
    }
}

/// Reads everything back.
pub(super) fn prove(layout: &Layout, plan: Plan) -> Result<Proof, String> {
    let failed = |error: kauri::runtime::Error| format!("{}: {error}", layout.store().display());
    let missing = || format!("{}: there is no store", layout.store().display());
    let substrate = super::super::home::open_store(layout).map_err(|error| failed(error.into()))?;
    let substrate = substrate.ok_or_else(missing)?;
    let mut proof = Proof::default();
    let rows = substrate.snapshot().map_err(failed)?;
    let look = Look::at(&substrate).map_err(failed)?;
    prove_orders(&mut proof, plan, &*rows, &look).map_err(failed)?;
    prove_books(&mut proof, plan, &*rows).map_err(failed)?;
    prove_rest(&mut proof, &look).map_err(failed)?;
    prove_runs(&mut proof, plan, &*rows, &look).map_err(failed)?;
    prove_ledger(&mut proof, layout, &*rows).map_err(|error| error.to_string())?;
    Ok(proof)
}

/// The rows of a table, as texts.
fn texts(rows: &dyn Rows, table: &Table<str, str>) -> kauri::runtime::Result<BTreeMap<String, String>> {
    let mut scan = rows.scan(&TableName::Owned(table.name().to_owned()), KeyRange::ALL)?;
    let mut found = BTreeMap::new();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    while let Some((key, value)) = scan.next()? {
        found.insert(text(&key), text(&value));
    }
    Ok(found)
}

/// Each order has come to one end, once.
fn prove_orders(proof: &mut Proof, plan: Plan, rows: &dyn Rows, look: &Look<'_>) -> kauri::runtime::Result<()> {
    let shipped: BTreeSet<String> =
        texts(rows, &ORDERS)?.into_iter().map(|(id, row)| format!("{id} ({row})")).collect();
    let wanted = plan.good_orders().map(|order| format!("{} ({})", order.id, order.row("shipped"))).collect();
    proof.expect_same("orders shipped", &wanted, &shipped);
    let letters = look.dead_letters(None, usize::MAX)?;
    let id = |frame: &[u8]| MessageRef::decode(frame).map(|message| String::from_utf8_lossy(message.id()).into_owned());
    let buried = letters
        .iter()
        .map(|(_, letter)| format!("{} ({})", id(&letter.frame).unwrap_or_default(), letter.reason.as_str()));
    let buried: Vec<String> = buried.collect();
    let poison = format!("{} ({})", plan.order(plan.poison()).id, Reason::FailuresSpent.as_str());
    proof.expect("dead letters", poison, buried.join(", "));
    proof.expect("orders that came to an end", plan.orders, shipped.len() + buried.len());
    (proof.shipped, proof.buried) = (shipped.len() as u64, buried.len() as u64);
    proof.dead_letter = letters.first().map(|(key, _)| format!("{}/{}", key.worker, key.seq));
    Ok(())
}

/// Every sum is what the orders make together: a step that was applied twice, or not at all, would show.
fn prove_books(proof: &mut Proof, plan: Plan, rows: &dyn Rows) -> kauri::runtime::Result<()> {
    let good = || plan.good_orders();
    let (count, apples) = (good().count() as u64, good().map(|order| order.apples).sum::<u64>());
    let cents: u64 = good().map(|order| order.cents()).sum();
    let sums = [
        ("orders accepted", "accepted", count),
        ("apples sold", "apples", apples),
        ("orders paid", "paid", count),
        ("cents paid", "paid_cents", cents),
        ("orders handed over", "shipped", count),
        ("cents invoiced", "invoiced_cents", cents),
    ];
    for (what, name, expected) in sums {
        proof.expect(what, expected, number(rows, &BOOKS, name)?.unwrap_or(0));
    }
    proof.apples = number(rows, &BOOKS, "apples")?.unwrap_or(0);
    proof.cents = number(rows, &BOOKS, "paid_cents")?.unwrap_or(0);
    let mut owed = BTreeMap::<String, u64>::new();
    good().for_each(|order| *owed.entry(order.customer.clone()).or_default() += order.cents());
    let owed = owed.into_iter().map(|(customer, cents)| format!("{customer}: {cents}")).collect();
    let found = texts(rows, &ACCOUNTS)?.into_iter().map(|(customer, cents)| format!("{customer}: {cents}")).collect();
    proof.expect_same("accounts of customers", &owed, &found);
    Ok(())
}

/// Nothing waits any more.
fn prove_rest(proof: &mut Proof, look: &Look<'_>) -> kauri::runtime::Result<()> {
    for (what, table) in [
        ("messages that wait", "inbox"),
        ("timers that wait", "timers"),
        ("messages that somebody has", "leases"),
        ("messages to go outside", "outbox"),
    ] {
        proof.expect(what, 0, look.count(table)?);
    }
    Ok(())
}

/// One close of the day, and a run that succeeded for each customer; whatever else ran was a try of one of them.
fn prove_runs(proof: &mut Proof, plan: Plan, rows: &dyn Rows, look: &Look<'_>) -> kauri::runtime::Result<()> {
    let runs = look.runs(None, usize::MAX)?;
    let good = |run: &&Run| matches!(run.outcome(), Some(Outcome::Success { .. }));
    let of = |class: &str| runs.iter().filter(|run| &*run.class == class).filter(good).count();
    let customers = plan.good_orders().map(|order| order.customer).collect::<BTreeSet<_>>();
    proof.expect("days closed", 1, of("closing"));
    proof.expect("invoices made by child runs", customers.len(), of("invoice"));
    proof.expect("runs without an end", 0, runs.iter().filter(|run| run.outcome().is_none()).count());
    let filed = texts(rows, &INVOICES)?.into_keys().collect();
    proof.expect_same("invoices filed", &customers, &filed);
    (proof.runs, proof.invoices) = (runs.len() as u64, filed.len() as u64);
    proof.closing = runs.iter().find(|run| &*run.class == "closing").map(|run| run.id.to_string());
    Ok(())
}

/// One completed action for each invoice, with its artifact; one letter; and an audit that is whole.
fn prove_ledger(proof: &mut Proof, layout: &Layout, rows: &dyn Rows) -> Result<(), Box<dyn std::error::Error>> {
    let look = LedgerLook::at(layout.home());
    let database = look.database()?.ok_or("there is no ledger")?;
    let actions = database.actions(None, None, u32::MAX)?;
    let completed: Vec<&ActionRow> = actions.iter().filter(|action| action.status == Status::Completed).collect();
    let filed: BTreeSet<String> = texts(rows, &INVOICES)?.into_keys().collect();
    let acted: Vec<String> = completed.iter().map(|action| action.trace_id.clone()).collect();
    proof.expect("invoices posted by one action each", filed.len(), acted.len());
    proof.expect_same("customers of these actions", &filed, &acted.into_iter().collect());
    let kept = completed.iter().filter_map(|action| {
        let path = layout.home().join(action.result_ref.as_deref()?);
        std::fs::read_to_string(path).ok()?.lines().filter_map(first_number).next_back()
    });
    proof.expect("cents on the invoices that are kept", proof.cents, kept.sum::<u64>());
    let letters = std::fs::read_to_string(letters_path(layout.home())).unwrap_or_default();
    let letters: Vec<String> = letters.lines().filter_map(|line| Some(line.split('\t').next()?.to_owned())).collect();
    proof.expect("letters that left the house", filed.len(), letters.len());
    proof.expect_same("customers of these letters", &filed, &letters.into_iter().collect());
    proof.expect("actions without an end", 0, look.journal()?.unwrap_or_default().orphans.len());
    proof.expect("findings about actions (I1 to I5, I8)", 0, look.check_actions(&database, true)?.len());
    let audit = look.audit()?.ok_or("there is no audit")?;
    proof.expect("audit", "whole", if audit.is_whole() { "whole" } else { "broken" });
    proof.actions = actions.len() as u64;
    Ok(())
}
