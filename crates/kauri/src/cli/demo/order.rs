//! The orders of the demo: what each of them is follows from its number and the seed, so everybody can say what must come out.

use kauri::runtime::substrate::{Rows, TableName};
use kauri::runtime::{Failure, Read as _, Write as _};
use kauri::tree::Table;
use kauri::wire::{Flags, Message, MessageId, MessageRef, WireError, WorkerId};

/// Takes orders in; one that makes no sense ends in the dead letters.
pub(super) const SALES: WorkerId = WorkerId(1);
/// Takes the money, from a bank that is often busy.
pub(super) const PAYMENT: WorkerId = WorkerId(2);
/// Ships an order when its timer fires.
pub(super) const SHIPPING: WorkerId = WorkerId(3);
/// Drives runs: the close of the day, and an invoice for each customer.
pub(super) const ACCOUNTING: WorkerId = WorkerId(4);

/// What the demo of this home is about: how many orders, and the seed.
pub(super) const DEMO: Table<str, str> = Table::new("demo");
/// Where each order stands.
pub(super) const ORDERS: Table<str, str> = Table::new("orders");
/// Sums, each kept by one worker in the commits of its steps: whatever is done twice or not at all shows here.
pub(super) const BOOKS: Table<str, str> = Table::new("books");
/// What each customer owes, in cents.
pub(super) const ACCOUNTS: Table<str, str> = Table::new("accounts");
/// The invoice of each customer: its cents, and where it is kept.
pub(super) const INVOICES: Table<str, str> = Table::new("invoices");

/// An apple costs so many cents.
const PRICE_CENTS: u64 = 35;
/// One customer for so many orders, and some more.
const ORDERS_PER_CUSTOMER: u64 = 160;

/// What the demo is about.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Plan {
    pub(super) orders: u64,
    pub(super) seed: u64,
}

impl Plan {
    /// The plan of a home, if a demo ever ran there.
    pub(super) fn read(rows: &dyn Rows) -> kauri::runtime::Result<Option<Self>> {
        let (orders, seed) = (number(rows, &DEMO, "orders")?, number(rows, &DEMO, "seed")?);
        Ok(orders.filter(|orders| *orders > 0).zip(seed).map(|(orders, seed)| Self { orders, seed }))
    }

    /// The one order that makes no sense.
    pub(super) fn poison(self) -> u64 {
        1 + mix(self.seed) % self.orders
    }

    pub(super) fn customers(self) -> u64 {
        (4 + self.orders / ORDERS_PER_CUSTOMER).min(64)
    }

    /// The longest that a parcel waits to be picked up, in milliseconds.
    pub(super) fn pickup_ms(self) -> u64 {
        (self.orders * 3 / 2).clamp(50, 3_000)
    }

    pub(super) fn order(self, number: u64) -> Order {
        let chance = mix(self.seed ^ mix(number));
        Order {
            id: format!("order-{number:05}"),
            customer: format!("customer-{:02}", 1 + chance % self.customers()),
            apples: 1 + (chance >> 16) % 12,
        }
    }

    /// The message that brings an order.
    pub(super) fn message(self, number: u64) -> Result<Message, WireError> {
        let order = self.order(number);
        let payload = if number == self.poison() { order.poisoned() } else { order.to_string() };
        let message = Message::command(SALES, MessageId::new(order.id)?, payload);
        Ok(message.with(Flags::DURABLE | Flags::DEDUPE_REQUIRED))
    }

    /// All orders that make sense.
    pub(super) fn good_orders(self) -> impl Iterator<Item = Order> {
        (1..=self.orders).filter(move |number| *number != self.poison()).map(move |number| self.order(number))
    }
}

/// An order that makes sense.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Order {
    pub(super) id: String,
    pub(super) customer: String,
    pub(super) apples: u64,
}

impl Order {
    pub(super) const fn cents(&self) -> u64 {
        self.apples * PRICE_CENTS
    }

    fn poisoned(&self) -> String {
        format!("{} wants lots of apples", self.customer)
    }

    /// The order in a message.
    pub(super) fn of(message: MessageRef<'_>) -> Result<Self, Failure> {
        let text = |bytes| std::str::from_utf8(bytes).map_err(|_| Failure::fatal("expected text"));
        let (id, payload) = (text(message.id())?, text(message.payload())?);
        let mut words = payload.split(' ');
        let (Some(customer), Some("wants"), Some(apples)) = (words.next(), words.next(), words.next()) else {
            return Err(Failure::fatal(format!("expected who wants how many apples, found {payload:?}")));
        };
        let expected = |_| Failure::fatal(format!("expected a number of apples, found {apples:?}"));
        let apples = apples.parse().map_err(expected)?;
        Ok(Self { id: id.to_owned(), customer: customer.to_owned(), apples })
    }

    /// The row of the order when it stands so.
    pub(super) fn row(&self, state: &str) -> String {
        format!("{state}: {self}, {} cents", self.cents())
    }
}

impl std::fmt::Display for Order {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} wants {} apples", self.customer, self.apples)
    }
}

/// The number in a row, if there is one.
pub(super) fn number(rows: &dyn Rows, table: &Table<str, str>, key: &str) -> kauri::runtime::Result<Option<u64>> {
    let row = rows.get(&TableName::Owned(table.name().to_owned()), key.as_bytes())?;
    Ok(row.and_then(|row| std::str::from_utf8(&row).ok()?.parse().ok()))
}

/// A number that looks like chance, from any number (the last steps of SplitMix64).
pub(super) const fn mix(number: u64) -> u64 {
    let number = number.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let number = (number ^ (number >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let number = (number ^ (number >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    number ^ (number >> 31)
}

/// Adds to a sum in a block.
pub(super) fn add(
    block: &mut kauri::runtime::Atomic<'_>,
    table: &Table<str, str>,
    name: &str,
    more: u64,
) -> Result<(), Failure> {
    let sum = block.get(table, name)?.map_or(Ok(0), |text| text.parse::<u64>());
    let sum = sum.map_err(|_| Failure::fatal(format!("expected a number under {name:?}")))? + more;
    Ok(block.put(table, name, &sum.to_string())?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_order_survives_its_message_and_the_poisoned_one_says_what_is_wrong() {
        let plan = Plan { orders: 500, seed: 7 };
        for number in 1..=plan.orders {
            let frame = plan.message(number).unwrap().encode().unwrap();
            let read = Order::of(MessageRef::decode(&frame).unwrap());
            match number == plan.poison() {
                true => assert!(read.unwrap_err().to_string().contains("found \"lots\"")),
                false => assert_eq!(read.unwrap(), plan.order(number)),
            }
        }
        assert_eq!(plan.good_orders().count(), 499);
    }
}
