//! The close of the day: a run that asks for a run per customer, each of which posts an invoice.
//!
//! Posting is an effect on the outside world, so it is an action of the ledger. The post office takes a letter with the same key
//! once, as those outside do who can be trusted with retries: so an action that a crash cut off can be tried again.

use std::io::{Read as _, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use kauri::ledger::{self, Artifact, Begin, Decision, Ledger, Status};
use kauri::runtime::run::{
    Class, Ending, Enqueued, FanOut, Halt, LiveRun, Outcome, Retry, Runs, Submission, Submitted, Takeover,
};
use kauri::runtime::{self, Failure, Read as _, Write as _};
use kauri::wire::RunId;
use kauri::wire::pack::{Map, MapBuf, Value};

use super::crash::Points;
use super::order::{ACCOUNTING, ACCOUNTS, BOOKS, INVOICES, add};

const CLOSING: &str = "closing";
const INVOICE: &str = "invoice";
/// Whose first invoice fails.
const UNLUCKY: &str = "customer-03";
/// No action is tried so often: each kill costs one at most.
const TRIES_MAX: u32 = 1_000;

/// Says what drives the close of the day, and what becomes of what fails there.
pub(super) fn define(runs: &Runs) -> runtime::Result<()> {
    let retry = Retry { attempts_max: 1_000, pause: Duration::from_millis(120), ..Retry::default() };
    let fan_out = FanOut { depth_max: 1, parallel: 4, ..FanOut::default() };
    let class = Class { retry, takeover: Takeover::Resume, fan_out, ..Class::new(ACCOUNTING) };
    runs.define(CLOSING, &class)?;
    runs.define(INVOICE, &class)
}

/// Closes the day, once, however often it is asked for.
pub(super) fn close_day(runs: &Runs) -> runtime::Result<Submitted> {
    runs.submit(&Submission::new(CLOSING, "").once("today").tag("demo"))
}

/// What the runs have at hand: the ledger and the post office.
pub(super) struct Desk {
    pub(super) ledger: Ledger,
    office: Mutex<PostOffice>,
    points: Arc<Points>,
}

impl Desk {
    pub(super) fn new(ledger: Ledger, points: Arc<Points>) -> std::io::Result<Self> {
        let office = Mutex::new(PostOffice::open(&letters_path(ledger.home().directory()))?);
        Ok(Self { ledger, office, points })
    }

    /// Goes on with a run.
    pub(super) fn drive(&self, run: &mut LiveRun) -> Result<Ending, Halt> {
        match &*run.run().class {
            CLOSING => close(run),
            _ => self.invoice(run),
        }
    }

    fn invoice(&self, run: &mut LiveRun) -> Result<Ending, Halt> {
        let params = Map::decode(run.input()).map_err(|error| Halt::Failed(error.to_string().into()))?;
        let Some(Value::Str(customer)) = params.get("customer") else {
            return Err(Halt::Failed("expected a customer".into()));
        };
        let customer = customer.to_owned();
        if customer == UNLUCKY && run.run().attempt() == 1 {
            let why = "the printer is out of paper";
            return Ok(Ending::failure(run.now().wall, Outcome::ScriptError, why));
        }
        let cents = run.step("add up", |step| {
            let cents = step.get(&ACCOUNTS, &customer)?;
            cents.map(|cents| cents.as_bytes().to_vec()).ok_or_else(|| Failure::fatal("no such account"))
        })?;
        let cents = String::from_utf8_lossy(&cents).into_owned();
        let letter = format!("To {customer}\n\nFor your apples we ask for {cents} cents.\n");
        let kept = self.post(&customer, &letter)?;
        run.step("file", |step| {
            let row = format!("{cents} cents, {kept}");
            match step.insert(&INVOICES, &customer, &row)? {
                true => Ok(Vec::new()),
                false => Err(Failure::fatal("there is an invoice already")),
            }
        })?;
        let mut summary = MapBuf::new();
        summary.put("customer", &*customer).put("kept", &*kept);
        Ok(Ending::success(run.now().wall, summary.view()))
    }

    /// Posts a letter as an action. What a crash cut off is tried again, as another action; what is done is not done again.
    fn post(&self, customer: &str, letter: &str) -> Result<String, Halt> {
        let failed = |error: ledger::Error| Halt::Failed(error.to_string().into());
        let id = |number| match number {
            1 => format!("post-{customer}"),
            _ => format!("post-{customer}-{number}"),
        };
        for number in 1..=TRIES_MAX {
            let found = self.ledger.action(&id(number)).map_err(failed)?;
            match found.map(|row| (row.status, row.result_ref)) {
                None => {
                    let task = format!("post the invoice of {customer}");
                    let begin = Begin::new(id(number), customer, task);
                    let begin = if number > 1 { begin.retry_of(id(number - 1)) } else { begin };
                    return self.act(begin, customer, letter);
                }
                Some((Status::Completed, Some(kept))) => return Ok(kept),
                Some((Status::Started | Status::NeedsHuman, _)) => {
                    self.ledger.resolve(&id(number), &Decision::Retry).map_err(failed)?;
                }
                Some(_) => {}
            }
        }
        Err(Halt::Failed("it was tried too often".into()))
    }

    fn act(&self, begin: Begin, customer: &str, letter: &str) -> Result<String, Halt> {
        let failed = |error: ledger::Error| Halt::Failed(error.to_string().into());
        self.points.pass();
        let mut action = self.ledger.begin_with(begin).map_err(failed)?;
        self.points.pass();
        action.record_started().map_err(failed)?;
        self.points.pass();
        let posted = self.office.lock().unwrap_or_else(PoisonError::into_inner).take(customer, letter);
        posted.map_err(|error| Halt::Failed(format!("the post office: {error}").into()))?;
        self.points.pass();
        let kept = action.complete_with(Artifact::bytes(letter.as_bytes())).map_err(failed)?;
        self.points.pass();
        Ok(kept)
    }
}

fn close(run: &mut LiveRun) -> Result<Ending, Halt> {
    let children = run.step("ask for invoices", |step| {
        let customers: Vec<String> =
            step.scan(&ACCOUNTS)?.map(|customer, _| customer.to_owned()).collect::<Result<_, _>>()?;
        let mut children = Vec::new();
        for customer in customers {
            let mut params = MapBuf::new();
            params.put("customer", &*customer);
            match step.enqueue(INVOICE, params.view())? {
                Enqueued::Made(child) | Enqueued::Same(child) => children.extend_from_slice(child.as_bytes()),
                Enqueued::Skipped(skip) => return Err(Failure::fatal(skip.as_str())),
            }
        }
        Ok(children)
    })?;
    let (ids, _) = children.as_chunks::<16>();
    for id in ids {
        let child = RunId::from_bytes(*id).map_err(|error| Halt::Failed(error.to_string().into()))?;
        let outcome = run.wait_for(child)?;
        if !outcome.is_success() {
            return Err(Halt::Failed(format!("an invoice ended with {}", outcome.as_str()).into()));
        }
    }
    run.step("close the books", |step| {
        let rows: Vec<String> = step.scan(&INVOICES)?.map(|_, row| row.into_owned()).collect::<Result<_, _>>()?;
        let cents = rows.iter().filter_map(|row| first_number(row)).sum();
        add(step, &BOOKS, "invoiced_cents", cents)?;
        Ok(Vec::new())
    })?;
    Ok(Ending::success(run.now().wall, Map::EMPTY))
}

/// The first number in a text.
pub(super) fn first_number(text: &str) -> Option<u64> {
    text.split(|char: char| !char.is_ascii_digit()).find(|word| !word.is_empty())?.parse().ok()
}

/// Where the letters are: outside, as far as the home is concerned.
pub(super) fn letters_path(home: &Path) -> PathBuf {
    home.join("outside").join("letters.txt")
}

/// Somebody else's service, which takes a letter with the same key once: a file with a line for each.
struct PostOffice {
    file: std::fs::File,
    keys: Vec<String>,
}

impl PostOffice {
    fn open(path: &Path) -> std::io::Result<Self> {
        use std::os::unix::fs::DirBuilderExt as _;

        let folder = path.parent().unwrap_or(path);
        std::fs::DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
        let mut options = std::fs::OpenOptions::new();
        let mut file = options.read(true).append(true).create(true).mode(0o600).open(path)?;
        let mut text = String::new();
        file.read_to_string(&mut text)?;
        // A letter that was half handed in was not taken.
        let whole = text.rfind('\n').map_or(0, |end| end + 1);
        file.set_len(whole as u64)?;
        let keys = text[..whole].lines().filter_map(|line| line.split('\t').next()).map(str::to_owned).collect();
        Ok(Self { file, keys })
    }

    fn take(&mut self, key: &str, letter: &str) -> std::io::Result<()> {
        if self.keys.iter().any(|known| known == key) {
            return Ok(());
        }
        self.file.write_all(format!("{key}\t{}\n", letter.escape_default()).as_bytes())?;
        self.file.sync_data()?;
        self.keys.push(key.to_owned());
        Ok(())
    }
}
