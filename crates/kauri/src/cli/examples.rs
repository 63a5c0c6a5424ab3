//! Examples for the help of commands that bring none of their own, in one place so that none is forgotten.

use clap::Command;

/// The path of a command under `kauri`, and how it is used.
const EXAMPLES: &[(&str, &str)] = &[
    ("frame", "kauri frame decode -  < message.lmsg\n  kauri frame check cases.jsonl"),
    ("frame decode", "kauri frame decode 4c4d53470000...\n  kauri frame decode - < message.lmsg"),
    (
        "frame encode",
        "kauri frame encode '{\"kind\":\"command\",\"to_worker\":7,\"message_id\":\"order-1\",\"payload\":\"12 apples\"}'",
    ),
    ("frame check", "kauri frame check cases.jsonl --json | jq .mismatches"),
    ("ledger actions", "kauri ledger actions --status failed\n  kauri ledger actions --trace order-4 --json"),
    ("ledger orphans", "kauri ledger orphans --home /srv/shop"),
    ("audit show", "kauri audit show --limit 20 --utc\n  kauri audit show --since 2h"),
    ("audit verify", "kauri audit verify --json | jq .whole"),
    ("dead-letters list", "kauri dead-letters list --worker 7 --since 2h\n  kauri dead-letters list --after 7/12"),
    ("dead-letters show", "kauri dead-letters show 7/12"),
    ("dead-letters replay", "kauri dead-letters replay 7/12\n  kauri dead-letters replay --all"),
    ("dead-letters purge", "kauri dead-letters purge --older-than 30d"),
    ("runs list", "kauri runs list --state running --tag nightly\n  kauri runs list --since 2h --limit 20"),
    ("runs show", "kauri runs show 019d2c5e-7a10-7c3e-8f00-0123456789ab"),
    ("runs events", "kauri runs events 019d2c5e-7a10-7c3e-8f00-0123456789ab --from 10 --json"),
    ("runs lineage", "kauri runs lineage 019d2c5e-7a10-7c3e-8f00-0123456789ab"),
    ("ledger salvage", "kauri ledger salvage --home /srv/shop"),
    ("classes list", "kauri classes list --json"),
    ("classes pause", "kauri classes pause mail"),
    ("classes resume", "kauri classes resume mail"),
    ("config show", "kauri config show --home /srv/shop"),
    ("runs tail", "kauri runs tail 019d2c5e-7a10-7c3e-8f00-0123456789ab"),
    ("runs wait", "kauri runs wait 019d2c5e-7a10-7c3e-8f00-0123456789ab"),
    ("runs cancel", "kauri runs cancel 019d2c5e-7a10-7c3e-8f00-0123456789ab"),
    (
        "runs retry",
        "kauri runs retry 019d2c5e-7a10-7c3e-8f00-0123456789ab --from-step charge --input @edited.json\n  \
         kauri runs retry --class crawl --outcome executor_crash,timed_out --since 2h",
    ),
    ("runs signal", "kauri runs signal 019d2c5e-7a10-7c3e-8f00-0123456789ab approved --payload ann"),
    ("runs report", "kauri runs report 019d2c5e-7a10-7c3e-8f00-0123456789ab"),
    ("events", "kauri events 019d2c5e-7a10-7c3e-8f00-0123456789ab"),
    ("lineage", "kauri lineage 019d2c5e-7a10-7c3e-8f00-0123456789ab"),
    ("store", "kauri store tables stock.kauri\n  kauri store scan stock.kauri fruit --prefix ap --limit 10"),
    ("store stat", "kauri store stat stock.kauri --json | jq .free_pages"),
    ("store tables", "kauri store tables stock.kauri --as-of monday"),
    ("store get", "kauri store get stock.kauri fruit apples"),
    (
        "store scan",
        "kauri store scan stock.kauri fruit --prefix ap --limit 10\n  kauri store scan stock.kauri fruit --json --reverse",
    ),
    ("store count", "kauri store count stock.kauri fruit --from a --until c"),
    ("store put", "kauri store put --create stock.kauri fruit apples 12"),
    ("store del", "kauri store del stock.kauri fruit apples"),
    ("store load", "kauri store load --create stock.kauri fruit < rows.tsv"),
    ("store verify", "kauri store verify stock.kauri"),
    ("store diff", "kauri store diff old.kauri new.kauri\n  kauri store diff stock.kauri --as-of monday"),
    ("store fork", "kauri store fork stock.kauri trial.kauri"),
    ("store checkpoint", "kauri store checkpoint stock.kauri - | ssh elsewhere kauri store restore stock.kauri -"),
    ("store restore", "kauri store restore stock.kauri stock.stream"),
    ("store pins", "kauri store pins stock.kauri"),
    ("store pin", "kauri store pin stock.kauri monday"),
    ("store unpin", "kauri store unpin stock.kauri monday"),
    ("store compact", "kauri store compact stock.kauri"),
];

/// The command with an example in the help of each command under it that has none yet.
pub(super) fn with_examples(command: Command) -> Command {
    EXAMPLES.iter().fold(command, |command, (path, example)| {
        let word = if example.contains('\n') { "Examples" } else { "Example" };
        let steps: Vec<&str> = path.split(' ').collect();
        add(command, &steps, &format!("{word}:\n  {example}"))
    })
}

fn add(command: Command, path: &[&str], help: &str) -> Command {
    match path.split_first() {
        None if command.get_after_help().is_some() => command,
        None => command.after_help(help.to_owned()),
        Some((name, rest)) => command.mut_subcommand(name, |command| add(command, rest, help)),
    }
}

#[cfg(test)]
mod tests {
    use clap::{CommandFactory as _, Parser as _};

    use super::*;

    fn visit(command: &Command, path: &str, visit_one: &mut dyn FnMut(&Command, &str)) {
        for command in command.get_subcommands().filter(|command| command.get_name() != "help") {
            let path = format!("{path} {}", command.get_name());
            visit_one(command, &path);
            visit(command, &path, visit_one);
        }
    }

    #[test]
    fn every_command_has_an_example_and_the_examples_are_commands() {
        let all = with_examples(crate::cli::Args::command());
        visit(&all, "kauri", &mut |command, path| {
            let help = command.get_after_help().map(ToString::to_string).unwrap_or_default();
            let lines = help.lines().skip_while(|line| !line.starts_with("Example")).skip(1);
            let examples: Vec<&str> = lines.map_while(|line| line.strip_prefix("  ")).collect();
            assert!(!examples.is_empty(), "{path} has no example; add one to examples.rs");
            for example in examples {
                // What follows is another program's, or a remark: a word before it stands two spaces away.
                let call = example.split([';', '|', '<', '>', '#']).next().unwrap_or_default();
                let call = call.split("   ").next().unwrap_or_default();
                let words = words(call);
                assert!(example.starts_with(path) || example.starts_with("kauri "), "{path}: {example}");
                if let Err(error) = crate::cli::Args::try_parse_from(&words) {
                    panic!("{path}: {example}: {error}");
                }
            }
        });
    }

    #[test]
    fn nothing_is_hidden_so_completions_offer_only_what_the_help_tells() {
        let all = with_examples(crate::cli::Args::command());
        visit(&all, "kauri", &mut |command, path| {
            assert!(!command.is_hide_set(), "{path}");
            assert!(command.get_arguments().all(|argument| !argument.is_hide_set()), "{path}");
        });
    }

    /// The words of a call as a shell reads them, as far as examples need it.
    fn words(call: &str) -> Vec<String> {
        let parts = call.split('\'').enumerate();
        let quoted = parts.flat_map(|(at, part)| match at % 2 {
            0 => part.split_whitespace().map(str::to_owned).collect::<Vec<_>>(),
            _ => vec![part.to_owned()],
        });
        quoted.collect()
    }
}
