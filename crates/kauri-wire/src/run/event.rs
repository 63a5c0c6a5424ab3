//! What a run says: eight event types and their payloads.

use crate::error::WireError;
use crate::pack::{Map, MapBuf};
use crate::run::fields::pick;

/// Enums whose cases are words on the wire.
macro_rules! words {
    ($(#[$outer:meta])* $name:ident { $($(#[$inner:meta])* $case:ident = $word:literal,)* }) => {
        $(#[$outer])*
        #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
        pub enum $name {
            $($(#[$inner])* $case,)*
        }

        impl $name {
            /// All of them, in the contract's order.
            ///
            /// ```
            /// use kauri_wire::run::Level;
            ///
            /// assert_eq!(Level::ALL, [Level::Debug, Level::Info, Level::Warn, Level::Error]);
            /// ```
            pub const ALL: &'static [Self] = &[$(Self::$case,)*];

            /// The word on the wire.
            ///
            /// ```
            /// use kauri_wire::run::EventType;
            ///
            /// assert_eq!(EventType::RotateProxy.as_str(), "rotate_proxy");
            /// ```
            #[must_use]
            pub const fn as_str(self) -> &'static str {
                match self {
                    $(Self::$case => $word,)*
                }
            }

            /// The one with this word.
            ///
            /// ```
            /// use kauri_wire::run::StepStatus;
            ///
            /// assert_eq!(StepStatus::from_word("parked"), Some(StepStatus::Parked));
            /// assert_eq!(StepStatus::from_word("Parked"), None);
            /// ```
            #[must_use]
            pub fn from_word(word: &str) -> Option<Self> {
                match word {
                    $($word => Some(Self::$case),)*
                    _ => None,
                }
            }
        }

        impl core::fmt::Display for $name {
            fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
                f.write_str(self.as_str())
            }
        }
    };
}

pub(crate) use words;

words! {
    /// What kind of event it is.
    ///
    /// ```
    /// use kauri_wire::run::EventType;
    ///
    /// assert_eq!(EventType::from_word("item"), Some(EventType::Item));
    /// assert_eq!(EventType::ALL.len(), 8);
    /// ```
    EventType {
        /// A result.
        Item = "item",
        /// The commit record of an artifact whose chunks came before.
        Artifact = "artifact",
        /// A point worth remembering.
        Checkpoint = "checkpoint",
        /// A wish for derived work.
        Enqueue = "enqueue",
        /// A wish for another proxy.
        RotateProxy = "rotate_proxy",
        /// A line for people.
        Log = "log",
        /// The end, badly.
        RunError = "run_error",
        /// The end, well.
        RunComplete = "run_complete",
    }
}

impl EventType {
    /// Whether the run ends with it.
    ///
    /// ```
    /// use kauri_wire::run::EventType;
    ///
    /// let last: Vec<_> = EventType::ALL.iter().filter(|event_type| event_type.is_terminal()).collect();
    /// assert_eq!(last, [&EventType::RunError, &EventType::RunComplete]);
    /// ```
    #[must_use]
    pub const fn is_terminal(self) -> bool {
        matches!(self, Self::RunError | Self::RunComplete)
    }

    /// Whether a policy that must drop something may drop it.
    ///
    /// ```
    /// use kauri_wire::run::EventType;
    ///
    /// assert!(EventType::Log.is_droppable());
    /// assert!(!EventType::Item.is_droppable(), "results are never dropped");
    /// ```
    #[must_use]
    pub const fn is_droppable(self) -> bool {
        matches!(self, Self::Enqueue | Self::RotateProxy | Self::Log)
    }
}

words! {
    /// How much a log line matters.
    ///
    /// ```
    /// use kauri_wire::run::Level;
    ///
    /// assert_eq!(Level::Warn.to_string(), "warn");
    /// assert_eq!(Level::from_word("fatal"), None); // there are four
    /// ```
    Level {
        /// For whoever looks for a fault.
        Debug = "debug",
        /// What happens.
        Info = "info",
        /// What should not.
        Warn = "warn",
        /// What failed.
        Error = "error",
    }
}

/// An event's payload, typed.
///
/// ```
/// use kauri_wire::run::{Event, Level};
///
/// let event = Event::Log { level: Level::Warn, message: "three retries", fields: None };
/// let Event::Log { level, message, .. } = event else { unreachable!() };
/// assert_eq!(format!("{level}: {message}"), "warn: three retries");
/// ```
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Event<'a> {
    /// A result.
    Item {
        /// What it is a result of.
        item_type: &'a str,
        /// The result.
        data: Map<'a>,
    },
    /// The commit record of an artifact.
    Artifact {
        /// The id that its chunks carry.
        artifact_id: &'a str,
        /// What to call it.
        name: &'a str,
        /// Its media type.
        content_type: &'a str,
        /// The sum of its chunks.
        size_bytes: u64,
    },
    /// A point worth remembering.
    Checkpoint {
        /// Its name.
        checkpoint_id: &'a str,
        /// A word on it.
        note: Option<&'a str>,
    },
    /// A wish for derived work.
    Enqueue {
        /// What to run.
        target: &'a str,
        /// With what.
        params: Map<'a>,
        /// Where the results belong, if elsewhere than this run's.
        source: Option<&'a str>,
        /// Their category, if another than this run's.
        category: Option<&'a str>,
    },
    /// A wish for another proxy.
    RotateProxy {
        /// Why.
        reason: Option<&'a str>,
    },
    /// A line for people.
    Log {
        /// How much it matters.
        level: Level,
        /// The line.
        message: &'a str,
        /// What belongs to it.
        fields: Option<Map<'a>>,
    },
    /// The end, badly.
    RunError {
        /// The class of the error.
        error_type: &'a str,
        /// What it says.
        message: &'a str,
        /// Where it came from.
        stack: Option<&'a str>,
    },
    /// The end, well.
    RunComplete {
        /// What was done.
        summary: Option<Map<'a>>,
    },
}

impl<'a> Event<'a> {
    /// What kind of event it is.
    ///
    /// ```
    /// use kauri_wire::run::{Event, EventType};
    ///
    /// assert_eq!(Event::RunComplete { summary: None }.event_type(), EventType::RunComplete);
    /// ```
    #[must_use]
    pub const fn event_type(&self) -> EventType {
        match self {
            Self::Item { .. } => EventType::Item,
            Self::Artifact { .. } => EventType::Artifact,
            Self::Checkpoint { .. } => EventType::Checkpoint,
            Self::Enqueue { .. } => EventType::Enqueue,
            Self::RotateProxy { .. } => EventType::RotateProxy,
            Self::Log { .. } => EventType::Log,
            Self::RunError { .. } => EventType::RunError,
            Self::RunComplete { .. } => EventType::RunComplete,
        }
    }

    /// Reads a payload of this type. Keys that the type does not have are skipped.
    ///
    /// ```
    /// use kauri_wire::pack::MapBuf;
    /// use kauri_wire::run::{Event, EventType, Level};
    ///
    /// let mut payload = MapBuf::new();
    /// payload.put("level", "warn").put("message", "three retries").put("colour", "red"); // which is skipped
    /// let event = Event::decode(EventType::Log, payload.view())?;
    /// assert_eq!(event, Event::Log { level: Level::Warn, message: "three retries", fields: None });
    /// assert!(Event::decode(EventType::Item, payload.view()).is_err());
    /// # Ok::<(), kauri_wire::WireError>(())
    /// ```
    ///
    /// # Errors
    /// `Format` if a key is missing, twice there, or of the wrong type.
    pub fn decode(event_type: EventType, payload: Map<'a>) -> Result<Self, WireError> {
        match event_type {
            EventType::Item => decode_item(payload),
            EventType::Artifact => decode_artifact(payload),
            EventType::Checkpoint => decode_checkpoint(payload),
            EventType::Enqueue => decode_enqueue(payload),
            EventType::RotateProxy => decode_rotate_proxy(payload),
            EventType::Log => decode_log(payload),
            EventType::RunError => decode_run_error(payload),
            EventType::RunComplete => decode_run_complete(payload),
        }
    }

    /// The payload as a map.
    ///
    /// ```
    /// use kauri_wire::run::{Event, EventType};
    ///
    /// let event = Event::RunError { error_type: "timeout", message: "nobody answered", stack: None };
    /// let payload = event.payload();
    /// assert_eq!(payload.view().len(), 2); // what is not there is not written
    /// assert_eq!(Event::decode(EventType::RunError, payload.view()), Ok(event));
    /// ```
    ///
    /// # Panics
    /// If a map in it has as many levels as are allowed, [`DEPTH_MAX`](crate::pack::DEPTH_MAX), so that it cannot be nested
    /// once more. A decoded event has fewer.
    #[must_use]
    pub fn payload(&self) -> MapBuf {
        let mut map = MapBuf::new();
        match *self {
            Self::Item { item_type, data } => map.put("item_type", item_type).put("data", data),
            Self::Artifact { artifact_id, name, content_type, size_bytes } => map
                .put("artifact_id", artifact_id)
                .put("name", name)
                .put("content_type", content_type)
                .put("size_bytes", size_bytes),
            Self::Checkpoint { checkpoint_id, note } => map.put("checkpoint_id", checkpoint_id).put_some("note", note),
            Self::Enqueue { target, params, source, category } => map
                .put("target", target)
                .put("params", params)
                .put_some("source", source)
                .put_some("category", category),
            Self::RotateProxy { reason } => map.put_some("reason", reason),
            Self::Log { level, message, fields } => {
                map.put("level", level.as_str()).put("message", message).put_some("fields", fields)
            }
            Self::RunError { error_type, message, stack } => {
                map.put("error_type", error_type).put("message", message).put_some("stack", stack)
            }
            Self::RunComplete { summary } => map.put_some("summary", summary),
        };
        map
    }
}

fn decode_item(payload: Map<'_>) -> Result<Event<'_>, WireError> {
    let [item_type, data] = pick(payload, [("item_type", "item_type: a non-empty string"), ("data", "data: a map")])?;
    Ok(Event::Item { item_type: item_type.name()?, data: data.map()? })
}

fn decode_artifact(payload: Map<'_>) -> Result<Event<'_>, WireError> {
    let [artifact_id, name, content_type, size_bytes] = pick(
        payload,
        [
            ("artifact_id", "artifact_id: a non-empty string"),
            ("name", "name: a non-empty string"),
            ("content_type", "content_type: a non-empty string"),
            ("size_bytes", "size_bytes: an integer of 0 or more"),
        ],
    )?;
    Ok(Event::Artifact {
        artifact_id: artifact_id.name()?,
        name: name.name()?,
        content_type: content_type.name()?,
        size_bytes: size_bytes.at_least(0)?,
    })
}

fn decode_checkpoint(payload: Map<'_>) -> Result<Event<'_>, WireError> {
    let [checkpoint_id, note] =
        pick(payload, [("checkpoint_id", "checkpoint_id: a non-empty string"), ("note", "note: a string or nil")])?;
    Ok(Event::Checkpoint { checkpoint_id: checkpoint_id.name()?, note: note.optional_text()? })
}

fn decode_enqueue(payload: Map<'_>) -> Result<Event<'_>, WireError> {
    let [target, params, source, category] = pick(
        payload,
        [
            ("target", "target: a non-empty string"),
            ("params", "params: a map"),
            ("source", "source: a string or nil"),
            ("category", "category: a string or nil"),
        ],
    )?;
    Ok(Event::Enqueue {
        target: target.name()?,
        params: params.map()?,
        source: source.optional_text()?,
        category: category.optional_text()?,
    })
}

fn decode_rotate_proxy(payload: Map<'_>) -> Result<Event<'_>, WireError> {
    let [reason] = pick(payload, [("reason", "reason: a string or nil")])?;
    Ok(Event::RotateProxy { reason: reason.optional_text()? })
}

fn decode_log(payload: Map<'_>) -> Result<Event<'_>, WireError> {
    let [level, message, fields] = pick(
        payload,
        [
            ("level", "level: debug, info, warn or error"),
            ("message", "message: a string"),
            ("fields", "fields: a map or nil"),
        ],
    )?;
    Ok(Event::Log { level: level.word(Level::from_word)?, message: message.text()?, fields: fields.optional_map()? })
}

fn decode_run_error(payload: Map<'_>) -> Result<Event<'_>, WireError> {
    let [error_type, message, stack] = pick(
        payload,
        [
            ("error_type", "error_type: a non-empty string"),
            ("message", "message: a string"),
            ("stack", "stack: a string or nil"),
        ],
    )?;
    Ok(Event::RunError { error_type: error_type.name()?, message: message.text()?, stack: stack.optional_text()? })
}

fn decode_run_complete(payload: Map<'_>) -> Result<Event<'_>, WireError> {
    let [summary] = pick(payload, [("summary", "summary: a map or nil")])?;
    Ok(Event::RunComplete { summary: summary.optional_map()? })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_read_as_they_are_written() {
        for &event_type in EventType::ALL {
            assert_eq!(EventType::from_word(event_type.as_str()), Some(event_type));
        }
        assert_eq!(EventType::ALL.len(), 8);
        assert_eq!(Level::from_word("fatal"), None);
    }

    #[test]
    fn payloads_survive_the_trip() {
        let mut data = MapBuf::new();
        data.put("price", 99.99).put("in_stock", true);
        let (data, some) = (data.view(), Some("word"));
        let events = [
            Event::Item { item_type: "product", data },
            Event::Artifact { artifact_id: "a", name: "b.png", content_type: "image/png", size_bytes: 1 << 40 },
            Event::Checkpoint { checkpoint_id: "half", note: some },
            Event::Enqueue { target: "detail", params: data, source: some, category: None },
            Event::RotateProxy { reason: None },
            Event::Log { level: Level::Warn, message: "", fields: Some(data) },
            Event::RunError { error_type: "script_error", message: "no page", stack: some },
            Event::RunComplete { summary: Some(data) },
        ];
        for event in events {
            assert_eq!(Event::decode(event.event_type(), event.payload().view()), Ok(event));
        }
    }

    #[test]
    fn a_missing_key_is_named() {
        for &event_type in EventType::ALL {
            let decoded = Event::decode(event_type, Map::EMPTY);
            match event_type {
                EventType::RotateProxy | EventType::RunComplete => assert!(decoded.is_ok()),
                _ => assert!(decoded.unwrap_err().expected.contains(": "), "{event_type}"),
            }
        }
    }
}
