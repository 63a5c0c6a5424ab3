use crate::{answer, refusal};

#[test]
fn demo_proves_its_totals_and_says_what_is_not_there() {
    let text = answer(&["demo", "--orders", "240"], b"");
    assert!(text.contains("240 shipped, 1560 apples; expected 240 and 1560"), "{text}");
    assert!(text.contains(" 0 read as the same"), "{text}");
    assert!(text.contains("comes next"), "{text}");
}

#[test]
fn the_command_that_demo_suggests_works() {
    let text = answer(&["demo"], b"");
    let hex = text.rsplit_once("kauri frame decode ").expect("a suggestion").1.trim_end().trim_end_matches('`');
    assert!(answer(&["frame", "decode", hex], b"").contains("\"message_id\": \"order-1\""));
}

#[test]
fn demo_refuses_a_number_of_orders_that_makes_no_sense() {
    for orders in ["0", "-1", "many", "1000001"] {
        assert!(refusal(&["demo", "--orders", orders], b"").contains("--orders"));
    }
}
