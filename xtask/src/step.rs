//! Steps in order: which of them run, what is shown meanwhile, and the summary at the end.

use std::time::{Duration, Instant};

use crate::failure::{Failure, Result};
use crate::invocation::Invocation;
use crate::table::Table;
use crate::tool::Tool;

/// One named part of a longer check.
pub(crate) struct Step {
    pub(crate) name: &'static str,
    pub(crate) tool: Option<Tool>,
    pub(crate) work: Work,
}

pub(crate) enum Work {
    /// Calls in order; the first that fails ends the step.
    Calls(Vec<Invocation>),
    /// There is nothing to do in this repository, and why.
    Absent(&'static str),
}

/// The steps a person asked for; all of them if neither list names any.
pub(crate) struct Selection {
    pub(crate) only: Vec<String>,
    pub(crate) skip: Vec<String>,
}

impl Selection {
    pub(crate) fn apply(&self, steps: Vec<Step>) -> Result<Vec<Step>> {
        let known: Vec<&str> = steps.iter().map(|step| step.name).collect();
        if let Some(unknown) = self.only.iter().chain(&self.skip).find(|name| !known.contains(&name.as_str())) {
            return Err(Failure::Usage(format!("no step is called `{unknown}`; the steps are {}", known.join(", "))));
        }
        let wanted = |name: &String| self.only.is_empty() || self.only.contains(name);
        let chosen = steps.into_iter().filter(|step| {
            let name = step.name.to_owned();
            wanted(&name) && !self.skip.contains(&name)
        });
        let chosen: Vec<Step> = chosen.collect();
        if chosen.is_empty() {
            return Err(Failure::Usage("every step is skipped; leave one in".to_owned()));
        }
        Ok(chosen)
    }
}

/// How one step ended.
enum Outcome {
    Passed,
    Absent(&'static str),
    Failed,
    NotRun,
}

impl Outcome {
    fn describe(&self) -> String {
        match self {
            Outcome::Passed => "ok".to_owned(),
            Outcome::Absent(why) => format!("absent: {why}"),
            Outcome::Failed => "FAILED".to_owned(),
            Outcome::NotRun => "not run".to_owned(),
        }
    }
}

/// What did not work in a step: what went wrong, and the call that shows it again, if one was made.
struct Trouble {
    failure: Failure,
    again: Option<Invocation>,
}

/// Runs the steps in order and stops at the first that fails.
pub(crate) fn run_all(steps: &[Step]) -> Result<()> {
    let mut summary = Table::new(["step", "result", "seconds"]);
    let mut trouble = None;
    for (index, step) in steps.iter().enumerate() {
        let began = Instant::now();
        let outcome = if trouble.is_some() {
            Outcome::NotRun
        } else {
            println!("[{}/{}] {} ...", index + 1, steps.len(), step.name);
            let outcome = run_one(step, &mut trouble);
            println!(
                "[{}/{}] {}: {} in {}",
                index + 1,
                steps.len(),
                step.name,
                outcome.describe(),
                seconds(began.elapsed())
            );
            outcome
        };
        let elapsed = if matches!(outcome, Outcome::NotRun) { String::new() } else { seconds(began.elapsed()) };
        summary.push([step.name.to_owned(), outcome.describe(), elapsed]);
    }
    println!("\n{summary}");
    trouble.map_or(Ok(()), |(step, trouble)| Err(report(step, &trouble)))
}

fn run_one<'a>(step: &'a Step, trouble: &mut Option<(&'a Step, Trouble)>) -> Outcome {
    let calls = match &step.work {
        Work::Absent(why) => return Outcome::Absent(why),
        Work::Calls(calls) => calls,
    };
    match attempt(step.tool, calls) {
        Ok(()) => Outcome::Passed,
        Err(found) => {
            *trouble = Some((step, found));
            Outcome::Failed
        }
    }
}

fn attempt(tool: Option<Tool>, calls: &[Invocation]) -> std::result::Result<(), Trouble> {
    tool.map_or(Ok(()), Tool::ensure).map_err(|failure| Trouble { failure, again: None })?;
    for call in calls {
        println!("      {call}");
        call.run().map_err(|failure| Trouble { failure, again: Some(call.clone()) })?;
    }
    Ok(())
}

fn report(step: &Step, Trouble { failure, again }: &Trouble) -> Failure {
    let name = step.name;
    let whole = format!("the whole step again:\n\n    cargo xtask test --only {name}\n");
    Failure::Failed(match again {
        None => format!("step {name}: {failure}\n\n{whole}"),
        Some(call) => {
            format!("step {name} failed; to see it again, from the repository's root:\n\n    {call}\n\n{whole}")
        }
    })
}

fn seconds(elapsed: Duration) -> String {
    format!("{:.1}", elapsed.as_secs_f64())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::invocation::cargo;

    fn step(name: &'static str, calls: &[&[&str]]) -> Step {
        Step { name, tool: None, work: Work::Calls(calls.iter().map(|call| cargo(call)).collect()) }
    }

    fn check_selection(only: &[&str], skip: &[&str], expected: std::result::Result<&[&str], &str>) {
        let owned = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
        let steps = ["fmt", "doc", "fuzz"].map(|name| step(name, &[])).into();
        let chosen = Selection { only: owned(only), skip: owned(skip) }.apply(steps);
        match (chosen, expected) {
            (Ok(steps), Ok(names)) => assert_eq!(steps.iter().map(|step| step.name).collect::<Vec<_>>(), names),
            (Err(failure), Err(words)) => {
                assert_eq!((failure.exit_code(), failure.to_string().as_str()), (2, words));
            }
            (chosen, _) => panic!("chosen is {:?}", chosen.map(|steps| steps.len())),
        }
    }

    #[test]
    fn selection_keeps_the_order_of_the_steps() {
        check_selection(&[], &[], Ok(&["fmt", "doc", "fuzz"]));
        check_selection(&["fuzz", "fmt"], &[], Ok(&["fmt", "fuzz"]));
        check_selection(&[], &["doc"], Ok(&["fmt", "fuzz"]));
    }

    #[test]
    fn unknown_or_empty_selection_is_wrong_use() {
        check_selection(&[], &["dock"], Err("no step is called `dock`; the steps are fmt, doc, fuzz"));
        check_selection(&["doc"], &["doc"], Err("every step is skipped; leave one in"));
    }

    #[test]
    fn first_failure_stops_and_names_the_command_to_repeat() {
        let steps = [step("good", &[&["--version"]]), step("bad", &[&["no-such"]]), step("late", &[&["neither"]])];
        let failure = run_all(&steps).unwrap_err();
        assert_eq!(failure.exit_code(), 1);
        let text = failure.to_string();
        assert!(
            text.contains("    cargo no-such\n") && text.contains("--only bad") && !text.contains("neither"),
            "{text}"
        );
    }

    #[test]
    fn absent_step_is_no_failure() {
        assert!(run_all(&[Step { name: "fuzz", tool: None, work: Work::Absent("no such folder") }]).is_ok());
    }
}
