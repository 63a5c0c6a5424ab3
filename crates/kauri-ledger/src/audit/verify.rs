//! Whether the audit is whole: nothing edited, nothing taken out, nothing cut off.

use std::collections::BTreeMap;

use kauri_disk::{Disk, Open};

use super::{ANCHORS_NAME, Anchor, BEGINNING, DAY_SUFFIX, DayLine, anchor_of, days, head_of};
use crate::error::{Error, Result};
use crate::journal::{Torn, scan};
use crate::seal::{check, check_hash};

/// What verification found.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct AuditReport {
    /// How many lines were looked at.
    pub lines: u64,
    /// How many anchors stood on one of them.
    pub anchors: u64,
    /// The tail of the newest day that a crash left; it was never acknowledged.
    pub torn: Option<Torn>,
    /// What is wrong with the chain itself.
    pub broken: Vec<String>,
    /// Where an anchor and the chain disagree.
    pub unanchored: Vec<String>,
}

impl AuditReport {
    /// Whether nothing is wrong.
    #[must_use]
    pub fn is_whole(&self) -> bool {
        self.broken.is_empty() && self.unanchored.is_empty()
    }
}

/// Looks at every line that is there, and at every anchor: those of the audit itself, and `known`, which somebody keeps elsewhere.
/// Changes nothing. Without a key this cannot tell that somebody wrote the whole chain anew *and* every anchor with it.
///
/// # Errors
/// Whatever the disk reports.
pub fn verify(disk: &dyn Disk, known: &[Anchor]) -> Result<AuditReport> {
    let mut report = AuditReport::default();
    let mut anchors: Vec<Anchor> = known.to_vec();
    match disk.open(ANCHORS_NAME, Open::ReadOnly) {
        Ok(file) => {
            let found = scan(&*file, ANCHORS_NAME, 1, check, |_, bytes| {
                anchors.push(anchor_of(bytes)?);
                Ok(())
            });
            report.unanchored.extend(found.err().map(|error| error.to_string()));
        }
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
        Err(error) => return Err(Error::io(format!("open {ANCHORS_NAME}"))(error)),
    }
    let mut by_seq: BTreeMap<u64, Vec<Anchor>> = BTreeMap::new();
    for anchor in anchors.into_iter().filter(|anchor| anchor.last_seq > 0) {
        by_seq.entry(anchor.last_seq).or_default().push(anchor);
    }
    let walk = Walk { report, anchors: by_seq, last: None };
    walk.days(disk)
}

struct Walk {
    report: AuditReport,
    anchors: BTreeMap<u64, Vec<Anchor>>,
    /// The last line and its hash.
    last: Option<(u64, String)>,
}

impl Walk {
    fn days(mut self, disk: &dyn Disk) -> Result<AuditReport> {
        let days = days(disk)?;
        for (at, date) in days.iter().enumerate() {
            let name = format!("{date}{DAY_SUFFIX}");
            let file = disk.open(&name, Open::ReadOnly).map_err(Error::io(format!("open {name}")))?;
            let first = match &self.last {
                Some((last, _)) => last + 1,
                None => Self::first_line(&*file)?,
            };
            let mut of_day = 0;
            let found = scan(&*file, &name, first, head_of, |_, bytes| {
                of_day += 1;
                self.line(&name, of_day, bytes);
                Ok(())
            });
            match found {
                Ok(found) if at + 1 == days.len() => self.report.torn = found.torn,
                Ok(found) => {
                    let torn =
                        found.torn.map(|torn| format!("{name}: a torn line at byte {} of a day that is over", torn.at));
                    self.report.broken.extend(torn);
                }
                Err(error @ Error::Damaged { .. }) => {
                    self.report.broken.push(error.to_string());
                    // What follows a broken file cannot be judged by what comes before.
                    self.last = None;
                }
                Err(error) => return Err(error),
            }
        }
        Ok(self.end())
    }

    /// The number of the first line there is: 1, unless older days were moved away.
    fn first_line(file: &dyn kauri_disk::File) -> Result<u64> {
        let mut first = 1;
        let looked = crate::lines::each_line(file, |_, line| {
            if let crate::lines::Line::Whole(line) = line
                && let Ok(head) = head_of(line)
            {
                first = head.seq;
            }
            std::ops::ControlFlow::Break(())
        });
        let _ended = looked.map_err(Error::io("read the audit"))?;
        Ok(first)
    }

    fn line(&mut self, name: &str, of_day: u64, bytes: &[u8]) {
        let (Ok((head, hash)), Ok(line)) = (check_hash(bytes), serde_json::from_slice::<DayLine>(bytes)) else {
            return self.report.broken.push(format!("{name}: a line that is no note"));
        };
        self.report.lines += 1;
        let seq = head.seq;
        match &self.last {
            Some((_, expected)) if line.prev_hash != *expected => {
                self.report.broken.push(format!("{name}: line {seq} does not follow line {}", seq - 1));
            }
            None => self.check_beginning(name, seq, &line.prev_hash),
            Some(_) => {}
        }
        let hash = hex::encode(hash);
        for anchor in self.anchors.get(&seq).into_iter().flatten() {
            self.report.anchors += 1;
            let is_right = anchor.chain_hash == hash && anchor.record_count == of_day && name.starts_with(&anchor.date);
            if !is_right {
                let text =
                    format!("{name}: line {seq} is not the one anchored on {} at {}", anchor.date, anchor.created_at);
                self.report.unanchored.push(text);
            }
        }
        self.last = Some((seq, hash));
    }

    /// The first line there is follows nothing, or a line that was anchored before it was moved away.
    fn check_beginning(&mut self, name: &str, seq: u64, prev_hash: &str) {
        let follows = match seq {
            1 => prev_hash == hex::encode(BEGINNING),
            _ => {
                self.anchors.get(&(seq - 1)).is_some_and(|all| all.iter().any(|anchor| anchor.chain_hash == prev_hash))
            }
        };
        if !follows {
            self.report.broken.push(format!("{name}: line {seq} follows a line that is neither here nor anchored"));
        }
    }

    fn end(mut self) -> AuditReport {
        let last = self.last.as_ref().map_or(0, |(last, _)| *last);
        for (seq, anchors) in self.anchors.range(last + 1..) {
            let date = anchors.first().map_or("", |anchor| anchor.date.as_str());
            self.report
                .unanchored
                .push(format!("line {seq} of {date} was anchored, and the audit ends with line {last}"));
        }
        self.report
    }
}
