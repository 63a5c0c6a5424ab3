//! The examples, which are tests.

/// Each is a program of its own; here its `main` is called.
macro_rules! examples {
    ($($test:ident: $name:ident, $path:literal;)*) => {$(
        #[path = $path]
        mod $name;

        #[test]
        fn $test() {
            $name::main().unwrap();
        }
    )*};
}

examples! {
    orders_go_through_four_workers: orders, "../../examples/orders.rs";
    transfers_conserve_money: bank, "../../examples/bank.rs";
    timers_and_schedules_fire: timers, "../../examples/timers.rs";
    dead_letter_is_replayed: dead_letters, "../../examples/dead_letters.rs";
    nested_blocks_vanish_or_merge: nested, "../../examples/nested.rs";
    outbox_becomes_json_lines: outbox, "../../examples/outbox.rs";
}
